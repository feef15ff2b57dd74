"""The residual filter: conditions that metadata cannot decide, applied to rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet import arrow_arrays
from catalogue.parquet.arrow_arrays import flags, moment, positions
from catalogue.query.resolved_query import ResolvedQuery

if TYPE_CHECKING:
    import duckdb


class Residual:
    """Applies the conditions of a query to rows."""

    def __init__(self, query: ResolvedQuery, connection: "duckdb.DuckDBPyConnection | None") -> None:
        self._query = query
        self._urls = frozenset(query.urls)
        self._connection = connection

    def keep(self, rows: pa.Table, *, decided: Sequence[str] = ()) -> tuple[pa.Table, np.ndarray]:
        """Return the matching rows, and their positions.

        Conditions on the columns ``decided``, by which the rows were already filtered, are skipped.
        """
        query, table = self._query, self._query.table
        known = {*rows.column_names, *table.path_columns}
        numbers = np.arange(rows.num_rows)

        def new(*columns: str) -> bool:
            return known.issuperset(columns) and not {*decided, *table.path_columns}.issuperset(columns)

        def filtered(mask: pa.BooleanArray | pa.ChunkedArray) -> None:
            nonlocal rows, numbers
            if pc.all(mask, skip_nulls=False, min_count=0).as_py():
                return
            rows, numbers = rows.filter(mask), numbers[_true_positions(mask)]

        if new(table.key):
            filtered(query.intervals.mask(_array(rows.column(table.key))))
        if table.time and query.from_ms is not None and new(table.time):
            filtered(pc.greater_equal(rows.column(table.time), moment(query.from_ms)))
        if table.time and query.to_ms is not None and new(table.time):
            filtered(pc.less(rows.column(table.time), moment(query.to_ms)))
        if self._urls and new("url"):  # of the few rows that have a matching key
            inside = (url in self._urls for url in rows.column("url").to_pylist())
            filtered(flags(np.fromiter(inside, bool, rows.num_rows)))
        if query.where and self._connection and rows.num_rows and new(table.key, *query.where.columns):
            from catalogue.query.where import where_positions

            matching = where_positions(query.where, rows, self._connection)
            rows, numbers = rows.take(positions(matching)), numbers[matching]
        return rows, numbers


def _true_positions(mask: pa.BooleanArray | pa.ChunkedArray) -> np.ndarray:
    return arrow_arrays.numbers(pa.chunked_array([pc.indices_nonzero(mask)]))


def _array(keys: pa.ChunkedArray) -> pa.BinaryArray:
    # Combining copies even a single chunk.
    return (keys.chunk(0) if keys.num_chunks == 1 else keys.combine_chunks()).cast(pa.binary())
