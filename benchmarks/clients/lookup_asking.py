"""Query and measurement of the clients of ``lookup``.

``python -m benchmarks.clients.lookup_NAME URL FILE LOW HIGH`` selects the rows of an index file with ``LOW <= key <
HIGH`` and prints the cost of each step as JSON: seconds and CPU measured here, requests and bytes by the server.
Imports are not measured. Only the standard library is used, because other programs have their own environments.
"""

import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any
from urllib.request import ProxyHandler, build_opener

COLUMNS = ("url_surtkey", "url", "fetch_time", "fetch_status", "content_mime_detected", "warc_filename")
"""Columns of the query."""

REPEATED = ("warm", "second query", "second query by blocks")
"""Names of steps that repeat a query. They run several times, because the CPU time of single runs varies by a half."""
REPEATS = 5

_QUIET = 0.05
"""Seconds without another byte, after which the server has noticed closed connections."""


@dataclass(frozen=True, slots=True)
class Query:
    """A key range of an index file."""

    source: str
    """URL of the crawl's server, with a trailing slash."""
    file: str
    """Path of the index file."""
    low: str
    high: str

    @property
    def url(self) -> str:
        """URL of the index file."""
        return self.source + self.file

    @property
    def sql(self) -> str:
        """SQL on a table ``lookup``; keys have no apostrophes."""
        columns = ", ".join(COLUMNS)
        return f"SELECT {columns} FROM lookup WHERE url_surtkey >= '{self.low}' AND url_surtkey < '{self.high}'"


@dataclass(frozen=True, slots=True)
class Step:
    """Cost of one run of the query."""

    name: str
    rows: int
    seconds: float
    cpu_seconds: float
    gets: int
    heads: int
    bytes: int
    """Bytes of bodies sent; a client that closes its connection may have read fewer."""
    peak_bytes: int
    """Most memory of the process during the step; 0 where unavailable."""


Steps = Mapping[str, Callable[[], int]]
"""Functions by name that run the query, load the rows and return their number."""


def start(client: Callable[[Query], Steps]) -> None:
    """Run a client with the arguments of the command line."""
    query = Query(*sys.argv[1:])
    print(json.dumps([asdict(measure(query.source, name, ask)) for name, ask in client(query).items()]))


def twice(ask: Callable[[], int]) -> Steps:
    """Run the query twice in this process."""
    return {"cold": ask, "warm": ask}


def measure(source: str, name: str, ask: Callable[[], int]) -> Step:
    """Run a query and return its cost: of repeated steps the mean CPU time, and the median of everything else."""
    runs = [_measure(source, name, ask) for _ in range(REPEATS if name in REPEATED else 1)]
    return Step(
        name,
        max(run.rows for run in runs),
        median(run.seconds for run in runs),
        fmean(run.cpu_seconds for run in runs),
        round(median(run.gets for run in runs)),
        round(median(run.heads for run in runs)),
        round(median(run.bytes for run in runs)),
        round(median(run.peak_bytes for run in runs)),
    )


def _measure(source: str, name: str, ask: Callable[[], int]) -> Step:
    opened = build_opener(ProxyHandler({})).open
    opened(f"{source}-/reset").read()
    gc.collect()  # otherwise a step may pay for garbage of earlier steps
    _reset_peak()
    busy, started = _cpu_seconds(), time.monotonic()
    rows = ask()
    seconds, cpu_seconds = time.monotonic() - started, _cpu_seconds() - busy
    peak_bytes = _peak_bytes()
    sent = -1
    while True:
        report: dict[str, Any] = json.loads(opened(f"{source}-/log").read())
        if report["body_bytes_sent"] == sent:
            break
        sent = report["body_bytes_sent"]
        time.sleep(_QUIET)
    exchanges = report["exchanges"]
    # Sources of some benchmarks have no CDX index.
    if failed := [exchange for exchange in exchanges if exchange["status"] not in {200, 206, 404}]:
        message = f"the status is not 200, 206 or 404: {failed[0]}"
        raise RuntimeError(message)
    methods = [exchange["method"] for exchange in exchanges]
    return Step(name, rows, seconds, cpu_seconds, methods.count("GET"), methods.count("HEAD"), sent, peak_bytes)


def _cpu_seconds() -> float:
    """Return the CPU seconds of all threads and of children that ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _reset_peak() -> None:
    """Forget the peak of the memory so far."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes() -> int:
    """Return the peak of the memory since the reset; 0 where unavailable."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
