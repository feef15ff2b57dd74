"""What the processes of a server count, in shared memory: each writes its own row, and any of them can add up all.

A process that replaces another one continues its row, so that no counter decreases.
"""

import time
from bisect import bisect_left
from collections.abc import Sequence
from ctypes import Array, c_double
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing.sharedctypes import RawArray
from typing import NamedTuple

ROUTES = (
    "other",
    "/{crawl}-index",
    "/{crawl}/{moment}/{url:path}",
    "/collinfo.json",
    "/api/plan",
    "/api/query",
    "/api/row_groups",
    "/api/status",
    "/api/openapi.json",
    "/api/{rest:path}",
    "/",
    "/search",
    "/search.csv",
    "/status",
    "/{crawl}/",
    "/robots.txt",
    "/static/colours.css",
    "/static",
    "/healthz",
    "/metrics",
)
"""Answers are counted by these, because the number of URLs has no limit. The first one is for all others."""
OTHER = 0
CLASSES = ("2xx", "3xx", "4xx", "5xx")
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of the histogram, in seconds; the last bucket has none."""

_SECONDS = len(CLASSES) + len(BOUNDS) + 1
"""Columns of a route: answers by class, answers by bucket, and the sum of their seconds. The last columns are those of
the process: requests and bytes, its ``ProcessState``, and 1 if it runs."""
_ROUTE_WIDTH = _SECONDS + 1
_REQUESTS = len(ROUTES) * _ROUTE_WIDTH
_STATE = _REQUESTS + 2


class ProcessState(NamedTuple):
    """The present state of a process, or the sum over all."""

    running: int
    waiting: int
    """Queries."""
    memory: int
    """Bytes that the CDX API keeps."""
    paused_until: float
    """Time of the source's clock until which it gets no requests; the latest one instead of a sum."""


_ALIVE = _STATE + len(ProcessState._fields)
_WIDTH = _ALIVE + 1


@dataclass(frozen=True, slots=True)
class RouteTotals:
    """The answers of a route."""

    route: str
    classes: Sequence[int]
    """Answers with each of ``CLASSES``."""
    buckets: Sequence[int]
    """Answers within each of ``BOUNDS``, and all of them."""
    seconds: float

    def within(self, share: float) -> float | None:
        """Return the least of ``BOUNDS`` within which a share of the answers was sent; None if there is none."""
        reached = (bound for bound, count in zip(BOUNDS, self.buckets, strict=False) if count >= share * self.count)
        return next(reached, None)

    @property
    def count(self) -> int:
        return self.buckets[-1]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all processes."""

    routes: Sequence[RouteTotals]
    requests: int
    """Requests to the source since the server was started, with the bytes received."""
    bytes: int
    state: ProcessState
    processes: int
    """Those that run."""


class Figures:
    """The row of one process. Only the thread of its event loop writes to it, so that no lock is needed."""

    def __init__(
        self, processes: int = 1, number: int = 0, table: Array[c_double] | None = None, started: float | None = None
    ) -> None:
        """Create a table, or use an existing one; ``started`` is the time at which the server was started."""
        self.processes = processes
        self.started = started or time.time()
        self._number = number
        self._table = RawArray(c_double, processes * _WIDTH) if table is None else table
        cells = memoryview(self._table).cast("B").cast("d")
        self._rows = [cells[start : start + _WIDTH] for start in range(0, len(cells), _WIDTH)]
        self._row = self._rows[number]
        self._before = self._row[_REQUESTS], self._row[_REQUESTS + 1]

    def __reduce__(self) -> tuple[type["Figures"], tuple[int, int, Array[c_double], float]]:
        return Figures, (self.processes, self._number, self._table, self.started)

    def of_process(self, number: int) -> "Figures":
        return Figures(self.processes, number, self._table, self.started)

    def count(self, route: int, status: int, seconds: float) -> None:
        """Count an answer; ``route`` is its place in ``ROUTES``."""
        row, start = self._row, route * _ROUTE_WIDTH
        row[start + status // 100 - 2] += 1
        row[start + len(CLASSES) + bisect_left(BOUNDS, seconds)] += 1
        row[start + _SECONDS] += seconds

    def publish(self, spent: tuple[int, int], state: ProcessState) -> None:
        """Write the state of this process, and the requests and bytes that it spent."""
        spent_in_all = (before + more for before, more in zip(self._before, spent, strict=True))
        for column, value in enumerate((*spent_in_all, *state, 1.0), _REQUESTS):
            self._row[column] = value

    def clear(self, number: int) -> None:
        """Clear the state of a process that has ended, but not what it has counted."""
        for column in range(_STATE, _WIDTH):
            self._rows[number][column] = 0.0

    def totals(self) -> Totals:
        sums = [sum(column) for column in zip(*self._rows, strict=True)]
        routes = []
        for place, route in enumerate(ROUTES):
            *counts, seconds = sums[place * _ROUTE_WIDTH : (place + 1) * _ROUTE_WIDTH]
            whole = [int(count) for count in counts]
            routes.append(RouteTotals(route, whole[: len(CLASSES)], [*accumulate(whole[len(CLASSES) :])], seconds))
        requests, received, running, waiting, memory, _, processes = map(int, sums[_REQUESTS:])
        paused_until = max(row[_ALIVE - 1] for row in self._rows)
        return Totals(routes, requests, received, ProcessState(running, waiting, memory, paused_until), processes)
