"""Headers of archived pages, which are not trusted.

Archived pages have the origin of this server and must not affect it: scripts do not run, nothing is loaded, and
archived headers get other names.
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
_MULTIPART = ("multipart/", "message/")
"""Some browsers obey headers in parts of these types, such as Set-Cookie."""
_MAX_HEADERS, _MAX_VALUE, _MAX_BYTES = 50, 1000, 6000
"""Of archived headers; some clients accept 100 headers, and some proxies 8 kB."""

SANDBOX = {
    "Access-Control-Allow-Origin": "*",  # without Origin too, since answers are cached
    "Content-Security-Policy": (
        "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; media-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-DNS-Prefetch-Control": "off",
}
"""Headers of all answers with archived content.

Without ``allow-scripts`` and ``allow-same-origin`` a page has no origin, and runs no script and no refresh
(https://html.spec.whatwg.org/multipage/browsers.html#sandboxing). Other sites cannot embed it.
"""

DESTINATIONS = frozenset({"document", "iframe", "frame", "image", "audio", "video", "empty"})
"""Allowed values of ``Sec-Fetch-Dest``: not scripts, workers or styles of pages of this server."""


def archived_headers(record: Record) -> Iterator[tuple[str, str]]:
    """Yield headers of the archived answer as ``X-Archive-Orig-*``, and the number of omitted ones."""
    if record.status_line:
        yield "X-Archive-Orig-Status", _ascii(record.status_line[:_MAX_VALUE])
    room, count, omitted = _MAX_BYTES, 0, 0
    for name, value in record.http_headers:
        shown = _ascii(value[:_MAX_VALUE])[:_MAX_VALUE]
        size = len(name) + len(shown)
        if count == _MAX_HEADERS or size > room or not _TOKEN.fullmatch(name) or name.lower() == "status":
            omitted += 1
            continue
        room, count = room - size, count + 1
        yield f"X-Archive-Orig-{name}", shown
    if omitted:
        yield "X-Archive-Omitted-Headers", str(omitted)


def content_headers(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the archived content type if it is valid; otherwise make the browser save the payload."""
    given = record.http_header("content-type") or ""
    kind = given.partition(";")[0].strip().lower()
    if not _TYPE.fullmatch(kind) or kind.startswith(_MULTIPART):
        yield "Content-Type", "application/octet-stream"
        yield "Content-Disposition", "attachment"
        return
    charset = _CHARSET.search(given.partition(";")[2])
    yield "Content-Type", f"{kind}; charset={charset[1]}" if charset else kind


def memento_headers(record: Record) -> Iterator[tuple[str, str]]:
    """Yield original URL and time (RFC 7089), and type and place of the record."""
    if record.time:
        yield "Memento-Datetime", format_datetime(record.time.astimezone(UTC), usegmt=True)
    yield "Link", f'<{link(record.url)}>; rel="original"'
    yield "X-Archive-Record-Type", record.kind
    yield "X-Archive-Filename", record.capture.filename
    yield "X-Archive-Offset", str(record.capture.offset)
    yield "X-Archive-Length", str(record.capture.length)


def link(url: str) -> str:
    return quote(url[:8000], safe="".join(c for c in _PRINTABLE if c not in ' "<>\\^`{|}'), errors="replace")


def _ascii(text: str) -> str:
    return quote(text, safe=_PRINTABLE, errors="replace").strip()
