"""The residual filter: conditions that metadata cannot decide, applied to rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet import arrow_arrays
from catalogue.parquet.arrow_arrays import binaries, flags, moment, positions
from catalogue.query.exact_keys import ManyKeys
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.surt import KeyInterval, covers

if TYPE_CHECKING:
    import duckdb

_FEW = 64
"""Maximum intervals for which comparing columns is faster than searching each key."""


class Residual:
    """Applies the conditions of a query to rows."""

    def __init__(self, query: ResolvedQuery, connection: "duckdb.DuckDBPyConnection | None") -> None:
        """Filter by a query; ``connection`` runs its ``where``."""
        self._query = query
        self._urls = frozenset(query.urls)
        self._connection = connection

    def keep(
        self, rows: pa.Table, intervals: Sequence[KeyInterval], *, decided: Sequence[str] = ()
    ) -> tuple[pa.Table, np.ndarray]:
        """Return the matching rows, and their positions.

        Args:
            rows: the rows.
            intervals: intervals of keys of the row group.
            decided: columns of an earlier decision about the same rows; conditions on them alone are skipped.
        """
        query, table = self._query, self._query.table
        known = {*rows.column_names, *table.path_columns}
        numbers = np.arange(rows.num_rows)

        def new(*columns: str) -> bool:
            return known.issuperset(columns) and not {*decided, *table.path_columns}.issuperset(columns)

        def filtered(mask: pa.ChunkedArray) -> None:
            nonlocal rows, numbers
            if pc.all(mask, skip_nulls=False, min_count=0).as_py():
                return
            rows, numbers = rows.filter(mask), numbers[_true_positions(mask)]

        if new(table.key):
            filtered(_key_mask(rows.column(table.key), intervals))
        if table.time and query.from_ms is not None and new(table.time):
            filtered(pc.greater_equal(rows.column(table.time), moment(query.from_ms)))
        if table.time and query.to_ms is not None and new(table.time):
            filtered(pc.less(rows.column(table.time), moment(query.to_ms)))
        if self._urls and new("url"):  # of the few rows that have a matching key
            inside = (url in self._urls for url in rows.column("url").to_pylist())
            filtered(pa.chunked_array([flags(np.fromiter(inside, bool, rows.num_rows))]))
        if query.where and self._connection and rows.num_rows and new(table.key, *query.where.columns):
            from catalogue.query.where import where_positions

            matching = where_positions(query.where, rows, self._connection)
            rows, numbers = rows.take(positions(matching)), numbers[matching]
        return rows, numbers


def _true_positions(mask: pa.ChunkedArray) -> np.ndarray:
    return arrow_arrays.numbers(pa.chunked_array([pc.indices_nonzero(mask)]))


def _key_mask(keys: pa.ChunkedArray, intervals: Sequence[KeyInterval]) -> pa.ChunkedArray:
    """Return whether each key is in one of the intervals, compared byte by byte."""
    binary = keys.cast(pa.binary())
    if isinstance(intervals, ManyKeys):
        return intervals.mask(binary)
    single = [interval.start for interval in intervals if interval.end == interval.start + b"\0"]
    wide = [interval for interval in intervals if interval.end != interval.start + b"\0"]
    mask = pc.equal(binary, binaries(single)[0]) if len(single) == 1 else pc.is_in(binary, value_set=binaries(single))
    if len(wide) > _FEW:
        inside = np.fromiter((key is not None and covers(wide, key) for key in binary.to_pylist()), bool, len(binary))
        return pc.or_(mask.combine_chunks(), flags(inside))
    for interval in wide:
        low, high = binaries([interval.start, interval.end])
        mask = pc.or_(mask, pc.and_(pc.greater_equal(binary, low), pc.less(binary, high)))
    return mask
