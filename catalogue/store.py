"""The store: one SQLite file of raw footers, in the layout of ``sqlitedict``.

Anybody can read it with ``SqliteDict(path, tablename="files", encode=encode, decode=decode, flag="r",
journal_mode="WAL")`` (without the last, sqlitedict changes the file even to read it). It is written here by
transactions (piskvorky/sqlitedict#108). One value holds the footer of one file and all that belongs to it, so that no
crash can separate them. A value starts with a byte that is no pickle and the digest of the rest: stores are passed
between people, and SQLite's own integrity check does not see a flipped bit in a value.
"""

import hashlib
import json
import os
import secrets
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self, get_type_hints

from filelock import FileLock, Timeout

from catalogue.crawl import crawl_id
from catalogue.errors import DiskFailed, NotHarvested, StoreDamaged, StoreError, StoreLocked

APPLICATION_ID = 0x43434154
"""``CCAT``, in the SQLite header, so that ``file`` and we know a store at sight."""
VERSION = 1
TABLES = ("files", "documents", "failures")
"""Footers by path; manifests and the list of crawls; reasons why a file could not be harvested."""

_LAYOUT = {
    **{table: f'CREATE TABLE "{table}" (key TEXT PRIMARY KEY, value BLOB)' for table in TABLES},
    "identity": "CREATE TABLE identity (id TEXT, changes INTEGER)",
}
_TAG = b"\x01"
_DIGEST_SIZE = 16
_LARGEST_VALUE = 64 << 20
_CLOSED_FOLDER = ("SQLITE_READONLY", "SQLITE_CANTOPEN")
_DISK_ERRORS = ("SQLITE_FULL", "SQLITE_IOERR", *_CLOSED_FOLDER)


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


_HELD_TYPES = get_type_hints(Held)


def encode(held: Held) -> bytes:
    """A value as it stands in the store."""
    header = {name: value for name, value in asdict(held).items() if name != "data"}
    body = json.dumps([len(held.data), header]).encode() + b"\n" + zlib.compress(held.data)
    return _TAG + hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest() + body


def decode(value: object) -> Held:
    """Read a value of the store.

    Raises:
        StoreDamaged: if it is not what was written.
    """
    if not isinstance(value, bytes):
        message = f"a value of the store is damaged: {type(value).__name__} instead of bytes"
        raise StoreDamaged(message)
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
    except (ValueError, TypeError, RecursionError, zlib.error) as error:
        message = f"a value of the store is damaged: {error}"
        raise StoreDamaged(message) from error
    if wrong := [name for name, kind in _HELD_TYPES.items() if not isinstance(getattr(held, name), kind)]:
        message = f"a value of the store is damaged: {wrong[0]} is {getattr(held, wrong[0])!r}"
        raise StoreDamaged(message)
    if len(held.data) != length:
        message = f"a value of the store holds {len(held.data)} bytes instead of {length}"
        raise StoreDamaged(message)
    return held


