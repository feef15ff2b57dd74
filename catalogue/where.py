"""``--where``: read by DuckDB's own parser, applied by DuckDB to the rows.

What is pruned with is taken from the same syntax tree that is later executed, so the two cannot disagree. A tree of a
shape that is not known here, from another version of DuckDB, only means less pruning.
"""

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from catalogue.crawl import PATH_COLUMNS, SCHEMA
from catalogue.errors import QueryError
from catalogue.query import Condition, Where, check_columns

_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def connect() -> duckdb.DuckDBPyConnection:
    """A connection that reaches nothing but the tables it is given, where every time is shown in UTC."""
    connection = duckdb.connect(
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
        }
    )
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def parse_where(sql: str, known: tuple[str, ...] = ()) -> Where:
    """Read a boolean expression.

    Args:
        sql: over the columns of the index, ``crawl`` and ``subset``.
        known: columns that are newer than this package.

    Raises:
        QueryError: if it is no expression, with DuckDB's reason.
        UnknownColumn: if it names a column that there is not.
    """
    with connect() as connection:
        tree = json.loads(
            connection.execute("SELECT json_serialize_sql(?)", [f"SELECT 1 FROM rows WHERE ({sql}\n)"]).fetchall()[0][0]
        )
    if tree["error"]:
        message = f"--where cannot be read: {tree['error_message']}; one looks like: fetch_status = 200"
        raise QueryError(message)
    statements = tree["statements"]
    node = statements[0]["node"]
    if (
        len(statements) != 1
        or node.get("type") != "SELECT_NODE"
        or not node.get("where_clause")
        or node.get("modifiers")
    ):
        message = f"--where is one boolean expression, such as fetch_status = 200; this is more: {sql}"
        raise QueryError(message)
    expression = node["where_clause"]
    columns = check_columns(dict.fromkeys(_columns(expression)), known)
    where = Where(sql, columns, tuple(_conditions(expression)))
    _check(where)
    return where


def apply_where(where: Where, rows: pa.Table, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """The rows for which the expression holds; those for which it is null go.

    Raises:
        QueryError: if it fails on a row's values.
    """
    connection.register("rows", rows)
    try:
        return connection.sql(f"SELECT * FROM rows WHERE ({where.sql}\n)").to_arrow_table()  # noqa: S608 - the user's own SQL, which reaches nothing else
    except duckdb.Error as error:
        message = f"--where {where.sql}: {error}"
        raise QueryError(message) from error
    finally:
        connection.unregister("rows")


def _check(where: Where) -> None:
    """Let DuckDB bind the expression to the columns' types before anything is fetched."""
    schema = pa.schema([SCHEMA.field(name) for name in where.columns if name in SCHEMA.names] or [SCHEMA.field("url")])
    if all(name in SCHEMA.names for name in where.columns):
        with connect() as connection:
            apply_where(where, schema.empty_table(), connection)


def _columns(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            yield str(node["column_names"][-1])
        elif node.get("class") in {"SUBQUERY", "STAR"}:
            message = "--where is an expression over the columns of a row; it cannot hold a query or a *"
            raise QueryError(message)
        for value in node.values():
            yield from _columns(value)
    elif isinstance(node, list):
        for value in node:
            yield from _columns(value)


def _conditions(node: dict[str, Any]) -> Iterator[Condition]:
    """Those parts of a conjunction that compare a column with constants."""
    match node:
        case {"type": "CONJUNCTION_AND", "children": children}:
            for child in children:
                yield from _conditions(child)
        case {"type": "COMPARE_BETWEEN", "input": column, "lower": low, "upper": high}:
            yield from _condition(column, ">=", [low])
            yield from _condition(column, "<=", [high])
        case {"type": "COMPARE_IN", "children": [column, *values]}:
            yield from _condition(column, "in", values)
        case {"type": kind, "left": left, "right": right} if kind in _COMPARISONS:
            operator = _COMPARISONS[kind]
            yield from _condition(left, operator, [right])
            yield from _condition(right, _MIRRORED[operator], [left])
        case {
            "function_name": ("starts_with" | "^@" | "prefix"),
            "arguments": [{"expression": column}, {"expression": value}],
        }:
            yield from _condition(column, "prefix", [value])


def _condition(column: object, operator: str, values: list[object]) -> Iterator[Condition]:
    match column:
        case {"class": "COLUMN_REF", "column_names": [*_, str(name)]} if (
            name in SCHEMA.names and name not in PATH_COLUMNS
        ):
            constants = [_constant(value) for value in values]
            kind = SCHEMA.field(name).type
            if constants and pa.types.is_integer(kind) and all(isinstance(c, int) for c in constants):
                yield Condition(name, operator, tuple(constants))  # type: ignore[arg-type]
            elif constants and pa.types.is_string(kind) and all(isinstance(c, bytes) for c in constants):
                yield Condition(name, operator, tuple(constants))  # type: ignore[arg-type]


def _constant(node: object) -> int | bytes | None:
    match node:
        case {"class": "CONSTANT", "literal": {"kind": "INTEGER", "text": str(text)}}:
            return int(text)
        case {"class": "CONSTANT", "literal": {"kind": "STRING", "text": str(text)}}:
            return text.encode()
        case {"class": "CONSTANT", "value": {"is_null": False, "value": int(value)}}:  # before DuckDB 2
            return None if isinstance(value, bool) else value
        case {"class": "CONSTANT", "value": {"is_null": False, "value": str(value), "type": {"id": "VARCHAR"}}}:
            return value.encode()
    return None
