"""The store: one SQLite file of raw footers and page indexes, in sqlitedict's layout.

Read it with ``SqliteDict(path, tablename="files", encode=encode, decode=decode, flag="r", journal_mode="WAL")``;
without ``journal_mode``, sqlitedict changes the file. For the reason not to write with it, see
piskvorky/sqlitedict#108.
"""

import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Self

from catalogue.atomic_files import make_folder
from catalogue.errors import BadPageIndex, NothingStored, StoreDamaged, StoreError
from catalogue.parquet.page_index import Indexes
from catalogue.store.layout import (
    COUNTERS,
    DIGEST_SIZE,
    TABLES,
    Footprint,
    StoredFile,
    decode,
    disk_errors,
    encode,
    file_version_of,
    footprint_of,
    index_key,
    is_writable,
    log_of,
    open_to_read,
    prepare,
    snapshot,
    transaction,
    unwritable,
    version_of,
)
from catalogue.store.locks import exclusive_lock

_PUT_FACTS = 'INSERT OR REPLACE INTO "facts" (key, value) VALUES (?, ?)'
_AT_ONCE = 500
_SHORT_BUSY_SECONDS = 1.0
"""Wait for another process before writing what can be fetched again."""


def encode_indexes(indexes: Mapping[int, Indexes], file: StoredFile) -> dict[int, bytes]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {ordinal: encode(replace(file, data=each.pack(), taken=now)) for ordinal, each in indexes.items()}


