"""The JSON API: plans, captures, row groups and status. Clients send no SQL, and the cost of a query is limited."""

from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from catalogue.captures import Captures
from catalogue.commoncrawl.crawls import COLUMNAR, STORED
from catalogue.errors import QueryError, TooExpensive
from catalogue.find_captures import find_captures
from catalogue.formatting import to_json
from catalogue.parquet.arrow_arrays import rows_of
from catalogue.plan.plan import ReadPlan
from catalogue.plan.requests import PlannedRequest
from catalogue.query.models import Arguments, describe_invalid
from catalogue.query.parameters import PARAMETERS
from catalogue.query.query import Query as CaptureQuery
from catalogue.reports import coverage_rows, disk_sizes, sql_rows
from catalogue.selection import select_stored
from catalogue.server import json_models as models
from catalogue.server.monitoring import Totals
from catalogue.server.responses import check_memory, describe_error, error_answer, json_bytes, run_query, service_of
from catalogue.session import Session
from catalogue.settings import package_version

OPENAPI_PATH = "/api/openapi.json"
OTHER_PATHS = "/api/{rest:path}"
_MAX_QUERY_LENGTH, _MAX_FIELDS = 40_000, 300
_MAX_ROW_GROUPS, _MAX_CANDIDATES, _MAX_LISTED = 2000, 10_000, 100_000
"""Row groups of a query, each of which takes milliseconds to plan; of one whose first keys are enough; of a list."""
_MAX_REQUESTS, _MAX_BYTES = 1000, 1 << 30
"""Cost of a query, unless a limit certainly ends it early."""
_MAX_PLANNED_FETCHES = 10_000

MODELS: dict[str, type[Arguments]] = {
    "/api/plan": models.PlanParameters,
    "/api/query": models.QueryParameters,
    "/api/row_groups": models.RowGroupsParameters,
    "/api/status": Arguments,
}
_REPEATABLE = {each.field for each in PARAMETERS if each.several}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": models.Error, "description": "Invalid, unknown or missing parameter."},
    404: {"model": models.Error, "description": "The crawl does not exist, or neither index of it can answer."},
    409: {"model": models.Error, "description": "A file has changed at the source, or is damaged or missing there."},
    422: {
        "model": models.Error,
        "description": "The query is invalid or too expensive, or a strict server could not answer it completely.",
    },
    431: {"model": models.Error, "description": "The URL and the headers of the request are too long."},
    503: {"model": models.Error, "description": "Overload, or the source does not answer.", "headers": _RETRY_AFTER},
}


async def _check_query_string(request: Request) -> None:
    query = request.scope["query_string"]
    if len(query) > _MAX_QUERY_LENGTH:
        raise QueryError(f"the query string has {len(query):,} characters; the limit is {_MAX_QUERY_LENGTH:,}")
    try:
        fields = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError as error:  # UnicodeDecodeError too
        message = f"the query string is not percent-encoded UTF-8, or has more than {_MAX_FIELDS} parameters"
        raise QueryError(message) from error
    for name, count in Counter(name for name, _ in fields).items():
        if count > 1 and name not in _REPEATABLE:
            raise QueryError(f"{name[:100]} is given {count:,} times; use it once")


ROUTER = APIRouter(prefix="/api", dependencies=[Depends(_check_query_string)], responses=_ERRORS)


