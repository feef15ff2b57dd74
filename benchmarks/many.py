"""10,000 URLs at once: requests, bytes and URLs a second.

A crawl of 300 files of real size would take 300 GB, so it is looked at from two sides: 10,000 URLs in 300 files that
are as many but small, and 33 URLs, a three-hundredth, in one file whose row groups and pages have their real size.
"""

import json
import shutil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, mkdtemp

import pyarrow.parquet as pq

from benchmarks.clients.lookup_asking import Step
from benchmarks.clients.many_ours import SINGLE
from benchmarks.crawls import path_of, write_lists
from benchmarks.paced import LATENCY, serving
from benchmarks.peers import CACHE
from benchmarks.processes import run, wait_for_quiet
from benchmarks.real_size import CRAWL, FULL, INDEX_FILE, ROW_GROUPS, SMALL, real_size, writing
from benchmarks.report import say, table

FILES = 300
URLS = 10_000
_GROUPS, _PAGES = 3, 10
"""Row groups of each of the small files, and pages of each column of these."""


def main(*, full: bool) -> None:
    """Measure and print."""
    rows = FULL if full else SMALL
    say(f"{ROW_GROUPS} row groups of {rows:,} rows, and the same rows in {FILES} files, unless they are there")
    large = real_size(CACHE, rows=rows)
    small = _split(large, CACHE / f"crawl-{FILES}-files-of-{ROW_GROUPS * rows}", rows)
    urls = _urls(large)
    in_all = ROW_GROUPS * rows
    _ask(small, urls, f"{len(urls):,} URLs, {FILES} files of {_GROUPS} row groups, {in_all:,} rows")
    few = urls[::FILES]
    _ask(large, few, f"{len(few)} URLs, one file of {ROW_GROUPS} row groups, {in_all:,} rows")


def _ask(folder: Path, urls: list[str], title: str) -> None:
    with serving(folder, INDEX_FILE) as (server, rate), TemporaryDirectory(prefix="benchmarks-") as home:
        file = Path(home) / "urls"
        file.write_text("\n".join(urls), encoding="utf-8")
        wait_for_quiet()
        ran = run(["benchmarks.clients.many_ours", server.url, str(file)], home=Path(home))
    steps = [Step(**each) for each in json.loads(ran.output)]
    asked = [len(urls), len(urls), min(SINGLE, len(urls))]
    pace = f"{1000 * LATENCY:.0f} ms, {rate / 1e6:.0f} MB/s a connection"
    table(
        f"{title}: {pace}, peak {ran.cost.peak_bytes / 1e6:.0f} MB",
        ["", "URLs", "rows", "requests", "MB", "requests a URL", "kB a URL", "seconds", "CPU s", "URLs/s"],
        [
            [
                step.name,
                count,
                step.rows,
                step.gets + step.heads,
                step.bytes / 1e6,
                (step.gets + step.heads) / count,
                step.bytes / 1e3 / count,
                step.seconds,
                step.cpu_seconds,
                count / step.seconds,
            ]
            for step, count in zip(steps, asked, strict=True)
        ],
    )


def _urls(folder: Path) -> list[str]:
    """URLs of the file, no two alike, in order of their keys."""
    every = pq.read_table(folder / INDEX_FILE, columns=["url"])["url"]
    places = sorted(Random(12).sample(range(len(every)), URLS))
    return list(dict.fromkeys(every.take(places).to_pylist()))


def _split(large: Path, folder: Path, rows: int) -> Path:
    """The rows of one file as many files; made unless they are there."""
    if not folder.exists():
        made = Path(mkdtemp(prefix="crawl-", dir=folder.parent))
        try:
            write_lists(made, CRAWL, FILES)
            _write(made, pq.ParquetFile(large / INDEX_FILE), ROW_GROUPS * rows // FILES)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def _write(folder: Path, source: pq.ParquetFile, rows: int) -> None:
    number = 0
    for ordinal in range(source.num_row_groups):
        group = source.read_row_group(ordinal)
        for start in range(0, group.num_rows, rows):
            path = folder / path_of(CRAWL, number)
            path.parent.mkdir(parents=True, exist_ok=True)
            with writing(path, group.schema, page_rows=rows // _GROUPS // _PAGES) as writer:
                writer.write_table(group.slice(start, rows), row_group_size=rows // _GROUPS)
            number += 1
