"""The residual filter: conditions that metadata cannot decide, applied to rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import flags, joined, moment, positions, true_positions
from catalogue.query.resolved_query import ResolvedQuery

if TYPE_CHECKING:
    import duckdb


class Residual:
    """Applies the conditions of a query to rows."""

    def __init__(self, query: ResolvedQuery, connection: "duckdb.DuckDBPyConnection | None") -> None:
        self.query = query
        self._urls = frozenset(query.urls)
        self._connection = connection

    def keep(self, rows: pa.Table, *, decided: Sequence[str] = ()) -> tuple[pa.Table, np.ndarray]:
        """Return the matching rows, and their positions.

        Conditions on the columns ``decided``, by which the rows were already filtered, are skipped.
        """
        query, table = self.query, self.query.table
        known = {*rows.column_names, *table.path_columns}
        numbers = np.arange(rows.num_rows)

        def new(*columns: str) -> bool:
            return known.issuperset(columns) and not {*decided, *table.path_columns}.issuperset(columns)

        def filtered(mask: pa.BooleanArray | pa.ChunkedArray) -> None:
            nonlocal rows, numbers
            if pc.all(mask, skip_nulls=False, min_count=0).as_py():
                return
            rows, numbers = rows.filter(mask), numbers[true_positions(mask)]

        if new(table.key) and not query.with_nulls:
            filtered(query.intervals.mask(joined(rows.column(table.key)).cast(pa.binary())))
        if table.time and query.from_ms is not None and new(table.time):
            filtered(pc.greater_equal(rows.column(table.time), moment(query.from_ms)))
        if table.time and query.to_ms is not None and new(table.time):
            filtered(pc.less(rows.column(table.time), moment(query.to_ms)))
        if self._urls and new("url"):  # of the few rows that have a matching key
            inside = (url in self._urls for url in rows.column("url").to_pylist())
            filtered(flags(np.fromiter(inside, bool, rows.num_rows)))
        where = query.where
        if where and self._connection and rows.num_rows:
            # Keys that are read later match for certain.
            keys = [table.key] if table.key in rows.column_names else []
            if new(*keys, *where.columns):
                from catalogue.query.where import where_positions

                matching = where_positions(where, rows, self._connection)
                rows, numbers = rows.take(positions(matching)), numbers[matching]
        return rows, numbers
