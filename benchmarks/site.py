"""Find the captures of one site in a crawl of 300 index files, on a delayed and throttled server.

One file has real size and contains the sites. The others have footers and page indexes of Common Crawl's size, and
holes instead of pages: their key ranges do not overlap with the sites, so no client with footers reads the pages.

Each client is a separate process in a separate environment and answers three queries, one for each of three row
groups, with its caches in memory. ``catalogue`` and the recipe of 2022 store footers on disk in an earlier process.
Figures are medians of several runs; all clients must return the captures of the file.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.clients.lookup_asking import Step
from benchmarks.clients.site_asking import ASK, PREPARE, Site, digest
from benchmarks.crawls import path_of
from benchmarks.paced import LATENCY, serving
from benchmarks.peers import CACHE, CDX_TOOLKIT, DATAFUSION, DUCKDB, POLARS, PYARROW, RECIPE, available
from benchmarks.processes import Failed, run, wait_for_quiet
from benchmarks.proxy import DelayingProxy
from benchmarks.real_blocks import with_blocks
from benchmarks.real_size import CRAWL, FULL
from benchmarks.report import Value, say, table
from benchmarks.site_crawl import captures_of, choose_sites, make_cluster, make_crawl
from benchmarks.summary import OURS, Measurement, Missing, Result
from benchmarks.zipnum import installed, pywb
from catalogue.commoncrawl.datasets import manifest_path

FILES, RUNS = 300, 3

_OURS = "benchmarks.clients.site_ours"
_BLOCKS = "benchmarks.clients.site_blocks"
BLOCKS = "catalogue, list of blocks"
"""``catalogue`` with the CDX index alone."""
_SEARCH = "benchmarks.clients.site_search"
SEARCH = "catalogue, by search"
"""``catalogue`` without a harvest."""
_PAGES = "benchmarks.clients.site_pages"
PAGES = "catalogue, page indexes"
"""``catalogue`` with stored footers and page indexes."""
_TOOLKIT = "benchmarks.clients.site_cdx"
_PEERS = {
    RECIPE: "benchmarks.clients.site_recipe",
    PYARROW: "benchmarks.clients.site_pyarrow",
    DUCKDB: "benchmarks.clients.site_duckdb",
    POLARS: "benchmarks.clients.site_polars",
    DATAFUSION: "benchmarks.clients.site_datafusion",
}
"""Modules, by name in the tables; all request ranges of the files."""
_STORED = {OURS: _OURS, BLOCKS: _BLOCKS, PAGES: _PAGES}
"""Modules of ``catalogue``, by what is stored before."""
_PREPARED = (*_STORED, RECIPE)
"""Clients that store footers on disk."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Cost of a step of a client, ``PREPARE`` or a site."""

    step: Step
    digest: str
    """Digest of the captures."""


Turn = Callable[[Path], Iterator[Measured]]
"""Runs all steps once, in an empty folder."""


def main(*, full: bool) -> Iterator[Result]:  # noqa: ARG001 - all benchmarks have this parameter
    """Measure and print."""
    folder = make_crawl(CACHE, rows=FULL, files=FILES)
    last = folder / path_of(CRAWL, FILES - 1)
    sites = choose_sites(last)
    folder = with_blocks(folder, path_of(CRAWL, FILES - 1), [site.low for site in sites])
    pythons, missing = available([*_PEERS, CDX_TOOLKIT])
    with ExitStack() as stack:
        server, rate = stack.enter_context(serving(folder, path_of(CRAWL, FILES - 1)))
        task = Queries(server.url, FILES, sites)
        turns: dict[str, Turn] = {}
        turns |= {name: partial(task.ask, [module], prepare=True) for name, module in _STORED.items()}
        turns[SEARCH] = partial(task.ask, [_SEARCH], prepare=False)
        for peer, module in _PEERS.items():
            if peer in pythons:
                turns[peer] = partial(task.ask, within(pythons[peer], module), prepare=peer == RECIPE)
        if CDX_TOOLKIT in pythons:
            try:
                served = stack.enter_context(pywb(make_cluster(CACHE, last, rows=FULL), installed()))
            except Failed as error:
                missing[CDX_TOOLKIT] = str(error)
            else:
                proxy = stack.enter_context(DelayingProxy(served.url, latency=LATENCY))
                turns[CDX_TOOLKIT] = partial(task.ask_server, within(pythons[CDX_TOOLKIT], _TOOLKIT), proxy=proxy)
        expected = {site.domain: digest(captures_of(last, site)) for site in sites}
        took = take_turns(turns, expected, missing)
    _print(f"{FILES} files: {1000 * LATENCY:.0f} ms, {rate / 1e6:.0f} MB/s a connection, median of {RUNS}", sites, took)
    yield from _results(sites, took, missing)


