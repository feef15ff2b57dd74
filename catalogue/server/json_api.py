"""The JSON API: plans, captures, row groups and status."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.crawls import plain_names
from catalogue.errors import CatalogueError, QueryError
from catalogue.formatting import closest_name
from catalogue.query.filters import LANGUAGE, MIME, STATUS
from catalogue.query.query import Query as CaptureQuery
from catalogue.server.json_answers import plan_answer, query_answer, row_groups_answer, status_answer
from catalogue.server.json_models import Error, PlanAnswer, QueryAnswer, RowGroupsAnswer, StatusAnswer
from catalogue.server.responses import answer_of, error_answer, json_bytes, logged, run_query, service_of

OPENAPI_PATH = "/api/openapi.json"
_MAX_QUERY_LENGTH, _MAX_FIELDS = 40_000, 300
_CRAWL = "CC-(?:MAIN|SUPPLEMENTAL)-[0-9]{4}(?:-[0-9]{2,4})?"
_CLOCK = "[T ][0-9]{2}(?::[0-9]{2}(?::[0-9]{2})?)?"
_TIME = f"[0-9]{{1,14}}|[0-9]{{4}}-[0-9]{{2}}(?:-[0-9]{{2}}(?:{_CLOCK})?)?(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})?"
_NUMBER = re.compile("-?[0-9]{1,18}")
_MAX_LIMIT = 10_000


def _text(description: str, example: str) -> Any:  # noqa: ANN401 - pydantic's field
    return Field(description=description, examples=[example])


def _list(description: str, example: str) -> Any:  # noqa: ANN401 - pydantic's field
    return Field(description=description, examples=[[example]], min_length=1, max_length=20)


def _values(pattern: str) -> Any:  # noqa: ANN401 - pydantic's field
    return Field(pattern=f"^(?:{pattern})(?:,(?:{pattern})){{0,20}}$")


def _digits(value: object) -> object:
    """Reject numbers that pydantic accepts: ``1_000``, ``1.0``."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError("use digits")
    return value


Crawl = Annotated[str, Field(pattern=f"^(?:all|latest|{_CRAWL}|(?:{_CRAWL})?\\.\\.(?:{_CRAWL})?)$")]
Crawls = Annotated[
    list[Crawl], _list("Harvested crawls: CC-MAIN-2022-05, CC-MAIN-2022, A..B, latest or all.", "latest")
]
Limit = Annotated[
    int, Field(ge=1, le=_MAX_LIMIT, description="Maximum of rows.", examples=[10]), BeforeValidator(_digits)
]
Url = Annotated[str, Field(min_length=1, max_length=2000)]
Time = Annotated[str, Field(pattern=f"^(?:{_TIME})$")]
Columns = Annotated[str, Field(pattern="^(?:\\*|[A-Za-z0-9_]{1,64}(?:,[A-Za-z0-9_]{1,64}){0,40})$")]
RowGroupName = Annotated[str, Field(pattern="^[!-~]{1,500}:[0-9]{1,9}$")]
Missing = SkipJsonSchema[None]
"""The type of an optional parameter that is not given; clients cannot send it."""


