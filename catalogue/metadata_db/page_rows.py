"""Fill the table ``pages`` from stored page indexes.

A row group is one line of JSON with a list for each column, which DuckDB takes apart: a dictionary for each page takes
several times as long.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import duckdb

from catalogue.errors import BadPageIndex
from catalogue.metadata_db.incoming import incoming
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.model import ColumnChunk
from catalogue.parquet.page_index import decode_column_index, decode_offset_index
from catalogue.store.database import Store
from catalogue.surt import text_from
from catalogue.tables.found_bounds import greatest_text

_INCOMING = {
    "file": "INTEGER",
    "row_group": "INTEGER",
    "first_rows": "BIGINT[]",
    "offsets": "BIGINT[]",
    "null_counts": "BIGINT[]",
    "min_keys": "VARCHAR[]",
    "max_keys": "VARCHAR[]",
}
"""A row group; the first two lists also have the end of the last page."""


FilePages: TypeAlias = tuple[int, str, Sequence[int]]
"""Number of a file in the database, its path, and ordinals of row groups."""


def add_pages(db: duckdb.DuckDBPyConnection, store: Store, key: str, files: Iterable[FilePages], folder: Path) -> None:
    """Add the stored pages of the key column of row groups; ``folder`` is for temporary files."""
    lines = (line for file in files for line in _lines(store, key, file))
    with incoming(folder, _INCOMING, lines) as source:
        db.execute(f"CREATE OR REPLACE TEMP TABLE incoming_pages AS FROM {source}")
    db.execute(
        """
        INSERT INTO derived.pages BY NAME
        SELECT
          file, row_group, unnest(range(len(offsets) - 1)) AS page,
          unnest(first_rows[:-2]) AS first_row_index,
          unnest(first_rows[2:]) - unnest(first_rows[:-2]) AS num_rows,
          unnest(null_counts) AS null_count,
          unnest(min_keys) AS min_key,
          unnest(max_keys) AS max_key,
          unnest(offsets[:-2]) AS file_offset,
          unnest(offsets[2:]) - unnest(offsets[:-2]) AS compressed_page_size
        FROM incoming_pages
        """
    )
    db.execute("DROP TABLE incoming_pages")


def _lines(store: Store, key: str, pages: FilePages) -> Iterator[bytes]:
    number, path, ordinals = pages
    file = store.get("files", path)
    if file is None:
        return
    groups = {group.ordinal: group for group in decode_footer(file.data, file.size).row_groups}
    for ordinal, indexes in store.indexes(path, ordinals, file).items():
        group = groups.get(ordinal)
        chunk = group and group.chunks.get(key)
        located = indexes.offset_indexes.get(key)
        if group and chunk and located:
            with suppress(BadPageIndex):
                fields = _fields(chunk, group.num_rows, located, indexes.column_index)
                yield json.dumps({"file": number, "row_group": ordinal, **fields}).encode() + b"\n"


def _fields(key: ColumnChunk, num_rows: int, located: bytes, column_index: bytes | None) -> dict[str, Any]:
    """Return the fields of ``_INCOMING`` for a row group.

    Raises:
        BadPageIndex: if an index is invalid.
    """
    offsets = decode_offset_index(located, key, num_rows)
    index = decode_column_index(column_index, key, len(offsets)) if column_index else None
    bounds = index.bounds if index else [None] * len(offsets)
    return {
        "first_rows": offsets.first_rows,
        "offsets": offsets.offsets,
        "null_counts": index and index.null_counts,
        "min_keys": [each and text_from(each.min) for each in bounds],
        "max_keys": [each and greatest_text(each.max) for each in bounds],
    }
