"""Sort rows by key, and rows with equal keys by other columns."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import booleans, integers, numbers, positions


class Ascending:
    """Rows whose keys ascend."""

    def __init__(self, rows: pa.Table, keys: pa.BinaryArray, *, are_distinct: bool) -> None:
        """Use rows and their keys, without nulls; ``are_distinct`` says that all differ."""
        self.rows, self.keys, self.are_distinct = rows, keys, are_distinct
        self.size: int = rows.nbytes

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def first(self) -> bytes:
        key: bytes = self.keys[0].as_py()
        return key

    @property
    def last(self) -> bytes:
        key: bytes = self.keys[-1].as_py()
        return key

    def slice(self, start: int, stop: int) -> "Ascending":
        length = stop - start
        rows, keys = self.rows.slice(start, length), self.keys.slice(start, length)
        return Ascending(rows, keys, are_distinct=self.are_distinct)

    def copy(self) -> "Ascending":
        """Copy the rows without other rows in their buffers."""
        order = positions(np.arange(len(self)))
        return Ascending(self.rows.take(order), self.keys.take(order), are_distinct=self.are_distinct)


class RowOrder:
    """The order of the rows of a crawl and subset: by key, byte by byte, then by some columns; nulls come last."""

    def __init__(self, key: str, others: Sequence[str]) -> None:
        self._key, self._others = key, tuple(others)

    def by_key(self, *tables: pa.Table) -> Ascending:
        """Sort the rows of tables by key alone; all have keys."""
        rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        keys = self.keys_of(rows)
        if is_all(pc.less(keys[:-1], keys[1:])):
            return Ascending(rows, keys, are_distinct=True)
        if not is_all(pc.less_equal(keys[:-1], keys[1:])):
            order = pc.sort_indices(keys)
            rows, keys = rows.combine_chunks().take(order), keys.take(order)
        return Ascending(rows, keys, are_distinct=False)

    def keys_of(self, rows: pa.Table) -> pa.BinaryArray:
        column = rows.column(self._key)
        return (column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()).cast(pa.binary())

    def complete(self, parts: Sequence[Ascending]) -> pa.Table:
        found = parts[0] if len(parts) == 1 else self.by_key(*(part.rows for part in parts))
        if found.are_distinct or not self._others:
            return found.rows
        first = numbers(pa.chunked_array([pc.indices_nonzero(pc.equal(found.keys[:-1], found.keys[1:]))]))
        if not len(first):
            return found.rows
        columns = found.rows.select(self._others).combine_chunks()
        is_wrong = _is_greater(columns, first)
        if not is_wrong.any():
            return found.rows
        # Sort only the runs of equal keys of which some rows are not in order.
        runs = np.cumsum(np.diff(first, prepend=first[0] - 1) > 1)
        is_wrong = np.isin(runs, runs[is_wrong])
        first, runs = first[is_wrong], runs[is_wrong]
        is_last = np.append(np.diff(runs) > 0, True)
        rows = np.insert(first, np.flatnonzero(is_last) + 1, first[is_last] + 1)
        runs = np.insert(runs, np.flatnonzero(is_last) + 1, runs[is_last])
        order = np.arange(len(found))
        order[rows] = rows[_order(runs, columns, rows)]
        return found.rows.combine_chunks().take(positions(order))


def is_all(values: pa.BooleanArray) -> bool:
    """Return whether all values are true; null is not."""
    return bool(pc.all(values, skip_nulls=False, min_count=0).as_py())


def _order(runs: np.ndarray, columns: pa.Table, rows: np.ndarray) -> np.ndarray:
    """Order rows by the ascending numbers of their runs, and then by columns."""
    order = _sorted(runs, columns.select([0]).take(positions(rows)))
    values = columns.column(0).combine_chunks().take(positions(rows[order]))
    is_tie = _equal_next(values) & (runs[order][1:] == runs[order][:-1])
    if columns.num_columns > 1 and is_tie.any():  # the first column, such as the time, decides nearly always
        at = np.flatnonzero(np.isin(runs[order], runs[order][1:][is_tie]))
        order[at] = order[at][_sorted(runs[order][at], columns.take(positions(rows[order][at])))]
    return order


def _sorted(runs: np.ndarray, columns: pa.Table) -> np.ndarray:
    names = [str(number) for number in range(1 + columns.num_columns)]
    table = pa.Table.from_arrays([positions(runs), *columns.columns], names=names)
    return integers(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])).astype(np.int64)


def _equal_next(values: pa.Array) -> np.ndarray:
    one, other = values[:-1], values[1:]
    are_equal: np.ndarray = _flags(pc.equal(one, other)) | (_flags(pc.is_null(one)) & _flags(pc.is_null(other)))
    return are_equal


def _is_greater(columns: pa.Table, rows: np.ndarray) -> np.ndarray:
    """Return which rows are greater than the next one."""
    found = np.zeros(len(rows), np.bool_)
    places = np.arange(len(rows))
    """Rows whose first columns are equal to those of the next row."""
    for column in columns.columns:
        values = column.combine_chunks()
        one, other = (values.take(positions(rows[places] + step)) for step in (0, 1))
        is_after = _flags(pc.greater(one, other)) | (_flags(pc.is_null(one)) & _flags(pc.is_valid(other)))
        is_before = _flags(pc.less(one, other)) | (_flags(pc.is_valid(one)) & _flags(pc.is_null(other)))
        found[places[is_after]] = True
        places = places[~(is_after | is_before)]
        if not len(places):
            break
    return found


def _flags(values: pa.BooleanArray) -> np.ndarray:
    """Return which values are true; null is not."""
    return booleans(pc.fill_null(values, fill_value=False)) if values.null_count else booleans(values)
