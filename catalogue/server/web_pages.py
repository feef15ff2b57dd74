"""Web pages: HTML without scripts or external content."""

import base64
import hashlib
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from catalogue import formatting
from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.crawls import plain_names
from catalogue.errors import CatalogueError, Harvesting, QueryError
from catalogue.key_map import svg
from catalogue.key_map.colours import stylesheet
from catalogue.server.responses import answer_of, incomplete, logged, run_query, service_of
from catalogue.server.search import LOCATION, Search, SearchResult, run_search, to_csv
from catalogue.server.search_form import MAX_LIMIT, MAX_PAGE, Form, parse_form
from catalogue.server.service import Service
from catalogue.stored import cached_pages, coverage_rows, crawl_rows

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
"""For pages that wait for a harvest."""
_MAX_OTHERS = 12
"""Crawls named in addition to the one on the map."""
_COLOURS = stylesheet() + svg.STYLE
_Page: TypeAlias = Callable[[Request], Awaitable[Response]]
_YEAR = "public, max-age=31536000, immutable"


def routes() -> Sequence[BaseRoute]:
    """Return the pages; the last one takes any name."""
    pages = _Pages()
    return [
        Route("/", pages.with_errors(pages.home)),
        Route("/search", pages.search),
        Route("/search.csv", pages.search),
        Route("/status", pages.with_errors(pages.status)),
        Route("/robots.txt", _robots),
        Route("/static/colours.css", _colours),
        Mount("/static", _Static(directory=_STATIC)),
        *(Route(path, pages.with_errors(pages.crawl)) for path in ("/{crawl}/", "/{crawl}")),
    ]


async def _robots(_: Request) -> Response:
    """Keep crawlers away: Common Crawl offers all of this as files."""
    return PlainTextResponse("User-agent: *\nDisallow: /\n")


async def _colours(_: Request) -> Response:
    headers = {"Cache-Control": _YEAR, "X-Content-Type-Options": "nosniff"}
    return Response(_COLOURS, headers=headers, media_type="text/css")