class Store:
    """An open store: one connection for all threads of a process; unusable after a fork."""

    def __init__(self, path: Path, *, create: bool = False, busy_seconds: float = 30.0) -> None:
        """Open a store; read-only if the file or its folder is not writable.

        Raises:
            NothingStored: if there is no file.
            StoreError: if it is not a store, or of a newer version.
            DiskFailed: if it cannot be created.
        """
        self.path = path
        self._busy_seconds = busy_seconds
        self._process = os.getpid()
        self._mutex = threading.RLock()
        if not create and not path.exists():
            raise NothingStored("nothing is harvested", path.parent)
        self.read_only = not is_writable(path)
        if create and self.read_only:
            raise unwritable(path)
        with disk_errors(path):
            if create:
                make_folder(path.parent)
            self._connection = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> sqlite3.Connection:
        footprint: Footprint | None = None
        if self.read_only:
            connection, footprint = open_to_read(self.path)
        else:
            connection = sqlite3.connect(
                self.path, isolation_level=None, timeout=self._busy_seconds, check_same_thread=False
            )
        try:
            prepare(connection, self.path, self._busy_seconds)
        except BaseException:
            connection.close()
            raise
        self._footprint, self._file = footprint, self.path.stat()
        return connection

    def close(self) -> None:
        """Close the file when no thread uses it; otherwise SQLite may crash."""
        if self._process == os.getpid():
            with self._mutex:
                self._connection.close()

    @contextmanager
    def _exclusive_connection(self) -> Iterator[sqlite3.Connection]:
        if self._process != os.getpid():  # a connection of the parent process can damage the file
            raise StoreError(f"{self.path} was opened by another process; open it again in this one")
        if not self.path.exists():  # SQLite would use the moved or deleted file
            raise _moved(self.path)
        with self._mutex, disk_errors(self.path):
            if self._footprint and self._footprint != footprint_of(self.path):
                self._connection.close()
                self._connection = self._connect()
            yield self._connection

    def get(self, table: str, key: str, version: bytes | None = None) -> StoredFile | None:
        """Return the value of a key; None if it does not exist, or has another digest than ``version``.

        Raises:
            StoreDamaged: if the value is damaged.
        """
        with self._exclusive_connection() as connection:
            row = connection.execute(f'SELECT value FROM "{table}" WHERE key = ?', [key]).fetchone()  # noqa: S608
        if row is None or (version and isinstance(row[0], bytes) and version_of(row[0]) != version):
            return None
        try:
            return decode(row[0])
        except StoreDamaged as error:
            raise StoreDamaged(f"{key} in {self.path}: {error}; run: catalogue check --repair") from error

    def undamaged(self, table: str, key: str) -> StoredFile | None:
        """Return the value of a key; None if it is missing or damaged."""
        with suppress(StoreDamaged):
            return self.get(table, key)
        return None

    def put(self, table: str, items: Iterable[tuple[str, StoredFile]]) -> None:
        self.put_encoded(table, [(key, encode(stored)) for key, stored in items])

    def put_encoded(self, table: str, values: Sequence[tuple[str, bytes]]) -> None:
        """Write encoded values in one transaction.

        Failures of the files, and page indexes of other versions, are removed.
        """
        with self._exclusive_connection() as connection, self._transaction(COUNTERS.get(table)):
            run = connection.executemany
            if table == "files":
                run('DELETE FROM "failures" WHERE key = ?', [(key,) for key, _ in values])
                self._delete_indexes(path for path, value in values if not self._is_stored(path, value))
            run(f'INSERT OR REPLACE INTO "{table}" (key, value) VALUES (?, ?)', values)  # noqa: S608

    def delete(self, table: str, keys: Iterable[str]) -> None:
        """Remove keys, and page indexes of removed files, in one transaction."""
        deleted = list(keys)
        if not deleted:
            return
        with self._exclusive_connection() as connection, self._transaction(COUNTERS.get(table)):
            connection.executemany(f'DELETE FROM "{table}" WHERE key = ?', [(key,) for key in deleted])  # noqa: S608
            if table == "files":
                self._delete_indexes(deleted)

    def add_missing(self, rows: Iterable[tuple[str, str, bytes]]) -> list[tuple[str, str]]:
        """Add encoded values by table and key in one transaction, unless the keys exist; return the added ones."""
        added = []
        with self._exclusive_connection() as connection, self._transaction("changes"):
            for table, key, value in rows:
                query = f'INSERT OR IGNORE INTO "{table}" (key, value) VALUES (?, ?)'  # noqa: S608
                if connection.execute(query, [key, value]).rowcount:
                    added.append((table, key))
            connection.executemany(
                'DELETE FROM "failures" WHERE key = ?', [(k,) for each, k in added if each == "files"]
            )
            connection.execute("UPDATE identity SET index_changes = ?", [secrets.token_hex(8)])
        return added

    def indexes(self, path: str, row_groups: Iterable[int], version: StoredFile) -> dict[int, Indexes]:
        """Return the stored page indexes and bounds of row groups of this version of a file.

        Damaged ones count as missing, as they can be fetched again.
        """
        requested = {index_key(path, ordinal): ordinal for ordinal in row_groups}
        with self._exclusive_connection() as connection:
            rows = [*_rows_of(connection, 'SELECT key, value FROM "indexes"', requested)]
        indexes = {}
        for key, value in rows:
            with suppress(StoreDamaged, BadPageIndex):
                stored = decode(value)
                if stored.version == version.version:
                    indexes[requested[key]] = Indexes.unpack(stored.data)
        return indexes

    def add_indexes(self, path: str, indexes: Mapping[int, Indexes], version: StoredFile) -> None:
        self.add_all_indexes([(path, encode_indexes(indexes, version), version)])

    def add_all_indexes(self, added: Iterable[tuple[str, Mapping[int, bytes], StoredFile]]) -> None:
        """Merge page indexes into the stored ones, in one transaction; if that changes none, nothing is written.

        ``added`` has path, values of ``encode_indexes``, and the stored file. Those of files that were deleted or
        replaced since then are left out.
        """
        files = list(added)
        with self._exclusive_connection() as connection, self._short_busy_timeout():
            if not any(self._news(*each) for each in files):
                return
            with self._transaction("index_changes"):
                for path, values, version in files:
                    # Merged again, because another process may have written before the transaction.
                    news = self._news(path, values, version)
                    rows = [(index_key(path, ordinal), value) for ordinal, value in news.items()]
                    connection.executemany('INSERT OR REPLACE INTO "indexes" (key, value) VALUES (?, ?)', rows)

    def _news(self, path: str, added: Mapping[int, bytes], version: StoredFile) -> dict[int, bytes]:
        row = self._connection.execute('SELECT value FROM "files" WHERE key = ?', [path]).fetchone()
        if row is None or file_version_of(row[0]) != version.version:
            return {}
        stored = self.indexes(path, added, version)
        joined = {n: old.joined(Indexes.unpack(decode(added[n]).data)) for n, old in stored.items()}
        changed = {ordinal: each for ordinal, each in joined.items() if each != stored[ordinal]}
        return {n: value for n, value in added.items() if n not in stored} | encode_indexes(changed, version)

    @contextmanager
    def _short_busy_timeout(self) -> Iterator[None]:
        self._connection.execute(f"PRAGMA busy_timeout={int(1000 * _SHORT_BUSY_SECONDS)}")
        try:
            yield
        finally:
            self._connection.execute(f"PRAGMA busy_timeout={int(1000 * self._busy_seconds)}")

    def add_facts(self, facts: Iterable[tuple[str, StoredFile]]) -> None:
        """Store what searches found, in one transaction; a read-only store ignores it.

        This does not change the state of the store. Another process is waited for only briefly.
        """
        if self.read_only:
            return
        values = ((path, encode(stored)) for path, stored in facts)
        with self._exclusive_connection() as connection, self._short_busy_timeout(), self._transaction(None):
            connection.executemany(_PUT_FACTS, values)

    def _is_stored(self, path: str, value: bytes) -> bool:
        if not (before := self.undamaged("files", path)):
            return False
        stored = decode(value)
        return (before.version, before.data) == (stored.version, stored.data)

    def _delete_indexes(self, paths: Iterable[str]) -> None:
        bounds = [(f"{path}#", f"{path}$") for path in paths]  # "$" follows "#"
        self._connection.executemany('DELETE FROM "indexes" WHERE key > ? AND key < ?', bounds)

    def keys(self, table: str, containing: str = "") -> list[str]:
        return [*self.row_numbers(table, containing)]

    def count(self, table: str) -> int:
        with self._exclusive_connection() as connection:
            return int(connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])  # noqa: S608

    def index_keys(self, path: str) -> list[str]:
        """Return the keys, ``path#row_group``, of a file's page indexes."""
        with self._exclusive_connection() as connection:
            query = 'SELECT key FROM "indexes" WHERE key > ? AND key < ?'
            rows = connection.execute(query, [f"{path}#", f"{path}$"]).fetchall()  # "$" follows "#"
        return [key for (key,) in rows]

    def row_numbers(self, table: str, containing: str = "") -> dict[str, int]:
        """Return the keys that contain a text, ascending, with the numbers of their rows.

        SQLite numbers rows in the order of writes; a replaced row gets a new number. Where numbers may be used again,
        the store gets another identity; see ``state``.
        """
        query = f'SELECT key, rowid FROM "{table}" WHERE instr(key, ?) ORDER BY key'  # noqa: S608
        with self._exclusive_connection() as connection:
            return dict(connection.execute(query, [containing]).fetchall())

    def versions(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the digests of the values of files, by path."""
        query = "SELECT key, rowid, typeof(value) = 'blob' FROM \"files\""
        versions = {}
        with self._exclusive_connection() as connection, snapshot(connection):
            for path, row, is_blob in _rows_of(connection, query, paths):
                if not is_blob:
                    raise StoreDamaged(f"{self.path} is damaged; run: catalogue check --repair")
                # substr() would read the complete value.
                with connection.blobopen("files", "value", row, readonly=True) as value:
                    versions[path] = version_of(value.read(1 + DIGEST_SIZE))
        return versions

    def state(self) -> str:
        """Return a text that identifies this store and its last change, apart from page indexes."""
        return self.states()[0]

    def states(self) -> tuple[str, str]:
        """Return ``state``, and a text that identifies the last change of page indexes."""
        with self._exclusive_connection() as connection:
            *state, indexes = connection.execute("SELECT id, changes, index_changes FROM identity").fetchone()
        return ":".join(state), str(indexes)

    def problem(self) -> str | None:
        with self._exclusive_connection() as connection:
            texts = [str(text) for (text,) in connection.execute("PRAGMA quick_check(1)").fetchall()]
        return None if texts == ["ok"] else " ".join(" ".join(texts).split())[:300]

    def repair_keys(self) -> None:
        """Make the indexes again, and delete rows whose keys are not text."""
        with self._exclusive_connection() as connection, self._transaction(None):
            connection.execute("REINDEX")
            for table in TABLES:
                rows = connection.execute(f'SELECT rowid, typeof(key), CAST(key AS BLOB) FROM "{table}"')  # noqa: S608
                wrong = [(row,) for row, kind, key in rows.fetchall() if kind != "text" or not _is_text(key)]
                if wrong:
                    connection.executemany(f'DELETE FROM "{table}" WHERE rowid = ?', wrong)  # noqa: S608
            connection.execute("UPDATE identity SET id = ?", [secrets.token_hex(8)])

    def values(self, table: str) -> Iterator[tuple[str, bytes]]:
        with disk_errors(self.path):
            connection = open_to_read(self.path)[0]
            connection.text_factory = lambda text: text.decode(errors="replace")
        with closing(connection), disk_errors(self.path):
            yield from connection.execute(f'SELECT key, value FROM "{table}"')  # noqa: S608

    def size(self) -> int:
        return self.path.stat().st_size + self.log_size()

    def log_size(self) -> int:
        """Return the bytes of the write-ahead log, which grows during a transaction of another process."""
        with suppress(FileNotFoundError):
            return log_of(self.path).stat().st_size
        return 0

    def harvesting(self, crawl: str) -> AbstractContextManager[None]:
        if self.read_only:
            raise unwritable(self.path)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", crawl):  # part of a file name
            raise ValueError(f"{crawl!r} is not the name of a crawl")
        message = f"another process harvests {crawl} into {self.path}; wait for it, or choose another data folder"
        return exclusive_lock(self.path.with_name(f"{self.path.name}.{crawl}.lock"), message)

    def _transaction(self, counter: str | None) -> AbstractContextManager[None]:
        if self.read_only:
            raise unwritable(self.path)
        if not os.path.samestat(self._file, self.path.stat()):
            raise _moved(self.path)
        return transaction(self._connection, counter)


def _moved(path: Path) -> StoreError:
    return StoreError(f"{path} was moved, deleted or replaced after it was opened; open the catalogue again")


def _rows_of(connection: sqlite3.Connection, query: str, keys: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    remaining = iter(keys)
    while batch := [*islice(remaining, _AT_ONCE)]:
        yield from connection.execute(f"{query} WHERE key IN ({','.join('?' * len(batch))})", batch)


def _is_text(key: bytes) -> bool:
    try:
        return key.decode().isprintable()
    except UnicodeDecodeError:
        return False
