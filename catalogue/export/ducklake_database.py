"""The two file formats of a lake, SQLite and DuckDB. A changed copy replaces the file."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb

from catalogue.atomic_files import put_in_place, room, temporary_folder
from catalogue.errors import CatalogueError, DiskFailed, QueryError, StoreLocked
from catalogue.export.ducklake_tables import AUTHOR, DEFINITIONS, VERSION, Database, for_sqlite
from catalogue.metadata_db.connection import quoted
from catalogue.metadata_db.refresh import STORAGE_VERSION
from catalogue.store.locks import locked

BACKENDS = ("sqlite", "duckdb")

_SQLITE, _DUCKDB = b"SQLite format 3\0", b"DUCK"
_HEAD = 16
_BUSY = ("is locked", "Could not set lock", "Conflicting lock")


@contextmanager
def reading(path: Path) -> Iterator[Database]:
    """Open a lake to read it."""
    with _translated_errors(path, "read"), _opened(path, backend_of(path)) as database:
        _check(path, database)
        yield database


@contextmanager
def changing(path: Path, backend: str | None) -> Iterator[Database]:
    """Open a copy of a lake, or a new one; at the end it replaces the lake if it was changed.

    Processes that have the old file open keep it.
    """
    if not path.parent.is_dir():
        message = f"there is no folder {path.parent}; make it, or choose another name"
        raise QueryError(message)
    if not path.name:
        raise _no_file(path)
    making = temporary_folder(path.with_name(f"{path.name}.new"))
    with _translated_errors(path, "written"), locked(path.with_name(f"{path.name}.lock"), path), making as folder:
        copy = folder / path.name
        there = backend_of(path) if path.exists() else None
        if there and backend and there != backend:
            message = f"{path} is a lake kept in {there}, not {backend}; leave out --backend, or choose another name"
            raise QueryError(message)
        with _copied(path, copy, there or backend or BACKENDS[0], empty=there is None) as database:
            if there:
                _check(path, database)
            yield database
        if database.changed:
            _replace(copy, path)


def backend_of(path: Path) -> str:
    """Return the format of a lake's file."""
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
        message = f"{path} is a lake of version {found.get('version')}, and this writes {VERSION}; choose another name"
        raise QueryError(message)


@contextmanager
def _opened(path: Path, backend: str) -> Iterator[Database]:
    if backend == "sqlite":
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            yield Database(connection)
    else:
        with duckdb.connect() as db:
            db.execute(f"ATTACH {quoted(path)} AS lake (READ_ONLY)")
            db.execute("USE lake")
            yield Database(db)


@contextmanager
def _copied(path: Path, copy: Path, backend: str, *, empty: bool) -> Iterator[Database]:
    """Open a new file in one transaction, with the tables of another file or with empty ones."""
    if backend == "sqlite":
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            if not empty:
                with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as original:
                    original.backup(connection)
            connection.execute("PRAGMA journal_mode = OFF")  # a failed copy is deleted
            connection.execute("PRAGMA synchronous = OFF")  # _replace syncs it
            connection.execute("BEGIN")
            for definition in DEFINITIONS if empty else ():
                connection.execute(for_sqlite(definition))
            yield Database(connection, empty)
            connection.execute("COMMIT")
    else:
        with duckdb.connect(config={"python_enable_replacements": "false"}) as db:
            how = f"RECOVERY_MODE NO_WAL_WRITES, STORAGE_VERSION '{STORAGE_VERSION}'"
            db.execute(f"ATTACH {quoted(copy)} AS lake ({how})")
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
    """Translate errors of databases and the disk; ``done`` is ``read`` or ``written``."""
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
            message = f"{path} cannot be read ({error}); delete it and export again"
        else:
            message = f"{path} cannot be {done}: {error}{room(path, error)}; the existing file is unchanged"
        raise DiskFailed(message) from error


def _replace(new: Path, path: Path) -> None:
    """Replace a lake atomically."""
    # The log of a crashed writer belongs to the old file, and was read with it.
    for log in (".wal", "-wal", "-shm", "-journal"):
        path.with_name(path.name + log).unlink(missing_ok=True)
    put_in_place(new, path)
