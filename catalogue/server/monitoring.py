"""Count and log all answers; ``/metrics`` and ``/healthz``."""

from collections.abc import Awaitable, Mapping
from time import perf_counter

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalogue.server.access_log import AccessLog
from catalogue.server.figures import OTHER, Figures
from catalogue.server.responses import error_answer, service_of
from catalogue.settings import package_version

_NOT_STORED = {"Cache-Control": "no-store"}


class Monitor:
    """An ASGI application that counts and logs the answers of another one."""

    def __init__(self, app: ASGIApp, routes: Mapping[object, str], figures: Figures, log: AccessLog | None) -> None:
        """Wrap an application; ``routes`` are names of ``figures.ROUTES`` by path or endpoint."""
        self._app = app
        self._routes = routes
        self._figures = figures
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = perf_counter()
        status, size, complete, failed = 500, 0, False, True

        def observe(message: Message) -> Awaitable[None]:
            nonlocal status, size, complete
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
                complete = not message.get("more_body", False)
            return send(message)

        try:
            await self._app(scope, receive, observe)
            failed = False
        finally:
            seconds = perf_counter() - start
            route = self._routes.get(scope["path"]) or self._routes.get(scope.get("endpoint"), OTHER)
            self._figures.count(route, 500 if failed else status, seconds)
            if self._log:
                size = 0 if scope["method"] == "HEAD" else size  # uvicorn does not send it
                self._log.write(scope, status, size, seconds, complete=complete)

    def refuse(self, status: int, client: tuple[str, int] | None) -> None:
        """Count and log a request that was refused because it is not valid HTTP."""
        self._figures.count(OTHER, status, 0.0)
        if self._log:
            self._log.write({"client": client}, status, 0, 0.0, complete=True)


async def _metrics(request: Request) -> Response:
    """Return the figures of all processes for Prometheus."""
    from catalogue.server.prometheus import encode  # noqa: PLC0415 - slow to import

    service = service_of(request)
    totals, limit = await service.totals()
    body, kind = encode(totals, limit, service.figures, request.headers.get("accept", ""))
    return Response(body, headers=_NOT_STORED | {"Content-Type": kind})


async def _health(request: Request) -> Response:
    """Return 200 if this process can answer queries, without requests to the source."""
    if problem := service_of(request).problem():
        return error_answer(503, problem, **_NOT_STORED)
    return JSONResponse({"status": "ok", "version": package_version()}, headers=_NOT_STORED)


ROUTES = [Route("/metrics", _metrics), Route("/healthz", _health)]
