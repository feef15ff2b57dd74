"""The store: one SQLite file of raw footers, in the layout of ``sqlitedict``.

Anybody can read it with ``SqliteDict(path, tablename="files", encode=encode, decode=decode, flag="r",
journal_mode="WAL")`` (without the last, sqlitedict changes the file even to read it). It is written here by transactions
(piskvorky/sqlitedict#108). One value holds the footer of one file and all that belongs to it, so that no crash can
separate them. A value starts with a byte that is no pickle and the digest of the rest: stores are passed between people,
and SQLite's own integrity check does not see a flipped bit in a value.
"""

import hashlib
import json
import secrets
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from catalogue.crawl import crawl_id
from catalogue.errors import DiskFailed, StoreDamaged, StoreError, StoreLocked

APPLICATION_ID = 0x43434154
"""``CCAT``, in the SQLite header, so that ``file`` and we know a store at sight."""
VERSION = 1
TABLES = ("files", "documents", "failures")
"""Footers by path; manifests and the list of crawls; reasons why a file could not be harvested."""

_TAG = b"\x01"
_DIGEST_SIZE = 16
_LARGEST_VALUE = 64 << 20
_BUSY_SECONDS = 30.0
_DISK_ERRORS = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of one file of the source."""

    data: bytes
    """The footer without length and magic; of a document, the whole of it; of a failure, nothing."""
    size: int
    """Bytes of the whole file at the source."""
    etag: str | None
    """As the source gave it, quotes included; None if it gave none."""
    last_modified: str | None
    source: str
    """Where it came from; an ETag means nothing to another source."""
    taken: str
    """When, ISO 8601, UTC."""
    note: str = ""
    """For a failure, the reason."""


def encode(held: Held) -> bytes:
    """A value as it stands in the store."""
    header = {name: value for name, value in asdict(held).items() if name != "data"}
    body = json.dumps([len(held.data), header]).encode() + b"\n" + zlib.compress(held.data)
    return _TAG + hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest() + body


def decode(value: bytes) -> Held:
    """Read a value of the store.

    Raises:
        StoreDamaged: if it is not what was written.
    """
    value = bytes(value)
    tag, digest, body = value[:1], value[1 : 1 + _DIGEST_SIZE], value[1 + _DIGEST_SIZE :]
    if tag != _TAG or hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest() != digest:
        message = "a value of the store is damaged: its digest is wrong"
        raise StoreDamaged(message)
    # The digest is no signature: the store may come from a stranger.
    try:
        header, _, data = body.partition(b"\n")
        length, fields = json.loads(header)
        if not 0 <= length <= _LARGEST_VALUE:
            message = f"a value of the store claims {length} bytes"
            raise StoreDamaged(message)
        held = Held(data=zlib.decompressobj().decompress(data, max(1, length)), **fields)
    except (ValueError, TypeError, zlib.error) as error:
        message = f"a value of the store is damaged: {error}"
        raise StoreDamaged(message) from error
    if len(held.data) != length:
        message = f"a value of the store holds {len(held.data)} bytes instead of {length}"
        raise StoreDamaged(message)
    return held


class Store:
    """The store's file, open. One connection, safe to use from many threads, not across a fork."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open a store, and with ``create`` make one where there is none.

        Raises:
            StoreError: if there is none, or the file is something else or of a newer version.
        """
        self.path = path
        self._mutex = threading.RLock()
        if not create and not path.exists():
            message = f"nothing is harvested in {path.parent} yet; run: catalogue harvest --crawl CC-MAIN-2022-05"
            raise StoreError(message)
        with _disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False
            )
        try:
            with _disk_errors(path):
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA trusted_schema=OFF")
        run("PRAGMA cell_size_check=ON")
        found = (run("PRAGMA application_id").fetchone()[0], run("PRAGMA user_version").fetchone()[0])
        if found == (0, 0) and not run("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            run("PRAGMA journal_mode=WAL")
            run("PRAGMA synchronous=FULL")
            with self._transaction():
                for table in TABLES:
                    run(f'CREATE TABLE "{table}" (key TEXT PRIMARY KEY, value BLOB)')
                run("CREATE TABLE identity (id TEXT, changes INTEGER)")
                run("INSERT INTO identity VALUES (?, 0)", [secrets.token_hex(8)])
                run(f"PRAGMA application_id={APPLICATION_ID}")
                run(f"PRAGMA user_version={VERSION}")
            return
        if found[0] != APPLICATION_ID:
            message = f"{self.path} is a SQLite file, but not a store of footers; choose another --data folder"
            raise StoreError(message)
        if found[1] != VERSION:
            message = f"{self.path} was written by a newer version of this tool (store version {found[1]}); upgrade it"
            raise StoreError(message)
        odd = run("SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view')").fetchone()
        if odd:
            message = f"{self.path} holds {odd[0]!r}, which no store has; it is not opened"
            raise StoreDamaged(message)
        run("PRAGMA synchronous=FULL")

    def get(self, table: str, key: str) -> Held | None:
        """The value of a key.

        Raises:
            StoreDamaged: if it is not what was written; the message names the key.
        """
        with self._mutex, _disk_errors(self.path):
            row = self._connection.execute(f'SELECT value FROM "{_known(table)}" WHERE key = ?', [key]).fetchone()  # noqa: S608
        if row is None:
            return None
        try:
            return decode(row[0])
        except StoreDamaged as error:
            message = f"{key} in {self.path}: {error}; run: catalogue harvest --refresh for its crawl"
            raise StoreDamaged(message) from error

    def put(self, table: str, items: Iterable[tuple[str, Held]]) -> None:
        """Write values in one transaction: all of them or, if it raises, none.

        A file that is written stops being a failure.
        """
        encoded = [(key, encode(held)) for key, held in items]
        with self._mutex, _disk_errors(self.path), self._transaction():
            run = self._connection.executemany
            run(f'INSERT OR REPLACE INTO "{_known(table)}" (key, value) VALUES (?, ?)', encoded)  # noqa: S608
            if table == "files":
                run('DELETE FROM "failures" WHERE key = ?', [(key,) for key, _ in encoded])

    def delete(self, table: str, keys: Iterable[str]) -> None:
        """Forget keys, in one transaction."""
        with self._mutex, _disk_errors(self.path), self._transaction():
            self._connection.executemany(f'DELETE FROM "{_known(table)}" WHERE key = ?', [(key,) for key in keys])  # noqa: S608

    def keys(self, table: str, containing: str = "") -> list[str]:
        """The keys that contain a text, ascending."""
        with self._mutex, _disk_errors(self.path):
            rows = self._connection.execute(
                f'SELECT key FROM "{_known(table)}" WHERE instr(key, ?) ORDER BY key',  # noqa: S608
                [containing],
            ).fetchall()
        return [key for (key,) in rows]

    def versions(self) -> dict[str, bytes]:
        """For every file its value's digest, which changes whenever anything about it does."""
        with self._mutex, _disk_errors(self.path):
            query = f'SELECT key, substr(value, 2, {_DIGEST_SIZE}) FROM "files"'  # noqa: S608
            return dict(self._connection.execute(query).fetchall())

    def state(self) -> str:
        """Names this store and the number of its changes: what was derived from it is fresh while this stays the same."""
        with self._mutex, _disk_errors(self.path):
            identity, changes = self._connection.execute("SELECT id, changes FROM identity").fetchone()
        return f"{identity}:{changes}"

    def size(self) -> int:
        """Bytes on disk, the write-ahead log among them."""
        files = [self.path, self.path.with_name(self.path.name + "-wal")]
        return sum(file.stat().st_size for file in files if file.exists())

    @contextmanager
    def harvesting(self, crawl: str) -> Iterator[None]:
        """Hold the right to harvest a crawl, which only one process at a time has.

        Raises:
            StoreLocked: if another process has it.
        """
        lock = FileLock(self.path.with_name(f"{self.path.name}.{crawl_id(crawl)}.lock"), timeout=0)
        try:
            with lock:
                yield
        except Timeout:
            message = f"another process harvests {crawl} into {self.path}; wait for it, or choose another --data folder"
            raise StoreLocked(message) from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("UPDATE identity SET changes = changes + 1")
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def _known(table: str) -> str:
    if table not in TABLES:
        raise KeyError(table)
    return table


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            message = f"{path} is locked by another process; try again when that is done"
            raise StoreLocked(message) from error
        if isinstance(error, OSError) or name.startswith(_DISK_ERRORS):
            message = f"{path} cannot be written or read: {error}; what was committed before is kept"
            raise DiskFailed(message) from error
        message = f"{path} is not a usable store: {error}"
        raise StoreDamaged(message) from error
