"""Rows that match a condition, and the parts of it usable for pruning."""

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from catalogue.commoncrawl.schema import SCHEMA
from catalogue.query.where import connect, parse_where, where_positions


def duckdb_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect() as connection:
        yield connection


def conditions(sql: str) -> list[tuple[str, str, tuple[Any, ...]]]:
    return [(found.column, found.operator, found.values) for found in parse_where(sql).conditions]


def matching(sql: str, rows: pa.Table, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    return rows.take(where_positions(parse_where(sql), rows, connection))


def rows_of(**columns: list[Any]) -> pa.Table:
    return pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})
