"""What metadata could not decide, decided by the rows themselves."""

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import binaries, flags, moment, positions, texts, true_positions
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.query.where import where_positions
from catalogue.surt import KeyInterval, covers

_FEW = 64
"""Intervals up to which a comparison of whole columns for each is faster than a search for each key."""


class Residual:
    """The conditions of a query."""

    def __init__(self, query: ResolvedQuery, connection: duckdb.DuckDBPyConnection | None) -> None:
        """Take a query, and a connection to put its ``where`` to if it has one."""
        self._query = query
        self._connection = connection

    def keep(
        self, rows: pa.Table, intervals: Sequence[KeyInterval], *, decided: Sequence[str] = ()
    ) -> tuple[pa.Table, np.ndarray]:
        """The rows for which all conditions hold that their columns can decide.

        Args:
            rows: to choose from.
            intervals: in which their keys must lie.
            decided: columns of an earlier decision about the same rows; what those could decide is not asked again.

        Returns:
            The rows, and their positions among those given.
        """
        query, table = self._query, self._query.table
        known = {*rows.column_names, *table.path_columns}
        kept = np.arange(rows.num_rows)

        def new(*columns: str) -> bool:
            return known.issuperset(columns) and not {*decided, *table.path_columns}.issuperset(columns)

        def filtered(mask: pa.ChunkedArray) -> None:
            nonlocal rows, kept
            rows, kept = rows.filter(mask), kept[true_positions(mask)]

        if new(table.key):
            filtered(_key_mask(rows.column(table.key), intervals))
        if table.time and query.from_ms is not None and new(table.time):
            filtered(pc.greater_equal(rows.column(table.time), moment(query.from_ms)))
        if table.time and query.to_ms is not None and new(table.time):
            filtered(pc.less(rows.column(table.time), moment(query.to_ms)))
        if query.urls and new("url"):
            filtered(pc.is_in(rows.column("url"), value_set=texts(query.urls)))
        if query.where and self._connection and rows.num_rows and new(table.key, *query.where.columns):
            held = where_positions(query.where, rows, self._connection)
            rows, kept = rows.take(positions(held)), kept[held]
        return rows, kept


def _key_mask(keys: pa.ChunkedArray, intervals: Sequence[KeyInterval]) -> pa.ChunkedArray:
    """For each key whether it lies in one of the intervals, compared byte by byte."""
    binary = keys.cast(pa.binary())
    single = [interval.start for interval in intervals if interval.end == interval.start + b"\0"]
    wide = [interval for interval in intervals if interval.end != interval.start + b"\0"]
    mask = pc.is_in(binary, value_set=binaries(single))
    if len(wide) > _FEW:
        inside = np.fromiter((key is not None and covers(wide, key) for key in binary.to_pylist()), bool, len(binary))
        return pc.or_(mask.combine_chunks(), flags(inside))
    for interval in wide:
        low, high = binaries([interval.start, interval.end])
        mask = pc.or_(mask, pc.and_(pc.greater_equal(binary, low), pc.less(binary, high)))
    return mask
