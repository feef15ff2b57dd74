"""Find a few rows of an index file of real size with several clients, on a delayed and throttled server.

Each client is a separate process and answers one query. The environments of other programs and the file are cached in
a folder for temporary files. Figures are medians of several runs; all clients must return equally many rows.
"""

import fnmatch
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, mkdtemp
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from benchmarks.clients.lookup_asking import REPEATED, REPEATS, Step, measure
from benchmarks.paced import LATENCY, serving
from benchmarks.peers import CACHE, DATAFUSION, DUCKDB, PEERS, POLARS, PYARROW, PYWB, SPARK, available, python_of
from benchmarks.processes import ROOT, Failed, run, wait_for_quiet
from benchmarks.real_blocks import with_blocks
from benchmarks.real_size import CRAWL, FULL, INDEX_FILE, QUERIES, ROW_GROUPS, SMALL, real_size
from benchmarks.report import say, table
from benchmarks.summary import OURS, Measurement, Missing, Result
from benchmarks.zipnum import installed, link_cluster, pywb
from catalogue.cdx.cluster import index_folder, list_path

RUNS = 3

_PEERS = {
    DATAFUSION: "benchmarks.clients.lookup_datafusion",
    POLARS: "benchmarks.clients.lookup_polars",
    DUCKDB: "benchmarks.clients.lookup_duckdb",
    PYARROW: "benchmarks.clients.lookup_pyarrow",
}
"""Modules by the names in the tables."""
_STORED, _BLOCKS, _AGAIN, _SEARCH = (
    "footers stored",
    "list of blocks stored",
    "second query by blocks",
    "first query by search",
)
_JOBS = dict.fromkeys(["cold", _STORED, _BLOCKS, _SEARCH], "nothing stored")
_JOBS |= dict.fromkeys(["second query", _AGAIN, "warm"], "repeated")
"""Jobs of the summary, by step; comparable steps have the same job."""
EXACT = "exact URL"
_DEFAULT_QUERIES = (EXACT,)
"""Queries without ``--full``."""

Command = Sequence[str]
"""A module and its first arguments; the query follows."""


def main(*, full: bool) -> Iterator[Result]:
    """Measure and print."""
    say(f"{ROW_GROUPS} row groups of {FULL:,} rows, unless cached")
    yield from compare(with_blocks(real_size(CACHE, rows=FULL)), f"{ROW_GROUPS} row groups of {FULL:,} rows", full=full)


def by_spark(*, full: bool) -> None:
    """Measure and print the same for a file with the same rows written by Spark with Common Crawl's settings."""
    if shutil.which("java") is None:
        say("lookup_spark skipped: Java is not installed")
        return
    rows = FULL if full else SMALL
    original = real_size(CACHE, rows=rows)
    folder = CACHE / f"spark-{ROW_GROUPS}-times-{rows}"
    if not folder.exists():
        python = python_of(SPARK)
        made = Path(mkdtemp(prefix="crawl-", dir=CACHE))
        shutil.copytree(original, made, dirs_exist_ok=True, ignore=lambda _, names: fnmatch.filter(names, "*.parquet"))
        command = [str(python), "-m", "benchmarks.clients.write_by_spark", str(original / INDEX_FILE)]
        subprocess.run([*command, str(made / INDEX_FILE)], cwd=ROOT, check=True, capture_output=True)
        made.rename(folder)
    what = f"written by {' '.join(PEERS[SPARK]).replace('==', ' ')}, {ROW_GROUPS * rows:,} rows"
    list(compare(folder, what, full=full))  # not in the summary


def compare(folder: Path, what: str, *, full: bool) -> Iterator[Result]:
    """Query the index file in a folder with all clients."""
    pythons, missing = available([*_PEERS])
    clients: dict[str, Command] = {OURS: ["benchmarks.clients.lookup_ours"]}
    for name in [name for name in _PEERS if name in pythons]:
        clients[name] = ["benchmarks.clients.lookup_within", str(pythons[name]), _PEERS[name]]
    size = (folder / INDEX_FILE).stat().st_size
    if (folder / list_path(CRAWL)).exists():
        clients[PYWB] = []  # a server; see lookup_pywb
    with serving(folder, INDEX_FILE) as (server, rate):
        pace = f"{1000 * LATENCY:.0f} ms, {rate / 1e6:.0f} MB/s a connection, median of {RUNS}"
        for query in QUERIES if full else _DEFAULT_QUERIES:
            arguments = [server.url, INDEX_FILE, *QUERIES[query]]
            title = f"One {query} out of a file of {size / 1e6:,.0f} MB"
            compared = {name: each for name, each in clients.items() if name != PYWB or query == EXACT}
            yield from _compare(title, f"{what}: {pace}", compared, arguments, missing, folder)


