"""Pages for people: HTML that needs neither scripts nor anything from elsewhere."""

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
from catalogue.reports import cached_pages, coverage_rows, crawl_rows
from catalogue.server.responses import ask, incomplete, noted, service_of, told
from catalogue.server.search import LOCATION, Found, csv_of, search
from catalogue.server.search_form import LARGEST_LIMIT, LAST_PAGE, Asked, Form, read
from catalogue.server.service import Service

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""What a page may load: what this server has, and no script or style within it."""
_FIXED = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

_STATIC = Path(__file__).parent / "static"
_POLL = 2
"""Seconds after which a page that waits for a harvest looks again."""
_OTHERS = 12
"""Crawls beside the one on the map that are named."""
_COLOURS = stylesheet() + svg.STYLE
_YEAR = "public, max-age=31536000, immutable"


def routes() -> Sequence[BaseRoute]:
    """The paths of the pages; the last takes whatever is left that could be the name of a crawl."""
    pages = _Pages()
    return [
        Route("/", pages.home),
        Route("/search", pages.search),
        Route("/search.csv", pages.search),
        Route("/status", pages.status),
        Route("/robots.txt", _robots),
        Route("/static/colours.css", _colours),
        Mount("/static", _Static(directory=_STATIC)),
        Route("/{crawl}/", pages.crawl),
        Route("/{crawl}", pages.crawl),
    ]


async def _robots(_: Request) -> Response:
    """Crawlers have nothing to find here that Common Crawl does not offer as a whole."""
    return PlainTextResponse("User-agent: *\nDisallow: /\n")


async def _colours(_: Request) -> Response:
    headers = {"Cache-Control": _YEAR, "X-Content-Type-Options": "nosniff"}
    return Response(_COLOURS, headers=headers, media_type="text/css")


class _Static(StaticFiles):
    """Files that may be kept for ever, since their addresses change with them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        if scope["path"].endswith("/"):  # which Starlette has removed from the path it passes
            raise HTTPException(404)
        response = await super().get_response(path, scope)
        if response.status_code < 400:  # noqa: PLR2004
            response.headers["Cache-Control"] = _YEAR
            response.headers["X-Content-Type-Options"] = "nosniff"
        return response


class _Pages:
    """The pages, and what they have in common."""

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
        script = self._templates.get_template("waiting.js").render(seconds=_POLL).encode()
        digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
        self._waiting_policy = f"{POLICY}; connect-src 'self'; script-src 'sha256-{digest}'"

    async def home(self, request: Request) -> Response:
        """What this is, the form, and the crawls there are."""
        try:
            crawls = await ask(request, partial(self._crawls, service_of(request)))
        except CatalogueError as error:
            return self._failed(request, error)
        return self._page(
            request, "home.html", crawls=crawls, choices=_choices(request, crawls), form=Form(crawls=("latest",))
        )

    async def crawl(self, request: Request) -> Response:
        """One crawl."""
        name = request.path_params["crawl"]
        try:
            crawls = await ask(request, partial(self._crawls, service_of(request)))
        except CatalogueError as error:
            return self._failed(request, error)
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
            on_demand=service_of(request).harvests is not None,
        )

    async def search(self, request: Request) -> Response:
        """A question and its answer, as a page or as CSV."""
        form, as_csv = Form.of(request.query_params), request.url.path.endswith(".csv")
        blank: dict[str, Any] = {"failure": "", "patience": 0, "found": None, "choices": []}
        try:
            blank["choices"] = _choices(request, await ask(request, lambda catalogue: crawl_rows(catalogue.session)))
            if not request.query_params:
                return self._page(request, "search.html", form=Form(crawls=("latest",)), **blank)
            asked = read(form)
            if isinstance(asked, Form):
                return self._page(request, "search.html", 400, form=asked, **blank)
            try:
                found = await ask(request, lambda catalogue: search(catalogue, asked, LOCATION if as_csv else ()))
            except QueryError as error:  # of all that is typed this alone could not be checked before
                form = form.refused("crawl", str(error))
                return self._page(request, "search.html", told(error).status_code, form=form, **blank)
            service_of(request).settle(plain_names(asked.crawls), found.plan.missing)
        except Harvesting as error:
            headers = {"Retry-After": str(_POLL), "Content-Security-Policy": self._waiting_policy}
            return self._page(request, "waiting.html", 503, headers, form=form, harvest=error, seconds=_POLL)
        except CatalogueError as error:
            refused = noted(request, error, told(error))
            patience = int(refused.headers.get("Retry-After", "0"))
            blank |= {"failure": _reason(refused), "patience": patience}
            headers = {"Retry-After": str(patience)} if patience else {}
            return self._page(request, "search.html", refused.status_code, headers, form=form, **blank)
        if as_csv and found.rows is not None:
            headers = {"Content-Disposition": 'attachment; filename="captures.csv"', **incomplete(found.plan.missing)}
            return Response(csv_of(found.rows), headers={**_FIXED, **headers}, media_type="text/csv")
        blank |= _shown(form, asked, found)
        return self._page(request, "search.html", 422 if as_csv else 200, form=form, **blank)

    async def status(self, request: Request) -> Response:
        """What is held, and what was asked of the source."""
        service = service_of(request)
        try:
            coverage, kept = await ask(
                request, lambda catalogue: (coverage_rows(catalogue.session), cached_pages(catalogue.session))
            )
        except CatalogueError as error:
            return self._failed(request, error)
        crawls: set[str] = set()
        for row in coverage:
            row["first"] = row["crawl"] not in crawls
            crawls.add(row["crawl"])
            row["state"] = _state(row)
        return self._page(
            request,
            "status.html",
            coverage=coverage,
            kept=kept,
            asked=service.asked,
            at_once=service.at_once,
            spent=service.spent,
        )

    @staticmethod
    def _crawls(service: Service, catalogue: Catalogue) -> list[dict[str, Any]]:
        """The crawls there are, newest first, and how much of each is held."""
        service.listed.get(catalogue)  # which the rows are made of, once it is looked up
        return crawl_rows(catalogue.session)

    def _failed(self, request: Request, error: CatalogueError) -> Response:
        refused = noted(request, error, told(error))
        headers = {name: text for name, text in refused.headers.items() if name == "retry-after"}
        heading = "Not now" if headers else "This failed"
        return self._page(
            request, "error.html", refused.status_code, headers, heading=heading, message=_reason(refused)
        )

    def _page(
        self, request: Request, name: str, status: int = 200, headers: Mapping[str, str] | None = None, **values: object
    ) -> Response:
        text = self._templates.get_template(name).render(here=request.url.path, **values)
        return HTMLResponse(text, status, {**_FIXED, **(headers or {})})


