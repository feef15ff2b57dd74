"""The captures of one site out of a crawl of 300 index files, on a server as slow as a distant one.

Of one file all has its real size, and it has the sites. The others have footers and page indexes as large as Common
Crawl's, and pages that are holes: their keys are elsewhere, so that nobody who has seen a footer needs them.

Each client is a process of its own, in an environment of its own, and is asked for three sites one after the other, in
three row groups. What it keeps in memory it may use; what is to be kept on a disk, which ours and the recipe of 2022
do, is made by a process before. Of several runs the medians count; all have to find what is in the file.
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
from benchmarks.late import Late
from benchmarks.paced import LATENCY, serving
from benchmarks.peers import CACHE, CDX_TOOLKIT, DATAFUSION, DUCKDB, POLARS, PYARROW, RECIPE, available
from benchmarks.processes import Failed, run, wait_for_quiet
from benchmarks.real_size import CRAWL, FULL
from benchmarks.report import Value, say, table
from benchmarks.site_crawl import captures_of, choose_sites, make_cluster, make_crawl
from benchmarks.summary import OURS, Measurement, Missing, Result
from benchmarks.zipnum import installed, pywb
from catalogue.commoncrawl.manifests import manifest_path

FILES, RUNS = 300, 3

_OURS = "benchmarks.clients.site_ours"
_TOOLKIT = "benchmarks.clients.site_cdx"
_PEERS = {
    RECIPE: "benchmarks.clients.site_recipe",
    PYARROW: "benchmarks.clients.site_pyarrow",
    DUCKDB: "benchmarks.clients.site_duckdb",
    POLARS: "benchmarks.clients.site_polars",
    DATAFUSION: "benchmarks.clients.site_datafusion",
}
"""Modules by the names in the tables; all ask for ranges of the files."""
_PREPARED = (OURS, RECIPE)
"""Those that keep what they harvest."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client took for a step, ``PREPARE`` or a site."""

    step: Step
    digest: str
    """Of what it found."""
    peak_bytes: int
    """Of its process."""


Turn = Callable[[Path], Iterator[Asked]]
"""Does all steps once, in an empty folder."""


def main(*, full: bool) -> Iterator[Result]:  # noqa: ARG001 - there is no more to it
    """Measure and print."""
    folder = make_crawl(CACHE, rows=FULL, files=FILES)
    last = folder / path_of(CRAWL, FILES - 1)
    sites = choose_sites(last)
    pythons, lacking = available([*_PEERS, CDX_TOOLKIT])
    with ExitStack() as stack:
        server, rate = stack.enter_context(serving(folder, path_of(CRAWL, FILES - 1)))
        task = Questions(server.url, FILES, sites)
        turns: dict[str, Turn] = {OURS: partial(task.ask, [_OURS], prepare=True)}
        for peer, module in _PEERS.items():
            if peer in pythons:
                turns[peer] = partial(task.ask, within(pythons[peer], module), prepare=peer == RECIPE)
        if CDX_TOOLKIT in pythons:
            try:
                served = stack.enter_context(pywb(make_cluster(CACHE, last, rows=FULL), installed()))
            except Failed as why:
                lacking[CDX_TOOLKIT] = str(why)
            else:
                late = stack.enter_context(Late(served.url, latency=LATENCY))
                turns[CDX_TOOLKIT] = partial(task.ask_server, within(pythons[CDX_TOOLKIT], _TOOLKIT), late=late)
        expected = {site.domain: digest(captures_of(last, site)) for site in sites}
        took = take_turns(turns, expected, lacking)
    _print(f"{FILES} files: {1000 * LATENCY:.0f} ms, {rate / 1e6:.0f} MB/s a connection, median of {RUNS}", sites, took)
    yield from _results(sites, took, lacking)


def within(python: Path, module: str) -> list[str]:
    """The command of a client in another environment."""
    return ["benchmarks.clients.lookup_within", str(python), module]


