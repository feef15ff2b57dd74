"""Archived pages by URL and time, ``/CRAWL/TIMESTAMPid_/URL``: what a server of pywb calls them too.

=========== ====================================================================
``id_``     the payload, without its content coding
``text_``   its text
``meta_``   the record's headers and what is in its document, as JSON
``warc_``   the record itself, a gzip member of a WARC file
=========== ====================================================================
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias
from urllib.parse import quote, unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.capture import format_timestamp
from catalogue.errors import BadDocument, BadRecord, CatalogueError, NotFound, QueryError
from catalogue.server.methods import Readable, packed
from catalogue.server.replay import Replayed, described, replay, text
from catalogue.server.responses import ask, incomplete, refusal, service_of
from catalogue.server.responses import told as told_of
from catalogue.server.service import Service
from catalogue.server.untrusted_headers import SANDBOX, SHOWN_AS, archived_headers, content_headers, memento_headers

_ASKED = re.compile(r"([0-9]{1,14})([a-z]+_)")
_MOST_URL = 8192
"""Characters of a URL; the longest keys that indexes hold have some thousands."""
_ESCAPED_WHOLE = re.compile(rb"[A-Za-z]{3,5}%3a|[^/?%]*%2f", re.IGNORECASE)
"""How a URL begins that was escaped as a whole: its own slashes, or the colon behind its scheme, are."""
_ONE_SLASH = re.compile(r"(https?:)/(?!/)", re.IGNORECASE)
"""What is left of two slashes by those who tidy paths."""
_UNSENT = re.compile(r"[^!-~]")
_DAY, _NOT_KEPT = "public, max-age=86400", "no-store"

_Form: TypeAlias = Callable[[Replayed, Service], Response]


class _Moments(Convertor[str]):
    """Parts of a path that begin as a timestamp does."""

    regex = "[0-9][^/]*"

    def convert(self, value: str) -> str:
        """As it is."""
        return value

    def to_string(self, value: str) -> str:
        """As it is."""
        return value


register_url_convertor("moment", _Moments())


def routes() -> Sequence[BaseRoute]:
    """The paths of records."""
    return [Route("/{crawl}/{moment:moment}/{url:path}", Readable(_record, _told))]


async def _record(request: Request) -> Response:
    root, raw = request.scope.get("root_path", ""), request.scope["raw_path"]
    parts = raw.removeprefix(root.encode()).split(b"/", 3)  # fewer than of the path, if a slash was escaped
    crawl, moment, rest = [*parts, b"", b""][1:4]
    asked = _ASKED.fullmatch(moment.decode(errors="replace"))
    if not asked or asked[2] not in _FORMS:
        known = ", ".join(_FORMS)
        return refusal(404, f"there is no such form; a path is /CRAWL/TIMESTAMP, one of {known}, and /URL behind it")
    if request.headers.get("sec-fetch-dest", "empty") not in SHOWN_AS or "service-worker" in request.headers:
        return refusal(403, "what was archived is for looking at; it is no part of a page", Vary="Sec-Fetch-Dest")
    url = asked_url(rest, request.scope["query_string"])
    if not 0 < len(url) <= _MOST_URL:
        return refusal(400, f"the path ends with a URL of up to {_MOST_URL:,} characters")
    answer = partial(_answer, service_of(request), crawl.decode(errors="replace"), url, asked[1], _FORMS[asked[2]])
    return await ask(request, answer)


def asked_url(rest: bytes, query: bytes) -> str:
    """The URL that the rest of a path and its query string are, in printable ASCII.

    Args:
        rest: as it was sent: the URL as it is written, or escaped once more as a whole.
        query: likewise, without its question mark; that of the URL.
    """
    if _ESCAPED_WHOLE.match(rest):
        rest = unquote_to_bytes(rest)
    whole = rest + b"?" + query if query else rest
    sent = _UNSENT.sub(lambda found: quote(found[0], encoding="latin-1"), whole.decode("latin-1"))
    return _ONE_SLASH.sub(r"\1//", sent, count=1) if _ONE_SLASH.match(sent) else sent


def _answer(service: Service, crawl: str, url: str, moment: str, form: _Form, catalogue: Catalogue) -> Response:
    found, missing = replay(catalogue, crawl, url, moment)
    service.settle([crawl], missing)
    if found is None:
        return refusal(404, f"No Captures found for: {url}", **incomplete(missing))
    try:
        response = form(found, service)
    except QueryError as error:  # the libraries for it are not installed here
        return refusal(501, str(error))
    for name, value in [*memento_headers(found.record), *SANDBOX.items()]:
        response.headers[name] = value
    response.headers["Cache-Control"] = _NOT_KEPT if missing or response.status_code != 200 else _DAY  # noqa: PLR2004
    response.headers["Vary"] = "Sec-Fetch-Dest"
    response.headers.update(incomplete(missing))
    return response


def _payload(found: Replayed, _: Service) -> Response:
    record = found.record
    try:
        body, headers = record.payload, content_headers(record)
        decoded = body is not record.body
    except BadRecord:  # then it is what its coding made of it
        body, decoded = record.body, False
        headers = iter([("Content-Type", "application/octet-stream"), ("Content-Disposition", "attachment")])
    response = Response(body)
    for name, value in [*headers, ("X-Archive-Payload", "decoded" if decoded else "as archived")]:
        response.headers[name] = value
    for name, value in archived_headers(record):
        response.headers.append(name, value)
    return response


def _text(found: Replayed, service: Service) -> Response:
    there = text(found, service.documents())
    if there is None:
        return refusal(404, f"there is no text in it, which is of type {found.record.mime}; ask for id_")
    return Response(there.encode(errors="replace"), media_type="text/plain")


def _described(found: Replayed, service: Service) -> Response:
    return Response(packed(described(found, service.documents())), media_type="application/json")


def _member(found: Replayed, _: Service) -> Response:
    record = found.record
    name = f"{found.crawl}-{format_timestamp(record.time)}-{record.capture.offset}.warc.gz"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(record.member, headers=headers, media_type="application/warc")


_FORMS: dict[str, _Form] = {"id_": _payload, "text_": _text, "meta_": _described, "warc_": _member}


def _told(error: CatalogueError) -> Response:
    """422 for a record that is not what the index says: to ask again, as clients do on 502, would not help."""
    if isinstance(error, BadRecord | BadDocument):
        return refusal(422, f"the record cannot be shown: {error}")
    if isinstance(error, NotFound):
        return refusal(404, str(error))
    return told_of(error)
