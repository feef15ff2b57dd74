"""Count and log all answers; ``/metrics`` and ``/healthz``.

What processes count is in shared memory: each writes its own row, and any of them can add up all. A process that
replaces another one continues its row, so that no counter decreases.
"""

import json
import os
import platform
import sys
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from ctypes import c_double
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from math import inf
from multiprocessing.sharedctypes import RawArray
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalogue.errors import QueryError
from catalogue.server.responses import error_answer, service_of
from catalogue.settings import package_version

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

COUNTED = (
    *("other", "/{crawl}-index", "/{crawl}/{moment}/{url:path}", "/collinfo.json"),
    *("/api/plan", "/api/query", "/api/row_groups", "/api/status", "/api/openapi.json", "/api/{rest:path}"),
    *("/", "/search", "/search.csv", "/site", "/status", "/{crawl}/", "/robots.txt"),
    *("/static/colours.css", "/static", "/healthz", "/metrics"),
)
"""Answers are counted by these, because the number of URLs has no limit. The first one is for all others."""
OTHER = COUNTED[0]
CLASSES = ("2xx", "3xx", "4xx", "5xx")
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of the histogram, in seconds; the last bucket has none."""
STATE = ("running", "waiting", "memory", "paused_until", "processes")
"""The present state of a process: queries, bytes in memory, time until which the source pauses, and 1 if it runs."""
_BUCKETS = (*BOUNDS, inf)

Name = str | tuple[str, str | float]
Totals = dict[Name, float]
"""Sums over all processes by name, those of a route by the route and a class or ``seconds``; of times, the latest."""
_NAMES: Sequence[Name] = [
    *((route, each) for route in COUNTED for each in (*CLASSES, *_BUCKETS, "seconds")),
    *("requests", "bytes", *STATE),
]
_COLUMNS = {name: column for column, name in enumerate(_NAMES)}


class Figures:
    """The row of one process. Only the thread of its event loop writes to it, so that no lock is needed."""

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes
        self.started = time.time()
        self._rows = [RawArray(c_double, len(_COLUMNS)) for _ in range(processes)]
        self._number = 0
        self._spent = (0, 0)

    def of_process(self, number: int) -> "Figures":
        other = copy(self)
        other._number, other._spent = number, (0, 0)  # noqa: SLF001 - of this class
        return other

    def count(self, route: str, status: int, seconds: float) -> None:
        row = self._rows[self._number]
        row[_COLUMNS[route, CLASSES[status // 100 - 2]]] += 1
        row[_COLUMNS[route, _BUCKETS[bisect_left(BOUNDS, seconds)]]] += 1
        row[_COLUMNS[route, "seconds"]] += seconds

    def publish(self, spent: tuple[int, int], state: Sequence[float]) -> None:
        """Write the ``STATE`` of this process, and the requests to the source and bytes that it spent."""
        row = self._rows[self._number]
        for name, now, before in zip(("requests", "bytes"), spent, self._spent, strict=True):
            row[_COLUMNS[name]] += now - before
        self._spent = spent
        row[_COLUMNS[STATE[0]] :] = [*state]

    def clear(self) -> None:
        """Clear the state of this process, which has ended, but not what it has counted."""
        self.publish(self._spent, [0.0] * len(STATE))

    def totals(self) -> Totals:
        columns = zip(_COLUMNS, zip(*self._rows, strict=True), strict=True)
        return {name: (max if name == "paused_until" else sum)(column) for name, column in columns}


def answers_within(totals: Totals, route: str) -> list[float]:
    """Return the number of answers within each of ``BOUNDS``, and of all."""
    return [*accumulate(totals[route, each] for each in _BUCKETS)]


def bound_of(totals: Totals, route: str, share: float) -> float | None:
    """Return the least of ``BOUNDS`` within which a share of the answers was sent; None if there is none."""
    *buckets, count = answers_within(totals, route)
    return next((bound for bound, each in zip(BOUNDS, buckets, strict=True) if each >= share * count), None)


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
    text = value.decode("latin-1")
    return text if len(text) <= most else f"{text[:most]}…"


_NOT_STORED = {"Cache-Control": "no-store"}


@dataclass(eq=False, slots=True)
class Monitor:
    """An ASGI application that counts and logs the answers of another one."""

    app: ASGIApp
    routes: Mapping[object, str]
    """Names in ``COUNTED`` by path or endpoint."""
    figures: Figures
    log: AccessLog | None

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
            await self.app(scope, receive, observe)
            failed = False
        finally:
            seconds = perf_counter() - start
            route = self.routes.get(scope["path"]) or self.routes.get(scope.get("endpoint"), OTHER)
            self.figures.count(route, 500 if failed else status, seconds)
            if self.log:
                size = 0 if scope["method"] == "HEAD" else size  # uvicorn does not send it
                self.log.write(scope, status, size, seconds, complete=complete)

    def refuse(self, status: int, client: tuple[str, int] | None) -> None:
        """Count and log a request that was refused because it is not valid HTTP."""
        self.figures.count(OTHER, status, 0.0)
        if self.log:
            self.log.write({"client": client}, status, 0, 0.0, complete=True)


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

    service = service_of(request)
    families = [*_families(await service.totals(), service.figures)]
    registry: Any = SimpleNamespace(collect=lambda: families)
    encoder, kind = choose_encoder(request.headers.get("accept", ""))
    return Response(encoder(registry), headers=_NOT_STORED | {"Content-Type": kind})


async def _health(request: Request) -> Response:
    if problem := service_of(request).problem():
        return error_answer(503, problem, **_NOT_STORED)
    return JSONResponse({"status": "ok", "version": package_version()}, headers=_NOT_STORED)


ROUTES = [Route("/metrics", _metrics), Route("/healthz", _health)]
