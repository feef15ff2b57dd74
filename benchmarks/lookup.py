"""A few rows out of an index file of real size, found by us and by others, on a server as slow as a distant one.

Each client is a process of its own and answers one question. The others, in the versions named here, run in an
environment of their own, which is made once and kept, as is the file, in a folder for temporary files. Of several runs
the medians count; all have to find as many rows.
"""

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, gettempdir

from benchmarks.clients.lookup_asking import Step
from benchmarks.paced import LATENCY, serving
from benchmarks.processes import Failed, run, wait_for_quiet
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
CACHE = Path(gettempdir()) / "catalogue-benchmarks"
"""Of what takes long to make."""

Command = Sequence[str]
"""A module and its first arguments; the question follows."""


def main(*, full: bool) -> None:
    """Measure and print."""
    rows = FULL if full else SMALL
    peers = _environment(CACHE)
    say(f"{ROW_GROUPS} row groups of {rows:,} rows, unless they are there")
    folder = real_size(CACHE, rows=rows)
    clients: dict[str, Command] = {"catalogue": ["benchmarks.clients.lookup_ours"]}
    for name, module in _PEERS.items():
        clients[name] = ["benchmarks.clients.lookup_within", str(peers), f"benchmarks.clients.{module}"]
    size = (folder / INDEX_FILE).stat().st_size
    with serving(folder, INDEX_FILE) as (server, rate):
        where = f"{ROW_GROUPS} row groups of {rows:,} rows, {size / 1e6:,.0f} MB"
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


def _environment(cache: Path) -> Path:
    """The Python of the environment that the others run in; made unless it is there.

    Raises:
        Failed: if it cannot be.
    """
    folder = cache / f"peers-{blake2b(repr((sys.version, _REQUIREMENTS)).encode(), digest_size=4).hexdigest()}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        say(f"installing {', '.join(_REQUIREMENTS)}")
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *_REQUIREMENTS]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            message = f"the others cannot be installed:\n{done.stderr}"
            raise Failed(message)
        complete.touch()
    return python
