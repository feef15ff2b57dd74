"""Show the pages of the key column from stored page indexes.

A row group is an object of JSON with a list for each column, which DuckDB takes apart: a dictionary for each page takes
several times as long.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import BadPageIndex
from catalogue.metadata_db.load_rows import load_rows
from catalogue.parquet.model import ColumnChunk
from catalogue.parquet.page_index import Indexes, decode_column_index, decode_offset_index
from catalogue.query.literals import literal
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.surt import text_from
from catalogue.tables.file_metadata import FileMetadata
from catalogue.tables.make_table import greatest_text
from catalogue.tables.stored_crawls import StoredCrawls


def show_pages(
    db: duckdb.DuckDBPyConnection,
    folder: Path,
    store: Store,
    crawls: StoredCrawls,
    dataset: Dataset,
    crawl: str,
    last_index: int,
) -> int:
    """Replace the pages of row groups of a crawl whose index was written after a row of the store.

    ``folder`` is for a temporary file.

    Returns:
        The number of the last row.
    """
    changed: dict[str, list[int]] = {}
    rows = store.row_numbers("indexes", "" if crawl == dataset.name else f"crawl={crawl}/")
    for key, row in rows.items():
        if row > last_index and (place := row_group_of(key)):
            changed.setdefault(place[0], []).append(place[1])
    if changed and last_index:
        places = ", ".join(f"({literal(path)}, {ordinal})" for path, some in changed.items() for ordinal in some)
        db.execute(f"DELETE FROM derived.pages WHERE (path, row_group) IN (VALUES {places})")  # noqa: S608
    if changed:
        files = (file.among(changed[file.path]) for file in crawls.files(crawl) if file.path in changed)
        pages = (row for file in files for row in _rows(store, dataset, file))
        load_rows(db, folder, "views/_load_pages.sql", dataset, pages)
    return max(rows.values(), default=0)


def _rows(store: Store, dataset: Dataset, file: FileMetadata) -> Iterator[dict[str, Any]]:
    """Yield the pages of row groups of a file as ``views/_load_pages.sql`` takes them."""
    stored = store.indexes(file.path, file.ordinals, file.stored) if file.stored else {}
    for group in file.footer.row_groups:
        chunk, indexes = group.chunks.get(dataset.key), stored.get(group.ordinal, Indexes())
        if chunk and (located := indexes.offset_indexes.get(dataset.key)):
            with suppress(BadPageIndex):
                lists = _lists(chunk, group.num_rows, located, indexes.column_index)
                at = {"crawl": file.file.crawl, "subset": file.file.subset, "row_group": group.ordinal}
                yield {"path": file.path, **at, **lists}


def _lists(key: ColumnChunk, num_rows: int, located: bytes, column_index: bytes | None) -> dict[str, Any]:
    """Return a list of values of the pages for each column.

    Raises:
        BadPageIndex: if an index is invalid.
    """
    offsets = decode_offset_index(located, key, num_rows)
    index = decode_column_index(column_index, key, offsets) if column_index else None
    bounds = index.bounds if index else [None] * len(offsets)
    return {
        "first_rows": offsets.first_rows,
        "offsets": offsets.offsets,
        "null_counts": index and index.null_counts,
        "min_keys": [each and text_from(each.min) for each in bounds],
        "max_keys": [each and greatest_text(each.max) for each in bounds],
    }
