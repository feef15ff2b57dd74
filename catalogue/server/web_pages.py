"""Web pages: HTML without scripts or external content."""

import base64
import hashlib
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from catalogue import formatting
from catalogue.commoncrawl.crawls import STORED
from catalogue.errors import (
    CatalogueError,
    Harvesting,
    NotHarvested,
    QueryError,
    TooExpensive,
    UnknownColumn,
)
from catalogue.find_captures import find_captures
from catalogue.key_map import svg
from catalogue.plan.plan import ReadPlan
from catalogue.query.query import Query
from catalogue.reports import cached_pages, coverage_rows, crawl_rows
from catalogue.server import monitoring
from catalogue.server.responses import describe_error, incomplete, run_query, service_of
from catalogue.server.search import (
    KNOWN,
    MAX_LIMIT,
    MAX_PAGE,
    MAX_SECONDS,
    Form,
    parse_form,
    record_path,
    run_search,
    to_csv,
)
from catalogue.server.search import PARAMETERS as FORM_PARAMETERS
from catalogue.server.service import Service
from catalogue.session import Session
from catalogue.site_report import site_report

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Pages may load styles and images of this server, and have no scripts."""
_FIXED = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

_STATIC = Path(__file__).parent / "static"
_POLL_SECONDS = 2
"""Interval of pages that wait for a harvest."""
_MAX_OTHERS = 12
"""Crawls named in addition to the one on the map."""
_COLOURS = svg.stylesheet() + svg.STYLE
_YEAR = "public, max-age=31536000, immutable"

_TEMPLATES = Environment(
    loader=PackageLoader("catalogue.server"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {name: getattr(formatting, name) for name in ("number", "plural", "size", "duration", "clock")}


@cache
def _asset(name: str) -> str:
    content = _COLOURS.encode() if name == "colours.css" else (_STATIC / name).read_bytes()
    return f"/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"


_TEMPLATES.globals |= {"asset": _asset, "record_path": record_path, "parameters": FORM_PARAMETERS}


@cache
def _waiting_policy() -> str:
    """Allow the script of the page that waits for a harvest."""
    script = _TEMPLATES.get_template("waiting.js").render(seconds=_POLL_SECONDS).encode()
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return f"{POLICY}; connect-src 'self'; script-src 'sha256-{digest}'"


def _page(
    request: Request, name: str, status: int = 200, headers: Mapping[str, str] | None = None, **values: object
) -> Response:
    text = _TEMPLATES.get_template(name).render(here=request.url.path, **values)
    return HTMLResponse(text, status, {**_FIXED, **(headers or {})})


def _with_errors(page: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await page(request)
        except CatalogueError as error:
            status, message, headers = describe_error(request, error)
            heading = "Temporarily unavailable" if headers else "Failed"
            return _page(request, "error.html", status, headers, heading=heading, message=f"{message}.")

    return answer


async def _robots(_: Request) -> Response:
    """Keep crawlers away: Common Crawl offers all of this as files."""
    return PlainTextResponse("User-agent: *\nDisallow: /\n")


async def _colours(_: Request) -> Response:
    headers = {"Cache-Control": _YEAR, "X-Content-Type-Options": "nosniff"}
    return Response(_COLOURS, headers=headers, media_type="text/css")


class _Static(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        if scope["path"].endswith("/"):  # Starlette removes it from the path
            raise HTTPException(404)
        response = await super().get_response(path, scope)
        if response.status_code < 400:  # noqa: PLR2004
            response.headers["Cache-Control"] = _YEAR
            response.headers["X-Content-Type-Options"] = "nosniff"
        return response


@_with_errors
async def _home(request: Request) -> Response:
    crawls = await run_query(request, partial(_crawl_rows, service_of(request)))
    choices = _choices(crawls)
    return _page(request, "home.html", crawls=crawls, choices=choices, form=Form(crawls=("latest",)))


@_with_errors
async def _crawl(request: Request) -> Response:
    name = request.path_params["crawl"]
    crawls = await run_query(request, partial(_crawl_rows, service_of(request)))
    crawl = next((row for row in crawls if row["crawl"] == name), None)
    if crawl is None:
        message = f"There is no page {name[:100]}, and no crawl of that name."
        return _page(request, "error.html", 404, heading="Not found", message=message)
    return _page(
        request,
        "crawl.html",
        crawl=crawl,
        choices=_choices(crawls),
        form=Form(crawls=(name,)),
        on_demand=service_of(request).harvester is not None,
    )


@_with_errors
async def _status(request: Request) -> Response:
    service = service_of(request)
    coverage, cached = await run_query(request, lambda session: (coverage_rows(session), cached_pages(session)))
    totals = await service.totals()
    return _page(
        request,
        "status.html",
        coverage=coverage,
        cached=cached,
        totals=totals,
        answers=[
            (route, count) for route in monitoring.COUNTED if (count := monitoring.answers_within(totals, route)[-1])
        ],
        bound_of=partial(monitoring.bound_of, totals),
        processes=service.figures.processes,
        started=datetime.fromtimestamp(service.figures.started, UTC),
    )


@_with_errors
async def _site_report(request: Request) -> Response:
    url, crawl = request.query_params.get("url", ""), request.query_params.get("crawl") or "latest"

    def check(plan: ReadPlan) -> None:
        if plan.seconds > MAX_SECONDS:
            command = shlex.join(["catalogue", "site", url, "--crawl", crawl])
            raise TooExpensive(f"the report takes {plan.price}; run: {command}")

    def counted(session: Session) -> tuple[dict[str, int], str, tuple[str, ...]]:
        """Count the pages of the site in each stored crawl, or return what that costs."""
        query = Query.of(f"*.{report.site}", crawls=STORED)
        captures = find_captures(session, query).counting().agreed(check)
        if "counted" in request.query_params:
            return captures.count_by_crawl(), "", captures.plan.missing
        return {}, captures.plan.price, ()

    def approve(plan: ReadPlan) -> None:
        check(plan)
        service_of(request).check_complete([crawl], plan.missing)

    report = await run_query(request, lambda session: site_report(session, url, crawl=crawl, approve=approve))
    counts, price, missing = dict[str, int](), "", tuple[str, ...]()
    with suppress(NotHarvested):
        counts, price, missing = await run_query(request, counted)
    here = {"url": report.site, "crawl": report.crawl}
    return _page(
        request,
        "site.html",
        headers=incomplete((*report.missing, *missing)),
        report=report,
        captures=f"/search?{urlencode(here | {'url': f'*.{report.site}'})}",
        through=f"/site?{urlencode(here | {'counted': 'yes'})}",
        crawls=[(each, count, f"/site?{urlencode(here | {'crawl': each})}") for each, count in counts.items()],
        price=price,
    )


async def _search(request: Request) -> Response:
    form, as_csv = Form.of(request.query_params), request.url.path.endswith(".csv")
    choices: list[tuple[str, str]] = []

    def page(status: int = 200, headers: Mapping[str, str] | None = None, **values: object) -> Response:
        values = {"form": form, "choices": choices, "failure": "", "retry_after": 0, "found": None, **values}
        return _page(request, "search.html", status, headers, **values)

    try:
        choices = _choices(await run_query(request, partial(_crawl_rows, service_of(request))))
        if not (request.query_params or as_csv):
            return page(form=Form(crawls=("latest",)))
        _check_names(request)
        query = parse_form(form)
        if isinstance(query, Form):
            return page(400, form=query)
        try:
            found = await run_query(request, lambda session: run_search(session, form, query, as_csv=as_csv))
        except QueryError as error:  # only crawls, and the column of unique, could not be checked before
            status, message, _ = describe_error(request, error)
            name = "unique" if isinstance(error, UnknownColumn) else "crawl"
            return page(status, form=replace(form, errors={name: message}))
        service_of(request).check_complete(query.crawls, found["plan"].missing)
    except Harvesting as error:
        headers = {"Retry-After": str(_POLL_SECONDS), "Content-Security-Policy": _waiting_policy()}
        return _page(request, "waiting.html", 503, headers, form=form, harvest=error, seconds=_POLL_SECONDS)
    except CatalogueError as error:
        status, message, headers = describe_error(request, error)
        return page(status, headers, failure=f"{message}.", retry_after=int(headers.get("Retry-After", "0")))
    if as_csv and found["rows"] is not None:
        headers = {"Content-Disposition": 'attachment; filename="captures.csv"', **incomplete(found["plan"].missing)}
        if found["more"]:
            headers["Link"] = f'<{form.address("/search.csv", page=str(form.page + 1))}>; rel="next"'
        return Response(to_csv(found["rows"], found["columns"]), headers={**_FIXED, **headers}, media_type="text/csv")
    return page(422 if as_csv else 200, **_result(form, query, found))


def _check_names(request: Request) -> None:
    """Refuse a parameter that would be ignored, such as ``matchType``: the result would be that of another query."""
    given = [name for name, value in request.query_params.multi_items() if value]
    if unknown := [name for name in given if name not in KNOWN]:
        raise QueryError(formatting.not_among("unknown parameter", unknown[0], KNOWN))
    if repeated := [name for name in given if name != "crawl" and given.count(name) > 1]:
        raise QueryError(f"{repeated[0]} is given {given.count(repeated[0])} times; give it once")


ROUTES: Sequence[Route | Mount] = [
    Route("/", _home),
    Route("/search", _search),
    Route("/search.csv", _search),
    Route("/site", _site_report),
    Route("/status", _status),
    Route("/robots.txt", _robots),
    Route("/static/colours.css", _colours),
    Mount("/static", _Static(directory=_STATIC)),
    Route("/{crawl}/", _crawl),
    Route("/{crawl}", _crawl),
]
"""The last ones take any name."""


def _crawl_rows(service: Service, session: Session) -> list[dict[str, Any]]:
    service.crawls.get(session)  # stores the list of crawls, of which the rows are made
    return crawl_rows(session)


def _choices(crawls: list[dict[str, Any]]) -> list[tuple[str, str]]:
    found = []
    for row in crawls:
        label = " · ".join(filter(None, (row["crawl"], row["name"])))
        is_stored = row["files_harvested"] or row["blocks"]
        if is_stored or row["has_table"]:
            found.append((row["crawl"], label if is_stored else f"{label} (not harvested)"))
    return found


def _result(form: Form, query: Query, found: dict[str, Any]) -> dict[str, Any]:
    one = found["crawls"][0] if len(found["crawls"]) == 1 else None
    return {
        "found": found,
        "command": _command(form),
        "more": form.address(limit=str(MAX_LIMIT)) if found["more"] and form.limit < MAX_LIMIT else "",
        "previous": form.address(page=str(form.page - 1)) if form.page > 1 else "",
        "next": form.address(page=str(form.page + 1)) if found["more"] and form.page < MAX_PAGE else "",
        "csv": form.address("/search.csv", limit=str(MAX_LIMIT)),
        "json": form.address("/api/query", order="", limit=str(MAX_LIMIT)),
        "site": _site(form, query),
        "report": f"/site?{urlencode({'url': form['url'], 'crawl': one})}" if one and _is_host(form["url"]) else "",
        "map": svg.draw_query(found["space"], found["plan"], limited=found["more"]) if found["space"] else None,
        "others": [(crawl, form.address(crawls=(crawl,))) for crawl in found["others"][:_MAX_OTHERS]],
        "rest": max(0, len(found["others"]) - _MAX_OTHERS),
    }


def _command(form: Form) -> str:
    words = ["catalogue", "query", form["url"]]
    for crawl in form.crawls or (STORED,):
        words += ["--crawl", crawl]
    for each in FORM_PARAMETERS:
        if text := form[each.field]:
            words += [each.option] if each.kind is bool else [each.option, text]
    return shlex.join(words)


def _is_host(url: str) -> bool:
    return "/" not in (url.partition("://")[2] or url).removesuffix("*").rstrip("/")


def _site(form: Form, query: Query) -> list[tuple[str, str]]:
    typed = form["url"].removesuffix("/")
    if query.match or "*" in typed or "/" in typed.partition("://")[2] or ("/" in typed and "://" not in typed):
        return []
    wider = [f"{typed}/*", f"*.{typed.partition('://')[2] or typed}"]
    return [(url, form.address(url=url)) for url in wider]
