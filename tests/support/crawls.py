"""Write crawls of a few files."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue import Catalogue
from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.harvest.harvest import harvest

CRAWL = "CC-MAIN-2022-33"
BARE = "CC-MAIN-2018-09"
ABSENT = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/part-00099-gone.c000.gz.parquet"
"""A file for manifests that does not exist."""


def table(keys: Sequence[str | None], **more: pa.Array) -> pa.Table:
    """Return rows with these keys, and with URLs and statuses."""
    numbers = range(len(keys))
    return pa.table(
        {
            KEY_COLUMN: pa.array(keys, pa.string()),
            "url": [f"https://example.com/{number:07}" for number in numbers],
            "fetch_status": pa.array([(200, 404, 301)[number % 3] for number in numbers], pa.int16()),
            **more,
        }
    )


def index_path(folder: Path, number: int = 0, crawl: str = CRAWL, subset: str = "warc") -> Path:
    """Return the path of an index file; make its folder."""
    part = f"part-{number:05}-{UUID(int=number)}.c000.gz.parquet"
    path = folder / f"cc-index/table/cc-main/warc/crawl={crawl}/subset={subset}" / part
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_manifest(folder: Path, crawl: str = CRAWL, *absent: str) -> None:
    """Write a manifest of the existing index files, and of absent ones."""
    manifest = folder / f"crawl-data/{crawl}/cc-index-table.paths.gz"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob(f"crawl={crawl}/*/*.parquet"))
    manifest.write_bytes(gzip.compress("\n".join([*paths, *absent]).encode()))


def crawl_of(
    folder: Path,
    *tables: pa.Table,
    crawl: str = CRAWL,
    change: Callable[[bytes], bytes] | None = None,
    **options: Any,
) -> Path:
    """Write a crawl with a file for each table; ``options`` are those of ``pyarrow.parquet.write_table``."""
    for number, rows in enumerate(tables):
        path = index_path(folder, number, crawl)
        settings = {"write_page_index": True, "use_dictionary": False} | options
        # No two footers are the same.
        pq.write_table(rows.replace_schema_metadata({"file": str(number)}) if number else rows, path, **settings)
        if change:
            path.write_bytes(change(path.read_bytes()))
    write_manifest(folder, crawl)
    return folder


def harvest_footers(cat: Catalogue, crawl: str = CRAWL, *, pages: bool = False) -> None:
    """Harvest without an update of the metadata database, which takes most of the time of a small harvest."""
    found = harvest(cat.session, crawl, ["warc"], pages=pages)
    assert not found.failures, found.failures


def bare_crawl(folder: Path) -> Path:
    """Write the crawl ``BARE`` of three files, which have no bounds and no page indexes."""
    tables = [table([f"com,example)/{number}/{row:05}" for row in range(900)]) for number in range(3)]
    return crawl_of(folder, *tables, crawl=BARE, write_statistics=False, write_page_index=False)
