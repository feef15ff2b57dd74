"""Archived pages by URL and time, ``/CRAWL/TIMESTAMPid_/URL``, as in pywb.

=========== ===============================================================
``id_``     the payload, without its content coding
``text_``   its text
``meta_``   the record's headers and metadata of its document, as JSON
``warc_``   the record itself, a gzip member of a WARC file
=========== ===============================================================

Archived pages have the origin of this server and must not affect it: scripts do not run, nothing is loaded, and
archived headers get other names.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from email.utils import format_datetime
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from catalogue.commoncrawl.capture import capture_of, format_timestamp
from catalogue.commoncrawl.crawls import check_crawl_name
from catalogue.errors import BadRecord, NotFound
from catalogue.find_captures import find_captures
from catalogue.formatting import in_utc
from catalogue.output.fetch_captures import fetch_record
from catalogue.parquet.arrow_arrays import rows_of
from catalogue.query.filters import time_span
from catalogue.query.query import Query
from catalogue.records.charsets import charset_of
from catalogue.records.media_type import declared_type
from catalogue.records.metadata import metadata_of, text_of
from catalogue.records.record import Record, missing_body
from catalogue.server.responses import error_answer, incomplete, json_bytes, run_query, service_of
from catalogue.server.service import Service
from catalogue.session import Session
from catalogue.surt.equality import same_url
from catalogue.surt.pattern import Match

_TIME_AND_FORM = re.compile(r"([0-9]{1,14})([a-z]+_)")
_MAX_URL = 8192
"""The longest keys in indexes have a few thousand characters."""
_QUOTED_URL = re.compile(rb"[A-Za-z]{3,5}%3a|[^/?%]*%2f", re.IGNORECASE)
"""Start of a quoted URL: the colon after its scheme, or its first slash."""
_ONE_SLASH = re.compile(r"(https?:)/(?!/)", re.IGNORECASE)
"""Proxies replace two slashes in a path by one."""
_NOT_PRINTABLE = re.compile(r"[^!-~]")
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_OK = 200
_CACHED_FOR_A_DAY, _NOT_CACHED = "public, max-age=86400", "no-store"

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9][A-Za-z0-9._:+-]{0,39})[\"']?", re.IGNORECASE)
_MULTIPART = ("multipart/", "message/")
"""Some browsers obey headers in parts of these types, such as Set-Cookie."""
_MAX_HEADERS, _MAX_VALUE, _MAX_BYTES = 50, 1000, 6000
"""Limits of archived headers; some clients accept 100 headers, and some proxies 8 kB."""

SANDBOX = {
    "Access-Control-Allow-Origin": "*",  # without Origin too, since answers are cached
    "Content-Security-Policy": (
        "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; media-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Sec-Fetch-Dest",
    "X-Content-Type-Options": "nosniff",
    "X-DNS-Prefetch-Control": "off",
}
"""Headers of all answers with archived content: pages have no origin, run nothing, and other sites cannot embed them;
see https://html.spec.whatwg.org/multipage/browsers.html#sandboxing."""

DESTINATIONS = frozenset({"document", "iframe", "frame", "image", "audio", "video", "empty"})
"""Allowed values of ``Sec-Fetch-Dest``: not scripts, workers or styles of pages of this server."""


_Form: TypeAlias = Callable[[str, Record, Service], Response]


async def archived_page(request: Request) -> Response:
    root, raw = request.scope.get("root_path", ""), request.scope["raw_path"]
    segments = raw.removeprefix(root.encode()).split(b"/", 3)  # fewer than in the path, if a slash is quoted
    crawl, moment, rest = [*segments, b"", b""][1:4]
    matched = _TIME_AND_FORM.fullmatch(moment.decode(errors="replace"))
    if not matched or matched[2] not in _FORMS:
        return error_answer(404, f"no such path; use /CRAWL/TIMESTAMP, then one of {', '.join(_FORMS)}, then /URL")
    if request.headers.get("sec-fetch-dest", "empty") not in DESTINATIONS or "service-worker" in request.headers:
        return error_answer(403, "archived pages are not parts of other pages", Vary="Sec-Fetch-Dest")
    url = parse_url(rest, request.scope["query_string"])
    if not 0 < len(url) <= _MAX_URL:
        return error_answer(400, f"the path must end with a URL of at most {_MAX_URL:,} characters")
    answer = partial(_answer, service_of(request), crawl.decode(errors="replace"), url, matched[1], _FORMS[matched[2]])
    try:
        return await run_query(request, answer)
    except NotFound as error:
        return error_answer(404, str(error))


ROUTES = [Route("/{crawl}/{moment}/{url:path}", archived_page)]
"""Matches any path of three segments or more that no other route has."""
ROUTES[0].path_regex = re.compile(ROUTES[0].path_regex.pattern, re.DOTALL)  # URLs may contain %0A


def parse_url(rest: bytes, query: bytes) -> str:
    """Return the requested URL in printable ASCII, from the rest of the path, which may be quoted, and the query."""
    if _QUOTED_URL.match(rest):
        rest = unquote_to_bytes(rest)
    url = (rest + b"?" + query if query else rest).decode("latin-1")
    url = _NOT_PRINTABLE.sub(lambda found: quote(found[0], encoding="latin-1"), url)
    return _ONE_SLASH.sub(r"\1//", url, count=1) if _ONE_SLASH.match(url) else url


