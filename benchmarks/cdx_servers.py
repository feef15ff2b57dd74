"""CDX servers to be measured, and their costs: ``catalogue serve`` in several forms, and pywb."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

from benchmarks.cdx_crawls import Crawl
from benchmarks.peers import PYWB
from benchmarks.processes import ROOT, Failed, Served, Server, away_from_home, run, wait_for_quiet
from benchmarks.summary import OURS
from benchmarks.zipnum import pywb

_PYWB_OPTIONS = "&nosource=true&allowFuzzy=false"
"""Turns off pywb's source of each line, and its search for similar URLs."""
_WORKERS = (1, 2)
_INDEXES = {"footers": "columnar", "list of blocks": "cdx"}
"""What is stored: the title of it, and the option of the harvest."""
_MEMORY_INTERVAL = 0.5
"""Seconds between two samples of the memory."""


@dataclass(frozen=True, slots=True)
class Form:
    """A server that can be started several times."""

    name: str
    start: Callable[[Path], AbstractContextManager[Served]]
    """Starts it; its cache is in a folder, which may be empty."""
    stored: str = ""
    """What it stores: servers that store the same can have the same cache. Empty if it has no cache."""
    options: str = ""
    """Added to each query."""
    workers: int = 1
    """Processes that answer."""


def forms(crawl: Crawl, source: str, folder: Path, options: Sequence[str] = ()) -> list[Form]:
    """Return our servers, with data folders below ``folder``."""
    found = []
    for title, index in _INDEXES.items():
        data = folder / index
        command = ["catalogue", "--data", str(data), "--source", source, "harvest", "--crawl", crawl.name]
        run([*command, "--subset", "all", "--index", index], home=folder / "home")
        for workers in _WORKERS:
            name = f"{OURS}, {title}, {workers} worker{'s' if workers > 1 else ''}"
            found.append(Form(name, _starter(data, source, workers, options), title, workers=workers))
    return found


def pywb_form(crawl: Crawl, bin_folder: Path) -> Form:
    """Return pywb as a server of a crawl on its disk."""
    return Form(PYWB, lambda _: pywb(crawl.cluster, bin_folder), options=_PYWB_OPTIONS)


def _starter(
    data: Path, source: str, workers: int, options: Sequence[str]
) -> Callable[[Path], AbstractContextManager[Served]]:
    all_options = [*options, "--workers", str(workers)]
    return lambda home: serve(data, source, home, all_options)


@contextmanager
def serve(data: Path, source: str, home: Path, options: Sequence[str] = ()) -> Iterator[Served]:
    """Our server with a copy of a data folder and the cache of a home folder.

    Raises:
        Failed: if it does not start.
    """
    with TemporaryDirectory(prefix="benchmarks-") as folder:
        copied = copytree(data, Path(folder) / "data")
        command = [sys.executable, "-m", "catalogue", "serve", "--port", "0", "--data", str(copied), "--source", source]
        environment = away_from_home(home)
        with subprocess.Popen(
            [*command, *options], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield Served(_started(process), process.pid)
            finally:
                process.terminate()


def _started(process: "subprocess.Popen[str]") -> str:
    """Return the address that a server prints when it is ready."""
    assert process.stderr
    printed = ""
    for line in process.stderr:
        printed += line
        if found := re.search(r" at (http://127\.0\.0\.1:\d+)", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would block it
            return found[1]
    message = f"catalogue serve does not start: {printed}"
    raise Failed(message)


# ---- queries ----


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """Cost of queries; requests and bytes are those from the server to its source."""

    queries: int
    seconds: float
    p50: float
    p99: float
    cpu_seconds: float
    peak_bytes: int
    """Most memory of all its processes at a time, in which shared pages count once."""
    gets: int
    bytes: int

    @property
    def rate(self) -> float:
        """Queries per second."""
        return self.queries / self.seconds

    @property
    def cpu(self) -> float:
        """CPU seconds of a query."""
        return self.cpu_seconds / self.queries


@dataclass(frozen=True, slots=True)
class Asker:
    """Sends queries to servers with the same source."""

    source: Server

    def ask(
        self,
        form: Form,
        served: Served,
        queries: Sequence[str],
        clients: int,
        seconds: float = 0.0,
        *,
        quickack: bool = False,
        runs: int = 1,
    ) -> tuple[QueryCosts, list[str]]:
        """Send queries, each at least once; return the cost of the fastest run, and the response to each query.

        Raises:
            Failed: if a response has another status than 200.
        """
        wait_for_quiet()
        costs = [self._ask(form, served, queries, clients, seconds, quickack=quickack) for _ in range(runs)]
        return max(costs, key=lambda each: each[0].rate)

    def _ask(
        self, form: Form, served: Served, queries: Sequence[str], clients: int, seconds: float, *, quickack: bool
    ) -> tuple[QueryCosts, list[str]]:
        self.source.reset()
        with TemporaryDirectory(prefix="benchmarks-") as home:
            file, bodies = Path(home) / "urls", Path(home) / "bodies"
            file.write_text("\n".join(served.url + query + form.options for query in queries), encoding="utf-8")
            command = ["benchmarks.clients.ask_cdx", str(file), str(clients), str(seconds), "--bodies", str(bodies)]
            before = served.cpu_seconds()
            with _sampled_memory(served) as memory:
                ran = run([*command, *(["--quickack"] if quickack else [])], home=Path(home))
            used = served.cpu_seconds() - before
            costs = json.loads(ran.output)
            answers: list[str] = json.loads(bodies.read_text(encoding="utf-8"))
        if costs["failed"]:
            message = f"{costs['failed']} of {costs['queries']} queries to {form.name} were not answered by 200"
            raise Failed(message)
        counted = self.source.counted()
        measured = QueryCosts(
            costs["queries"],
            costs["seconds"],
            costs["p50"],
            costs["p99"],
            used,
            max(memory),
            counted.gets,
            counted.bytes,
        )
        return measured, answers


@contextmanager
def _sampled_memory(served: Served) -> Iterator[list[int]]:
    """Sample the memory of a server; there is at least one sample at the end."""
    samples: list[int] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(_MEMORY_INTERVAL):
            samples.append(served.memory_bytes())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield samples
    finally:
        ended.set()
        sampler.join()
        samples.append(served.memory_bytes())
