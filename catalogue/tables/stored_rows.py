"""The row groups of a crawl and subset, as a query finds and uses them."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from catalogue.errors import StoreLocked
from catalogue.parquet.model import Column, Footer, RowGroup
from catalogue.parquet.summary import SIGNED
from catalogue.query.key_intervals import KeyIntervals
from catalogue.tables.row_group_values import USED, footer_of, row_group_of
from catalogue.tables.table_file import TableDamaged, TableFile, TablePart
from catalogue.tables.table_schema import FLAT, decode_columns

_Found = TypeVar("_Found")
_CHUNKS = [f"chunks.list.element.{name}" for name in USED]
_VALUES = [
    name for name in FLAT if name not in {"crawl", "subset", "footer_size", "file_codec", "utc_times", "has_page_index"}
]
_MANY = 16
"""Rows from which on all rows of a part are converted at once, not one by one."""
_PARTS = 128
"""Parts whose flat columns are in memory, of some 0.1 MB each."""
_WHOLE_PARTS = 16
"""Parts of which all rows are converted, of some 0.5 MB each."""
_CHUNK_PARTS = 4
"""Parts whose column chunks are in memory, of some 1.5 MB each."""
_ROW_GROUPS = 2048
"""Row groups in memory, of some 30 kB each."""


class Place(NamedTuple):
    """A row of a table: a row group that may match."""

    part: int
    """Number of the row group of the table."""
    row: int
    """Number of the row in it."""
    values: Mapping[str, Any]
    """The flat columns."""


class _Keys(NamedTuple):
    """Bounds of the rows of a part."""

    least: list[bytes]
    greatest: list[bytes]
    reached: list[bytes]
    """The greatest key so far."""
    signed: list[int]
    """Rows whose bounds are in signed order."""


class StoredRows:
    """The rows of one table."""

    def __init__(self, table: TableFile, repair: Callable[[], TableFile]) -> None:
        """Use a table; ``repair`` makes it again if it turns out to be damaged."""
        self._table = table
        self._repair = repair
        self._flat = lru_cache(_PARTS)(self._read_flat)
        self._keys = lru_cache(_PARTS)(self._read_keys)
        self._chunks = lru_cache(_CHUNK_PARTS)(self._read_chunks)
        self._every_row = lru_cache(_WHOLE_PARTS)(self._convert_all)
        self._row = lru_cache(_ROW_GROUPS)(self._convert)
        self._row_group = lru_cache(_ROW_GROUPS)(self._make_row_group)

    def _reading(self, read: Callable[[TableFile], _Found]) -> _Found:
        try:
            return read(self._table)
        except TableDamaged:
            before, self._table = self._table, self._repair()
            if [part.contents for part in before.parts] != [part.contents for part in self._table.parts]:
                message = "a damaged table was made again, and has other row groups now; run the query again"
                raise StoreLocked(message) from None
            return read(self._table)

    def _read_flat(self, part: int) -> pa.Table:
        return self._reading(lambda table: table.read(part, _VALUES)).combine_chunks()

    def _read_keys(self, part: int) -> _Keys:
        bounded = self._flat(part).slice(self._table.parts[part].unbounded)
        least, greatest, origins = (bounded.column(name).to_pylist() for name in ("min_key", "max_key", "bounds_from"))
        least, greatest = ([key.encode() for key in each] for each in (least, greatest))
        signed = [row for row, origin in enumerate(origins) if origin == SIGNED]
        return _Keys(least, greatest, [*accumulate(greatest, max)], signed)

    def _read_chunks(self, part: int) -> pa.ListArray:
        return self._reading(lambda table: table.read(part, _CHUNKS)).column("chunks").combine_chunks()

    def _make_row_group(self, part: int, row: int) -> RowGroup:
        (values,) = self._converted(part, [row])
        return row_group_of(values, self._schema(values), self._chunks(part), row)

    def _converted(self, part: int, rows: Sequence[int]) -> list[dict[str, Any]]:
        if len(rows) >= _MANY:
            every = self._every_row(part)
            return [every[row] for row in rows]
        return [self._row(part, row) for row in rows]

    def _convert_all(self, part: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._flat(part).to_pylist()
        return found

    def _convert(self, part: int, row: int) -> dict[str, Any]:
        flat = self._flat(part)
        return {name: column[row].as_py() for name, column in zip(flat.column_names, flat.columns, strict=True)}

    def _schema(self, values: Mapping[str, Any]) -> Mapping[str, Column]:
        return decode_columns(self._table.schemas[values["columns"]])

    def matching(self, subset: str, intervals: KeyIntervals) -> Iterator[Place]:
        """Yield the row groups whose keys may be in one of the ascending, disjoint intervals."""
        parts = [number for number, part in enumerate(self._table.parts) if part.subset == subset]
        # Bounds in signed order are valid for ASCII only; see KeyIntervals.span.
        signed = any(self._table.parts[number].signed for number in parts) and bool(intervals.not_ascii)
        for number in parts:
            if _may_match(self._table.parts[number], intervals, signed=signed):
                rows = self._rows(number, intervals, signed=signed)
                for row, values in zip(rows, self._converted(number, rows), strict=True):
                    if values["row_group"] is not None:
                        yield Place(number, row, values)

    def _rows(self, part: int, intervals: KeyIntervals, *, signed: bool) -> list[int]:
        unbounded = self._table.parts[part].unbounded
        keys = self._keys(part)
        found: set[int] = set()
        if len(intervals) > len(keys.least):
            bounds = enumerate(zip(keys.least, keys.greatest, strict=True))
            found.update(row for row, (least, greatest) in bounds if intervals.overlap(least, greatest))
        else:
            for interval in intervals:
                end = bisect_left(keys.least, interval.end)
                start = bisect_left(keys.reached, interval.start, 0, end)
                found.update(row for row in range(start, end) if keys.greatest[row] >= interval.start)
        if signed:
            found.update(keys.signed)
        return [*range(unbounded), *sorted(unbounded + row for row in found)]

    def footer(self, places: Sequence[Place], file: Place) -> Footer:
        """Return the footer of a file with these row groups of it; ``file`` is any of its row groups."""
        groups = [self._row_group(place.part, place.row) for place in places]
        return footer_of(file.values, self._schema(file.values), tuple(groups))

    def column_names(self, place: Place) -> tuple[str, ...]:
        """Return the names of the columns of a file."""
        return tuple(self._schema(place.values))

    def values(self, subset: str, names: Sequence[str]) -> list[list[Any]]:
        """Return flat columns of all rows of a subset, in the order of keys."""
        rows = self._reading(lambda table: table.read_flat(names))
        before = sum(part.rows for part in self._table.parts if part.subset < subset)
        count = sum(part.rows for part in self._table.parts if part.subset == subset)
        return [column.to_pylist() for column in rows.slice(before, count).columns]


def _may_match(part: TablePart, intervals: KeyIntervals, *, signed: bool) -> bool:
    if part.unbounded or (part.signed and signed):
        return True
    return intervals.overlap(part.least.encode(), part.greatest.encode())
