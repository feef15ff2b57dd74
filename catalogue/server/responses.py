"""Queries in the pool, and errors as answers."""

import asyncio
import json
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from catalogue import errors
from catalogue.captures import Captures
from catalogue.plan.plan import ReadPlan
from catalogue.query.parameters import with_fields
from catalogue.session import Session

if TYPE_CHECKING:
    from catalogue.server.service import Service

T = TypeVar("T")

_MAX_SECONDS = 25.0
"""Time for a query, including the queue: clients wait 30 s for an answer."""
_MAX_IN_MEMORY, _BLOCK_CAPTURES = 2_000_000, 3000
"""Most captures in memory, and those of a block, about."""
_RETRY_SECONDS, _RETRY_UNAVAILABLE_SECONDS = 30, 3600
"""``Retry-After`` where the error has none."""


def service_of(request: Request) -> "Service":
    service: Service = request.app.state.service
    return service


def check_memory(captures: Captures, plan: ReadPlan) -> None:
    """Refuse a plan of ``latest``, ``unique`` or ``ordered`` captures that are too many for memory."""
    rows = plan.rows + _BLOCK_CAPTURES * plan.block_count
    if (captures.distinct or plan.query.ordered) and rows > _MAX_IN_MEMORY:
        message = f"latest, unique and ordered hold {rows:,} captures in memory; the limit is {_MAX_IN_MEMORY:,}"
        raise errors.TooExpensive(message)


async def run_query(request: Request, query: Callable[[Session], T], *, key: Hashable = None) -> T:
    """Run a query in the pool; see ``Service.submit``.

    Raises:
        Busy: if it takes too long, or the server ends. If it runs, it continues, and its responses are cached for the
            next request.
    """
    service = service_of(request)
    spent = service.meter()
    answer = service.submit(query, key=key)
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(answer)), _MAX_SECONDS)
    except TimeoutError as error:
        raise errors.Busy("the query takes too long; try again, what was fetched is cached", retry_after=5) from error
    except asyncio.CancelledError as error:
        if hasattr(request.state, "begun"):  # the client has left, and could get no 503
            raise
        raise errors.Busy("the server is being stopped; try again", retry_after=5) from error
    finally:
        service.abandon(answer)
        before, now = getattr(request.state, "spent", (0, 0)), spent()
        request.state.spent = before and now and (before[0] + now[0], before[1] + now[1])  # None if one is not known


def error_answer(status: int, message: str, **headers: str) -> Response:
    body = json.dumps({"message": message})
    fixed = {"Content-Type": "application/json; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    return Response(body, status, headers | fixed)


def json_bytes(value: object) -> bytes:
    """Encode as JSON; lone surrogates, which UTF-8 cannot encode, become question marks."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


def incomplete(missing: Sequence[str]) -> dict[str, str]:
    line = " ".join("; ".join(missing).encode("ascii", "replace").decode().split())
    return {"Catalogue-Incomplete": line} if missing else {}


def describe_error(request: Request, error: BaseException) -> tuple[int, str, dict[str, str]]:
    """Return status, message and headers. Internal errors are reported to the operator, not to the client.

    503: temporary, and only then, because clients retry. 404: not found or not harvested. 400: invalid. 422: too
    expensive, or a record that differs from the index. 409: files changed at the source.
    """
    headers: dict[str, str] = {}
    # Without this check, a store that was moved would be reported as not harvested.
    if isinstance(error, errors.StoreError | errors.NotHarvested) and (problem := service_of(request).problem()):
        service_of(request).notify(f"{request.url.path} failed: {problem}")
        headers["Retry-After"] = str(_RETRY_SECONDS)
        return 503, "the server cannot read its data; see the server log", headers
    match error:
        case HTTPException():
            return error.status_code, error.detail, dict(error.headers or {})
        case errors.NothingStored():
            return 404, with_fields(error.without_folder), {}
        case errors.NotHarvested() | errors.UnknownCrawl():
            status = 404
        case errors.BadRecord() | errors.BadDocument():  # 502 would be retried
            return 422, f"the record cannot be shown: {error}", {}
        case errors.TooExpensive():
            status = 422
        case errors.QueryError():
            status = 400
        case errors.NotFound() | errors.Forbidden() | errors.FileChanged() | errors.Redirected() | errors.FormatError():
            status = 409
        case errors.Busy() | errors.SourceError() | errors.StoreLocked():
            blocked = isinstance(error, errors.SourceUnavailable | errors.Blocked)
            seconds = getattr(error, "retry_after", None) or (_RETRY_UNAVAILABLE_SECONDS if blocked else _RETRY_SECONDS)
            status, headers["Retry-After"] = 503, str(max(1, round(seconds)))
        case _:
            error = error.__cause__ or error  # Starlette raises RuntimeError from errors after the first part
            service_of(request).notify(f"{request.url.path} failed: {type(error).__name__}: {error}")
            return 500, "internal error; see the server log", {}
    return status, with_fields(str(error)), headers


async def on_error(request: Request, error: Exception) -> Response:
    status, message, headers = describe_error(request, error)
    return error_answer(status, message, **headers)
