"""A few rows out of an index file of real size, found by us and by others, on a server as slow as a distant one.

Each client is a process of its own and answers one question. The others, in the versions named here, run in an
environment of their own, which is made once and kept, as is the file, in a folder for temporary files. Of several runs
the medians count; all have to find as many rows.
"""

import fnmatch
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, gettempdir, mkdtemp

from benchmarks.clients.lookup_asking import Step
from benchmarks.paced import LATENCY, serving
from benchmarks.peers import environment
from benchmarks.processes import ROOT, Failed, run, wait_for_quiet
from benchmarks.real_size import FULL, INDEX_FILE, QUESTIONS, ROW_GROUPS, SMALL, real_size
from benchmarks.report import say, table

RUNS = 3

_PEERS = {
    "DataFusion": "lookup_datafusion",
    "polars": "lookup_polars",
    "DuckDB, httpfs": "lookup_duckdb",
    "pyarrow over fsspec": "lookup_pyarrow",
}
"""Modules by the names in the tables."""
_REQUIREMENTS = (
    "aiohttp==3.14.5",
    "datafusion==55.0.0",
    "duckdb==1.5.5",  # the last that the wheels of its extensions have been made for
    "duckdb-extension-httpfs==1.5.5",
    "fsspec==2026.9.0",
    "polars==2.1.0",
    "pyarrow==26.0.1",
)
_SPARK = "pyspark==3.5.8"
CACHE = Path(gettempdir()) / "catalogue-benchmarks"
"""Of what takes long to make."""

Command = Sequence[str]
"""A module and its first arguments; the question follows."""


def main(*, full: bool) -> None:
    """Measure and print."""
    rows = FULL if full else SMALL
    say(f"{ROW_GROUPS} row groups of {rows:,} rows, unless they are there")
    compare(real_size(CACHE, rows=rows), f"{ROW_GROUPS} row groups of {rows:,} rows")


def by_spark(*, full: bool) -> None:
    """Measure and print the same of a file with the same rows that Spark wrote, by Common Crawl's settings."""
    if shutil.which("java") is None:
        say("nothing is written by Spark, because there is no Java")
        return
    rows = FULL if full else SMALL
    original = real_size(CACHE, rows=rows)
    folder = CACHE / f"spark-{ROW_GROUPS}-times-{rows}"
    if not folder.exists():
        python = environment(CACHE, [_SPARK])
        made = Path(mkdtemp(prefix="crawl-", dir=CACHE))
        shutil.copytree(original, made, dirs_exist_ok=True, ignore=lambda _, names: fnmatch.filter(names, "*.parquet"))
        command = [str(python), "-m", "benchmarks.clients.write_by_spark", str(original / INDEX_FILE)]
        subprocess.run([*command, str(made / INDEX_FILE)], cwd=ROOT, check=True, capture_output=True)
        made.rename(folder)
    compare(folder, f"written by {_SPARK.replace('==', ' ')}, {ROW_GROUPS * rows:,} rows")


def compare(folder: Path, what: str) -> None:
    """Put all questions to all clients, about the index file in a folder."""
    peers = environment(CACHE, _REQUIREMENTS)
    clients: dict[str, Command] = {"catalogue": ["benchmarks.clients.lookup_ours"]}
    for name, module in _PEERS.items():
        clients[name] = ["benchmarks.clients.lookup_within", str(peers), f"benchmarks.clients.{module}"]
    size = (folder / INDEX_FILE).stat().st_size
    with serving(folder, INDEX_FILE) as (server, rate):
        where = f"{what}, {size / 1e6:,.0f} MB"
        pace = f"{1000 * LATENCY:.0f} ms, {rate / 1e6:.0f} MB/s a connection, median of {RUNS}"
        print(f"\n{where}; {', '.join(_REQUIREMENTS).replace('==', ' ')}")
        for question, (low, high) in QUESTIONS.items():
            _ask(f"{question}: {pace}", clients, [server.url, INDEX_FILE, low, high])


def _ask(title: str, clients: Mapping[str, Command], question: Sequence[str]) -> None:
    """Ask all of them one question, and print a table."""
    steps: dict[str, list[Step]] = {}
    peaks: dict[str, list[int]] = {}
    for turn in range(RUNS):
        for name, command in clients.items():
            say(f"{title.partition(':')[0]}, run {turn + 1} of {RUNS}: {name}")
            wait_for_quiet(at_most=5.0)
            with TemporaryDirectory(prefix="benchmarks-") as home:
                ran = run([*command, *question], home=Path(home))
            for step in (Step(**each) for each in json.loads(ran.output)):
                label = f"{name}, {step.name}"
                steps.setdefault(label, []).append(step)
                peaks.setdefault(label, []).append(ran.cost.peak_bytes)
    found = {label: {step.rows for step in each} for label, each in steps.items()}
    if len(set().union(*found.values())) != 1:
        message = f"not all find the same rows: {found}"
        raise Failed(message)
    table(
        title,
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
