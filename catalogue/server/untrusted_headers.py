"""Headers for what strangers wrote: told of, and without effect here.

A page of an archive is shown by the same host as every other, and must not be able to act on it: no script of it runs,
nothing is loaded, none of its headers reaches a browser under its own name.
"""

import re
from collections.abc import Iterator
from datetime import UTC
from email.utils import format_datetime
from urllib.parse import quote

from catalogue.records.record import Record

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9][A-Za-z0-9._:+-]{0,39})[\"']?", re.IGNORECASE)
_OF_SEVERAL = ("multipart/", "message/")
"""Types of which some browsers take the parts for answers, whose headers set cookies."""
_MOST_HEADERS, _MOST_VALUE, _MOST_BYTES = 50, 1000, 6000
"""Of archived headers; some clients take 100 in all, and some proxies 8 kB."""

SANDBOX = {
    "Content-Security-Policy": (
        "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; media-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-DNS-Prefetch-Control": "off",
}
"""Of every answer that holds what was archived.

Without ``allow-scripts`` and ``allow-same-origin`` a page runs nothing and is of no origin; a refresh that it asks for
is not done either (https://html.spec.whatwg.org/multipage/browsers.html#sandboxing). Programs may read it from any
page; what a tag of another site's page embeds, browsers refuse.
"""

SHOWN_AS = frozenset({"document", "iframe", "frame", "image", "audio", "video", "empty"})
"""What browsers may want it for (``Sec-Fetch-Dest``): for nothing that would run, or style, a page of ours."""


def archived_headers(record: Record) -> Iterator[tuple[str, str]]:
    """Those of an archived answer, as ``X-Archive-Orig-*``; how many are left out is told last."""
    if record.status_line:
        yield "X-Archive-Orig-Status", told(record.status_line[:_MOST_VALUE])
    room, count, omitted = _MOST_BYTES, 0, 0
    for name, value in record.http_headers:
        shown = told(value[:_MOST_VALUE])[:_MOST_VALUE]
        size = len(name) + len(shown)
        if count == _MOST_HEADERS or size > room or not _TOKEN.fullmatch(name) or name.lower() == "status":
            omitted += 1
            continue
        room, count = room - size, count + 1
        yield f"X-Archive-Orig-{name}", shown
    if omitted:
        yield "X-Archive-Omitted-Headers", str(omitted)


def content_headers(record: Record) -> Iterator[tuple[str, str]]:
    """The type of a payload, as the archived answer has it if it is one; what is of no type is to be saved."""
    given = record.http_header("content-type") or ""
    kind = given.partition(";")[0].strip().lower()
    if not _TYPE.fullmatch(kind) or kind.startswith(_OF_SEVERAL):
        yield "Content-Type", "application/octet-stream"
        yield "Content-Disposition", "attachment"
        return
    charset = _CHARSET.search(given.partition(";")[2])
    yield "Content-Type", f"{kind}; charset={charset[1]}" if charset else kind


def memento_headers(record: Record) -> Iterator[tuple[str, str]]:
    """Of what and when it is (RFC 7089), what the record is, and where it lies."""
    if record.time:
        yield "Memento-Datetime", format_datetime(record.time.astimezone(UTC), usegmt=True)
    yield "Link", f'<{link(record.url)}>; rel="original"'
    yield "X-Archive-Record-Type", record.kind
    yield "X-Archive-Filename", record.capture.filename
    yield "X-Archive-Offset", str(record.capture.offset)
    yield "X-Archive-Length", str(record.capture.length)


def link(url: str) -> str:
    """A URL that cannot end what it stands in."""
    return quote(url[:8000], safe="".join(c for c in _PRINTABLE if c not in ' "<>\\^`{|}'), errors="replace")


def told(text: str) -> str:
    """A text in ASCII that can be printed; all else is escaped as in URLs."""
    return quote(text, safe=_PRINTABLE, errors="replace").strip()