class PlanParameters(BaseModel):
    """Parameters of a query without a limit."""

    model_config = ConfigDict(extra="forbid")

    url: Annotated[
        Url, _text("A URL, host or pattern: example.com/page, example.com/*, *.example.com, *.is.", "*.example.com")
    ]
    crawl: Crawls = ["all"]
    match: Annotated[
        Literal["exact", "prefix", "host", "domain"] | Missing,
        Field(alias="matchType", description="How to match the URL, instead of wildcards.", examples=["domain"]),
    ] = None
    from_: Annotated[
        Time | Missing,
        Field(alias="from", description="First time: 1 to 14 digits or ISO 8601, UTC; inclusive.", examples=["2018"]),
    ] = None
    to: Annotated[Time | Missing, _text("Last time, inclusive.", "20261231")] = None
    status: Annotated[
        list[Annotated[str, _values(STATUS)]], _list("HTTP status: one of these; 2xx for a class.", "200")
    ] = []
    mime: Annotated[
        list[Annotated[str, _values(MIME)]],
        _list(
            "Media type as detected (as declared, in crawls without): one of these; text/* for a prefix.", "text/html"
        ),
    ] = []
    language: Annotated[
        list[Annotated[str, _values(LANGUAGE)]], _list("ISO 639-3: pages in one of these languages.", "eng")
    ] = []
    columns: Annotated[
        Columns | Missing,
        _text(
            "Columns of the answer, comma-separated, or *; by default those of the CDX index.",
            "url,fetch_time,fetch_status",
        ),
    ] = None

    def query(self, limit: int | None = None) -> CaptureQuery:
        return CaptureQuery.of(
            self.url,
            crawls=self.crawl,
            columns=self.columns.split(",") if self.columns else None,
            status=self.status,
            mime=self.mime,
            lang=self.language,
            from_=self.from_,
            to=self.to,
            limit=limit,
            match=self.match,
        )


class QueryParameters(PlanParameters):
    """Parameters of a query."""

    limit: Limit = 100


class RowGroupsParameters(BaseModel):
    """Parameters of a list of row groups."""

    model_config = ConfigDict(extra="forbid")

    crawl: Crawls = ["all"]
    key: Annotated[
        Url | Missing, _text("A pattern, as url: only row groups that may contain its keys.", "*.example.com")
    ] = None
    limit: Limit = 100
    after: Annotated[
        RowGroupName | Missing,
        _text(
            "next of the previous answer, to continue.",
            "cc-index/table/cc-main/warc/crawl=CC-MAIN-2022-05/subset=warc/part-00000.parquet:0",
        ),
    ] = None


class StatusParameters(BaseModel):
    """No parameters."""

    model_config = ConfigDict(extra="forbid")


PARAMETERS: dict[str, type[BaseModel]] = {
    "/api/plan": PlanParameters,
    "/api/query": QueryParameters,
    "/api/row_groups": RowGroupsParameters,
    "/api/status": StatusParameters,
}
_SINGLE = {
    field.alias or name
    for model in PARAMETERS.values()
    for name, field in model.model_fields.items()
    if not isinstance(field.examples[0] if field.examples else "", list)
}


async def _check_query_string(request: Request) -> None:
    """Check what FastAPI does not: length, encoding, and parameters given more than once."""
    query = request.scope["query_string"]
    if len(query) > _MAX_QUERY_LENGTH:
        raise QueryError(f"the query string has {len(query):,} characters; the limit is {_MAX_QUERY_LENGTH:,}")
    try:
        fields = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError as error:  # UnicodeDecodeError too
        message = f"the query string is not percent-encoded UTF-8, or has more than {_MAX_FIELDS} parameters"
        raise QueryError(message) from error
    for name, count in Counter(name for name, _ in fields).items():
        if count > 1 and name in _SINGLE:
            raise QueryError(f"{name} is given {count:,} times; use it once")


_RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Error, "description": "Invalid, unknown or missing parameter."},
    404: {"model": Error, "description": "The crawl does not exist, or is not harvested."},
    422: {
        "model": Error,
        "description": "The query is invalid or too expensive, or a strict server could not answer it completely.",
    },
    503: {"model": Error, "description": "Overload, or the source does not answer.", "headers": _RETRY_AFTER},
}
router = APIRouter(prefix="/api", dependencies=[Depends(_check_query_string)], responses=_ERRORS)


@router.get(
    "/plan",
    operation_id="plan",
    response_model=PlanAnswer,
    summary="The cost of a query: requests and bytes, and the requests of each file. Nothing is fetched.",
)
async def plan(request: Request, parameters: Annotated[PlanParameters, Query()]) -> Response:
    """Answer with a plan."""
    return await _answer(request, lambda catalogue: plan_answer(catalogue, parameters.query()))


