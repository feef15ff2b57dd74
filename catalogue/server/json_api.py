"""The JSON API: plans, captures, row groups and what is held."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.crawls import plain_names
from catalogue.errors import CatalogueError
from catalogue.query.filters import LANGUAGE, MIME, STATUS, Filters
from catalogue.server.methods import Readable, json_answer, packed
from catalogue.server.openapi import Operation, document
from catalogue.server.parameters import BadParameter, Parameter, read_parameters
from catalogue.server.queries import Asked, captures_of, plan_of, row_groups_of, status_of
from catalogue.server.responses import ask, refusal, service_of, told
from catalogue.server.service import Service
from catalogue.surt import Match

_NAME = "CC-(?:MAIN|SUPPLEMENTAL)-[0-9]{4}(?:-[0-9]{2,4})?"
_CLOCK = "[T ][0-9]{2}(?::[0-9]{2}(?::[0-9]{2})?)?"
_TIME = f"[0-9]{{1,14}}|[0-9]{{4}}-[0-9]{{2}}(?:-[0-9]{{2}}(?:{_CLOCK})?)?(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})?"


def _several(pattern: str) -> str:
    return f"(?:{pattern})(?:,(?:{pattern})){{0,20}}"


_CRAWLS = Parameter(
    "crawl",
    "Harvested crawls: 2022-05, a year, A..B, latest or all, which is usual.",
    "latest",
    f"all|latest|{_NAME}|(?:{_NAME})?\\.\\.(?:{_NAME})?",
    most=20,
)
_LIMIT = Parameter("limit", "Rows at most.", 10, between=(1, 10_000), default=100)
_QUESTION = (
    Parameter(
        "url",
        "A URL, host or pattern: example.com/page, example.com/*, *.example.com, *.is.",
        "*.example.com",
        required=True,
    ),
    _CRAWLS,
    Parameter(
        "matchType",
        "What the URL stands for, whatever its asterisks say.",
        "domain",
        choices=tuple(match.value for match in Match),
    ),
    Parameter("from", "The first time: 1 to 14 digits or ISO 8601, UTC; inclusive.", "2018", _TIME),
    Parameter("to", "The last time, likewise; inclusive.", "20261231", _TIME),
    Parameter("status", "HTTP status: one of these; 2xx for a class.", "200", _several(STATUS), most=20),
    Parameter(
        "mime",
        "Media type as detected (as declared, in crawls without): one of these; text/* for a prefix.",
        "text/html",
        _several(MIME),
        most=20,
    ),
    Parameter("language", "ISO 639-3: pages that have one of these languages.", "eng", _several(LANGUAGE), most=20),
    Parameter(
        "columns",
        "Of the answer, comma-separated, or *; those of the CDX index are usual.",
        "url,fetch_time,fetch_status",
        "\\*|[A-Za-z0-9_]{1,64}(?:,[A-Za-z0-9_]{1,64}){0,40}",
    ),
)


def _asked(given: Mapping[str, Any]) -> Asked:
    return Asked(
        url=given["url"],
        crawls=given["crawl"] or ("all",),
        match=Match(given["matchType"]) if given["matchType"] else None,
        from_=given["from"],
        to=given["to"],
        filters=Filters.of(given["status"], given["mime"], given["language"]),
        columns=given["columns"],
        limit=given.get("limit"),
    )


def _plan(catalogue: Catalogue, given: Mapping[str, Any], _: Service) -> Any:  # noqa: ANN401 - JSON
    return plan_of(catalogue, _asked(given))


def _query(catalogue: Catalogue, given: Mapping[str, Any], service: Service) -> Any:  # noqa: ANN401 - JSON
    asked = _asked(given)
    found = captures_of(catalogue, asked)
    service.settle(plain_names(asked.crawls), found["missing"])
    return found


def _row_groups(catalogue: Catalogue, given: Mapping[str, Any], _: Service) -> Any:  # noqa: ANN401 - JSON
    path, _colon, number = (given["after"] or ":-1").rpartition(":")
    return row_groups_of(catalogue, given["crawl"] or ("all",), given["key"], (path, int(number)), given["limit"])


def _status(catalogue: Catalogue, _: Mapping[str, Any], service: Service) -> Any:  # noqa: ANN401 - JSON
    return status_of(catalogue, service.spent)


OPERATIONS = (
    Operation(
        "/api/plan",
        "plan",
        "What finding captures takes: requests, bytes, and which of which file. Nothing is fetched for it.",
        _QUESTION,
        _plan,
        "PlanAnswer",
    ),
    Operation("/api/query", "query", "Captures.", (*_QUESTION, _LIMIT), _query, "QueryAnswer"),
    Operation(
        "/api/row_groups",
        "row_groups",
        "Row groups of the files that are held, and the keys between which their rows lie.",
        (
            _CRAWLS,
            Parameter("key", "A pattern, as url elsewhere: those that might hold it.", "*.example.com"),
            _LIMIT,
            Parameter(
                "after",
                "Where the last answer ended, as its next says.",
                "cc-index/table/cc-main/warc/crawl=CC-MAIN-2022-05/subset=warc/part-00000.parquet:0",
                "[!-~]{1,500}:[0-9]{1,9}",
            ),
        ),
        _row_groups,
        "RowGroupsAnswer",
    ),
    Operation("/api/status", "status", "What is held, what failed, and what is lacking.", (), _status, "StatusAnswer"),
)


_OWN = "/api/openapi.json"
_BAD = 400


def routes() -> Sequence[BaseRoute]:
    """The paths of the API."""
    found = [Route(each.path, Readable(partial(_answered, each), _told)) for each in OPERATIONS]
    return [*found, Route(_OWN, Readable(_document, _told)), Route("/api/{rest:path}", Readable(_nothing, _told))]


async def _answered(operation: Operation, request: Request) -> Response:
    given = read_parameters(request.scope["query_string"], operation.parameters)
    service = service_of(request)
    return json_answer(await ask(request, lambda catalogue: packed(operation.answer(catalogue, given, service))))


async def _document(_: Request) -> Response:
    return json_answer(packed(document(OPERATIONS)))


async def _nothing(_: Request) -> Response:
    return refusal(404, f"there is no such path; there are {', '.join([*(each.path for each in OPERATIONS), _OWN])}")


def _told(error: CatalogueError) -> Response:
    """400 for what has not its form, which the document tells; 422 for what has and still is no question."""
    answer = told(error)
    return refusal(422, str(error)) if answer.status_code == _BAD and not isinstance(error, BadParameter) else answer