def _reason(refused: Response) -> str:
    """What an answer to programs says of why there is none, as a sentence."""
    return f"{json.loads(bytes(refused.body))['message']}."


def _choices(request: Request, crawls: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return names and labels of the crawls that the form offers."""
    on_demand = service_of(request).harvests is not None
    found = []
    for row in crawls:
        if row["files_harvested"] or (on_demand and row["has_table"]):
            label = " · ".join(filter(None, (row["crawl"], row["name"])))
            found.append((row["crawl"], label if row["files_harvested"] else f"{label} (not harvested yet)"))
    return found


def _state(row: Mapping[str, Any]) -> str:
    """How much of a subset is held, in a word or a few."""
    if row["files_failed"]:
        return "some files failed"
    if row["files_listed"] is not None and row["files_harvested"] < row["files_listed"]:
        return "in part" if row["files_harvested"] else "not harvested"
    return "complete but for bounds" if row["without_bounds"] else "complete"


def _shown(form: Form, asked: Asked, found: Found) -> dict[str, Any]:
    """What the page of an answer says."""
    one = found.crawls[0] if len(found.crawls) == 1 else None
    return {
        "found": found,
        "headline": _headline(asked, found),
        "command": _command(asked),
        "more": form.address(limit=str(LARGEST_LIMIT)) if found.more and asked.limit < LARGEST_LIMIT else "",
        "previous": form.address(page=str(asked.page - 1)) if asked.page > 1 else "",
        "next": form.address(page=str(asked.page + 1)) if found.more and asked.page < LAST_PAGE else "",
        "csv": form.address("/search.csv", limit=str(LARGEST_LIMIT)),
        "cdx": form.cdx_address(one) if one else "",
        "site": _site(form, asked),
        "facts": list(_facts(found).items()),
        "map": svg.draw_query(found.space, found.plan, limited=found.more),
        "others": [(crawl, form.address(crawls=(crawl,))) for crawl in found.others[:_OTHERS]],
        "rest": max(0, len(found.others) - _OTHERS),
    }


def _headline(asked: Asked, found: Found) -> str:
    crawls = found.crawls[0] if len(found.crawls) == 1 else formatting.plural(len(found.crawls), "crawl")
    if found.rows is None:
        return f"{asked.pattern} in {crawls}: not read"
    if not found.rows:
        return f"No {'more ' if asked.start else ''}captures of {asked.pattern} in {crawls}"
    count = formatting.plural(len(found.rows), "capture")
    if asked.start:
        count = f"Captures {asked.start + 1:,} to {asked.start + len(found.rows):,}"
    if found.more:
        return f"{count} of {asked.pattern} in {crawls}; there are more"
    return f"{count} of {asked.pattern} in {crawls}"


def _command(asked: Asked) -> str:
    """The same question on the command line."""
    words = ["catalogue", "query", asked.pattern]
    for crawl in asked.crawls:
        words += ["--crawl", crawl]
    options = {
        "--match": asked.match and asked.match.value,
        "--from": asked.from_,
        "--to": asked.to,
        "--status": ",".join(asked.filters.status),
        "--mime": ",".join(asked.filters.mime),
        "--lang": ",".join(asked.filters.lang),
    }
    return shlex.join([*words, *(word for name, text in options.items() if text for word in (name, text))])


def _site(form: Form, asked: Asked) -> list[tuple[str, str]]:
    """What somebody may have meant who typed a host alone, and where that is found."""
    typed = asked.pattern.removesuffix("/")
    if asked.match or "*" in typed or "/" in typed.partition("://")[2] or ("/" in typed and "://" not in typed):
        return []
    wider = [f"{typed}/*", f"*.{typed.partition('://')[2] or typed}"]
    return [(url, form.address(url=url)) for url in wider]


def _facts(found: Found) -> dict[str, str]:
    """The plan in numbers."""
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
