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
from catalogue.cdx.cdx_request import CdxRequest, parse_request
from catalogue.cdx.lines import write_lines
from catalogue.commoncrawl.manifests import Crawl
from catalogue.errors import NotHarvested
from catalogue.server.cdx_search import Page, begun, has_captures, page_of, part_of
from catalogue.server.crawl_harvest import crawl_named, elsewhen
from catalogue.server.responses import ask, incomplete, parameters, refusal, service_of
from catalogue.surt import KeyInterval

_HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


async def collinfo(request: Request) -> Response:
    """All crawls there are, as index.commoncrawl.org lists them; whether we can answer for them or not."""
    base = base_url(request)
    body = json.dumps([_entry(crawl, base) for crawl in (await _crawls(request)).values()], indent=2)
    return Response(body, media_type="application/json")


async def _crawls(request: Request) -> dict[str, Crawl]:
    listed = service_of(request).listed
    recent = listed.recent
    return await ask(request, listed.get, key="collinfo") if recent is None else recent


def base_url(request: Request) -> str:
    """The address under which the client knows us, without a slash at its end."""
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


async def index(request: Request) -> Response:
    """The captures of a crawl that a request to the CDX API asks for, or how many pages of them there are."""
    crawl, service = request.path_params["crawl"], service_of(request)
    asked = parse_request(parameters(request))
    crawls = await _crawls(request)
    crawl = service.listed.latest or crawl if crawl == "latest" else crawl
    known = crawl_named(crawls, crawl)
    if not asked.counts_pages and elsewhen(known, *asked.times):
        return _nothing(asked)
    try:
        page, rows, lines = await ask(request, partial(_begun, crawl, asked), key=(crawl, asked))
    except NotHarvested as error:
        return _nothing(asked, str(error))
    service.settle([crawl], page.missing)
    headers = incomplete(page.missing)
    if asked.counts_pages:
        return await _count(request, crawl, asked, page, headers)
    if not 0 <= asked.page < max(1, page.pages):
        return _no_such_page(asked, page.pages)
    answer = _lines(request, crawl, asked, page, (rows, lines))
    first = await anext(answer, b"")
    if not first:
        return refusal(404, asked.none_found, **headers)
    headers["Content-Type"] = asked.output.value
    if len(page.parts) == 1:
        return Response(first, headers=headers)
    return StreamingResponse(_behind(first, answer), headers=headers)


def _nothing(asked: CdxRequest, why: str = "") -> Response:
    """The answer if there are no captures, or none that we know of."""
    if asked.counts_pages:
        response = _pages(asked, 0, 0)
    elif asked.page != 0:
        response = _no_such_page(asked, 0)
    else:
        response = refusal(404, f"{asked.none_found}; {why}" if why else asked.none_found)
    response.headers.update(incomplete([why] if why else []))
    return response


def _no_such_page(asked: CdxRequest, pages: int) -> Response:
    last = max(0, pages - 1)
    return refusal(400, f"Page {asked.page} invalid: First Page is 0, Last Page is {last}")


async def _count(request: Request, crawl: str, asked: CdxRequest, page: Page, headers: dict[str, str]) -> Response:
    pages, blocks = page.pages, page.blocks
    if pages and not page.sure and not await ask(request, lambda cat: has_captures(cat, crawl, asked)):
        pages = blocks = 0
    response = _pages(asked, pages, blocks)
    response.headers.update(headers)
    return response


def _pages(asked: CdxRequest, pages: int, blocks: int) -> Response:
    body = json.dumps({"pages": pages, "pageSize": asked.page_size, "blocks": blocks})
    return Response(body, headers={"Content-Type": asked.output.value})


async def _behind(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for lines in rest:
        yield lines


async def _lines(
    request: Request, crawl: str, asked: CdxRequest, page: Page, first: tuple[int, bytes]
) -> AsyncIterator[bytes]:
    """Lines, part by part; if one cannot be had, the connection breaks off, so that nobody takes it for all."""
    rows, lines = first
    for following in (*page.parts[1:], None):
        if lines:
            yield lines
        if asked.limit is not None:
            asked = replace(asked, limit=asked.limit - rows)
        if following is None or asked.limit == 0:
            return
        rows, lines = await ask(request, partial(_read, crawl, asked, following), key=(crawl, asked, following))


def _begun(crawl: str, asked: CdxRequest, catalogue: Catalogue) -> tuple[Page, int, bytes]:
    """The page that is asked for, how many captures its first part has, and their lines."""
    if asked.counts_pages:
        return page_of(catalogue, crawl, asked), 0, b""
    page, rows = begun(catalogue, crawl, asked)
    return page, rows.num_rows, write_lines(rows, asked.output, asked.fields)


def _read(crawl: str, asked: CdxRequest, intervals: tuple[KeyInterval, ...], catalogue: Catalogue) -> tuple[int, bytes]:
    """How many captures a part of a page has, and their lines."""
    rows = part_of(catalogue, crawl, asked, intervals)
    return rows.num_rows, write_lines(rows, asked.output, asked.fields)


ROUTES = [Route("/collinfo.json", collinfo), Route("/{crawl}-index", index)]
