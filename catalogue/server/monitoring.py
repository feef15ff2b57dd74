"""Count and log all answers, one JSON object a line; ``/metrics`` and ``/healthz``."""

import json
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalogue.errors import QueryError
from catalogue.server.figures import BOUNDS, CLASSES, OTHER, Figures, Totals, answers_within
from catalogue.server.figures import ROUTES as COUNTED
from catalogue.server.responses import error_answer, service_of
from catalogue.settings import package_version

_MAX_PATH, _MAX_QUERY, _MAX_AGENT = 300, 1000, 150
"""Characters. A line then has at most 4 kB, which the system writes to a pipe in one piece, too."""


class AccessLog:
    """A file to which all processes append, each line by one write.

    It is opened for each line, so that it may be renamed at any time.
    """

    def __init__(self, path: str, *, proxied: bool, notify: Callable[[str], None]) -> None:
        """Create the file if it does not exist; ``-`` is standard error.

        With ``proxied``, the last address of ``X-Forwarded-For`` is the client, because a proxy has added it.
        ``notify`` is called with a message if lines cannot be written.

        Raises:
            QueryError: if it cannot be opened.
        """
        self._path = path
        self._proxied = proxied
        self._notify = notify
        self._failed = False
        try:
            os.close(self._open())
        except OSError as error:
            message = f"the access log {path} cannot be opened ({error.strerror}); choose another --access-log"
            raise QueryError(message) from error

    def write(self, scope: Scope, status: int, size: int, seconds: float, *, complete: bool) -> None:
        """Write a line about an answer; of a request that is not valid HTTP, the scope has the client alone."""
        headers = dict(scope.get("headers", ()))
        client = scope["client"][0] if scope["client"] else None
        if self._proxied and (forwarded := headers.get(b"x-forwarded-for")):
            client = _text(forwarded.rpartition(b",")[2].strip(), _MAX_AGENT)
        spent = scope.get("state", {}).get("spent", (0, 0))
        entry = {
            "time": datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(timespec="milliseconds"),
            "client": client,
            "method": scope.get("method"),
            "path": _text(scope.get("raw_path", b""), _MAX_PATH),
            "query": _text(scope.get("query_string", b""), _MAX_QUERY),
            "status": status,
            "bytes": size,
            "milliseconds": round(seconds * 1000, 1),
            "complete": complete,
            "source_requests": spent and spent[0],
            "source_bytes": spent and spent[1],
            "user_agent": _text(headers.get(b"user-agent", b""), _MAX_AGENT),
        }
        try:
            with os.fdopen(self._open(), "wb", buffering=0) as file:
                file.write(json.dumps(entry).encode() + b"\n")
        except OSError as error:
            if not self._failed:
                self._notify(f"the access log {self._path} cannot be written ({error.strerror}); lines are missing")
            self._failed = True
        else:
            self._failed = False

    def _open(self) -> int:
        if self._path == "-":
            return os.dup(sys.stderr.fileno())
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)


def _text(value: bytes, most: int) -> str:
    """Decode a value of a head; the end of a long one is replaced by an ellipsis."""
    text = value.decode("latin-1")
    return text if len(text) <= most else f"{text[:most]}…"


if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

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


def _families(totals: Totals, figures: Figures) -> "Iterable[Metric]":
    from prometheus_client.metrics_core import (  # noqa: PLC0415 - slow to import
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        InfoMetricFamily,
    )

    answers = CounterMetricFamily("catalogue_http_requests", "Answers by route and status.", labels=["route", "status"])
    seconds = HistogramMetricFamily(
        "catalogue_http_request_duration_seconds", "Time from a request's head to its last byte.", labels=["route"]
    )
    for route in COUNTED:
        for class_ in CLASSES:
            answers.add_metric([route, class_], totals[route, class_])
        buckets = zip([*map(str, BOUNDS), "+Inf"], answers_within(totals, route), strict=True)
        seconds.add_metric([route], [*buckets], totals[route, "seconds"])
    yield answers
    yield seconds
    yield CounterMetricFamily("catalogue_source_requests", "Requests to the source.", totals["requests"])
    yield CounterMetricFamily("catalogue_source_received_bytes", "Bytes received from the source.", totals["bytes"])
    yield GaugeMetricFamily(
        "catalogue_source_rate_limit",
        "Requests per second that the source gets at most; missing if there is no limit.",
        totals.get("rate"),
    )
    yield GaugeMetricFamily(
        "catalogue_source_pause_seconds",
        "Seconds until the source gets requests again, because it blocks, throttles or fails; 0 if there is no pause.",
        totals["pause"],
    )
    yield GaugeMetricFamily(
        "catalogue_source_blocks", "Times in a row that the source has blocked this address.", totals["blocks"]
    )
    queries = GaugeMetricFamily("catalogue_queries", "Queries in the pools.", labels=["state"])
    for state in ("running", "waiting"):
        queries.add_metric([state], totals[state])
    yield queries
    yield GaugeMetricFamily("catalogue_memory_bytes", "What the CDX API keeps in memory.", totals["memory"])
    processes = GaugeMetricFamily("catalogue_processes", "Processes of the server.", labels=["state"])
    processes.add_metric(["running"], totals["processes"])
    processes.add_metric(["ended"], figures.processes - totals["processes"])
    yield processes
    yield GaugeMetricFamily("catalogue_start_time_seconds", "When the server was started.", figures.started)
    yield InfoMetricFamily(
        "catalogue_build", "Versions.", {"version": package_version(), "python": platform.python_version()}
    )


async def _metrics(request: Request) -> Response:
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - slow to import
    from prometheus_client.registry import CollectorRegistry  # noqa: PLC0415

    service = service_of(request)
    families = [*_families(await service.totals(), service.figures)]

    class Collected(CollectorRegistry):
        def collect(self) -> "Iterable[Metric]":
            return families

    encoder, kind = choose_encoder(request.headers.get("accept", ""))
    return Response(encoder(Collected()), headers=_NOT_STORED | {"Content-Type": kind})


async def _health(request: Request) -> Response:
    """Return 200 if this process can answer queries, without requests to the source."""
    if problem := service_of(request).problem():
        return error_answer(503, problem, **_NOT_STORED)
    return JSONResponse({"status": "ok", "version": package_version()}, headers=_NOT_STORED)


ROUTES = [Route("/metrics", _metrics), Route("/healthz", _health)]
