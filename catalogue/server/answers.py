"""What requests and answers of all kinds have in common: questions asked of the service, and errors as answers."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from catalogue.catalogue import Catalogue
from catalogue.errors import Busy, CatalogueError, NotHarvested, QueryError, SourceError
from catalogue.serving import Service

T = TypeVar("T")

_PATIENCE = 30
"""Seconds to come back after, if nobody says."""


async def ask(request: Request, question: Callable[[Catalogue], T]) -> T:
    """Put a question to the service that answers a request, which goes on with others meanwhile."""
    service: Service = request.app.state.service
    return await asyncio.wrap_future(service.ask(question))


def refusal(status: int, message: str, **headers: str) -> Response:
    """An answer that says why there is none."""
    return JSONResponse({"message": message}, status, headers, "application/json; charset=utf-8")


def told(error: CatalogueError) -> Response:
    """What went wrong, as an answer: 400 and 404 for who asks, 503 for what may go better later, else 500."""
    if isinstance(error, NotHarvested):
        return refusal(404, str(error))
    if isinstance(error, QueryError):
        return refusal(400, str(error))
    if isinstance(error, Busy | SourceError):
        patience = getattr(error, "retry_after", None) or _PATIENCE
        return refusal(503, str(error), **{"Retry-After": str(int(patience))})
    return refusal(500, str(error))


async def on_error(_: Request, error: Exception) -> Response:
    """Any error as an answer; what is none of ours says nothing of itself to strangers."""
    return told(error) if isinstance(error, CatalogueError) else refusal(500, "something failed that should not")
