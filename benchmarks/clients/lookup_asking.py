"""What the clients of ``lookup`` have in common: the question, and how its steps are measured.

``python -m benchmarks.clients.lookup_NAME URL FILE LOW HIGH`` asks for those rows of an index file whose keys are at
least ``LOW`` and less than ``HIGH``, and says as JSON what each step took: seconds and CPU by its own account, requests
and bytes by the server's. Imports come before the first step. Nothing but the standard library is used here, because
the others run in an environment of their own.
"""

import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.request import ProxyHandler, build_opener

COLUMNS = ("url_surtkey", "url", "fetch_time", "fetch_status", "content_mime_detected", "warc_filename")
"""What is asked for."""

_QUIET = 0.05
"""Seconds without another byte, after which the server has noticed who hung up."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a client is asked."""

    source: str
    """Where the crawl is served, with a slash at its end."""
    file: str
    """The index file's path there."""
    low: str
    high: str

    @property
    def url(self) -> str:
        """Of the index file."""
        return self.source + self.file

    @property
    def sql(self) -> str:
        """The same as a query of the table ``lookup``; keys have no apostrophes."""
        chosen = ", ".join(COLUMNS)
        return f"SELECT {chosen} FROM lookup WHERE url_surtkey >= '{self.low}' AND url_surtkey < '{self.high}'"


@dataclass(frozen=True, slots=True)
class Step:
    """One time that the question was answered."""

    name: str
    rows: int
    seconds: float
    cpu_seconds: float
    gets: int
    heads: int
    bytes: int
    """Of bodies, sent; a client that hangs up may not have read them all."""


Steps = Mapping[str, Callable[[], int]]
"""By names, what answers the question, holds the rows in memory and returns how many there are."""


def start(client: Callable[[Question], Steps]) -> None:
    """Do what the command line says."""
    question = Question(*sys.argv[1:])
    print(json.dumps([asdict(measure(question.source, name, ask)) for name, ask in client(question).items()]))


def twice(ask: Callable[[], int]) -> Steps:
    """The first time in this process, and a second time."""
    return {"cold": ask, "warm": ask}


def measure(source: str, name: str, ask: Callable[[], int]) -> Step:
    """Ask, and say what it took."""
    opened = build_opener(ProxyHandler({})).open
    opened(f"{source}-/reset").read()
    gc.collect()  # or the step that happens to meet the threshold pays for those before it
    busy, started = _cpu_seconds(), time.monotonic()
    rows = ask()
    seconds, cpu_seconds = time.monotonic() - started, _cpu_seconds() - busy
    sent = -1
    while True:
        report: dict[str, Any] = json.loads(opened(f"{source}-/log").read())
        if report["body_bytes_sent"] == sent:
            break
        sent = report["body_bytes_sent"]
        time.sleep(_QUIET)
    exchanges = report["exchanges"]
    if failed := [one for one in exchanges if one["status"] not in {200, 206}]:
        message = f"answered with neither 200 nor 206: {failed[0]}"
        raise RuntimeError(message)
    methods = [one["method"] for one in exchanges]
    return Step(name, rows, seconds, cpu_seconds, methods.count("GET"), methods.count("HEAD"), sent)


def _cpu_seconds() -> float:
    """Of all threads, and of children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