class _Static(StaticFiles):
    """Files with a version in their address, so that clients can cache them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        if scope["path"].endswith("/"):  # Starlette removes it from the path
            raise HTTPException(404)
        response = await super().get_response(path, scope)
        if response.status_code < 400:  # noqa: PLR2004
            response.headers["Cache-Control"] = _YEAR
            response.headers["X-Content-Type-Options"] = "nosniff"
        return response


class _Pages:
    def __init__(self) -> None:
        files = {file.name: file.read_bytes() for file in _STATIC.iterdir()}
        files["colours.css"] = _COLOURS.encode()
        versions = {name: hashlib.sha256(content).hexdigest()[:12] for name, content in files.items()}
        self._templates = Environment(
            loader=PackageLoader("catalogue.server"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals["asset"] = lambda name: f"/static/{name}?v={versions[name]}"
        for name in ("number", "plural", "size", "duration", "clock"):
            self._templates.filters[name] = getattr(formatting, name)
        script = self._templates.get_template("waiting.js").render(seconds=_POLL_SECONDS).encode()
        digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
        self._waiting_policy = f"{POLICY}; connect-src 'self'; script-src 'sha256-{digest}'"

    async def home(self, request: Request) -> Response:
        crawls = await run_query(request, partial(_crawl_rows, service_of(request)))
        return self._page(
            request, "home.html", crawls=crawls, choices=_choices(request, crawls), form=Form(crawls=("latest",))
        )

    async def crawl(self, request: Request) -> Response:
        name = request.path_params["crawl"]
        crawls = await run_query(request, partial(_crawl_rows, service_of(request)))
        crawl = next((row for row in crawls if row["crawl"] == name), None)
        if crawl is None:
            message = f"There is no page {name[:100]}, and no crawl of that name."
            return self._page(request, "error.html", 404, heading="Not found", message=message)
        return self._page(
            request,
            "crawl.html",
            crawl=crawl,
            choices=_choices(request, crawls),
            form=Form(crawls=(name,)),
            on_demand=service_of(request).harvester is not None,
        )

    async def search(self, request: Request) -> Response:
        """Search, and show captures as a page or as CSV."""
        form, as_csv = Form.of(request.query_params), request.url.path.endswith(".csv")
        blank: dict[str, Any] = {"failure": "", "retry_after": 0, "found": None, "choices": []}
        try:
            blank["choices"] = _choices(request, await run_query(request, lambda cat: crawl_rows(cat.session)))
            if not request.query_params:
                return self._page(request, "search.html", form=Form(crawls=("latest",)), **blank)
            search = parse_form(form)
            if isinstance(search, Form):
                return self._page(request, "search.html", 400, form=search, **blank)
            columns = LOCATION if as_csv else ()
            try:
                found = await run_query(request, lambda catalogue: run_search(catalogue, search, columns))
            except QueryError as error:  # only crawls could not be checked before
                form = form.with_error("crawl", str(error))
                return self._page(request, "search.html", answer_of(error).status_code, form=form, **blank)
            service_of(request).check_complete(plain_names(search.query.crawls), found.plan.missing)
        except Harvesting as error:
            headers = {"Retry-After": str(_POLL_SECONDS), "Content-Security-Policy": self._waiting_policy}
            return self._page(request, "waiting.html", 503, headers, form=form, harvest=error, seconds=_POLL_SECONDS)
        except CatalogueError as error:
            answer = logged(request, error, answer_of(error))
            retry_after = int(answer.headers.get("Retry-After", "0"))
            blank |= {"failure": _message(answer), "retry_after": retry_after}
            headers = {"Retry-After": str(retry_after)} if retry_after else {}
            return self._page(request, "search.html", answer.status_code, headers, form=form, **blank)
        if as_csv and found.rows is not None:
            headers = {"Content-Disposition": 'attachment; filename="captures.csv"', **incomplete(found.plan.missing)}
            return Response(to_csv(found.rows), headers={**_FIXED, **headers}, media_type="text/csv")
        blank |= _result(form, search, found)
        return self._page(request, "search.html", 422 if as_csv else 200, form=form, **blank)

    async def status(self, request: Request) -> Response:
        service = service_of(request)
        coverage, cached = await run_query(request, lambda cat: (coverage_rows(cat.session), cached_pages(cat.session)))
        crawls: set[str] = set()
        for row in coverage:
            row["first"] = row["crawl"] not in crawls
            crawls.add(row["crawl"])
            row["state"] = _state(row)
        return self._page(
            request,
            "status.html",
            coverage=coverage,
            cached=cached,
            pending=service.pending,
            at_once=service.at_once,
            spent=service.spent,
        )

    def with_errors(self, page: _Page) -> _Page:
        """Return a page that shows errors as HTML."""

        async def answer(request: Request) -> Response:
            try:
                return await page(request)
            except CatalogueError as error:
                answer = logged(request, error, answer_of(error))
                headers = {name: text for name, text in answer.headers.items() if name == "retry-after"}
                values = {"heading": "Temporarily unavailable" if headers else "Failed", "message": _message(answer)}
                return self._page(request, "error.html", answer.status_code, headers, **values)

        return answer

    def _page(
        self, request: Request, name: str, status: int = 200, headers: Mapping[str, str] | None = None, **values: object
    ) -> Response:
        text = self._templates.get_template(name).render(here=request.url.path, **values)
        return HTMLResponse(text, status, {**_FIXED, **(headers or {})})


def _crawl_rows(service: Service, catalogue: Catalogue) -> list[dict[str, Any]]:
    service.crawls.get(catalogue)  # stores the list of crawls, of which the rows are made
    return crawl_rows(catalogue.session)


def _message(answer: Response) -> str:
    return f"{json.loads(bytes(answer.body))['message']}."


def _choices(request: Request, crawls: list[dict[str, Any]]) -> list[tuple[str, str]]:
    on_demand = service_of(request).harvester is not None
    found = []
    for row in crawls:
        if row["files_harvested"] or (on_demand and row["has_table"]):
            label = " · ".join(filter(None, (row["crawl"], row["name"])))
            found.append((row["crawl"], label if row["files_harvested"] else f"{label} (not harvested yet)"))
    return found


def _state(row: Mapping[str, Any]) -> str:
    if row["files_failed"]:
        return "some files failed"
    if row["files_listed"] is not None and row["files_harvested"] < row["files_listed"]:
        return "incomplete" if row["files_harvested"] else "not harvested"
    return "complete, some bounds unknown" if row["without_bounds"] else "complete"


def _result(form: Form, search: Search, found: SearchResult) -> dict[str, Any]:
    one = found.crawls[0] if len(found.crawls) == 1 else None
    return {
        "found": found,
        "headline": _headline(search, found),
        "command": _command(search),
        "more": form.address(limit=str(MAX_LIMIT)) if found.more and search.limit < MAX_LIMIT else "",
        "previous": form.address(page=str(search.page - 1)) if search.page > 1 else "",
        "next": form.address(page=str(search.page + 1)) if found.more and search.page < MAX_PAGE else "",
        "csv": form.address("/search.csv", limit=str(MAX_LIMIT)),
        "cdx": form.cdx_address(one) if one else "",
        "site": _site(form, search),
        "facts": list(_facts(found).items()),
        "map": svg.draw_query(found.space, found.plan, limited=found.more),
        "others": [(crawl, form.address(crawls=(crawl,))) for crawl in found.others[:_MAX_OTHERS]],
        "rest": max(0, len(found.others) - _MAX_OTHERS),
    }


def _headline(search: Search, found: SearchResult) -> str:
    crawls = found.crawls[0] if len(found.crawls) == 1 else formatting.plural(len(found.crawls), "crawl")
    if found.rows is None:
        return f"{search.url} in {crawls}: not read"
    if not found.rows:
        return f"No {'more ' if search.start else ''}captures of {search.url} in {crawls}"
    count = formatting.plural(len(found.rows), "capture")
    if search.start:
        count = f"Captures {search.start + 1:,} to {search.start + len(found.rows):,}"
    if found.more:
        return f"{count} of {search.url} in {crawls}; there are more"
    return f"{count} of {search.url} in {crawls}"


def _command(search: Search) -> str:
    query = search.query
    words = ["catalogue", "query", search.url]
    for crawl in query.crawls:
        words += ["--crawl", crawl]
    options = {
        "--match": query.match and query.match.value,
        "--from": str(query.from_ or ""),
        "--to": str(query.to or ""),
        "--status": ",".join(query.filters.status),
        "--mime": ",".join(query.filters.mime),
        "--lang": ",".join(query.filters.lang),
    }
    return shlex.join([*words, *(word for name, text in options.items() if text for word in (name, text))])


def _site(form: Form, search: Search) -> list[tuple[str, str]]:
    """Suggest patterns for a host without a path, with their addresses."""
    typed = search.url.removesuffix("/")
    if search.query.match or "*" in typed or "/" in typed.partition("://")[2] or ("/" in typed and "://" not in typed):
        return []
    wider = [f"{typed}/*", f"*.{typed.partition('://')[2] or typed}"]
    return [(url, form.address(url=url)) for url in wider]


def _facts(found: SearchResult) -> dict[str, str]:
    plan = found.plan
    facts = {
        "Files": f"{len(plan.paths):,} of {found.files:,}",
        "Row groups": f"{plan.row_groups:,} of {plan.considered:,}",
        "Pages": f"{plan.about}{plan.pages:,}" if plan.pages else "",
        "Complete column chunks": f"{plan.chunks:,}" if plan.chunks else "",
        "Page indexes, fetched first": formatting.plural(len(found.first_plan.indexes), "request")
        if found.first_plan.indexes
        else "",
        "Requests": f"{plan.about}{plan.requests:,}",
        "Bytes": f"{plan.about}{formatting.size(plan.bytes)} of {formatting.size(found.bytes)}",
        "From the cache": formatting.size(plan.cached_bytes) if plan.cached_bytes else "",
        "Time": formatting.duration(found.seconds),
    }
    return {name: text for name, text in facts.items() if text}