class Store:
    """The store's file, open. One connection, safe to use from many threads, and refused after a fork."""

    def __init__(self, path: Path, *, create: bool = False, busy_seconds: float = 30.0) -> None:
        """Open a store, and with ``create`` make one where there is none.

        Args:
            path: of the file; its folder must be one that can be written to, even to read.
            create: make the file, and its folder, if need be.
            busy_seconds: how long to wait for another process that is writing.

        Raises:
            NotHarvested: if there is none.
            StoreError: if the file is something else or of a newer version.
        """
        self.path = path
        self._busy_seconds = busy_seconds
        self._process = os.getpid()
        self._mutex = threading.RLock()
        if not create and not path.exists():
            message = f"nothing is harvested in {path.parent} yet; run: catalogue harvest --crawl CC-MAIN-2022-05"
            raise NotHarvested(message)
        with _disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, isolation_level=None, timeout=busy_seconds, check_same_thread=False
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
        if self._process == os.getpid():
            self._connection.close()

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time."""
        if self._process != os.getpid():  # a connection carried across a fork can damage the file
            message = f"{self.path} was opened by another process; open it again in this one"
            raise StoreError(message)
        with self._mutex, _disk_errors(self.path):
            yield self._connection

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA trusted_schema=OFF")
        run("PRAGMA cell_size_check=ON")
        if self._is_empty():
            self._create()
        if self._number("PRAGMA application_id") != APPLICATION_ID:
            message = f"{self.path} is a SQLite file, but not a store of footers; choose another --data folder"
            raise StoreError(message)
        version = self._number("PRAGMA user_version")
        if version != VERSION:
            message = f"{self.path} was written by a newer version of this tool (store version {version}); upgrade it"
            raise StoreError(message)
        self._check_layout()
        run("PRAGMA synchronous=FULL")
        with suppress(sqlite3.OperationalError):  # sqlitedict may have left another; what cannot be written can be read
            run("PRAGMA journal_mode=WAL")

    def _number(self, query: str) -> int:
        return int(self._connection.execute(query).fetchone()[0])

    def _is_empty(self) -> bool:
        return self._number("PRAGMA application_id") == self._number("SELECT count(*) FROM sqlite_schema") == 0

    def _create(self) -> None:
        run = self._connection.execute
        try:
            # Two processes may find that there is none.
            with FileLock(f"{self.path}.lock", timeout=self._busy_seconds):
                if not self._is_empty():
                    return
                run("PRAGMA journal_mode=WAL")
                run("PRAGMA synchronous=FULL")
                with self._transaction():
                    for layout in _LAYOUT.values():
                        run(layout)
                    run("INSERT INTO identity VALUES (?, 0)", [secrets.token_hex(8)])
                    run(f"PRAGMA application_id={APPLICATION_ID}")
                    run(f"PRAGMA user_version={VERSION}")
        except Timeout:
            message = f"another process is making {self.path}; try again when that is done"
            raise StoreLocked(message) from None

    def _check_layout(self) -> None:
        """Refuse what a stranger may have added: a trigger, a view, or a table that is not quite ours."""
        run = self._connection.execute
        for kind, table, layout in run("SELECT type, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL"):
            if kind in {"trigger", "view"} or _LAYOUT.get(table, layout) != layout:
                message = f"{self.path} holds a {kind} {table!r} that no store has; it is not opened"
                raise StoreDamaged(message)
        if self._number("SELECT count(*) FROM identity") != 1:
            message = f"{self.path} lacks its identity; it is not opened"
            raise StoreDamaged(message)

    def get(self, table: str, key: str) -> Held | None:
        """The value of a key.

        Raises:
            StoreDamaged: if it is not what was written; the message names the key.
        """
        with self._using() as connection:
            row = connection.execute(f'SELECT value FROM "{_known(table)}" WHERE key = ?', [key]).fetchone()  # noqa: S608
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
        if not all(isinstance(key, str) for key, _ in encoded):  # SQLite would take a null, and never find it again
            message = "a key of the store is text"
            raise TypeError(message)
        with self._using() as connection, self._transaction():
            run = connection.executemany
            run(f'INSERT OR REPLACE INTO "{_known(table)}" (key, value) VALUES (?, ?)', encoded)  # noqa: S608
            if table == "files":
                run('DELETE FROM "failures" WHERE key = ?', [(key,) for key, _ in encoded])

    def delete(self, table: str, keys: Iterable[str]) -> None:
        """Forget keys, in one transaction."""
        with self._using() as connection, self._transaction():
            connection.executemany(f'DELETE FROM "{_known(table)}" WHERE key = ?', [(key,) for key in keys])  # noqa: S608

    def keys(self, table: str, containing: str = "") -> list[str]:
        """The keys that contain a text, ascending."""
        with self._using() as connection:
            rows = connection.execute(
                f'SELECT key FROM "{_known(table)}" WHERE instr(key, ?) ORDER BY key',  # noqa: S608
                [containing],
            ).fetchall()
        return [key for (key,) in rows]

    def versions(self) -> dict[str, bytes]:
        """For every file its value's digest, which changes whenever anything about it does."""
        with self._using() as connection:
            query = f'SELECT key, substr(value, 2, {_DIGEST_SIZE}) FROM "files"'  # noqa: S608
            versions = dict(connection.execute(query).fetchall())
        if not all(isinstance(key, str) and isinstance(value, bytes) for key, value in versions.items()):
            message = f"{self.path} is damaged; move it away and harvest again"
            raise StoreDamaged(message)
        return versions

    def state(self) -> str:
        """Names this store and its number of changes: what is derived from it is fresh while this stays the same."""
        with self._using() as connection:
            identity, changes = connection.execute("SELECT id, changes FROM identity").fetchone()
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
        lock = FileLock(f"{self.path}.{crawl_id(crawl)}.lock")
        with _disk_errors(self.path):
            try:
                lock.acquire(timeout=0)
            except Timeout:
                message = (
                    f"another process harvests {crawl} into {self.path}; wait for it, or choose another --data folder"
                )
                raise StoreLocked(message) from None
        try:
            yield
        finally:
            lock.release()

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
            hint = "its folder must be one that can be written to; " if name.startswith(_CLOSED_FOLDER) else ""
            message = f"{path} cannot be written or read: {error}; {hint}what was committed before is kept"
            raise DiskFailed(message) from error
        message = f"{path} is not a usable store: {error}; move it away and harvest again"
        raise StoreDamaged(message) from error
