"""Fetch the footers of a crawl with several clients, from a local server with delayed responses.

Each client is a separate process. Clients take turns, and the fastest of several runs counts, because other work of the
machine can only slow it down. ``catalogue`` is measured twice: as the command, and as its functions, because the
command does not report the time of its parts.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.crawls import CRAWL, make_template, write_crawl
from benchmarks.processes import Cost, Counted, Failed, Server, run, serving, wait_for_quiet
from benchmarks.report import say, table
from benchmarks.summary import Measurement, Result
from catalogue.commoncrawl.datasets import manifest_path

LATENCY = 0.03
RATE_LIMIT = 5
"""Requests per second to Common Crawl, by default."""

_OURS = "catalogue harvest"
_FUNCTIONS = "its functions"
_CLIENTS = {_OURS: "", _FUNCTIONS: "ours", "recipe of 2022": "recipe", "pyarrow, 16 threads": "fsspec_pyarrow"}
"""Modules, by name in the tables; the command has none."""
_CASES = ((300, None, 3), (300, 50, 1))
_MANY = (3000, None, 2)
"""Files, requests per second (None: no limit), and runs; the last case with ``--full`` only."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a client."""

    cost: Cost
    parts: dict[str, float]
    """Seconds without imports: ``fetch`` to request and store footers, ``table`` to build the table or database of row
    groups. Empty for the command."""
    server_cpu: float
    counted: Counted

    @property
    def requests(self) -> int:
        """GET and HEAD requests."""
        return self.counted.gets + self.counted.heads

    @property
    def others(self) -> float:
        """CPU share of other processes, in percent."""
        busy = self.cost.machine_seconds - self.cost.cpu_seconds - self.server_cpu
        return max(0.0, 100 * busy / self.cost.seconds / (os.cpu_count() or 1))

    @property
    def rate_limited_seconds(self) -> int:
        """Computed seconds of the requests at Common Crawl's rate limit."""
        return round((self.requests - 10) / RATE_LIMIT)


def main(*, full: bool) -> Iterator[Result]:
    """Measure and print."""
    for files, rate, runs in (*_CASES, _MANY) if full else _CASES:
        with _served(files, LATENCY) as (server, folder):
            if rate is None:
                _server_alone(server, folder, files)
            yield from _clients(server, folder, files, rate, runs)


@contextmanager
def _served(files: int, latency: float) -> Iterator[tuple[Server, Path]]:
    with TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name)
        say(f"making {files:,} files")
        write_crawl(folder / "source", make_template(), files)
        with serving(folder / "source", latency=latency) as server:
            yield server, folder


def _server_alone(server: Server, folder: Path, files: int) -> None:
    rows: list[list[str | float]] = []
    for connections in (16, 100):
        say(f"the server alone, {connections} connections")
        before = server.cpu_seconds()
        found = json.loads(run(_client("load", server, folder, connections), home=folder).output)
        busy = (server.cpu_seconds() - before) / found["fetch"]
        asked = found["requests"] / found["fetch"]
        rows.append([f"{connections} connections", asked, connections / LATENCY, 100 * busy])
    table(
        f"The server alone: ranges of 64 kB from {files:,} files, {1000 * LATENCY:.0f} ms late",
        ["", "requests/s", "bound by latency", "server's CPU %"],
        rows,
    )


def _clients(server: Server, folder: Path, files: int, rate: int | None, runs: int) -> list[Result]:
    best: dict[str, Measured] = {}
    for turn in range(runs):
        for name, module in _CLIENTS.items():
            say(f"{files:,} files, {f'{rate}/s' if rate else 'no limit'}, run {turn + 1} of {runs}: {name}")
            measured = _measure(module, server, folder, rate)
            best[name] = min(best.get(name, measured), measured, key=lambda one: one.cost.seconds)
    limit = f"at most {rate} requests/s" if rate else "no limit"
    table(
        f"{files:,} files, {1000 * LATENCY:.0f} ms, {limit}, best of {runs}",
        [
            "client",
            "GET",
            "HEAD",
            "MB",
            "seconds",
            "fetch",
            "table",
            "files/s",
            "CPU s",
            "peak MB",
            "server's CPU s",
            "others' CPU %",
            f"at {RATE_LIMIT}/s",
        ],
        [_row(name, files, measured) for name, measured in best.items()],
    )
    ours = best[_OURS]
    table(
        f"The same as multiples of {_OURS}",
        ["client", "requests", "bytes", "seconds", "CPU", "peak memory", f"at {RATE_LIMIT}/s"],
        [
            [name, *(f"{ratio:.2f}" for ratio in _ratios(other, ours))]
            for name, other in best.items()
            if other is not ours
        ],
    )
    job = f"Footers of {files:,} files, {limit}"
    return [_measurement(job, name, best[name]) for name in _CLIENTS if name != _FUNCTIONS]


def _measurement(job: str, name: str, of: Measured) -> Measurement:
    cost = of.cost
    return Measurement(job, name, of.requests, of.counted.bytes, cost.seconds, cost.cpu_seconds, cost.peak_bytes)


def _row(name: str, files: int, of: Measured) -> list[str | int | float | None]:
    return [
        name,
        of.counted.gets,
        of.counted.heads,
        of.counted.bytes / 1e6,
        of.cost.seconds,
        of.parts.get("fetch"),
        of.parts.get("table"),
        files / of.cost.seconds,
        of.cost.cpu_seconds,
        round(of.cost.peak_bytes / 1e6),
        of.server_cpu,
        round(of.others),
        of.rate_limited_seconds,
    ]


def _ratios(other: Measured, ours: Measured) -> Iterator[float]:
    yield other.requests / ours.requests
    yield other.counted.bytes / ours.counted.bytes
    yield other.cost.seconds / ours.cost.seconds
    yield other.cost.cpu_seconds / ours.cost.cpu_seconds
    yield other.cost.peak_bytes / ours.cost.peak_bytes
    yield other.rate_limited_seconds / ours.rate_limited_seconds


def _measure(module: str, server: Server, folder: Path, rate: int | None) -> Measured:
    """Run a client; an empty module name means the command."""
    with TemporaryDirectory(prefix="data-", dir=folder) as name:
        data = Path(name)
        command = ["catalogue", "harvest", "--crawl", CRAWL, "--source", server.url, "--data", str(data)]
        limit = [] if rate is None else ["--rate", str(rate)]
        wait_for_quiet()
        server.reset()
        before = server.cpu_seconds()
        ran = run(_client(module, server, data, rate) if module else [*command, *limit], home=data)
        counted = server.counted()
    if counted.failed:
        message = f"{counted.failed} responses with a status other than 200 and 206"
        raise Failed(message)
    return Measured(ran.cost, json.loads(ran.output or "{}"), server.cpu_seconds() - before, counted)


def _client(module: str, server: Server, folder: Path, limit: int | None) -> list[str]:
    limits = [] if limit is None else [str(limit)]
    return [f"benchmarks.clients.{module}", server.url, manifest_path(CRAWL), str(folder), *limits]