def within(python: Path, module: str) -> list[str]:
    """Return the command of a client in another environment."""
    return ["benchmarks.clients.lookup_within", str(python), module]


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries of all clients."""

    source: str
    files: int
    sites: Sequence[Site]
    rate: float | None = None

    def ask(self, command: Sequence[str], home: Path, *, prepare: bool) -> Iterator[Measured]:
        """Query all sites in one process, if ``prepare`` after a process that prepares."""
        for stage in (PREPARE, ASK) if prepare else (ASK,):
            yield from self._run(command, home, stage, self.sites)

    def ask_server(self, command: Sequence[str], home: Path, *, proxy: DelayingProxy) -> Iterator[Measured]:
        """Query a CDX server, with a process for each site, because the proxy counts requests."""
        for site in self.sites:
            proxy.reset()
            (measured,) = self._run(command, home, ASK, [site], f"{proxy.url}/{CRAWL}-index")
            yield replace(measured, step=replace(measured.step, gets=proxy.requests, bytes=proxy.bytes))

    def _run(
        self, command: Sequence[str], home: Path, stage: str, sites: Sequence[Site], server: str = ""
    ) -> Iterator[Measured]:
        task = {
            "source": self.source,
            "crawl": CRAWL,
            "manifest": manifest_path(CRAWL),
            "files": [path_of(CRAWL, number) for number in range(self.files)],
            "sites": [asdict(site) for site in sites],
            "server": server,
            "rate": self.rate,
        }
        file = home / "task.json"
        file.write_text(json.dumps(task), encoding="utf-8")
        wait_for_quiet()
        ran = run([*command, str(file), str(home), stage], home=home)
        for answer in json.loads(ran.output):
            yield Measured(Step(**answer["step"]), answer["digest"])


def take_turns(turns: dict[str, Turn], expected: dict[str, str], missing: dict[str, str]) -> dict[str, list[Measured]]:
    """Run all clients several times.

    Args:
        turns: functions by client.
        expected: digests of the captures, by domain.
        missing: gets the reason for each client that fails or returns other captures.

    Raises:
        Failed: if ``catalogue`` fails.
    """
    took: dict[str, list[Measured]] = {client: [] for client in turns}
    for turn in range(RUNS):
        for client in [client for client in turns if client in took]:
            say(f"one site, run {turn + 1} of {RUNS}: {client}")
            try:
                with TemporaryDirectory(prefix="benchmarks-") as home:
                    took[client] += turns[client](Path(home))
                _check(took[client], expected)
            except Failed as error:
                if client == OURS:
                    raise
                missing[client] = str(error)
                del took[client]
    return took


def _check(measured: Sequence[Measured], expected: dict[str, str]) -> None:
    for one in measured:
        if one.digest != expected.get(one.step.name, ""):
            message = f"wrong captures of {one.step.name}: {one.step.rows:,}"
            raise Failed(message)


def _print(title: str, sites: Sequence[Site], took: dict[str, list[Measured]]) -> None:
    names = {PREPARE: "footers"} | {site.domain: f"{site.captures:,} captures" for site in sites}
    rows: list[list[Value]] = []
    for client, measured in took.items():
        for name, label in names.items():
            if one := _median(measured, name):
                step = one.step
                figures = [step.gets, step.heads, step.bytes / 1e6, step.seconds, step.cpu_seconds]
                rows.append([f"{client}, {label}", *figures, round(one.step.peak_bytes / 1e6)])
    table(f"One site out of {title}", ["client", "GET", "HEAD", "MB", "seconds", "CPU s", "peak MB"], rows)


def _median(measured: Sequence[Measured], name: str) -> Measured | None:
    """Return the medians of a step; None if the client has no such step."""
    steps = [one.step for one in measured if one.step.name == name]
    if not steps:
        return None
    step = Step(
        name,
        steps[0].rows,
        median(step.seconds for step in steps),
        median(step.cpu_seconds for step in steps),
        round(median(step.gets for step in steps)),
        round(median(step.heads for step in steps)),
        round(median(step.bytes for step in steps)),
        round(median(step.peak_bytes for step in steps)),
    )
    return Measured(step, "")


def _results(sites: Sequence[Site], took: dict[str, list[Measured]], missing: dict[str, str]) -> Iterator[Result]:
    first, *others = sites
    clients = (*_STORED, SEARCH, *_PEERS, CDX_TOOLKIT)
    cold = f"One site out of {FILES} files, {first.captures:,} captures, nothing stored"
    yield from (_result(cold, client, (PREPARE, first.domain), took, missing) for client in clients)
    stored = "The same, in a new process, footers stored"
    yield from (_result(stored, client, (first.domain,), took, missing) for client in _PREPARED)
    for site in others:
        another = f"Another site afterwards, {site.captures:,} captures, in the same process"
        yield from (_result(another, client, (site.domain,), took, missing) for client in clients)


def _result(
    job: str, client: str, names: Sequence[str], took: dict[str, list[Measured]], missing: dict[str, str]
) -> Result:
    """Add up the steps of a client, skipping those it does not have."""
    if client in missing:
        return Missing(job, client, missing[client])
    parts = [part for name in names if (part := _median(took[client], name))]
    steps = [part.step for part in parts]
    return Measurement(
        job,
        client,
        sum(step.gets + step.heads for step in steps),
        sum(step.bytes for step in steps),
        sum(step.seconds for step in steps),
        sum(step.cpu_seconds for step in steps),
        max(step.peak_bytes for step in steps),
    )
