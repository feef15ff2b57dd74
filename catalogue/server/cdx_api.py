"""The CDX API over HTTP, and the list of its crawls."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from catalogue.catalogue import Catalogue
from catalogue.cdx.lines import write_lines
from catalogue.commoncrawl.manifests import Crawl
from catalogue.errors import NotHarvested
from catalogue.server.cdx_request import CdxRequest, parse_request
from catalogue.server.cdx_search import Page, find_first_part, find_page, has_captures, read_part
from catalogue.server.crawl_harvest import find_crawl, is_outside
from catalogue.server.responses import error_answer, incomplete, parameters, run_query, service_of
from catalogue.surt import KeyInterval

_HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


async def collinfo(request: Request) -> Response:
    """List all crawls as index.commoncrawl.org does, harvested or not."""
    base = base_url(request)
    body = json.dumps([_entry(crawl, base) for crawl in (await _crawls(request)).values()], indent=2)
    return Response(body, media_type="application/json")


async def index(request: Request) -> Response:
    crawl, service = request.path_params["crawl"], service_of(request)
    query = parse_request(parameters(request))
    crawls = await _crawls(request)
    crawl = service.crawls.latest or crawl if crawl == "latest" else crawl
    known = find_crawl(crawls, crawl)
    if not query.counts_pages and is_outside(known, *query.times):
        return _no_captures(query)
    try:
        page, rows, lines = await run_query(request, partial(_first_part, crawl, query), key=(crawl, query))
    except NotHarvested as error:
        return _no_captures(query, str(error))
    service.check_complete([crawl], page.missing)
    headers = incomplete(page.missing)
    if query.counts_pages:
        return await _count(request, crawl, query, page)
    if not 0 <= query.page < max(1, page.pages):
        return _no_such_page(query, page.pages)
    answer = _parts(request, crawl, query, page, (rows, lines))
    first = await anext(answer, b"")
    if not first:
        return error_answer(404, query.not_found, **headers)
    headers["Content-Type"] = query.output.value
    if len(page.parts) == 1:
        return Response(first, headers=headers)
    return StreamingResponse(_chain(first, answer), headers=headers)


def base_url(request: Request) -> str:
    """Return the server's address as the client sees it, without a slash at the end."""
    headers = request.headers
    host = headers.get("x-forwarded-host", headers.get("host", "")).split(",")[0].strip()
    if not _HOST.fullmatch(host):
        host = "{}:{}".format(*request.scope["server"])
    scheme = "https" if headers.get("x-forwarded-proto", request.url.scheme).startswith("https") else "http"
    return f"{scheme}://{host}"


async def _crawls(request: Request) -> dict[str, Crawl]:
    crawls = service_of(request).crawls
    recent = crawls.recent
    return await run_query(request, crawls.get, key="collinfo") if recent is None else recent


def _entry(crawl: Crawl, base: str) -> dict[str, str]:
    entry = {
        "id": crawl.id,
        "name": crawl.name or crawl.id,
        "timegate": f"{base}/{crawl.id}/",
        "cdx-api": f"{base}/{crawl.id}-index",
    }
    times = {"from": crawl.first_fetch, "to": crawl.last_fetch}
    return entry | {name: f"{time:%Y-%m-%dT%H:%M:%S}" for name, time in times.items() if time}


def _no_captures(query: CdxRequest, why: str = "") -> Response:
    if query.counts_pages:
        response = _pages(query, 0, 0)
    elif query.page != 0:
        response = _no_such_page(query, 0)
    else:
        response = error_answer(404, f"{query.not_found}; {why}" if why else query.not_found)
    response.headers.update(incomplete([why] if why else []))
    return response


def _no_such_page(query: CdxRequest, pages: int) -> Response:
    last = max(0, pages - 1)
    return error_answer(400, f"Page {query.page} invalid: First Page is 0, Last Page is {last}")


async def _count(request: Request, crawl: str, query: CdxRequest, page: Page) -> Response:
    pages, blocks = page.pages, page.blocks
    if pages and not page.certain and not await run_query(request, lambda cat: has_captures(cat, crawl, query)):
        pages = blocks = 0
    response = _pages(query, pages, blocks)
    response.headers.update(incomplete(page.missing))
    return response


def _pages(query: CdxRequest, pages: int, blocks: int) -> Response:
    body = json.dumps({"pages": pages, "pageSize": query.page_size, "blocks": blocks})
    return Response(body, headers={"Content-Type": query.output.value})


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for lines in rest:
        yield lines


async def _parts(
    request: Request, crawl: str, query: CdxRequest, page: Page, first: tuple[int, bytes]
) -> AsyncIterator[bytes]:
    """Yield the lines of each part. An error closes the connection, so that clients notice missing lines."""
    rows, lines = first
    for following in (*page.parts[1:], None):
        if lines:
            yield lines
        if query.limit is not None:
            query = replace(query, limit=query.limit - rows)
        if following is None or query.limit == 0:
            return
        rows, lines = await run_query(
            request, partial(_read_part, crawl, query, following), key=(crawl, query, following)
        )


def _first_part(crawl: str, query: CdxRequest, catalogue: Catalogue) -> tuple[Page, int, bytes]:
    if query.counts_pages:
        return find_page(catalogue, crawl, query), 0, b""
    page, rows = find_first_part(catalogue, crawl, query)
    return page, rows.num_rows, write_lines(rows, query.output, query.fields)


def _read_part(
    crawl: str, query: CdxRequest, intervals: tuple[KeyInterval, ...], catalogue: Catalogue
) -> tuple[int, bytes]:
    rows = read_part(catalogue, crawl, query, intervals)
    return rows.num_rows, write_lines(rows, query.output, query.fields)


ROUTES = [Route("/collinfo.json", collinfo), Route("/{crawl}-index", index)]
