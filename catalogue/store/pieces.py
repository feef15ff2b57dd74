"""Parts of a store as files of their own, in the same layout, for others to take over."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from catalogue.errors import BadPageIndex, BadSnapshot, StoreDamaged
from catalogue.parquet.stored_indexes import Indexes
from catalogue.store.database import Store
from catalogue.store.read_only import open_to_read
from catalogue.store.schema import check_stranger, disk_errors, prepare, read_only, transaction
from catalogue.store.stored_file import StoredFile, decode, encode, is_whole

COPIED = ("documents", "files", "indexes")
"""The tables of which pieces have rows: failures are nobody else's, and facts are not believed."""

Row: TypeAlias = tuple[str, str, bytes]
"""A table, a key, and the value as it stands in the store."""

_MOST_VALUE = 64 << 20
"""Bytes of a value as it stands there; those of index files have some 20 kB, lists and page indexes less than 5 MB."""


class Frozen:
    """A store as it was at one moment, whatever is written meanwhile."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Take a connection that has begun to read, to the store's file."""
        self._connection = connection
        self._path = path

    def paths(self) -> list[str]:
        """Of files whose footers are held and were found to be good."""
        query = 'SELECT key FROM "files" WHERE key IN (SELECT key FROM "facts") ORDER BY key'
        return [path for (path,) in self._run(query)]

    def document(self, path: str) -> list[Row]:
        """The row of a manifest, or of the list of crawls, if that is held.

        Raises:
            StoreDamaged: if it is not what was written.
        """
        found = self._run('SELECT key, value FROM "documents" WHERE key = ?', path)
        return [("documents", key, self._whole(key, value)) for key, value in found]

    def file(self, path: str) -> list[Row]:
        """The row of a file, and those of its page indexes that stand in the file itself and are of the same version.

        Raises:
            StoreDamaged: if the file's is not what was written.
        """
        found = self._run('SELECT key, value FROM "files" WHERE key = ?', path)
        query = 'SELECT key, value FROM "indexes" WHERE key > ? AND key < ? ORDER BY key'
        indexes = self._run(query, f"{path}#", f"{path}$")  # "$" follows "#"
        rows = [("files", key, self._whole(key, value)) for key, value in found]
        if found and indexes:
            held = decode(found[0][1])
            rows += [("indexes", key, written) for key, value in indexes if (written := _written(value, held))]
        return rows

    def _whole(self, key: str, value: bytes) -> bytes:
        """A value that somebody else can read, who would refuse all that comes with one that is damaged."""
        if not is_whole(value):
            message = f"{key} in {self._path} is damaged; run: catalogue check --repair"
            raise StoreDamaged(message)
        return value

    def _run(self, query: str, *parameters: str) -> list[Any]:
        with disk_errors(self._path):
            return self._connection.execute(query, parameters).fetchall()


def _written(value: bytes, held: StoredFile) -> bytes | None:
    """The value of a page index that stands in a file itself; None of one that was derived, is damaged, or outdated."""
    with suppress(StoreDamaged, BadPageIndex):
        known = decode(value)
        written = Indexes.unpack(known.data).written
        if written and known.version == held.version:
            return encode(replace(held, data=written.pack()))
    return None


@contextmanager
def frozen(store: Store) -> Iterator[Frozen]:
    """The store as it is now."""
    with disk_errors(store.path):
        connection = open_to_read(store.path)[0]
    with closing(connection):
        with disk_errors(store.path):
            connection.execute("BEGIN")
            connection.execute("SELECT id FROM identity").fetchall()  # from here on it stays so
        yield Frozen(connection, store.path)


def write_piece(path: Path, rows: Iterable[Row]) -> None:
    """Make a file of rows of a store; there must be none yet."""
    with disk_errors(path), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare(connection, path, busy_seconds=0.0)
        path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
        with transaction(connection):
            for table, key, value in rows:
                connection.execute(f'INSERT INTO "{table}" VALUES (?, ?)', [key, value])  # noqa: S608 - of COPIED
        connection.execute("PRAGMA journal_mode=DELETE")  # or it takes a file beside it even to read


def read_piece(path: Path) -> list[Row]:
    """The rows of such a file, which may be hostile: nothing of it is run, and nothing decoded.

    Raises:
        BadSnapshot: if it is none, or damaged.
    """
    try:
        with closing(read_only(path, immutable=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            if wrong := check_stranger(connection):
                raise BadSnapshot(wrong)
            return list(_rows(connection, path.stat().st_size))
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        message = f"is damaged: {str(error)[:200]!r}"  # names of a stranger's may stand in it
        raise BadSnapshot(message) from error


def _rows(connection: sqlite3.Connection, size: int) -> Iterator[Row]:
    """What may be handed on: no more than the file has bytes, whatever its pages refer to."""
    for table in COPIED:
        for key, value in connection.execute(f'SELECT key, value FROM "{table}" ORDER BY key'):  # noqa: S608 - of COPIED
            if not (isinstance(key, str) and key.isprintable() and isinstance(value, bytes)):
                message = f"has a row in {table} that no store has"
                raise BadSnapshot(message)
            size -= len(value)
            if size < 0:
                message = "has more in it than fits"
                raise BadSnapshot(message)
            yield table, key, value