def _compare(
    title: str,
    where: str,
    clients: Mapping[str, Command],
    query: Sequence[str],
    missing: dict[str, str],
    folder: Path,
) -> Iterator[Result]:
    """Measure one query with all clients and print a table; add clients that fail to ``missing``, with the reason."""
    steps: dict[str, list[Step]] = {}
    for turn in range(RUNS):
        for name, command in clients.items():
            if name in missing:
                continue
            say(f"{title}, run {turn + 1} of {RUNS}: {name}")
            wait_for_quiet()
            try:
                measured = _ask_pywb(query, folder) if name == PYWB else _ask(name, command, query)
            except Failed as error:
                if name == OURS:
                    raise
                missing[name] = str(error)
                continue
            for step in measured:
                label = f"{name}, {step.name}"
                steps.setdefault(label, []).append(step)
    steps = {label: runs for label, runs in steps.items() if label.rpartition(", ")[0] not in missing}
    counts = {label: {step.rows for step in runs} for label, runs in steps.items()}
    if len(set().union(*counts.values())) != 1:
        message = f"the clients return different numbers of rows: {counts}"
        raise Failed(message)
    table(
        f"{title}; {where}",
        ["client", "rows", "GET", "HEAD", "MB", "seconds", "CPU s", "peak MB"],
        [
            [
                label,
                runs[0].rows,
                round(median(step.gets for step in runs)),
                round(median(step.heads for step in runs)),
                median(step.bytes for step in runs) / 1e6,
                median(step.seconds for step in runs),
                median(step.cpu_seconds for step in runs),
                round(median(step.peak_bytes for step in runs) / 1e6),
            ]
            for label, runs in steps.items()
        ],
    )
    yield from _results(title, steps)
    for name, reason in missing.items():
        yield from (Missing(f"{title}, {job}", name, reason) for job in dict.fromkeys(_JOBS.values()))


def _ask(name: str, command: Command, query: Sequence[str]) -> list[Step]:
    with TemporaryDirectory(prefix="benchmarks-") as home:
        if name == OURS:
            run(["benchmarks.clients.lookup_prepare", *query], home=Path(home))
        ran = run([*command, *query], home=Path(home))
    return [Step(**fields) for fields in json.loads(ran.output)]


def _ask_pywb(query: Sequence[str], folder: Path) -> list[Step]:
    """Query pywb for the exact URL; it has the list of blocks on its disk, and requests blocks."""
    source, location = query[0], f"{query[0]}{index_folder(CRAWL)}/"
    url = "https://saffron-madeup.com/"
    with TemporaryDirectory(prefix="benchmarks-") as name:
        link_cluster(Path(name), CRAWL, folder / list_path(CRAWL), location)
        with pywb(Path(name), installed()) as served:
            target = f"{served.url}/{CRAWL}-index?{urlencode({'url': url})}&nosource=true&allowFuzzy=false"

            def ask() -> int:
                with build_opener(ProxyHandler({})).open(target) as answer:
                    return len(answer.read().splitlines())

            def step(title: str) -> Step:
                before = served.cpu_seconds()
                measured = measure(source, title, ask)
                used = (served.cpu_seconds() - before) / (REPEATS if title in REPEATED else 1)
                return replace(measured, cpu_seconds=used, peak_bytes=served.peak_bytes())

            return [step(_BLOCKS), step(_AGAIN)]


def _results(title: str, steps: Mapping[str, Sequence[Step]]) -> Iterator[Result]:
    for label, runs in steps.items():
        client, _, name = label.rpartition(", ")
        if name in _JOBS:
            yield Measurement(
                f"{title}, {_JOBS[name]}",
                label if name in {_STORED, _BLOCKS, _AGAIN, _SEARCH} else client,
                round(median(step.gets + step.heads for step in runs)),
                median(step.bytes for step in runs),
                median(step.seconds for step in runs),
                median(step.cpu_seconds for step in runs),
                round(median(step.peak_bytes for step in runs)),
            )
