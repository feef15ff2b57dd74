"""10,000 URLs at once: requests, bytes and URLs a second.

A crawl of 300 files of real size would take 300 GB, so there are two cases: 10,000 URLs in 300 small files,
and 33 URLs, a three-hundredth, in one file whose row groups and pages have real size. A third case has few URLs
in blocks of real size; their bytes show what one URL costs on average.
"""

import json
import shutil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, mkdtemp

import pyarrow.parquet as pq

from benchmarks.cdx_crawls import large_crawl
from benchmarks.clients.lookup_asking import Step
from benchmarks.clients.many_ours import SINGLE
from benchmarks.crawls import path_of, write_lists
from benchmarks.paced import LATENCY, serving
from benchmarks.peers import CACHE
from benchmarks.processes import run, wait_for_quiet
from benchmarks.real_size import CRAWL, FULL, INDEX_FILE, ROW_GROUPS, SMALL, real_size, writing
from benchmarks.report import say, table
from benchmarks.site_crawl import cdx_lines
from benchmarks.zipnum import publish_cluster, write_cluster
from catalogue.cdx.cluster import index_folder

FILES = 300
URLS = 10_000
_GROUPS, _PAGES = 3, 10
"""Row groups of a small file, and pages of a column chunk."""


def main(*, full: bool) -> None:
    """Measure and print."""
    rows = FULL if full else SMALL
    say(f"{ROW_GROUPS} row groups of {rows:,} rows, and the same rows in {FILES} files, unless cached")
    large = real_size(CACHE, rows=rows)
    small = split_crawl(large, CACHE / f"crawl-2-{FILES}-files-of-{ROW_GROUPS * rows}", rows)
    urls = draw_urls(large)
    in_all = ROW_GROUPS * rows
    _measure(small, urls, f"{len(urls):,} URLs, {FILES} files of {_GROUPS} row groups, {in_all:,} rows")
    few = urls[::FILES]
    _measure(large, few, f"{len(few)} URLs, one file of {ROW_GROUPS} row groups, {in_all:,} rows")
    crawl = large_crawl()
    lines = sorted(Random(12).sample(range(crawl.captures), SINGLE))
    drawn = [_url(line) for number, line in enumerate(crawl.lines()) if number in lines]
    (shard, *_) = sorted((crawl.folder / index_folder(crawl.name)).glob("cdx-*.gz"))
    title = f"{len(drawn)} URLs, a CDX index of {crawl.captures:,} captures"
    _measure(crawl.folder, drawn, title, str(shard.relative_to(crawl.folder)), "cdx")


def _url(line: str) -> str:
    url: str = json.loads(line.split(" ", 2)[2])["url"]
    return url


def _measure(folder: Path, urls: list[str], title: str, file: str = INDEX_FILE, index: str = "both") -> None:
    """Measure with all URLs and one index or both; the file is read to find the rate of a connection."""
    with serving(folder, file) as (server, rate), TemporaryDirectory(prefix="benchmarks-") as home:
        listed = Path(home) / "urls"
        listed.write_text("\n".join(urls), encoding="utf-8")
        wait_for_quiet()
        ran = run(["benchmarks.clients.many_ours", server.url, str(listed), index], home=Path(home))
    steps = [Step(**each) for each in json.loads(ran.output)]
    url_counts = [min(SINGLE, len(urls)) if "one by one" in step.name else len(urls) for step in steps]
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
            for step, count in zip(steps, url_counts, strict=True)
        ],
    )


def draw_urls(folder: Path) -> list[str]:
    """Draw distinct URLs of the file, in order of their keys."""
    column = pq.read_table(folder / INDEX_FILE, columns=["url"])["url"]
    rows = sorted(Random(12).sample(range(len(column)), URLS))
    return list(dict.fromkeys(column.take(rows).to_pylist()))


def split_crawl(large: Path, folder: Path, rows: int) -> Path:
    """Split the rows of one file into many files, and write their CDX index, unless cached."""
    if not folder.exists():
        made = Path(mkdtemp(prefix="crawl-", dir=folder.parent))
        try:
            write_lists(made, CRAWL, FILES)
            _write(made, pq.ParquetFile(large / INDEX_FILE), ROW_GROUPS * rows // FILES)
            with TemporaryDirectory(prefix="cluster-") as clusters:
                write_cluster(Path(clusters), CRAWL, cdx_lines(large / INDEX_FILE))
                publish_cluster(Path(clusters), made, CRAWL)
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
