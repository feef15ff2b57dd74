"""Rows of the view ``pages``, from stored page indexes."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import duckdb

from catalogue.errors import BadPageIndex
from catalogue.parquet.footer import decode_footer, decode_row_groups
from catalogue.parquet.key_ranges import merged
from catalogue.parquet.model import Footer
from catalogue.parquet.page_index import decode_column_index, decode_offset_index
from catalogue.parquet.stored_indexes import ColumnIndex, Indexes
from catalogue.store.database import Store
from catalogue.surt import text_after, text_from

_Rows = list[dict[str, Any]]


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


def pages_of(store: Store, name: str, groups: RowGroups) -> tuple[_Rows, _Rows]:
    """Return the stored pages of the key column of row groups; see ``key_pages``."""
    file = store.get("files", groups.path)
    if file is None:
        return [], []
    if groups.footer_rest is None or store.version(groups.path) != groups.version:
        footer = decode_footer(file.data, file.size)
    else:  # no more of it than is asked about
        footer = decode_row_groups(file.data, file.size, groups.offsets, groups.footer_rest)
    pages: _Rows = []
    intervals: _Rows = []
    for ordinal, indexes in store.indexes(groups.path, groups.offsets, file).items():
        place = {"file": groups.number, "row_group": ordinal}
        rows, filled = key_pages(footer, name, ordinal, indexes)
        pages += [place | row for row in rows]
        intervals += [place | each for each in filled]
    return pages, intervals


def key_pages(footer: Footer, name: str, row_group: int, indexes: Indexes) -> tuple[_Rows, _Rows]:
    """Return the pages of the key column of a row group, and the intervals of its keys.

    Args:
        footer: of the file.
        name: of the key column.
        row_group: its ordinal.
        indexes: its stored page indexes.

    Returns:
        A row for each page. Intervals only if the footer has no bounds, or if several are known. Nothing for an invalid
        index.
    """
    group = next((group for group in footer.row_groups if group.ordinal == row_group), None)
    key = group.chunks.get(name) if group else None
    located = indexes.offset_indexes.get(name)
    if group is None or key is None or located is None:
        return [], []
    source = "scan" if indexes.own else "page index"
    with suppress(BadPageIndex):
        offsets = decode_offset_index(located, key, group.num_rows)
        known = ColumnIndex((None,) * len(offsets), None)
        if indexes.column_index:
            known = decode_column_index(indexes.column_index, key, len(offsets), indexes.clusters)
        rows = [
            {
                "page": page,
                "first_row_index": offsets.first_rows[page],
                "num_rows": offsets.first_rows[page + 1] - offsets.first_rows[page],
                "null_count": known.null_counts[page] if known.null_counts else None,
                "min_key": text_from(bounds.min) if bounds else None,
                "max_key": _greatest(bounds.max) if bounds else None,
                "file_offset": offsets.offsets[page],
                "compressed_page_size": offsets.offsets[page + 1] - offsets.offsets[page],
                "pages_from": source,
            }
            for page, bounds in enumerate(known.bounds)
        ]
        if key.bounds and not indexes.own:
            return rows, []
        filled = merged(chain.from_iterable(known.filled(page) for page in range(len(offsets))))
        if key.bounds and len(filled) == 1:
            return rows, []
        return rows, [
            {"min_key": text_from(each.min), "max_key": _greatest(each.max), "bounds_from": source} for each in filled
        ]
    return [], []


def _greatest(key: bytes) -> str:
    """Return a text that is not less than a bound, which may have been cut within a character."""
    return text_after(key) or chr(sys.maxunicode)
