"""Paths that anybody's programs may read: which methods they take, what every answer of theirs says, and errors."""

import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from catalogue.errors import CatalogueError
from catalogue.server.responses import noted, refusal

_METHODS = "GET, HEAD, OPTIONS"
_ALWAYS = {"Access-Control-Allow-Origin": "*", "X-Content-Type-Options": "nosniff"}
_ASKED_FIRST = {
    "Allow": _METHODS,
    "Access-Control-Allow-Methods": _METHODS,
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": "86400",
}


class Readable:
    """An ASGI application that answers GET and HEAD, tells browsers that any page may ask, and refuses the rest."""

    def __init__(
        self, answer: Callable[[Request], Awaitable[Response]], told: Callable[[CatalogueError], Response]
    ) -> None:
        """Answer requests by ``answer``, and what that raises by ``told``."""
        self._answer = answer
        self._told = told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        response = await self._response(request)
        response.headers.update(_ALWAYS)
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=_ASKED_FIRST)
        if request.method not in {"GET", "HEAD"}:
            return refusal(405, f"there is no {request.method} here, only {_METHODS}", Allow=_METHODS)
        try:
            return await self._answer(request)
        except CatalogueError as error:
            return noted(request, error, self._told(error))


def packed(value: object) -> bytes:
    """A value as JSON; half a surrogate pair, which UTF-8 has no bytes for, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


def json_answer(body: bytes, **headers: str) -> Response:
    """JSON as an answer."""
    return Response(body, headers=headers, media_type="application/json")
