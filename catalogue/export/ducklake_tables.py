"""The tables of DuckLake 1.0 as its extension creates them (https://ducklake.select), in a file of SQLite or DuckDB.

A changed copy replaces the file.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import duckdb

from catalogue.atomic_files import put_in_place, room, temporary_folder
from catalogue.errors import CatalogueError, DiskFailed, QueryError, StoreLocked
from catalogue.metadata_db.connection import connect, quoted, writable
from catalogue.metadata_db.refresh import STORAGE_VERSION
from catalogue.settings import package_version
from catalogue.store.layout import read_only
from catalogue.store.locks import locked
from catalogue.surt.macros import MACROS

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "1.0"
AUTHOR = "commoncrawl-catalogue"
"""Start of ``created_by`` in our lakes."""

_TABLES = """
column: column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT, column_order BIGINT, column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR, nulls_allowed BOOLEAN, parent_column BIGINT, default_value_type VARCHAR, default_value_dialect VARCHAR
column_mapping: mapping_id BIGINT, table_id BIGINT, "type" VARCHAR
column_tag: table_id BIGINT, column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, "key" VARCHAR, "value" VARCHAR
data_file: data_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, file_order BIGINT, path VARCHAR, path_is_relative BOOLEAN, file_format VARCHAR, record_count BIGINT, file_size_bytes BIGINT, footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, encryption_key VARCHAR, mapping_id BIGINT, partial_max BIGINT
delete_file: delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, format VARCHAR, delete_count BIGINT, file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR, partial_max BIGINT
file_column_stats: data_file_id BIGINT, table_id BIGINT, column_id BIGINT, column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR
file_partition_value: data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, partition_value VARCHAR
file_variant_stats: data_file_id BIGINT, table_id BIGINT, column_id BIGINT, variant_path VARCHAR, shredded_type VARCHAR, column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR
files_scheduled_for_deletion: data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, schedule_start TIMESTAMP WITH TIME ZONE
inlined_data_tables: table_id BIGINT, table_name VARCHAR, schema_version BIGINT
macro: schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT
macro_impl: macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, "sql" VARCHAR, "type" VARCHAR
macro_parameters: macro_id BIGINT, impl_id BIGINT, column_id BIGINT, parameter_name VARCHAR, parameter_type VARCHAR, default_value VARCHAR, default_value_type VARCHAR
metadata: "key" VARCHAR NOT NULL, "value" VARCHAR NOT NULL, "scope" VARCHAR, scope_id BIGINT
name_mapping: mapping_id BIGINT, column_id BIGINT, source_name VARCHAR, target_field_id BIGINT, parent_column BIGINT, is_partition BOOLEAN
partition_column: partition_id BIGINT, table_id BIGINT, partition_key_index BIGINT, column_id BIGINT, "transform" VARCHAR
partition_info: partition_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT
schema: schema_id BIGINT PRIMARY KEY, schema_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN
schema_versions: begin_snapshot BIGINT, schema_version BIGINT, table_id BIGINT
snapshot: snapshot_id BIGINT PRIMARY KEY, snapshot_time TIMESTAMP WITH TIME ZONE, schema_version BIGINT, next_catalog_id BIGINT, next_file_id BIGINT
snapshot_changes: snapshot_id BIGINT PRIMARY KEY, changes_made VARCHAR, author VARCHAR, commit_message VARCHAR, commit_extra_info VARCHAR
sort_expression: sort_id BIGINT, table_id BIGINT, sort_key_index BIGINT, expression VARCHAR, dialect VARCHAR, sort_direction VARCHAR, null_order VARCHAR
sort_info: sort_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT
table: table_id BIGINT, table_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, table_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN
table_column_stats: table_id BIGINT, column_id BIGINT, contains_null BOOLEAN, contains_nan BOOLEAN, min_value VARCHAR, max_value VARCHAR, extra_stats VARCHAR
table_stats: table_id BIGINT, record_count BIGINT, next_row_id BIGINT, file_size_bytes BIGINT
tag: object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, "key" VARCHAR, "value" VARCHAR
view: view_id BIGINT, view_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, view_name VARCHAR, dialect VARCHAR, "sql" VARCHAR, column_aliases VARCHAR
"""  # noqa: E501 - a table a line

DEFINITIONS = tuple(
    f"CREATE TABLE ducklake_{name}({columns})"
    for name, columns in (line.split(": ", 1) for line in _TABLES.strip().splitlines())
)
"""DuckDB's SQL; see ``for_sqlite``."""
BACKENDS = ("sqlite", "duckdb")
_SQLITE, _DUCKDB = b"SQLite format 3\0", b"DUCK"
_HEAD = 16
_BUSY = ("is locked", "Could not set lock", "Conflicting lock")


