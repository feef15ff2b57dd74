"""What requests and answers of all kinds have in common: questions asked of the service, and errors as answers."""

import asyncio
import json
import re
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError
from typing import TypeVar
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from catalogue.catalogue import Catalogue
from catalogue.errors import (
    Blocked,
    Busy,
    CatalogueError,
    FileChanged,
    Forbidden,
    FormatError,
    NotFound,
    NotHarvested,
    QueryError,
    Redirected,
    SourceError,
    SourceUnavailable,
    StoreLocked,
    TooExpensive,
    UnknownCrawl,
)
from catalogue.server.service import Service

T = TypeVar("T")

JSON = "application/json; charset=utf-8"

_PATIENCE = 25.0
"""Seconds that a question may take, waiting for its turn included: clients wait 30 s for an answer."""
_COME_BACK = 30
"""Seconds to come back after, if nobody says."""
_AN_HOUR = 3600
_MOST_PARAMETERS = 200
_FAILED = 500
_OURS = "something failed here; whoever keeps this server can read there what"
_NO_TEXT = re.compile("[\udc80-\udcff]")


def service_of(request: Request) -> Service:
    """The service that answers a request."""
    service: Service = request.app.state.service
    return service


def parameters(request: Request) -> list[tuple[str, str]]:
    """The parameters of a request, in their order; those without a value left out. Bytes that are no text stay ``%XX``.

    Raises:
        QueryError: if there are too many.
    """
    text = request.scope["query_string"].decode("latin-1")
    try:
        found = parse_qsl(text, errors="surrogateescape", max_num_fields=_MOST_PARAMETERS)
    except ValueError as error:
        message = f"a request has {_MOST_PARAMETERS} parameters at most"
        raise QueryError(message) from error
    return [(_escaped(name), _escaped(value)) for name, value in found]


def _escaped(text: str) -> str:
    return _NO_TEXT.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


async def ask(request: Request, question: Callable[[Catalogue], T], *, key: Hashable = None) -> T:
    """Put a question to the service that answers a request, which goes on with others meanwhile.

    Raises:
        Busy: if it takes too long. What is under way goes on, and what it fetched is there for who asks again.
    """
    service = service_of(request)
    answer = service.ask(question, key=key)
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(answer)), _PATIENCE)
    except (TimeoutError, asyncio.CancelledError, CancelledError) as error:
        broken_off = isinstance(error, asyncio.CancelledError) and not answer.cancelled()
        service.leave(answer)
        if broken_off:
            raise  # it is the request, and not the answer
        message = "this takes longer than clients wait; what was fetched for it is kept, so ask again"
        raise Busy(message, retry_after=5) from error


def refusal(status: int, message: str, **headers: str) -> Response:
    """An answer that says why there is none."""
    return Response(json.dumps({"message": message}), status, headers | {"Content-Type": JSON})


def incomplete(missing: Sequence[str]) -> dict[str, str]:
    """The header that says why an answer may lack captures, if it may."""
    line = " ".join("; ".join(missing).encode("ascii", "replace").decode().split())
    return {"Catalogue-Incomplete": line} if missing else {}


def told(error: CatalogueError) -> Response:
    """What went wrong, as an answer.

    What may go better later is 503 and nothing else is, for clients ask again and again then. What will not is 404 for
    what is not there or not held, 400 for a question that cannot be understood, 422 for one that is too large, 409 for
    files that are not what they were, and 500 where it is our fault.
    """
    match error:
        case NotHarvested() | UnknownCrawl():
            return refusal(404, str(error))
        case TooExpensive():
            return refusal(422, str(error))
        case QueryError():
            return refusal(400, str(error))
        case NotFound() | Forbidden() | FileChanged() | Redirected() | FormatError():
            return refusal(409, str(error))
        case Busy() | SourceError() | StoreLocked():
            usual = _AN_HOUR if isinstance(error, SourceUnavailable | Blocked) else _COME_BACK
            patience = getattr(error, "retry_after", None) or usual
            return refusal(503, str(error), **{"Retry-After": str(max(1, round(patience)))})
        case _:
            return refusal(500, _OURS)


async def on_error(request: Request, error: Exception) -> Response:
    """Any error as an answer; strangers are not told what goes wrong here, but the keeper of the server is."""
    if isinstance(error, HTTPException):
        return refusal(error.status_code, error.detail, **dict(error.headers or {}))
    return noted(request, error, told(error) if isinstance(error, CatalogueError) else refusal(500, _OURS))


def noted(request: Request, error: Exception, answer: Response) -> Response:
    """The same answer; if it is that something failed here, the keeper of the server is told what."""
    if answer.status_code == _FAILED:
        service_of(request).notify(f"{request.url.path} failed: {type(error).__name__}: {error}")
    return answer
