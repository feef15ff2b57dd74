"""What the processes of a server count, in shared memory: each writes its own row, and any of them can add up all.

A process that replaces another one continues its row, so that no counter decreases.
"""

import time
from bisect import bisect_left
from collections.abc import Sequence
from copy import copy
from ctypes import c_double
from itertools import accumulate
from math import inf
from multiprocessing.sharedctypes import RawArray

ROUTES = (
    *("other", "/{crawl}-index", "/{crawl}/{moment}/{url:path}", "/collinfo.json"),
    *("/api/plan", "/api/query", "/api/row_groups", "/api/status", "/api/openapi.json", "/api/{rest:path}"),
    *("/", "/search", "/search.csv", "/site", "/status", "/{crawl}/", "/robots.txt"),
    *("/static/colours.css", "/static", "/healthz", "/metrics"),
)
"""Answers are counted by these, because the number of URLs has no limit. The first one is for all others."""
OTHER = ROUTES[0]
CLASSES = ("2xx", "3xx", "4xx", "5xx")
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of the histogram, in seconds; the last bucket has none."""
STATE = ("running", "waiting", "memory", "paused_until", "processes")
"""The present state of a process: its queries, the bytes that the CDX API keeps, the time of the source's clock until
which it gets no requests, and 1 if the process runs."""
_BUCKETS = (*BOUNDS, inf)

Name = str | tuple[str, str | float]
Totals = dict[Name, float]
"""Sums over all processes by name, those of a route by the route and a class or ``seconds``; of times, the latest."""
_NAMES: Sequence[Name] = [
    *((route, each) for route in ROUTES for each in (*CLASSES, *_BUCKETS, "seconds")),
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
        """Count an answer; ``route`` is one of ``ROUTES``."""
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