@dataclass(frozen=True, slots=True)
class Questions:
    """What all clients are asked, and where."""

    source: str
    files: int
    sites: Sequence[Site]

    def ask(self, command: Sequence[str], home: Path, *, prepare: bool) -> Iterator[Asked]:
        """Ask for all sites in one process, if need be after one that prepares."""
        for stage in (PREPARE, ASK) if prepare else (ASK,):
            yield from self._run(command, home, stage, self.sites)

    def ask_server(self, command: Sequence[str], home: Path, *, late: Late) -> Iterator[Asked]:
        """Ask a CDX server, with a process for each site, as it is the server's side that is counted."""
        for site in self.sites:
            late.reset()
            (asked,) = self._run(command, home, ASK, [site], f"{late.url}/{CRAWL}-index")
            yield replace(asked, step=replace(asked.step, gets=late.requests, bytes=late.bytes))

    def _run(
        self, command: Sequence[str], home: Path, stage: str, sites: Sequence[Site], server: str = ""
    ) -> Iterator[Asked]:
        task = {
            "source": self.source,
            "crawl": CRAWL,
            "manifest": manifest_path(CRAWL),
            "files": [path_of(CRAWL, number) for number in range(self.files)],
            "sites": [asdict(site) for site in sites],
            "server": server,
        }
        file = home / "task.json"
        file.write_text(json.dumps(task), encoding="utf-8")
        wait_for_quiet()
        ran = run([*command, str(file), str(home), stage], home=home)
        for answer in json.loads(ran.output):
            yield Asked(Step(**answer["step"]), answer["digest"], ran.cost.peak_bytes)


def take_turns(turns: dict[str, Turn], expected: dict[str, str], lacking: dict[str, str]) -> dict[str, list[Asked]]:
    """What all took, some times.

    Args:
        turns: by client.
        expected: digests of what is to be found, by domain.
        lacking: is told why a client has no figures, if it fails or finds something else.

    Raises:
        Failed: if ours does.
    """
    took: dict[str, list[Asked]] = {client: [] for client in turns}
    for turn in range(RUNS):
        for client in [client for client in turns if client in took]:
            say(f"one site, run {turn + 1} of {RUNS}: {client}")
            try:
                with TemporaryDirectory(prefix="benchmarks-") as home:
                    took[client] += turns[client](Path(home))
                _check(took[client], expected)
            except Failed as why:
                if client == OURS:
                    raise
                lacking[client] = str(why)
                del took[client]
    return took


def _check(asked: Sequence[Asked], expected: dict[str, str]) -> None:
    for one in asked:
        if one.digest != expected.get(one.step.name, ""):
            message = f"finds other captures than there are: {one.step.rows:,} of {one.step.name}"
            raise Failed(message)


def _print(title: str, sites: Sequence[Site], took: dict[str, list[Asked]]) -> None:
    names = {PREPARE: "footers"} | {site.domain: f"{site.captures:,} captures" for site in sites}
    rows: list[list[Value]] = []
    for client, asked in took.items():
        for name, said in names.items():
            if one := _median(asked, name):
                step = one.step
                figures = [step.gets, step.heads, step.bytes / 1e6, step.seconds, step.cpu_seconds]
                rows.append([f"{client}, {said}", *figures, round(one.peak_bytes / 1e6)])
    table(f"One site out of {title}", ["client", "GET", "HEAD", "MB", "seconds", "CPU s", "peak MB"], rows)


def _median(asked: Sequence[Asked], name: str) -> Asked | None:
    """Of all runs of a step; None if the client has no such step."""
    steps = [one.step for one in asked if one.step.name == name]
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
    )
    return Asked(step, "", round(median(one.peak_bytes for one in asked if one.step.name == name)))


def _results(sites: Sequence[Site], took: dict[str, list[Asked]], lacking: dict[str, str]) -> Iterator[Result]:
    first, *others = sites
    everybody = (OURS, *_PEERS, CDX_TOOLKIT)
    cold = f"One site out of {FILES} files, {first.captures:,} captures, nothing held"
    yield from (_result(cold, client, (PREPARE, first.domain), took, lacking) for client in everybody)
    held = "The same, by a process that finds what another has kept"
    yield from (_result(held, client, (first.domain,), took, lacking) for client in _PREPARED)
    for site in others:
        another = f"Another site afterwards, {site.captures:,} captures, in the same process"
        yield from (_result(another, client, (site.domain,), took, lacking) for client in everybody)


def _result(
    job: str, client: str, names: Sequence[str], took: dict[str, list[Asked]], lacking: dict[str, str]
) -> Result:
    """What a client took for these steps together, as far as it has them."""
    if client in lacking:
        return Missing(job, client, lacking[client])
    parts = [part for name in names if (part := _median(took[client], name))]
    steps = [part.step for part in parts]
    return Measurement(
        job,
        client,
        sum(step.gets + step.heads for step in steps),
        sum(step.bytes for step in steps),
        sum(step.seconds for step in steps),
        sum(step.cpu_seconds for step in steps),
        max(part.peak_bytes for part in parts),
    )
