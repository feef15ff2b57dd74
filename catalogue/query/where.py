"""``--where``: parsed by DuckDB's parser, applied to rows by DuckDB.

Conditions for pruning come from the syntax tree that is executed, so the two cannot disagree. Unknown shapes of trees
only mean less pruning.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import QueryError, UnknownColumn
from catalogue.formatting import first_paragraph
from catalogue.parquet.arrow_arrays import numbers, positions
from catalogue.query.filters import DECLARED_TYPE, DETECTED_TYPE, conditions
from catalogue.query.literals import literal
from catalogue.query.resolved_query import Condition, Where, check_columns

if TYPE_CHECKING:
    from catalogue.query.query import Query

_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_LONGEST_NUMBER = 40
_POSITION = " position"
"""A column of row numbers; no expression may use this name."""
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "INTEGER_LITERAL"}
_MORE_THAN_A_ROW = {
    "SUBQUERY": "a query",
    "STAR": "a *",
    "LAMBDA": "a lambda",
    "POSITIONAL_REFERENCE": "a column's number",
    "PARAMETER": "a parameter",
}
"""Names of what an expression over one row may not contain."""
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def connect() -> duckdb.DuckDBPyConnection:
    """Open a connection without access to files or network, in UTC."""
    return _database(os.getpid()).cursor()


@cache
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    """Return the empty database of this process, which takes longer to open than most queries."""
    database = duckdb.connect(
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
            "threads": "1",  # passing the rows of a row group to other threads takes longer than filtering them
        }
    )
    database.execute("SET GLOBAL TimeZone = 'UTC'; SET GLOBAL lock_configuration = true")
    return database


def parse_where(sql: str, newer: pa.Schema | None = None, table: Dataset = COMMON_CRAWL) -> Where:
    """Parse a boolean expression over the columns of a dataset, and ``newer`` ones.

    Raises:
        QueryError: if it is invalid, with DuckDB's reason.
        UnknownColumn: if it names an unknown column.
    """
    known = pa.schema([*table.schema, *(newer or ())])
    with connect() as connection:
        with _bounded_depth():
            expression = _parse(sql, connection)
            columns = _named(dict.fromkeys(_columns(expression)), sql, known, table)
            if table == COMMON_CRAWL:
                _check_bytes(expression)
            where = Where(sql, columns, tuple(_conditions(expression, table)))
        _check(where, known, connection)
    return where


def _named(names: Iterable[str], sql: str, known: pa.Schema, table: Dataset) -> tuple[str, ...]:
    try:
        return check_columns(names, known.names, table)
    except UnknownColumn as error:
        unknown = [name for name in names if name.casefold() not in map(str.casefold, known.names)]
        # Double quotes are for names in SQL, but most users mean text.
        for name in unknown:
            if f'"{name}"' in sql:
                raise UnknownColumn(
                    f"the condition has an unknown column {name[:100]!r}; "
                    f"write text in single quotes: {literal(name[:100])}"
                ) from error
        if "did you mean" in str(error) or unknown[0] in COMMON_CRAWL.schema.names:  # of a filter, such as status
            raise
        raise UnknownColumn(f"{error}; write text in single quotes") from error


@lru_cache(64)
def column_conditions(where: Where) -> tuple[Where, ...]:
    """Return the parts of a conjunction that are conditions on one column; each holds for every matching row."""
    found = []
    with connect() as connection, _bounded_depth():
        statements = _statements(where.sql, connection)
        node = statements[0]["node"]
        for part in [*_conjuncts(node["where_clause"])]:
            names = {name.casefold() for name in _columns(part)}
            columns = tuple(name for name in where.columns if name.casefold() in names)
            if len(columns) == len(names) == 1 and _volatile().isdisjoint(_functions(part)):
                node["where_clause"] = part
                tree = literal(json.dumps({"error": False, "statements": statements}))
                ((sql,),) = connection.execute(f"SELECT json_deserialize_sql({tree})").fetchall()
                found.append(Where(sql.partition(" WHERE ")[2], columns, ()))
    return tuple(found)


def _conjuncts(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if node["type"] == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from _conjuncts(child)
    else:
        yield node


def _functions(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if node.get("class") == "FUNCTION":
            yield node["function_name"]
        for value in node.values():
            yield from _functions(value)
    elif isinstance(node, list):
        for value in node:
            yield from _functions(value)


@cache
def _volatile() -> set[str]:
    """Return the functions whose results differ from row to row, such as ``random``."""
    sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability = 'VOLATILE'"
    with connect() as connection:
        found = {name for (name,) in connection.execute(sql).fetchall()}
    return found | {"vector_type"}  # its result depends on how DuckDB stores the other rows


def parse_conditions(query: "Query", newer: pa.Schema, dataset: Dataset) -> tuple[Where, Where | None, Where | None]:
    """Join the boolean expressions and filters of a query by AND; see ``parse_where``.

    Returns:
        The condition, and where it is another one, that for old crawls, and the same by declared media types alone.
    """
    expressions: Sequence[str] = query.where
    filters = partial(conditions, query.status, query.mime, query.lang)
    if len(expressions) > 1 or filters():
        for each in expressions:
            check_expression(each)
        expressions = [f"({each}\n)" for each in expressions]
    where = parse_where(" AND ".join([*expressions, *filters()]), newer, dataset)
    if not query.mime or dataset != COMMON_CRAWL:
        return where, None, None
    # Servers declare types in any letter case; detected ones are in lower case.
    types = f"lower(coalesce({DETECTED_TYPE}, {DECLARED_TYPE}))", f"lower({DECLARED_TYPE})"
    old, declared = (parse_where(" AND ".join([*expressions, *filters(each)]), newer, dataset) for each in types)
    return where, old, declared


def check_expression(sql: str) -> None:
    """Raise QueryError unless the text is one boolean expression."""
    with connect() as connection, _bounded_depth():
        _parse(sql, connection)


def where_positions(where: Where, rows: pa.Table, connection: duckdb.DuckDBPyConnection) -> np.ndarray:
    """Return the ascending positions of the rows for which the expression is true.

    Raises:
        QueryError: if it fails for a row.
    """
    position = _POSITION
    while position in where.columns:
        position += "'"
    numbered = pa.table({position: positions(np.arange(rows.num_rows))})
    for name in where.columns:
        numbered = numbered.append_column(rows.schema.field(name), rows.column(name))
    connection.register("rows", numbered.__arrow_c_stream__())  # DuckDB imports pandas for a table
    try:
        query = f'SELECT "{position}" FROM rows WHERE ({where.sql}\n)'  # noqa: S608 - the user's own SQL, which reaches nothing else
        return np.sort(numbers(connection.sql(query).to_arrow_table().column(0)))
    except duckdb.Error as error:
        raise QueryError(f"the condition {where.sql}: {first_paragraph(error)}") from error
    except RuntimeError as error:
        if "interrupted" in str(error):  # DuckDB has no class for it
            raise KeyboardInterrupt from error
        raise
    finally:
        connection.unregister("rows")


@contextmanager
def _bounded_depth() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise QueryError("the condition is nested too deeply; write it as one IN, or as several queries") from error


def _parse(sql: str, connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    statements, model = _statements(sql, connection), _statements("true", connection)
    # The rest of the statement must be ours: no GROUP BY, no second SELECT.
    expression, _ = statements[0]["node"].pop("where_clause", None), model[0]["node"].pop("where_clause")
    is_one = expression and statements == model and expression.get("function_name") != "row"  # as of () and (a, b)
    # "a) OR (b" is an expression only between our brackets, and has another meaning next to other conditions.
    if not is_one or _tree(f"SELECT 1 WHERE {sql}\n", connection)["error"]:
        problem = "its brackets do not match" if is_one else "this is not one"
        raise QueryError(f"a condition must be one boolean expression, such as fetch_status = 200; {problem}: {sql}")
    parsed: dict[str, Any] = expression
    return parsed


def _statements(sql: str, connection: duckdb.DuckDBPyConnection) -> Any:  # noqa: ANN401 - DuckDB's syntax tree
    try:
        sql.encode()  # DuckDB may fail with another error
        select = f"SELECT 1 FROM rows WHERE ({sql}\n)"  # noqa: S608 - to be parsed, not to be run
        tree = _tree(select, connection)
        reason = tree["error"] and tree["error_message"]
    except (duckdb.Error, ValueError) as error:
        reason = error
    if reason:
        raise QueryError(f"the condition cannot be read: {first_paragraph(reason)}; one looks like: fetch_status = 200")
    return tree["statements"]


def _tree(select: str, connection: duckdb.DuckDBPyConnection) -> Any:  # noqa: ANN401
    sql = f"SELECT json_serialize_sql({literal(select)})"
    return json.loads(connection.execute(sql).fetchall()[0][0])


def _check(where: Where, known: pa.Schema, connection: duckdb.DuckDBPyConnection) -> None:
    """Let DuckDB bind the expression to types and convert its constants, before anything is fetched."""
    for name in where.columns:
        alike = [other for other in known.names if other.casefold() == name.casefold()]
        if len(alike) > 1:
            different = " and ".join(alike)
            raise QueryError(f"the condition is ambiguous: the columns {different} differ only in letter case")
    kinds = pa.schema([known.field(name) for name in where.columns])
    row = pa.table([pa.nulls(1, kind) for kind in kinds.types], schema=kinds)  # without a row, no constant is converted
    where_positions(where, row, connection)


def _columns(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            yield str(node["column_names"][-1])
        elif what := _MORE_THAN_A_ROW.get(str(node.get("class"))):
            raise QueryError(f"a condition is an expression over the columns of a row; it cannot contain {what}")
        elif node.get("class") == "FUNCTION" and node.get("schema") not in {"", "main", None}:
            call = f"{node['function_name']}({node['schema']})"
            raise QueryError(f"a condition cannot contain methods; write {call} instead")
        for value in node.values():
            yield from _columns(value)
    elif isinstance(node, list):
        for value in node:
            yield from _columns(value)


def _check_bytes(node: object) -> None:
    """Refuse to compare bytes with text, which is never equal to them."""
    parts = [*node.values()] if isinstance(node, dict) else node if isinstance(node, list) else []
    names = (part["column_names"][-1].casefold() for part in parts if isinstance(part, dict) and "column_names" in part)
    if "warc_record_id" in names and any(isinstance(_constant(part), bytes) for part in parts):
        example = "warc_record_id::UUID = '019d6d22-0000-7000-8000-000000000001'"
        raise QueryError(f"warc_record_id is bytes; write {example}")
    for part in parts:
        _check_bytes(part)


def _conditions(node: dict[str, Any], table: Dataset) -> Iterator[Condition]:
    match node:
        case {"type": "CONJUNCTION_AND", "children": children}:
            for child in children:
                yield from _conditions(child, table)
        case {"type": "COMPARE_BETWEEN", "input": column, "lower": low, "upper": high}:
            yield from _condition(column, ">=", [low], table)
            yield from _condition(column, "<=", [high], table)
        case {"type": "COMPARE_IN", "children": [column, *values]}:
            yield from _condition(column, "in", values, table)
        case {"type": kind, "left": left, "right": right} if kind in _COMPARISONS:
            operator = _COMPARISONS[kind]
            yield from _condition(left, operator, [right], table)
            yield from _condition(right, _MIRRORED[operator], [left], table)
        case {
            "function_name": ("starts_with" | "^@" | "prefix"),
            "arguments": [{"expression": column}, {"expression": value}],
        }:
            yield from _condition(column, "prefix", [value], table)


def _condition(column: object, operator: str, values: list[object], table: Dataset) -> Iterator[Condition]:
    match column:
        case {"class": "COLUMN_REF", "column_names": [*_, str(name)]} if (
            name in table.schema.names and name not in table.path_columns
        ):
            constants = [_constant(value) for value in values]
            kind = table.schema.field(name).type
            own = int if pa.types.is_integer(kind) else bytes if pa.types.is_string(kind) else None
            if own and constants and all(isinstance(constant, own) for constant in constants):
                yield Condition(name, operator, tuple(constants))  # type: ignore[arg-type]


def _constant(node: object) -> int | bytes | None:
    match node:
        case {"class": "CONSTANT", "literal": {"kind": "INTEGER", "text": str(text)}}:
            return int(text) if len(text) <= _LONGEST_NUMBER else None
        case {"class": "CONSTANT", "literal": {"kind": "STRING", "text": str(text)}}:
            return text.encode()
        case {"class": "CONSTANT", "value": {"is_null": False, "value": int(value), "type": {"id": kind}}} if (
            kind in _INTEGERS  # before DuckDB 2, where 200.5 is the DECIMAL 2005
        ):
            return value
        case {"class": "CONSTANT", "value": {"is_null": False, "value": str(value), "type": {"id": "VARCHAR"}}}:
            return value.encode()
    return None