@dataclass(slots=True)
class Database:
    """The open file of a lake."""

    connection: sqlite3.Connection | duckdb.DuckDBPyConnection
    empty: bool = False
    changed: bool = False
    """Set this if anything was changed."""

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run SQL whose parameters are question marks."""
        found: list[tuple[Any, ...]] = self.connection.execute(sql, parameters).fetchall()
        return found

    def insert(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        if not rows:
            return
        if isinstance(self.connection, sqlite3.Connection):
            places = ", ".join("?" * len(rows[0]))
            self.connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 - a constant
            return
        import pyarrow as pa

        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        self.connection.register("incoming", pa.Table.from_arrays(columns, [str(at) for at in range(len(columns))]))
        self.connection.execute(f"INSERT INTO {table} SELECT * FROM incoming")  # noqa: S608 - a constant
        self.connection.unregister("incoming")


def for_sqlite(definition: str) -> str:
    """Convert a definition to the types that the extension uses in SQLite."""
    for ours, there in (("BOOLEAN", "BIGINT"), ("UUID", "VARCHAR"), ("TIMESTAMP WITH TIME ZONE", "VARCHAR")):
        definition = definition.replace(ours, there)
    return definition


def type_name(kind: "pa.DataType") -> str:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else {"us": "timestamp"}.get(kind.unit, f"timestamp_{kind.unit}")
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    names = {
        "string": "varchar",
        "binary": "blob",
        "float": "float32",
        "double": "float64",
        "bool": "boolean",
        "date32[day]": "date",
    }
    return names.get(str(kind), str(kind))


SCHEMA, TABLE, VIEW = 0, 1, 2
PARTITION = 3
_SORT = 4
_MACRO = 5

RAW, NAIVE = "captures_raw", "fetch_time_naive"
"""The table, and its column of times that old files do not declare as UTC, although they are. DuckDB would read them
in the session's time zone; the view converts them.
"""
_VIEW = f"""
SELECT * EXCLUDE ({NAIVE}) REPLACE (coalesce(fetch_time, {NAIVE} AT TIME ZONE 'UTC') AS fetch_time)
FROM {{DUCKLAKE_CATALOG}}.main.{RAW}
""".strip()  # noqa: S608 - constants
_FIRST, _SECOND = 0, 1
"""Snapshots: the schema, then its objects."""


def begin(database: Database, columns: Sequence[tuple[str, str]], *, data_path: str, now: str) -> None:
    """Fill a lake with empty tables."""
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
    numbered = [(number, name, kind) for number, (name, kind) in enumerate(columns, 1)]
    add_columns(database, numbered, _SECOND)
    numbers = {name: number for number, name, _ in numbered}
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


def add_columns(database: Database, columns: Sequence[tuple[int, str, str]], snapshot: int) -> None:
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


def update_macros(database: Database) -> None:
    stored = dict(
        database.rows('SELECT macro_name, "sql" FROM ducklake_macro JOIN ducklake_macro_impl USING (macro_id)')
    )
    for macro in MACROS:
        if stored.get(macro.name, macro.body) != macro.body:
            database.rows(
                'UPDATE ducklake_macro_impl SET "sql" = ? '
                "WHERE macro_id IN (SELECT macro_id FROM ducklake_macro WHERE macro_name = ?)",
                (macro.body, macro.name),
            )
            database.changed = True


@contextmanager
def reading(path: Path) -> Iterator[Database]:
    with (
        _translated_errors(path, "read"),
        closing(read_only(path) if backend_of(path) == "sqlite" else connect(path)) as connection,
    ):
        database = Database(connection)
        _check(path, database)
        yield database


@contextmanager
def changing(path: Path, backend: str | None) -> Iterator[Database]:
    """Open a copy of a lake, or a new one; if it was changed, it replaces the lake.

    Processes that have the old file open keep it.
    """
    if not path.parent.is_dir():
        raise QueryError(f"there is no folder {path.parent}; make it, or choose another name")
    if not path.name:
        raise _no_file(path)
    making = temporary_folder(path.with_name(f"{path.name}.new"))
    with _translated_errors(path, "written"), locked(path.with_name(f"{path.name}.lock"), path), making as folder:
        copy = folder / path.name
        there = backend_of(path) if path.exists() else None
        if there and backend and there != backend:
            raise QueryError(
                f"{path} is a DuckLake of the backend {there}, not {backend}; leave out the backend, or choose "
                "another name"
            )
        with _copied(path, copy, there or backend or BACKENDS[0], empty=there is None) as database:
            if there:
                _check(path, database)
            yield database
        if database.changed:
            _replace(copy, path)


def backend_of(path: Path) -> str:
    if not path.is_file():
        raise _no_file(path)
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head == _SQLITE:
        return "sqlite"
    if head[8:12] == _DUCKDB:
        return "duckdb"
    raise _not_ours(path)


def _no_file(path: Path) -> QueryError:
    return QueryError(f"{path} is a folder, or not a file; choose another name")


def _not_ours(path: Path) -> QueryError:
    return QueryError(f"{path} was not made by this tool and is not changed; choose another name")


def _check(path: Path, database: Database) -> None:
    try:
        found = dict(database.rows('SELECT "key", "value" FROM ducklake_metadata WHERE scope IS NULL'))
    except (sqlite3.OperationalError, duckdb.CatalogException) as error:
        raise _not_ours(path) from error
    if not str(found.get("created_by")).startswith(AUTHOR):
        raise _not_ours(path)
    if found.get("version") != VERSION:
        raise QueryError(
            f"{path} is a lake of version {found.get('version')}, and this writes {VERSION}; choose another name"
        )


@contextmanager
def _copied(path: Path, copy: Path, backend: str, *, empty: bool) -> Iterator[Database]:
    if backend == "sqlite":
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            if not empty:
                with closing(read_only(path)) as original:
                    original.backup(connection)
            connection.execute("PRAGMA journal_mode = OFF")  # a failed copy is deleted
            connection.execute("PRAGMA synchronous = OFF")  # _replace syncs it
            connection.execute("BEGIN")
            for definition in DEFINITIONS if empty else ():
                connection.execute(for_sqlite(definition))
            yield Database(connection, empty)
            connection.execute("COMMIT")
    else:
        with writable(copy) as place, duckdb.connect(config={"python_enable_replacements": "false"}) as db:
            how = f"RECOVERY_MODE NO_WAL_WRITES, STORAGE_VERSION '{STORAGE_VERSION}'"
            db.execute(f"ATTACH {quoted(place)} AS lake ({how})")
            if not empty:
                db.execute(f"ATTACH {quoted(path)} AS original (READ_ONLY)")
                db.execute("COPY FROM DATABASE original TO lake")
            db.execute("USE lake")
            db.execute("BEGIN")
            for definition in DEFINITIONS if empty else ():
                db.execute(definition)
            yield Database(db, empty)
            db.execute("COMMIT")
            db.execute("CHECKPOINT lake")


@contextmanager
def _translated_errors(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except CatalogueError:
        raise
    except (sqlite3.Error, duckdb.Error, OSError) as error:
        if any(sign in str(error) for sign in _BUSY):
            raise StoreLocked(
                f"{path} is open for writing elsewhere; close it there, or export under another name"
            ) from error
        damaged = type(error) is sqlite3.DatabaseError or isinstance(error, duckdb.SerializationException)
        if damaged:
            message = f"{path} cannot be read ({error}); delete it and export again"
        else:
            message = f"{path} cannot be {done}: {error}{room(path, error)}; the existing file is unchanged"
        raise DiskFailed(message) from error


def _replace(new: Path, path: Path) -> None:
    # The log of a crashed writer belongs to the old file, and was read with it.
    for log in (".wal", "-wal", "-shm", "-journal"):
        path.with_name(path.name + log).unlink(missing_ok=True)
    put_in_place(new, path)
