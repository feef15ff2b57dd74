"""Find the captures of a media type in a crawl of 300 files of real size, on a delayed and throttled server.

One media type is in 20 of 3,300 row groups, one in 1 % of all rows, and one nowhere. All bytes of the files are served,
so that other programs can read what they like; they are measured with fewer files, because some read whole columns.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.clients.site_asking import PREPARE, Site, digest
from benchmarks.crawls import path_of
from benchmarks.paced import LATENCY, serving
from benchmarks.peers import CACHE, DATAFUSION, DUCKDB, POLARS, available
from benchmarks.processes import Failed
from benchmarks.real_size import CRAWL, FULL
from benchmarks.report import Value, say, table
from benchmarks.site import Measured, Queries, Turn, within
from benchmarks.summary import OURS, Measurement, Missing, Result
from benchmarks.values_crawl import NOWHERE, RARE, RARE_ROWS, ROW_GROUPS, has_rare, make_crawl, rare_captures

FILES, FILES_OF_PEERS = 300, 12
REQUESTS_A_SECOND = 100.0
"""A limit for ``catalogue`` alone; without one it prefers many small requests."""
VALUES = "catalogue, values stored"
_OURS, _VALUES = "benchmarks.clients.site_ours", "benchmarks.clients.site_values"
_PLACES = ("url", "warc_filename", "warc_record_offset", "warc_record_length")
_NARROW = {"URLs": ("url",), "places of records": _PLACES, "counted": ()}
"""Columns of further queries with values stored."""
_PEERS = {
    DUCKDB: "benchmarks.clients.site_duckdb",
    POLARS: "benchmarks.clients.site_polars",
    DATAFUSION: "benchmarks.clients.site_datafusion",
}


def main(*, full: bool) -> Iterator[Result]:  # noqa: ARG001 - all benchmarks have this parameter
    """Measure and print."""
    pythons, missing = available([*_PEERS])
    for files in (FILES, FILES_OF_PEERS):
        folder = make_crawl(CACHE, rows=FULL, files=files)
        groups = sum(has_rare(file, group, files=files) for file in range(files) for group in range(ROW_GROUPS))
        types = [Site("rare type", groups * RARE_ROWS, RARE), Site("absent type", 0, NOWHERE)]
        rare = rare_captures(folder).to_pylist() * groups
        expected = {"rare type": digest(rare), "absent type": digest([])}
        narrow = [Site(f"rare type, {name}", groups * RARE_ROWS, RARE, columns) for name, columns in _NARROW.items()]
        expected |= {site.domain: digest([{n: row[n] for n in site.columns} for row in rare]) for site in narrow}
        with serving(folder, f"{path_of(CRAWL, 0).rpartition('/')[0]}/usual.parquet") as (server, _):
            task = Queries(server.url, files, types, REQUESTS_A_SECOND)
            turns: dict[str, Turn] = {OURS: partial(task.ask, [_OURS], prepare=True)}
            turns[VALUES] = partial(_with_values, replace(task, sites=[narrow[0], *types, *narrow[1:]]))
            if files == FILES_OF_PEERS:
                for peer, python in pythons.items():
                    turns[peer] = partial(task.ask, within(python, _PEERS[peer]), prepare=False)
            yield from _results(files, groups, turns, expected, missing)


def _with_values(task: Queries, home: Path) -> Iterator[Measured]:
    """Harvest footers, then values, then query."""
    yield from replace(task, sites=[]).ask([_OURS], home, prepare=True)
    yield from task.ask([_VALUES], home, prepare=True)


def _results(
    files: int, groups: int, turns: dict[str, Turn], expected: dict[str, str], missing: dict[str, str]
) -> Iterator[Result]:
    rows: list[list[Value]] = []
    for client, turn in turns.items():
        say(f"a media type of {groups} of {files * ROW_GROUPS:,} row groups: {client}")
        try:
            with TemporaryDirectory(prefix="benchmarks-") as home:
                steps = [*turn(Path(home))]
        except Failed as error:
            missing[client] = str(error)
            steps = []
        for number, one in enumerate(steps):
            step = one.step
            name = step.name
            if name == PREPARE:
                name = "values" if client == VALUES and number else "footers"
            elif one.digest != expected[name]:
                missing[client] = f"wrong captures: {step.rows:,}"
            figures = [step.gets, step.heads, step.bytes / 1e6, step.seconds, step.cpu_seconds]
            rows.append([f"{client}, {name}", *figures, round(step.peak_bytes / 1e6)])
            job = f"{name[0].upper()}{name[1:]}, {files} files"
            cost = step.gets + step.heads, step.bytes, step.seconds, step.cpu_seconds, step.peak_bytes
            yield Measurement(job, client, *cost)
        if client in missing:
            yield Missing(f"Rare type, {files} files", client, missing[client])
    title = f"Media types in {files} files: {1000 * LATENCY:.0f} ms"
    table(title, ["client", "GET", "HEAD", "MB", "seconds", "CPU s", "peak MB"], rows)
