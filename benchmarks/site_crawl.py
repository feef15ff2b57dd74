"""What ``site`` asks for and of whom: a crawl of 300 index files, sites in it, and its captures for a CDX server."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.clients.site_asking import COLUMNS, Site
from benchmarks.crawls import make_template, path_of, write_crawl, write_lists
from benchmarks.real_size import CRAWL, INDEX_FILE, real_size
from benchmarks.report import say
from benchmarks.zipnum import write_cluster

_PAGE_ROWS = 23
"""Of the files with holes, whose page indexes then have 1.8 MB, as those of 11 row groups of real size would."""
_SLICE = 100_000
"""Lines that are made at once."""


def make_crawl(cache: Path, *, rows: int, files: int) -> Path:
    """The folder to serve, made unless the cache has it.

    Args:
        cache: a folder.
        rows: of each row group of the last file, which has all its pages; those of the others are holes.
        files: how many.
    """
    folder = cache / f"site-{files}-files-{rows}"
    if not folder.exists():
        real = real_size(cache, rows=rows) / INDEX_FILE
        say(f"making {files} files")
        made = Path(mkdtemp(prefix="crawl-", dir=cache))
        try:
            write_crawl(made, make_template(page_rows=_PAGE_ROWS), files - 1, crawl=CRAWL)
            write_lists(made, CRAWL, files)
            os.link(real, made / path_of(CRAWL, files - 1))
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def choose_sites(file: Path) -> list[Site]:
    """Three sites, each in a row group of its own: of some hundred captures, of a few, and of as many as one has."""
    (hundreds,) = (site for site in _sites(file, 1) if site.domain == "saffron-madeup.com")
    few = min((site for site in _sites(file, 2) if site.captures >= 5), key=lambda site: (site.captures, site.domain))
    return [hundreds, few, max(_sites(file, 0), key=lambda site: (site.captures, site.domain))]


def _sites(file: Path, row_group: int) -> list[Site]:
    """Those that a row group has all of, but for sites with ports."""
    columns = ["url_host_registered_domain", "url_port"]
    held = pq.ParquetFile(file).read_row_group(row_group, columns=columns)
    ends = {held[columns[0]][place].as_py() for place in (0, -1)}
    counts = held.group_by(columns[0]).aggregate([(columns[1], "count"), ([], "count_all")]).to_pylist()
    return [
        Site(each[columns[0]], each["count_all"])
        for each in counts
        if not each["url_port_count"] and each[columns[0]] not in ends
    ]


def captures_of(file: Path, site: Site) -> pa.Table:
    """What a file has of a site."""
    wanted = (pc.field("url_surtkey") >= site.low) & (pc.field("url_surtkey") < site.high)
    return pq.read_table(file, columns=list(COLUMNS), filters=wanted)


def make_cluster(cache: Path, file: Path, *, rows: int) -> Path:
    """The captures of an index file as a CDX server has them, made unless the cache has it."""
    folder = cache / f"cluster-{rows}"
    if not folder.exists():
        say("writing the captures of a file as lines of CDXJ")
        made = Path(mkdtemp(prefix="cluster-", dir=cache))
        try:
            write_cluster(made, CRAWL, _lines(file))
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def _lines(file: Path) -> Iterator[str]:
    """In order. Nothing that these files say has to be escaped in JSON."""
    parquet = pq.ParquetFile(file)
    names = [*COLUMNS, "content_digest"]
    for number in range(parquet.num_row_groups):
        rows = parquet.read_row_group(number, columns=names)
        rows = rows.take(pc.sort_indices(rows, [("url_surtkey", "ascending"), ("fetch_time", "ascending")]))
        for start in range(0, len(rows), _SLICE):
            yield from _as_lines(rows.slice(start, _SLICE).combine_chunks())


def _as_lines(rows: pa.Table) -> list[str]:
    def text(name: str) -> pa.Array:
        return rows[name].combine_chunks().cast(pa.string())

    # By seconds first: a format of milliseconds would print their fraction.
    times = pc.strftime(rows["fetch_time"].combine_chunks().cast(pa.timestamp("s", "UTC")), "%Y%m%d%H%M%S")
    lines = pc.binary_join_element_wise(
        text("url_surtkey"),
        pa.scalar(" "),
        times,
        pa.scalar(' {"url": "'),
        text("url"),
        pa.scalar('", "mime": "'),
        text("content_mime_detected"),
        pa.scalar('", "mime-detected": "'),
        text("content_mime_detected"),
        pa.scalar('", "status": "'),
        text("fetch_status"),
        pa.scalar('", "digest": "'),
        text("content_digest"),
        pa.scalar('", "length": "'),
        text("warc_record_length"),
        pa.scalar('", "offset": "'),
        text("warc_record_offset"),
        pa.scalar('", "filename": "'),
        text("warc_filename"),
        pa.scalar('"}'),
        "",
    )
    held: list[str] = lines.to_pylist()
    return held
