"""Fill the tables ``pages`` and ``key_intervals`` from stored page indexes.

A row group is one line of JSON with a list for each column, which DuckDB takes apart: a dictionary for each page takes
several times as long.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb

from catalogue.errors import BadPageIndex
from catalogue.metadata_db.incoming import incoming
from catalogue.parquet.footer import decode_footer, decode_row_groups
from catalogue.parquet.key_ranges import merged
from catalogue.parquet.model import Bounds, Footer
from catalogue.parquet.page_index import decode_column_index, decode_offset_index
from catalogue.parquet.stored_indexes import ColumnIndex, Indexes
from catalogue.store.database import Store
from catalogue.surt import text_after, text_from

_INCOMING = {
    "file": "INTEGER",
    "row_group": "INTEGER",
    "pages_from": "VARCHAR",
    "first_rows": "BIGINT[]",
    "offsets": "BIGINT[]",
    "null_counts": "BIGINT[]",
    "min_keys": "VARCHAR[]",
    "max_keys": "VARCHAR[]",
    "intervals": "STRUCT(min_key VARCHAR, max_key VARCHAR)[]",
}
"""A row group; the first two lists also have the end of the last page."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row groups of a file."""

    path: str
    number: int
    """Number of the file in the database."""
    version: bytes
    footer_rest: int | None
    """See ``Footer.rest``."""
    offsets: Mapping[int, int]
    """Offset of each row group in the footer, by ordinal."""


def row_groups_at(db: duckdb.DuckDBPyConnection, places: str) -> list[RowGroups]:
    """Return row groups by file; ``places`` are pairs of a file's number and an ordinal, such as ``(3, 0), (3, 1)``."""
    rows = db.execute(
        f"""
        SELECT path, file, version, footer_rest, map_from_entries(list((row_group, footer_offset)))
        FROM derived.files JOIN derived.row_groups USING (file)
        WHERE (file, row_group) IN (VALUES {places}) GROUP BY ALL ORDER BY path
        """  # noqa: S608 - numbers
    ).fetchall()
    return [RowGroups(*row) for row in rows]


def add_pages(db: duckdb.DuckDBPyConnection, store: Store, key: str, files: Iterable[RowGroups], folder: Path) -> None:
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
    db.execute(
        """
        INSERT INTO derived.key_intervals BY NAME
        SELECT file, row_group, unnest(intervals, recursive := true), pages_from AS bounds_from FROM incoming_pages
        """
    )
    db.execute("DROP TABLE incoming_pages")


def _lines(store: Store, key: str, groups: RowGroups) -> Iterator[bytes]:
    file = store.get("files", groups.path)
    if file is None:
        return
    if groups.footer_rest is None or store.version(groups.path) != groups.version:
        footer = decode_footer(file.data, file.size)
    else:  # no more of it than is asked about
        footer = decode_row_groups(file.data, file.size, groups.offsets, groups.footer_rest)
    for ordinal, indexes in store.indexes(groups.path, groups.offsets, file).items():
        if pages := _pages(footer, key, ordinal, indexes):
            yield json.dumps({"file": groups.number, "row_group": ordinal, **pages}).encode() + b"\n"


def _pages(footer: Footer, name: str, row_group: int, indexes: Indexes) -> dict[str, Any]:
    """Return the fields of ``_INCOMING`` for a row group; nothing for an invalid index.

    There are intervals only if the footer has no bounds, or if several are known.
    """
    group = next((group for group in footer.row_groups if group.ordinal == row_group), None)
    key = group.chunks.get(name) if group else None
    located = indexes.offset_indexes.get(name)
    if group is None or key is None or located is None:
        return {}
    with suppress(BadPageIndex):
        offsets = decode_offset_index(located, key, group.num_rows)
        known = ColumnIndex((None,) * len(offsets), None)
        if indexes.column_index:
            known = decode_column_index(indexes.column_index, key, len(offsets), indexes.clusters)
        intervals: Sequence[Bounds] = ()
        if indexes.own or not key.bounds:
            intervals = merged(chain.from_iterable(known.filled(page) for page in range(len(offsets))))
        if key.bounds and len(intervals) == 1:
            intervals = ()
        return {
            "pages_from": "scan" if indexes.own else "page index",
            "first_rows": offsets.first_rows,
            "offsets": offsets.offsets,
            "null_counts": known.null_counts,
            "min_keys": [bounds and text_from(bounds.min) for bounds in known.bounds],
            "max_keys": [bounds and _greatest(bounds.max) for bounds in known.bounds],
            "intervals": [{"min_key": text_from(each.min), "max_key": _greatest(each.max)} for each in intervals],
        }
    return {}


def _greatest(key: bytes) -> str:
    """Return a text that is not less than a bound, which may have been cut within a character."""
    return text_after(key) or chr(sys.maxunicode)
