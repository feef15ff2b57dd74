"""Make the table of a crawl from the store; rows of files that have not changed are taken from the old one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import pyarrow as pa

from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import FormatError, StoreDamaged
from catalogue.parquet.footer import decode_footer
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.tables.footer_rows import FooterRows, array_of
from catalogue.tables.key_intervals import key_pages
from catalogue.tables.sort_rows import rows_where
from catalogue.tables.table_file import TableDamaged, TableFile
from catalogue.tables.table_schema import TABLE

_KEYS = ("min_key", "max_key", "bounds_from", "key_intervals")
KnownIntervals: TypeAlias = tuple[list[tuple[str, str]], str]
"""Intervals of keys, and where they are from."""


@dataclass(slots=True)
class MadeTable:
    """The rows of a table."""

    rows: pa.Table
    schemas: list[str]
    """See ``encode_columns``."""
    undecodable: dict[str, str] = field(default_factory=dict)
    """Reasons why footers are not in the table, by path."""


def make_table(
    store: Store,
    dataset: Dataset,
    versions: Mapping[str, bytes],
    learned: Mapping[tuple[str, int], KnownIntervals],
    old: TableFile | None,
) -> MadeTable:
    """Make the rows of a crawl.

    Args:
        store: the store.
        dataset: the dataset.
        versions: digests of the values of its files, by path.
        learned: see ``learned_intervals``.
        old: the present table, whose rows are used; None to decode every footer.
    """
    reused = _reused(old, versions)
    known = set(reused.column("path").to_pylist())
    new = FooterRows(dataset.key, old.schemas if old else ())
    undecodable: dict[str, str] = {}
    for path in sorted(versions.keys() - known):
        file = dataset.file(path)
        try:
            stored = store.get("files", path)
            if stored and file:
                new.add(file, stored, versions[path], decode_footer(stored.data, stored.size))
        except (FormatError, StoreDamaged, OverflowError) as error:
            undecodable[path] = f"{path}: {error}"
    rows = pa.concat_tables([reused, new.table()]).combine_chunks()
    rows = _with_intervals(rows, learned)
    # In one order, so that a table that is made again has the same numbers.
    schemas = sorted({[*new.schemas][number] for number in rows.column("columns").to_pylist()})
    numbers = [schemas.index(text) if text in schemas else 0 for text in new.schemas]
    columns = [numbers[number] for number in rows.column("columns").to_pylist()]
    return MadeTable(_replaced(rows, "columns", columns), schemas, undecodable)


def _reused(old: TableFile | None, versions: Mapping[str, bytes]) -> pa.Table:
    """Return the rows of the old table whose files have not changed."""
    if old is not None:
        try:
            rows = old.read_all()
        except TableDamaged:
            return TABLE.empty_table()
        shown = zip(*(rows.column(name).to_pylist() for name in ("path", "version")), strict=True)
        return rows_where(rows, [versions.get(path) == version for path, version in shown])
    return TABLE.empty_table()


def learned_intervals(store: Store, dataset: Dataset, keys: Collection[str]) -> dict[tuple[str, int], KnownIntervals]:
    """Return intervals of keys by path and row group, from stored page indexes.

    Args:
        store: the store.
        dataset: the dataset.
        keys: of the page indexes.
    """
    learned: dict[tuple[str, int], KnownIntervals] = {}
    for path, places in groupby(sorted(filter(None, map(row_group_of, keys))), key=lambda place: place[0]):
        try:
            file = store.get("files", path)
            footer = decode_footer(file.data, file.size) if file else None
        except (FormatError, StoreDamaged):
            continue
        if file is None or footer is None:
            continue
        groups = {group.ordinal: group for group in footer.row_groups}
        requested = {ordinal for _, ordinal in places}
        for ordinal, indexes in store.indexes(path, requested & groups.keys(), file).items():
            chunk = groups[ordinal].chunks.get(dataset.key)
            pages = chunk and key_pages(chunk, groups[ordinal].num_rows, indexes)
            learned[path, ordinal] = (pages.intervals, pages.origin) if pages else ([], "")
    return learned


def _with_intervals(rows: pa.Table, learned: Mapping[tuple[str, int], KnownIntervals]) -> pa.Table:
    """Return rows with new intervals of keys."""
    if not learned:
        return rows
    least, greatest, origins, known = (rows.column(name).to_pylist() for name in _KEYS)
    lists = [each and [(one["min"], one["max"]) for one in each] for each in known]
    for row, place in enumerate(zip(*(rows.column(name).to_pylist() for name in ("path", "row_group")), strict=True)):
        if place not in learned:
            continue
        intervals, origin = learned[place]
        lists[row] = intervals or None
        if not (origins[row] or "").startswith("footer"):
            least[row], greatest[row] = (intervals[0][0], intervals[-1][1]) if intervals else (None, None)
            origins[row] = origin if intervals else "missing"
    for name, values in zip(_KEYS, (least, greatest, origins, lists), strict=True):
        rows = _replaced(rows, name, values)
    return rows


def _replaced(rows: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    field = TABLE.field(name)
    return rows.set_column(rows.schema.get_field_index(name), field, array_of(field.type, values))
