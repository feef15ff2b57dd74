"""The two kinds of file that a lake can be, changed as copies that take their place."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from catalogue.atomic_files import put_in_place, room, temporary_folder
from catalogue.errors import CatalogueError, DiskFailed, QueryError, StoreLocked
from catalogue.export.ducklake_tables import DEFINITIONS, VERSION, for_sqlite
from catalogue.metadata_db.connection import quoted
from catalogue.metadata_db.refresh import STORAGE_VERSION
from catalogue.store.locks import locked

AUTHOR = "commoncrawl-catalogue"
"""With which the maker's name begins in lakes of ours."""
BACKENDS = ("sqlite", "duckdb")

_SQLITE, _DUCKDB = b"SQLite format 3\0", b"DUCK"
_HEAD = 16
_BUSY = ("is locked", "Could not set lock", "Conflicting lock")

Row = Sequence[object]


class Database(Protocol):
    """What both kinds can do; parameters are question marks."""

    def rows(self, sql: str, parameters: Row = ()) -> list[tuple[Any, ...]]:
        """Run SQL."""

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows, which have all columns in the order of the table."""


@dataclass(slots=True)
class Change:
    """A lake that is being changed."""

    database: Database
    empty: bool
    """Whether its tables have no rows yet."""
    made: bool = False
    """Whether there was anything to change; to be set."""


class _SQLite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, parameters: Row = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            places = ", ".join("?" * len(rows[0]))
            self._connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 - a constant


class _DuckDB:
    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def rows(self, sql: str, parameters: Row = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            columns = [pa.array(column) for column in zip(*rows, strict=True)]
            self._connection.register(
                "incoming", pa.Table.from_arrays(columns, [str(at) for at in range(len(columns))])
            )
            self._connection.execute(f"INSERT INTO {table} SELECT * FROM incoming")  # noqa: S608 - a constant
            self._connection.unregister("incoming")


@contextmanager
def reading(path: Path) -> Iterator[Database]:
    """A lake of ours as it is, to be read.

    Raises:
        QueryError: if the file is none.
        StoreLocked: if somebody is writing to it.
        DiskFailed: if it cannot be read.
    """
    with _explained(path, "read"), _opened(path, backend_of(path)) as database:
        _check(path, database)
        yield database


@contextmanager
def changing(path: Path, backend: str | None) -> Iterator["Change"]:
    """A copy of a lake of ours, or one without any rows, that takes its place in the end if it was changed.

    Whoever has the old one open keeps it and hinders nobody.

    Args:
        path: of the lake.
        backend: which kind it must be; None for that which is there, else SQLite.

    Raises:
        QueryError: if there is something else, or its folder is not there.
        StoreLocked: if somebody is writing to it.
        DiskFailed: if it cannot be written; the one that was there stays.
    """
    if not path.parent.is_dir():
        message = f"there is no folder {path.parent}; make it, or choose another name"
        raise QueryError(message)
    if not path.name:
        raise _no_file(path)
    making = temporary_folder(path.with_name(f"{path.name}.new"))
    with _explained(path, "written"), locked(path.with_name(f"{path.name}.lock"), path), making as folder:
        beside = folder / path.name
        there = backend_of(path) if path.exists() else None
        if there and backend and there != backend:
            message = f"{path} is a lake kept in {there}, not {backend}; leave out --backend, or choose another name"
            raise QueryError(message)
        with _copied(path, beside, there or backend or BACKENDS[0], there is None) as database:
            if there:
                _check(path, database)
            change = Change(database, there is None)
            yield change
        if change.made:
            _swap(beside, path)


def backend_of(path: Path) -> str:
    """The kind of a file.

    Raises:
        QueryError: if it is none that can be a lake.
    """
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
    return QueryError(f"{path} is a folder, or no file at all; choose another name")


def _not_ours(path: Path) -> QueryError:
    return QueryError(f"{path} is no lake that this has made, so it is left as it is; choose another name")


def _check(path: Path, database: Database) -> None:
    try:
        found = dict(database.rows('SELECT "key", "value" FROM ducklake_metadata WHERE scope IS NULL'))
    except (sqlite3.OperationalError, duckdb.CatalogException) as error:
        raise _not_ours(path) from error
    if not str(found.get("created_by")).startswith(AUTHOR):
        raise _not_ours(path)
    if found.get("version") != VERSION:
        message = f"{path} is a lake of version {found.get('version')}, and this writes {VERSION}; choose another name"
        raise QueryError(message)


@contextmanager
def _opened(path: Path, backend: str) -> Iterator[Database]:
    if backend == "sqlite":
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            yield _SQLite(connection)
    else:
        with duckdb.connect() as db:
            db.execute(f"ATTACH {quoted(path)} AS lake (READ_ONLY)")
            db.execute("USE lake")
            yield _DuckDB(db)


@contextmanager
def _copied(path: Path, beside: Path, backend: str, empty: bool) -> Iterator[Database]:  # noqa: FBT001
    """A lake that nobody else knows of, in one transaction: with another's tables, or with empty ones."""
    if backend == "sqlite":
        with closing(sqlite3.connect(beside, isolation_level=None)) as connection:
            if not empty:
                with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as original:
                    original.backup(connection)
            connection.execute("PRAGMA journal_mode = OFF")  # what fails is thrown away
            connection.execute("PRAGMA synchronous = OFF")  # see _swap
            connection.execute("BEGIN")
            for definition in DEFINITIONS if empty else ():
                connection.execute(for_sqlite(definition))
            yield _SQLite(connection)
            connection.execute("COMMIT")
    else:
        with duckdb.connect(config={"python_enable_replacements": "false"}) as db:
            how = f"RECOVERY_MODE NO_WAL_WRITES, STORAGE_VERSION '{STORAGE_VERSION}'"
            db.execute(f"ATTACH {quoted(beside)} AS lake ({how})")
            if not empty:
                db.execute(f"ATTACH {quoted(path)} AS original (READ_ONLY)")
                db.execute("COPY FROM DATABASE original TO lake")
            db.execute("USE lake")
            db.execute("BEGIN")
            for definition in DEFINITIONS if empty else ():
                db.execute(definition)
            yield _DuckDB(db)
            db.execute("COMMIT")
            db.execute("CHECKPOINT lake")


@contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    """Errors of databases and the disk as ours; ``done`` is what cannot be, ``read`` or ``written``."""
    try:
        yield
    except CatalogueError:
        raise
    except (sqlite3.Error, duckdb.Error, OSError) as error:
        if any(sign in str(error) for sign in _BUSY):
            message = f"{path} is open for writing elsewhere; close it there, or export under another name"
            raise StoreLocked(message) from error
        damaged = type(error) is sqlite3.DatabaseError or isinstance(error, duckdb.SerializationException)
        if damaged:
            message = f"{path} cannot be read ({error}); delete it, it is made anew"
        else:
            message = f"{path} cannot be {done}: {error}{room(path, error)}; what was there is kept"
        raise DiskFailed(message) from error


def _swap(new: Path, path: Path) -> None:
    """Put a finished lake in the old one's place, whole or not at all."""
    # What a crashed writer left belongs to the old file, and was read with it.
    for log in (".wal", "-wal", "-shm", "-journal"):
        path.with_name(path.name + log).unlink(missing_ok=True)
    put_in_place(new, path)
