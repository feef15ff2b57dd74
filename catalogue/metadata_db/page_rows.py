"""Fill the table ``pages`` from stored page indexes.

A row group is one line of JSON with a list for each column, which DuckDB takes apart: a dictionary for each page takes
several times as long.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import duckdb

from catalogue.metadata_db.incoming import incoming
from catalogue.parquet.footer import decode_footer
from catalogue.store.database import Store
from catalogue.surt import text_from
from catalogue.tables.key_intervals import KeyPages, greatest_text, key_pages

_INCOMING = {
    "file": "INTEGER",
    "row_group": "INTEGER",
    "pages_from": "VARCHAR",
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
          unnest(offsets[2:]) - unnest(offsets[:-2]) AS compressed_page_size,
          pages_from
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
        if group and chunk and (known := key_pages(chunk, group.num_rows, indexes)):
            yield json.dumps({"file": number, "row_group": ordinal, **_fields(known)}).encode() + b"\n"


def _fields(known: KeyPages) -> dict[str, Any]:
    """Return the fields of ``_INCOMING`` for a row group."""
    bounds = known.index.bounds
    return {
        "pages_from": known.origin,
        "first_rows": known.offsets.first_rows,
        "offsets": known.offsets.offsets,
        "null_counts": known.index.null_counts,
        "min_keys": [each and text_from(each.min) for each in bounds],
        "max_keys": [each and greatest_text(each.max) for each in bounds],
    }
