"""The CDX API over HTTP, and the list of its crawls."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from catalogue.cdx.lines import write_lines
from catalogue.commoncrawl.crawls import Crawl
from catalogue.errors import NotHarvested
from catalogue.server.cdx_paging import ResultPage
from catalogue.server.cdx_request import CdxRequest, parse_query, parse_request
from catalogue.server.cdx_search import CdxSearch, select_lines
from catalogue.server.memory import size_of
from catalogue.server.responses import error_answer, incomplete, run_query, service_of
from catalogue.server.service import Service
from catalogue.session import Session
from catalogue.surt.interval import KeyInterval

_FEW_LINES, _FEW_BYTES = 500, 500_000
"""Size of an answer that the thread of the event loop writes, in some milliseconds."""
_Found: TypeAlias = tuple[str, ResultPage, int, bytes]
"""A crawl and a page; number and bytes of the lines of its first part."""
_HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


async def collinfo(request: Request) -> Response:
    """List all crawls as index.commoncrawl.org does, harvested or not."""
    service = service_of(request)
    crawls = await run_query(request, service.crawls.get)
    base = base_url(request)
    body = json.dumps([_entry(crawl, base) for crawl in crawls.values()], indent=2)
    return Response(body, media_type="application/json", headers=incomplete(service.crawls.missing))


async def index(request: Request) -> Response:
    """Answer a CDX request, in several parts if it is long."""
    service, query = service_of(request), parse_request(parse_query(request.scope["query_string"]))
    name = request.path_params["crawl"]
    not_found = f"No Captures found for: {query.url}"
    found = _find_in_memory(service, name, query)
    if found is None:
        try:
            found = await run_query(request, partial(_find, service, name, query), key=(name, query))
        except NotHarvested as error:
            found = "", ResultPage(missing=(str(error),)), 0, b""
            not_found = f"{not_found}; {error}"
    crawl, page, number, lines = found
    if crawl:
        service.check_complete([crawl], page.missing)
    unlisted = service.crawls.missing if name == "latest" else ()
    service.check_complete((), unlisted)
    headers = incomplete((*page.missing, *unlisted))
    if query.counts_pages:
        counts = {"pages": page.pages, "pageSize": query.page_size, "blocks": page.blocks}
        return Response(json.dumps(counts), headers=headers | {"Content-Type": query.output.value})
    if not 0 <= query.page < max(1, page.pages):
        last = max(0, page.pages - 1)
        return error_answer(400, f"Page {query.page} invalid: First Page is 0, Last Page is {last}", **headers)
    parts = _parts(request, crawl, query, page, number, lines)
    first = await anext(parts, b"")
    if not first:
        return error_answer(404, not_found, **headers)
    headers["Content-Type"] = query.output.value
    if len(page.parts) == 1:
        return Response(first, headers=headers)

    async def every() -> AsyncIterator[bytes]:
        request.state.begun = True
        yield first
        async for part in parts:
            yield part

    return StreamingResponse(every(), headers=headers)


ROUTES = [Route("/collinfo.json", collinfo), Route("/{crawl}-index", index)]


def base_url(request: Request) -> str:
    """Return the server's address as the client sees it, without a slash at the end."""
    headers, host, scheme = request.headers, request.headers.get("host", ""), request.url.scheme
    if service_of(request).proxied:  # otherwise any client can send them
        host = headers.get("x-forwarded-host", host).split(",")[0].strip()
        scheme = headers.get("x-forwarded-proto", scheme)
    if not _HOST.fullmatch(host):
        host = "{}:{}".format(*request.scope["server"])
    return f"{'https' if scheme.startswith('https') else 'http'}://{host}"


def _entry(crawl: Crawl, base: str) -> dict[str, str]:
    entry = {
        "id": crawl.id,
        "name": crawl.name or crawl.id,
        "timegate": f"{base}/{crawl.id}/",
        "cdx-api": f"{base}/{crawl.id}-index",
    }
    times = {"from": crawl.first_fetch, "to": crawl.last_fetch}
    return entry | {name: f"{time:%Y-%m-%dT%H:%M:%S}" for name, time in times.items() if time}


def _find_in_memory(service: Service, name: str, query: CdxRequest) -> _Found | None:
    memory, state = service.memory, service.state()
    page = memory.page(state, name, query)
    if page is None or (query.page and not page.parts):  # to count pages without times, see _find
        return None
    page = page.ordered(reverse=query.reverse)
    if query.counts_pages or not page.parts:
        return name, page, 0, b""
    lines = memory.lines(state, name, page.parts[0])
    slow = any(each.operator == "~" for each in query.filters)
    if slow or lines is None or len(lines) * (1 + len(query.filters)) > _FEW_LINES or size_of(lines) > _FEW_BYTES:
        return None
    return name, page, *_written(query, select_lines(lines, query))


def _find(service: Service, name: str, query: CdxRequest, session: Session) -> _Found:
    crawl = service.crawls.find(session, name, may_be_unlisted=True)
    is_outside = not (query.counts_pages or crawl.may_have(*query.times))
    if is_outside and not query.page:
        return crawl.id, ResultPage(), 0, b""
    search = CdxSearch(session, crawl.id, service.memory, only_stored=service.harvester is not None)
    page = ResultPage() if is_outside else search.find_page(query)
    if query.page and not page.parts:  # pages are counted without times, as pywb does
        page = replace(search.find_page(replace(query, counts_pages=True)), parts=())
    if query.counts_pages or not page.parts:
        return crawl.id, page, 0, b""
    return crawl.id, page, *_written(query, search.read_part(query, page.parts[0]))


def _written(query: CdxRequest, lines: Sequence[str]) -> tuple[int, bytes]:
    return len(lines), write_lines(lines, query.output, query.fields)


def _read(
    service: Service, crawl: str, query: CdxRequest, intervals: tuple[KeyInterval, ...], session: Session
) -> tuple[int, bytes]:
    return _written(query, CdxSearch(session, crawl, service.memory).read_part(query, intervals))


async def _parts(
    request: Request, crawl: str, query: CdxRequest, page: ResultPage, rows: int, lines: bytes
) -> AsyncIterator[bytes]:
    """Yield the lines of each part. An error closes the connection, so that clients notice missing lines."""
    for following in (*page.parts[1:], None):
        if lines:
            yield lines
        if query.limit is not None:
            query = replace(query, limit=query.limit - rows)
        if following is None or query.limit == 0:
            return
        read = partial(_read, service_of(request), crawl, query, following)
        rows, lines = await run_query(request, read, key=(crawl, query, following))
