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
from catalogue.metadata_db.candidates import MARGIN
from catalogue.server.cdx_request import CdxRequest, parse_query, parse_request
from catalogue.server.cdx_search import Page, find_page, read_part
from catalogue.server.responses import error_answer, incomplete, run_query, service_of
from catalogue.server.service import Service
from catalogue.surt import KeyInterval

_HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


async def collinfo(request: Request) -> Response:
    """List all crawls as index.commoncrawl.org does, harvested or not."""
    crawls = await run_query(request, service_of(request).crawls.get)
    base = base_url(request)
    body = json.dumps([_entry(crawl, base) for crawl in crawls.values()], indent=2)
    return Response(body, media_type="application/json")


async def index(request: Request) -> Response:
    """Answer a CDX request, in several parts if it is long."""
    service, query = service_of(request), parse_request(parse_query(request.scope["query_string"]))
    not_found = f"No Captures found for: {query.url}"
    find = partial(_find, service, request.path_params["crawl"], query)
    try:
        crawl, page, rows, lines = await run_query(request, find, key=(request.path_params["crawl"], query))
    except NotHarvested as error:
        crawl, page, rows, lines = "", Page(missing=(str(error),)), 0, b""
        not_found = f"{not_found}; {error}"
    else:
        service.check_complete([crawl], page.missing)
    headers = incomplete(page.missing)
    if query.counts_pages:
        counts = {"pages": page.pages, "pageSize": query.page_size, "blocks": page.blocks}
        return Response(json.dumps(counts), headers=headers | {"Content-Type": query.output.value})
    if not 0 <= query.page < max(1, page.pages):
        last = max(0, page.pages - 1)
        return error_answer(400, f"Page {query.page} invalid: First Page is 0, Last Page is {last}", **headers)
    parts = _parts(request, crawl, query, page, rows, lines)
    first = await anext(parts, b"")
    if not first:
        return error_answer(404, not_found, **headers)
    headers["Content-Type"] = query.output.value
    if len(page.parts) == 1:
        return Response(first, headers=headers)

    async def every() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    return StreamingResponse(every(), headers=headers)


ROUTES = [Route("/collinfo.json", collinfo), Route("/{crawl}-index", index)]


def base_url(request: Request) -> str:
    """Return the server's address as the client sees it, without a slash at the end."""
    headers = request.headers
    host = headers.get("x-forwarded-host", headers.get("host", "")).split(",")[0].strip()
    if not _HOST.fullmatch(host):
        host = "{}:{}".format(*request.scope["server"])
    scheme = "https" if headers.get("x-forwarded-proto", request.url.scheme).startswith("https") else "http"
    return f"{scheme}://{host}"


def _entry(crawl: Crawl, base: str) -> dict[str, str]:
    entry = {
        "id": crawl.id,
        "name": crawl.name or crawl.id,
        "timegate": f"{base}/{crawl.id}/",
        "cdx-api": f"{base}/{crawl.id}-index",
    }
    times = {"from": crawl.first_fetch, "to": crawl.last_fetch}
    return entry | {name: f"{time:%Y-%m-%dT%H:%M:%S}" for name, time in times.items() if time}


def _find(service: Service, name: str, query: CdxRequest, catalogue: Catalogue) -> tuple[str, Page, int, bytes]:
    """Return the crawl, the requested page, and the number of captures and the lines of its first part."""
    crawl = service.crawls.find(catalogue, name)
    if not query.counts_pages and _is_outside(crawl, query):
        return crawl.id, Page(), 0, b""
    page = find_page(catalogue, crawl.id, query)
    first = _read(crawl.id, query, page.parts[0], catalogue) if page.parts and not query.counts_pages else (0, b"")
    return crawl.id, page, *first


def _read(crawl: str, query: CdxRequest, intervals: tuple[KeyInterval, ...], catalogue: Catalogue) -> tuple[int, bytes]:
    rows = read_part(catalogue, crawl, query, intervals)
    return rows.num_rows, write_lines(rows, query.output, query.fields)


async def _parts(
    request: Request, crawl: str, query: CdxRequest, page: Page, rows: int, lines: bytes
) -> AsyncIterator[bytes]:
    """Yield the lines of each part. An error closes the connection, so that clients notice missing lines."""
    for following in (*page.parts[1:], None):
        if lines:
            yield lines
        if query.limit is not None:
            query = replace(query, limit=query.limit - rows)
        if following is None or query.limit == 0:
            return
        read = partial(_read, crawl, query, following)
        rows, lines = await run_query(request, read, key=(crawl, query, following))


def _is_outside(crawl: Crawl, query: CdxRequest) -> bool:
    """Check, with a margin, whether a crawl has no captures in the requested time."""
    if not crawl.first_fetch or not crawl.last_fetch:
        return False
    first, last = (int(time.timestamp()) * 1000 for time in (crawl.first_fetch, crawl.last_fetch))
    start, end = query.times
    return (start is not None and last + MARGIN < start) or (end is not None and first - MARGIN >= end)