def find_record(session: Session, crawl: str, url: str, moment: str) -> tuple[Record | None, tuple[str, ...]]:
    """Fetch the record of the capture nearest to a time, and messages about files that may contain a nearer one.

    Captures of the URL are preferred to those of other URLs with the same key, and those with the same spelling to
    other ones. ``moment`` has 1 to 14 digits; of the captures whose time starts with them the latest is used.

    Raises:
        BadRecord: if the record is damaged, or differs from the index.
    """
    first, end = time_span(moment, clamp=True)
    captures = find_captures(session, Query.of(url, crawls=check_crawl_name(crawl), subsets="all", match=Match.EXACT))
    spelling = _spelling(url)

    def rank(row: Mapping[str, Any]) -> tuple[bool, bool, bool, float, float, str, int]:
        time = in_utc(row["fetch_time"]).timestamp() * 1000 if row["fetch_time"] else float("-inf")
        distance = max(first - time, time - end + 1, 0)
        return (
            not _is_requested(row["url"] or "", url),
            not same_url(row["url"] or "", url),
            _spelling(row["url"] or "") != spelling,
            distance,
            -time,
            row["warc_filename"] or "",
            row["warc_record_offset"] or 0,
        )

    best: dict[str, Any] | None = None
    for batch in captures.batches(warn=False):  # a robots.txt may have thousands of captures
        best = min([*rows_of(batch), *([best] if best else [])], key=rank, default=None)
    return fetch_record(session, capture_of(best)) if best else None, captures.plan.missing


def _is_requested(archived: str, url: str) -> bool:
    """Return whether an archived URL is the requested one, without the ``?`` at its end, which ASGI drops."""
    return same_url(archived, url) or ("?" not in url and same_url(archived, f"{url}?"))


def _spelling(url: str) -> str:
    return quote(url.partition("#")[0], safe=_PRINTABLE.strip(), errors="replace")


def _answer(service: Service, crawl: str, url: str, moment: str, form: _Form, session: Session) -> Response:
    record, missing = find_record(session, crawl, url, moment)
    service.check_complete([crawl], missing)
    if record is None:
        return error_answer(404, f"No Captures found for: {url}", **incomplete(missing))
    response = form(crawl, record, service)
    response.headers.update(
        {**dict(memento_headers(record)), **SANDBOX, "Vary": "Sec-Fetch-Dest", **incomplete(missing)}
    )
    if not _is_requested(record.capture.url or record.url, url):
        response.headers["X-Archive-Exact"] = "false"
    final = response.status_code == _OK and not missing
    response.headers["Cache-Control"] = _CACHED_FOR_A_DAY if final else _NOT_CACHED
    return response


def _payload(_crawl: str, record: Record, _: Service) -> Response:
    if missing := missing_body(record):
        return error_answer(404, f"{missing}; use warc_")
    try:
        body, headers = record.payload, content_headers(record)
        decoded = body is not record.body
    except BadRecord:  # its content coding is damaged
        body, decoded = record.body, False
        headers = iter([("Content-Type", "application/octet-stream"), ("Content-Disposition", "attachment")])
    response = Response(body, headers={**dict(headers), "X-Archive-Payload": "decoded" if decoded else "as archived"})
    for name, value in archived_headers(record):
        response.headers.append(name, value)
    return response


def _text(_crawl: str, record: Record, service: Service) -> Response:
    text: str | None = text_of(record, service.documents.extract)["text"]
    if text is None:
        if missing := missing_body(record):
            return error_answer(404, f"{missing}; use warc_")
        why = record.coding_error or f"a document of type {record.mime} has no text"
        return error_answer(404, f"{why}; use id_")
    return Response(text.encode(errors="replace"), media_type="text/plain")


def _metadata(crawl: str, record: Record, service: Service) -> Response:
    found = {
        "crawl": crawl,
        "warc_filename": record.capture.filename,
        "warc_record_offset": record.capture.offset,
        "warc_record_length": record.capture.length,
        "record_headers": record.headers,
        "http_status_line": record.status_line,
        "http_headers": record.http_headers,
        "metadata": metadata_of(record, service.documents.extract),
    }
    return Response(json_bytes(found), media_type="application/json")


def _warc(crawl: str, record: Record, _: Service) -> Response:
    name = f"{crawl}-{format_timestamp(record.time)}-{record.capture.offset}.warc.gz"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(record.member, headers=headers, media_type="application/warc")


_FORMS: dict[str, _Form] = {"id_": _payload, "text_": _text, "meta_": _metadata, "warc_": _warc}


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
    """Yield the declared type if it is valid, with the charset of its text; otherwise make the browser save it."""
    kind = declared_type(record.content_type) or ""
    if not _TYPE.fullmatch(kind) or kind.startswith(_MULTIPART):
        yield "Content-Type", "application/octet-stream"
        yield "Content-Disposition", "attachment"
        return
    used = record.charset.name if record.charset else None
    labels = [label for label in _CHARSET.findall(record.content_type) if not used or charset_of(label) == used]
    charset = next(iter(labels), used)
    yield "Content-Type", f"{kind}; charset={charset}" if charset else kind


def memento_headers(record: Record) -> Iterator[tuple[str, str]]:
    """Yield original URL and time (RFC 7089), and type and place of the record."""
    if record.time:
        yield "Memento-Datetime", format_datetime(record.time.astimezone(UTC), usegmt=True)
    yield "Link", f'<{link(record.url)}>; rel="original"'
    yield "X-Archive-Record-Type", record.kind
    yield "X-Archive-Filename", _ascii(record.capture.filename)
    yield "X-Archive-Offset", str(record.capture.offset)
    yield "X-Archive-Length", str(record.capture.length)


def link(url: str) -> str:
    return quote(url[:8000], safe="".join(c for c in _PRINTABLE if c not in ' "<>\\^`{|}'), errors="replace")


def _ascii(text: str) -> str:
    return quote(text, safe=_PRINTABLE, errors="replace").strip()