def _endpoint(answer: type[BaseModel], summary: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        # The first route answers requests; the second one is in the document.
        ROUTER.add_api_route(f"/{name}", function, methods=["GET", "HEAD"], include_in_schema=False)
        ROUTER.add_api_route(f"/{name}", function, operation_id=name, response_model=answer, summary=summary)
        return function

    return add


@_endpoint(
    models.PlanAnswer, "The cost of a query: requests and bytes, and the requests of each file. No index is read."
)
async def plan(request: Request, parameters: Annotated[models.PlanParameters, Query()]) -> Response:
    return await _answer(request, lambda session: _plan(session, CaptureQuery.of(**parameters.query())))


@_endpoint(models.QueryAnswer, "Find captures.")
async def query(request: Request, parameters: Annotated[models.QueryParameters, Query()]) -> Response:

    def answer(session: Session) -> dict[str, Any]:
        found = _captures(session, CaptureQuery.of(**parameters.query()))
        service_of(request).check_complete(parameters.crawls or (), found["missing"])
        return found

    return await _answer(request, answer)


@_endpoint(models.RowGroupsAnswer, "Row groups of the stored files, and the bounds of their keys.")
async def row_groups(request: Request, parameters: Annotated[models.RowGroupsParameters, Query()]) -> Response:
    return await _answer(request, lambda session: _row_groups(session, parameters))


@_endpoint(models.StatusAnswer, "What is stored, what failed, and what is missing.")
async def status(request: Request, _: Annotated[Arguments, Query()]) -> Response:
    totals = await service_of(request).totals()
    return await _answer(request, lambda session: _status(session, totals))


async def no_such_path(_: Request) -> Response:
    return error_answer(404, f"no such path; see {', '.join([*MODELS, OPENAPI_PATH])}")


async def _answer(request: Request, query: Callable[[Session], dict[str, Any]]) -> Response:
    try:
        body = await run_query(request, lambda session: json_bytes(query(session)))
    except QueryError as error:
        status, message, _ = describe_error(request, error)
        return error_answer(422 if status == 400 else status, message)  # noqa: PLR2004 - all parameters are valid
    return Response(body, media_type="application/json", headers={"X-Content-Type-Options": "nosniff"})


async def on_invalid_parameters(request: Request, error: RequestValidationError) -> Response:
    """Answer with the first validation error, in the form of all errors."""
    first = error.errors()[0]
    return error_answer(400, describe_invalid(MODELS[request.scope["route"].path], first, str(first["loc"][1])))


def _plan(session: Session, query: CaptureQuery) -> dict[str, Any]:
    plan = _limited(find_captures(session, query)).plan
    files: dict[str, dict[str, Any]] = {}
    of_index = [*(read.file for read in plan.files), *(awaited.file for awaited in plan.awaited)]
    of_blocks = [(read.path, planned.crawl, None) for planned in plan.blocks for read in planned.reads]
    for path, crawl, subset in [*((file.path, file.crawl, file.subset) for file in of_index), *of_blocks]:
        about = {"path": path, "crawl": crawl, "subset": subset}
        files[path] = {**about, "row_groups": [], "awaited": [], "fetches": []}
    for read in plan.files:
        files[read.file.path]["row_groups"] += [group.ordinal for group in read.row_groups]
    for awaited in plan.awaited:
        files[awaited.file.path]["awaited"].append(awaited.row_group)
    for wave, requests in enumerate([plan.indexes, *plan.waves]):
        for request in requests:
            files[request.path]["fetches"].append(_fetch(request, wave))
    fetches = accumulate(len(each["fetches"]) for each in files.values())
    shown = max(1, sum(count <= _MAX_PLANNED_FETCHES for count in fetches))
    return {"plan": plan.summary(), "files": [*files.values()][:shown], "files_left_out": max(0, len(files) - shown)}


def _fetch(request: PlannedRequest, wave: int) -> dict[str, Any]:
    return {
        "wave": wave,
        "offset": request.range.start,
        "length": len(request.range),
        "row_groups": sorted({part.row_group for part in request.parts}),
        "columns": sorted({part.column for part in request.parts}),
        "cached": request.cached,
    }


def _captures(session: Session, query: CaptureQuery) -> dict[str, Any]:
    spent = session.spending()

    def agree(plan: ReadPlan) -> None:
        check_memory(captures, plan)
        _check_cost(plan, *spent())

    captures = _limited(find_captures(session, query))
    captures = captures.agreed(agree)
    rows = [to_json(row) for batch in captures.batches(warn=False) for row in rows_of(batch)]
    requests, received = spent()
    return {
        "captures": rows,
        "limited": len(rows) == query.limit,
        "complete": captures.complete,
        "missing": list(captures.plan.missing),
        "plan": captures.plan.summary(),
        "requests": requests,
        "bytes": received,
    }


def _row_groups(session: Session, parameters: models.RowGroupsParameters) -> dict[str, Any]:
    stored, places = select_stored(session, parameters.crawl or STORED, session.metadata().crawls), None
    if parameters.key is not None:
        query = CaptureQuery.of(parameters.key, crawls=stored, subsets="all", index="columnar")
        found = _limited(find_captures(session, query), _MAX_LISTED)
        files = [file for each in found.question.columnar() or () for file in each.candidates]
        places = [f"{file.path}:{ordinal}" for file in files for ordinal in file.ordinals]
    path, _, ordinal = (parameters.after or ":-1").rpartition(":")
    rows = sql_rows(
        session,
        """
        SELECT * FROM row_groups
        WHERE list_contains($1, crawl) AND (path > $2 OR (path = $2 AND row_group > $3))
          AND ($4 IS NULL OR path || ':' || row_group IN (SELECT unnest($4)))
        ORDER BY path, row_group LIMIT $5
        """,
        stored,
        path,
        int(ordinal),
        places,
        parameters.limit + 1,
    )
    shown = [to_json(row) for row in rows[: parameters.limit]]
    more = f"{shown[-1]['path']}:{shown[-1]['row_group']}" if len(rows) > len(shown) else None
    return {"row_groups": shown, "next": more}


def _status(session: Session, totals: Totals) -> dict[str, Any]:
    return {
        "coverage": to_json(coverage_rows(session)),
        "sizes": dict(zip(("store", "catalogue"), disk_sizes(session), strict=True)),
        "requests": int(totals["requests"]),
        "bytes": int(totals["bytes"]),
        "version": package_version(),
    }


def _limited(captures: Captures, most: int | None = None) -> Captures:
    question = captures.question
    query = question.query
    most = most or (_MAX_CANDIDATES if query.stops_early and query.keys_decide else _MAX_ROW_GROUPS)
    if question.reaches(most):
        error = TooExpensive(f"the query reaches more than {most:,} row groups")
        for indexes in map(question.indexes, question.crawls):
            if indexes.cdx is None:
                raise error
            if indexes.columnar:  # the CDX index answers, as it does where no footers are stored
                indexes.refusals[COLUMNAR] = error
    return captures


def _check_cost(plan: ReadPlan, spent: int, received: int) -> None:
    planned, size = plan.committed if plan.query.keys_decide else (plan.requests, plan.bytes)
    requests, size = spent + planned, received + size
    if requests > _MAX_REQUESTS or size > _MAX_BYTES:
        raise TooExpensive(
            f"the query takes up to {requests:,} requests and {size:,} bytes; the limits are {_MAX_REQUESTS:,} and "
            f"{_MAX_BYTES:,}; use fewer URLs, crawls or columns"
        )