@router.get("/query", operation_id="query", response_model=QueryAnswer, summary="Captures.")
async def query(request: Request, parameters: Annotated[QueryParameters, Query()]) -> Response:
    """Answer with captures."""

    def answer(catalogue: Catalogue) -> dict[str, Any]:
        found = query_answer(catalogue, parameters.query(parameters.limit))
        service_of(request).check_complete(plain_names(parameters.crawl), found["missing"])
        return found

    return await _answer(request, answer)


@router.get(
    "/row_groups",
    operation_id="row_groups",
    response_model=RowGroupsAnswer,
    summary="Row groups of the stored files, and the bounds of their keys.",
)
async def row_groups(request: Request, parameters: Annotated[RowGroupsParameters, Query()]) -> Response:
    """Answer with row groups."""
    path, _, number = (parameters.after or ":-1").rpartition(":")
    after = path, int(number)
    return await _answer(
        request,
        lambda catalogue: row_groups_answer(catalogue, parameters.crawl, parameters.key, after, parameters.limit),
    )


@router.get(
    "/status",
    operation_id="status",
    response_model=StatusAnswer,
    summary="What is stored, what failed, and what is missing.",
)
async def status(request: Request, _: Annotated[StatusParameters, Query()]) -> Response:
    """Answer with the status."""
    return await _answer(request, lambda catalogue: status_answer(catalogue, service_of(request).spent))


async def _no_such_path(_: Request) -> Response:
    return error_answer(404, f"no such path; see {', '.join([*PARAMETERS, OPENAPI_PATH])}")


def add_to(app: FastAPI) -> None:
    app.include_router(router)
    for route in (each for each in router.routes if isinstance(each, APIRoute)):
        app.add_api_route(
            route.path,
            route.endpoint,
            methods=["HEAD"],
            include_in_schema=False,
            dependencies=[Depends(_check_query_string)],
        )
    app.add_route("/api/{rest:path}", _no_such_path, include_in_schema=False)


async def _answer(request: Request, query: Callable[[Catalogue], dict[str, Any]]) -> Response:
    try:
        body = await run_query(request, lambda catalogue: json_bytes(query(catalogue)))
    except CatalogueError as error:
        answer = answer_of(error)
        if answer.status_code == 400:  # noqa: PLR2004 - all parameters are valid
            answer = error_answer(422, str(error))
        return logged(request, error, answer)
    return Response(body, media_type="application/json", headers={"X-Content-Type-Options": "nosniff"})


async def on_invalid_parameters(request: Request, error: RequestValidationError) -> Response:
    """Answer with the first validation error, in the form of all errors."""
    first = error.errors()[0]
    name = str(first["loc"][1])[:100]
    fields = {
        field.alias or each: field for each, field in PARAMETERS[request.scope["route"].path].model_fields.items()
    }
    example = fields[name].examples if name in fields else None
    given = str(first["input"])[:100]
    match first["type"]:
        case "missing":
            message = f"{name} is required"
        case "extra_forbidden":
            near = closest_name(name, fields)
            hint = f"did you mean {near}?" if near else f"known are: {', '.join(fields) or 'none'}"
            message = f"unknown parameter {name!r}; {hint}"
        case "string_pattern_mismatch" | "string_too_short" | "string_too_long" if example:
            shown = example[0][0] if isinstance(example[0], list) else example[0]
            message = f"invalid {name} {given!r}; example: {shown}"
        case "too_long" | "too_short":
            message = f"{name} can be given 20 times"
        case "literal_error":
            message = f"invalid {name} {given!r}; use {first['ctx']['expected']}"
        case _:
            message = f"invalid {name} {given!r}; use a number from 1 to {_MAX_LIMIT:,}"
    return error_answer(400, message)
