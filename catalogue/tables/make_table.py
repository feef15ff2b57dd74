"""Make the table of a crawl from the store; rows of files that have not changed are taken from the old one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import FormatError, StoreDamaged
from catalogue.parquet.footer import decode_footer
from catalogue.store.database import Store
from catalogue.tables.footer_rows import FooterRows, array_of
from catalogue.tables.found_bounds import FoundBounds
from catalogue.tables.sort_rows import rows_where
from catalogue.tables.table_file import TableDamaged, TableFile
from catalogue.tables.table_schema import TABLE


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
    found: Mapping[tuple[str, int], FoundBounds | None],
    old: TableFile | None,
) -> MadeTable:
    """Make the rows of a crawl.

    Args:
        store: the store.
        dataset: the dataset.
        versions: digests of the values of its files, by path.
        found: see ``found_bounds``.
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
    rows = _with_bounds(rows, found)
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


def _with_bounds(rows: pa.Table, found: Mapping[tuple[str, int], FoundBounds | None]) -> pa.Table:
    """Return rows with bounds that their footers do not have."""
    if not found:
        return rows
    columns = {name: rows.column(name).to_pylist() for name in FoundBounds._fields}
    for row, place in enumerate(zip(*(rows.column(name).to_pylist() for name in ("path", "row_group")), strict=True)):
        if place in found:
            values = found[place] or (None, None, "missing")
            for name, value in zip(columns, values, strict=True):
                columns[name][row] = value
    for name, values in columns.items():
        rows = _replaced(rows, name, values)
    return rows


def _replaced(rows: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    field = TABLE.field(name)
    return rows.set_column(rows.schema.get_field_index(name), field, array_of(field.type, values))
