"""Inputs of ``site``: a crawl of 300 index files, its sites, and its captures for a CDX server."""

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
"""Rows per page of the files with holes; their page indexes then have 1.8 MB, as of 11 row groups of real size."""
_SLICE = 100_000
"""Lines per batch."""


def make_crawl(cache: Path, *, rows: int, files: int) -> Path:
    """Return the folder to serve; generate it unless it is cached.

    Args:
        cache: a folder.
        rows: of row row group of the last file, which has all its pages; those of the others are holes.
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
    """Choose three sites of different row groups: some hundred captures, a few, and as many as possible."""
    (hundreds,) = (site for site in _sites(file, 1) if site.domain == "saffron-madeup.com")
    few = min((site for site in _sites(file, 2) if site.captures >= 5), key=lambda site: (site.captures, site.domain))
    return [hundreds, few, max(_sites(file, 0), key=lambda site: (site.captures, site.domain))]


def _sites(file: Path, row_group: int) -> list[Site]:
    """Return sites that lie completely in a row group, except sites with ports."""
    columns = ["url_host_registered_domain", "url_port"]
    result = pq.ParquetFile(file).read_row_group(row_group, columns=columns)
    ends = {result[columns[0]][place].as_py() for place in (0, -1)}
    counts = result.group_by(columns[0]).aggregate([(columns[1], "count"), ([], "count_all")]).to_pylist()
    return [
        Site(row[columns[0]], row["count_all"])
        for row in counts
        if not row["url_port_count"] and row[columns[0]] not in ends
    ]


def captures_of(file: Path, site: Site) -> pa.Table:
    """Return the captures of a site in a file."""
    condition = (pc.field("url_surtkey") >= site.low) & (pc.field("url_surtkey") < site.high)
    return pq.read_table(file, columns=list(COLUMNS), filters=condition)


def make_cluster(cache: Path, file: Path, *, rows: int) -> Path:
    """Return a folder with the captures of an index file for a CDX server; generate it unless it is cached."""
    folder = cache / f"cluster-{rows}"
    if not folder.exists():
        say("writing the captures of a file as lines of CDXJ")
        made = Path(mkdtemp(prefix="cluster-", dir=cache))
        try:
            write_cluster(made, CRAWL, cdx_lines(file))
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def cdx_lines(file: Path) -> Iterator[str]:
    """Yield the rows of an index file as sorted CDX lines. No value of these files needs escapes in JSON."""
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

    # With milliseconds, %S would print a fraction.
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
    result: list[str] = lines.to_pylist()
    return result
