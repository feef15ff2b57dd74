"""A few rows out of an index file of real size, found by us and by others, on a server as slow as a distant one.

Each client is a process of its own and answers one question. The others, in the versions named here, run in an
environment of their own, which is made once and kept, as is the file, in a folder for temporary files. Of several runs
the medians count; all have to find as many rows.
"""

import fnmatch
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, mkdtemp

from benchmarks.clients.lookup_asking import Step
from benchmarks.paced import LATENCY, serving
from benchmarks.peers import CACHE, DATAFUSION, DUCKDB, PEERS, POLARS, PYARROW, SPARK, available, python_of
from benchmarks.processes import ROOT, Failed, run, wait_for_quiet
from benchmarks.real_size import FULL, INDEX_FILE, QUESTIONS, ROW_GROUPS, SMALL, real_size
from benchmarks.report import say, table
from benchmarks.summary import OURS, Measurement, Missing, Result

RUNS = 3

_PEERS = {
    DATAFUSION: "benchmarks.clients.lookup_datafusion",
    POLARS: "benchmarks.clients.lookup_polars",
    DUCKDB: "benchmarks.clients.lookup_duckdb",
    PYARROW: "benchmarks.clients.lookup_pyarrow",
}
"""Modules by the names in the tables."""
_HELD = "footers held"
_JOBS = {"cold": "nothing held", _HELD: "nothing held", "second question": "asked again", "warm": "asked again"}
"""In what of the summary a step stands: what is comparable together."""
_WITHOUT_MORE = ("exact URL",)
"""The question that is put unless all are to be."""

Command = Sequence[str]
"""A module and its first arguments; the question follows."""


def main(*, full: bool) -> Iterator[Result]:
    """Measure and print."""
    say(f"{ROW_GROUPS} row groups of {FULL:,} rows, unless they are there")
    yield from compare(real_size(CACHE, rows=FULL), f"{ROW_GROUPS} row groups of {FULL:,} rows", full=full)


def by_spark(*, full: bool) -> None:
    """Measure and print the same of a file with the same rows that Spark wrote, by Common Crawl's settings."""
    if shutil.which("java") is None:
        say("nothing is written by Spark, because there is no Java")
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
    list(compare(folder, what, full=full))  # the tables are enough


def compare(folder: Path, what: str, *, full: bool) -> Iterator[Result]:
    """Put questions to all clients, about the index file in a folder."""
    pythons, lacking = available([*_PEERS])
    clients: dict[str, Command] = {OURS: ["benchmarks.clients.lookup_ours"]}
    for name in [name for name in _PEERS if name in pythons]:
        clients[name] = ["benchmarks.clients.lookup_within", str(pythons[name]), _PEERS[name]]
    size = (folder / INDEX_FILE).stat().st_size
    with serving(folder, INDEX_FILE) as (server, rate):
        pace = f"{1000 * LATENCY:.0f} ms, {rate / 1e6:.0f} MB/s a connection, median of {RUNS}"
        for question in QUESTIONS if full else _WITHOUT_MORE:
            asked = [server.url, INDEX_FILE, *QUESTIONS[question]]
            title = f"One {question} out of a file of {size / 1e6:,.0f} MB"
            yield from _ask(title, f"{what}: {pace}", clients, asked, lacking)


def _ask(
    title: str, where: str, clients: Mapping[str, Command], question: Sequence[str], lacking: dict[str, str]
) -> Iterator[Result]:
    """Ask all of them one question, and print a table; told is why a client has no figures, if it fails."""
    steps: dict[str, list[Step]] = {}
    peaks: dict[str, list[int]] = {}
    for turn in range(RUNS):
        for name, command in clients.items():
            if name in lacking:
                continue
            say(f"{title}, run {turn + 1} of {RUNS}: {name}")
            wait_for_quiet()
            try:
                with TemporaryDirectory(prefix="benchmarks-") as home:
                    ran = run([*command, *question], home=Path(home))
            except Failed as error:
                if name == OURS:
                    raise
                lacking[name] = str(error)
                continue
            for step in (Step(**each) for each in json.loads(ran.output)):
                label = f"{name}, {step.name}"
                steps.setdefault(label, []).append(step)
                peaks.setdefault(label, []).append(ran.cost.peak_bytes)
    steps = {label: each for label, each in steps.items() if label.rpartition(", ")[0] not in lacking}
    found = {label: {step.rows for step in each} for label, each in steps.items()}
    if len(set().union(*found.values())) != 1:
        message = f"not all find the same rows: {found}"
        raise Failed(message)
    table(
        f"{title}; {where}",
        ["client", "rows", "GET", "HEAD", "MB", "seconds", "CPU s", "peak MB"],
        [
            [
                label,
                each[0].rows,
                round(median(step.gets for step in each)),
                round(median(step.heads for step in each)),
                median(step.bytes for step in each) / 1e6,
                median(step.seconds for step in each),
                median(step.cpu_seconds for step in each),
                round(median(peaks[label]) / 1e6),
            ]
            for label, each in steps.items()
        ],
    )
    yield from _results(title, steps, peaks)
    for name, why in lacking.items():
        yield from (Missing(f"{title}, {job}", name, why) for job in dict.fromkeys(_JOBS.values()))


def _results(title: str, steps: Mapping[str, Sequence[Step]], peaks: Mapping[str, Sequence[int]]) -> Iterator[Result]:
    for label, each in steps.items():
        client, _, name = label.rpartition(", ")
        if name in _JOBS:
            yield Measurement(
                f"{title}, {_JOBS[name]}",
                label if name == _HELD else client,
                round(median(step.gets + step.heads for step in each)),
                median(step.bytes for step in each),
                median(step.seconds for step in each),
                median(step.cpu_seconds for step in each),
                round(median(peaks[label])),
            )
