"""Fill a new lake with its schema: table, view, macros."""

from collections.abc import Sequence
from uuid import uuid4

from catalogue.export.ducklake_database import AUTHOR, Database
from catalogue.export.ducklake_tables import VERSION
from catalogue.settings import package_version
from catalogue.surt import MACROS

SCHEMA, TABLE, VIEW = 0, 1, 2
"""Object numbers."""
PARTITION = 3
_SORT = 4
_MACRO = 5
"""Number of the first macro."""

RAW, NAIVE = "captures_raw", "fetch_time_naive"
"""The table, and its column of times that old files do not declare as UTC, although they are. DuckDB would read them in
the session's time zone; the view converts them."""
_VIEW = f"""
SELECT * EXCLUDE ({NAIVE}) REPLACE (coalesce(fetch_time, {NAIVE} AT TIME ZONE 'UTC') AS fetch_time)
FROM {{DUCKLAKE_CATALOG}}.main.{RAW}
""".strip()  # noqa: S608 - constants
_FIRST, _SECOND = 0, 1
"""Snapshots: the schema, then its objects."""


def begin(database: Database, columns: Sequence[tuple[str, str]], *, data_path: str, now: str) -> None:
    """Fill an empty lake.

    Args:
        database: with empty tables.
        columns: names and types.
        data_path: an address or a folder, with a slash at its end.
        now: the time.
    """
    add = database.insert
    add(
        "ducklake_metadata",
        [
            ("version", VERSION, None, None),
            ("created_by", f"{AUTHOR} {package_version()}", None, None),
            ("data_path", data_path, None, None),
            ("encrypted", "false", None, None),
        ],
    )
    after = _MACRO + len(MACROS)
    add("ducklake_snapshot", [(_FIRST, now, 0, 1, 0), (_SECOND, now, 1, after, 0)])
    made = [f'created_table:"main"."{RAW}"', 'created_view:"main"."captures"']
    made += [f'created_scalar_macro:"main"."{macro.name}"' for macro in MACROS]
    add(
        "ducklake_snapshot_changes",
        [(_FIRST, 'created_schema:"main"', AUTHOR, None, None), (_SECOND, ",".join(made), AUTHOR, None, None)],
    )
    add("ducklake_schema", [(SCHEMA, str(uuid4()), _FIRST, None, "main", "", True)])
    add("ducklake_schema_versions", [(_SECOND, 1, TABLE)])
    add("ducklake_table", [(TABLE, str(uuid4()), _SECOND, None, SCHEMA, RAW, "", True)])
    add("ducklake_table_stats", [(TABLE, 0, 0, 0)])
    add_columns(database, enumerate_columns(columns, 1), _SECOND)
    numbers = {name: number for number, (name, _) in enumerate(columns, 1)}
    add("ducklake_partition_info", [(PARTITION, TABLE, _SECOND, None)])
    add(
        "ducklake_partition_column",
        [(PARTITION, TABLE, at, numbers[name], "identity") for at, name in enumerate(("crawl", "subset"))],
    )
    # It applies to new files; files of old crawls are not sorted.
    add("ducklake_sort_info", [(_SORT, TABLE, _SECOND, None)])
    add("ducklake_sort_expression", [(_SORT, TABLE, 0, "url_surtkey", "duckdb", "ASC", "NULLS_LAST")])
    view = (SCHEMA, "captures", "duckdb", _VIEW, "")
    add("ducklake_view", [(VIEW, str(uuid4()), _SECOND, None, *view)])
    _add_macros(database)


def enumerate_columns(columns: Sequence[tuple[str, str]], first: int) -> list[tuple[int, str, str]]:
    """Number columns of names and types."""
    return [(number, name, kind) for number, (name, kind) in enumerate(columns, first)]


def add_columns(database: Database, columns: Sequence[tuple[int, str, str]], snapshot: int) -> None:
    """Add columns that exist from a snapshot on."""
    database.insert(
        "ducklake_column",
        [
            (number, snapshot, None, TABLE, number, name, kind, None, "NULL", True, None, "literal", "duckdb")
            for number, name, kind in columns
        ],
    )


def _add_macros(database: Database) -> None:
    numbered = list(enumerate(MACROS, _MACRO))
    database.insert("ducklake_macro", [(SCHEMA, number, macro.name, _SECOND, None) for number, macro in numbered])
    database.insert("ducklake_macro_impl", [(number, 0, "duckdb", macro.body, "scalar") for number, macro in numbered])
    database.insert(
        "ducklake_macro_parameters",
        [
            (number, 0, at, name, "unknown", "NULL", "unknown")
            for number, macro in numbered
            for at, name in enumerate(macro.parameters)
        ],
    )


def update_macros(database: Database) -> bool:
    """Update the macros of an older lake, in all its snapshots; returns whether they differed."""
    stored = dict(
        database.rows('SELECT macro_name, "sql" FROM ducklake_macro JOIN ducklake_macro_impl USING (macro_id)')
    )
    other = [macro for macro in MACROS if stored.get(macro.name, macro.body) != macro.body]
    for macro in other:
        database.rows(
            'UPDATE ducklake_macro_impl SET "sql" = ? '
            "WHERE macro_id IN (SELECT macro_id FROM ducklake_macro WHERE macro_name = ?)",
            (macro.body, macro.name),
        )
    return bool(other)
