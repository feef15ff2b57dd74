"""The file of a store: its tables, keys and values; creation, checks, and reading where files cannot be written.

A value starts with a byte that no pickle starts with, since users exchange stores, and a digest of the rest, since
SQLite's check does not detect a flipped bit in a value.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeAlias, get_type_hints

from catalogue.atomic_files import room
from catalogue.commoncrawl.gzip_members import fast_zlib
from catalogue.errors import CatalogueError, DiskFailed, StoreDamaged, StoreError, StoreLocked
from catalogue.formatting import in_utc
from catalogue.settings import limits
from catalogue.source.byte_ranges import FileVersion
from catalogue.store.locks import exclusive_lock

APPLICATION_ID = 0x43434154
"""This is ``CCAT``, in the SQLite header."""
VERSION = 5
TABLES = ("files", "documents", "failures", "indexes", "facts")
"""Footers by path; manifests and the list of crawls by name; reasons of failures by path; packed page indexes by
``index_key``; and what searches of lists of blocks found.
"""

_INDEX_KEY = re.compile(r"(.+)#(0|[1-9][0-9]{0,5})")

_LAYOUT = {
    **{table: f'CREATE TABLE "{table}" (key TEXT PRIMARY KEY, value BLOB)' for table in TABLES},
    "identity": "CREATE TABLE identity (id TEXT, changes TEXT, index_changes TEXT)",
}
COUNTERS = {"files": "changes", "documents": "changes", "failures": "changes", "indexes": "index_changes"}
"""The column of ``identity`` that changes with a table, to a random text."""
_LOG_LIMIT = 16 << 20
"""Bytes of the write-ahead log that stay on disk after a checkpoint."""
_NOT_WRITABLE_NAMES = ("SQLITE_READONLY", "SQLITE_CANTOPEN")
_NOT_WRITABLE_CODES = (errno.EACCES, errno.EROFS)
_DISK_ERRORS = ("SQLITE_FULL", "SQLITE_IOERR", *_NOT_WRITABLE_NAMES)
_WAL_VERSIONS = b"\x02\x02"
"""Versions in the header of a file in WAL mode."""
Footprint: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Sizes and times that change with the store's files."""

_INVALID: tuple[type[Exception], ...] = (ValueError, TypeError, RecursionError, fast_zlib.error)
"""Errors of values that are no JSON or no compressed bytes."""

DIGEST_SIZE = 16
"""Bytes of the digest, after the first byte."""

_TAG = b"\x01"
_LEVEL = 1
"""Footers take 9 % more bytes than at level 6 of zlib, and 8 % of its time with ISA-L, 40 % without."""
_MAX_VALUE = 64 << 20
"""Bytes of a value, unless the setting of footers accepts longer ones."""


def index_key(path: str, row_group: int) -> str:
    return f"{path}#{row_group}"


def row_group_of(key: str) -> tuple[str, int] | None:
    """Return path and row group of a page index key; None if it is not one."""
    named = _INDEX_KEY.fullmatch(key)
    return (named[1], int(named[2])) if named else None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Bytes of one file of the source."""

    data: bytes
    """A footer without length and magic, a document, or nothing for a failure."""
    size: int
    etag: str | None
    """The source's header, with quotes."""
    last_modified: str | None
    source: str
    """Its address; ETags of different sources cannot be compared."""
    taken: str
    """Time of the request: ISO 8601, UTC."""
    note: str = ""

    @property
    def version(self) -> FileVersion:
        return FileVersion(self.size, self.etag, self.source)

    @property
    def fetched_at(self) -> datetime:
        """Return the time of the request, in UTC.

        Raises:
            StoreDamaged: if ``taken`` is not a time.
        """
        try:
            return in_utc(datetime.fromisoformat(self.taken))
        except (ValueError, OverflowError) as error:
            raise StoreDamaged(f"a value of the store is damaged: invalid time {self.taken[:50]!r}") from error


def marker(note: str = "", *, data: bytes = b"", source: str = "") -> StoredFile:
    """Return a value that is not a file of the source: a failure, a definition or a mark."""
    return StoredFile(data, len(data), None, None, source, datetime.now(UTC).isoformat(timespec="seconds"), note)


_FIELD_TYPES = get_type_hints(StoredFile)


def encode(stored: StoredFile) -> bytes:
    header = {name: getattr(stored, name) for name in stored.__slots__ if name != "data"}
    compressed: bytes = fast_zlib.compress(stored.data, _LEVEL)
    body = json.dumps([len(stored.data), header]).encode() + b"\n" + compressed
    return _TAG + hashlib.blake2b(body, digest_size=DIGEST_SIZE).digest() + body


def version_of(value: bytes) -> bytes:
    """Return the digest of a value, which identifies it, without verifying it."""
    return value[1 : 1 + DIGEST_SIZE]


def has_valid_digest(value: bytes) -> bool:
    digest = hashlib.blake2b(memoryview(value)[1 + DIGEST_SIZE :], digest_size=DIGEST_SIZE).digest()
    return value.startswith(_TAG + digest)


def file_version_of(value: object) -> FileVersion | None:
    """Return ``StoredFile.version`` of a value without decompressing it; None if it is damaged."""
    if not isinstance(value, bytes) or not has_valid_digest(value):
        return None
    try:
        _, fields = json.loads(value[1 + DIGEST_SIZE : value.index(b"\n", 1 + DIGEST_SIZE)])
        return FileVersion(fields["size"], fields["etag"], fields["source"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def decode(value: object) -> StoredFile:
    """Decode a value.

    Raises:
        StoreDamaged: if it is damaged.
    """
    if not isinstance(value, bytes):
        raise StoreDamaged(f"a value of the store is damaged: {type(value).__name__} instead of bytes")
    if not has_valid_digest(value):
        raise StoreDamaged("a value of the store is damaged: its digest is wrong")
    # A valid digest is not a signature: the value may be crafted.
    try:
        end = value.index(b"\n", 1 + DIGEST_SIZE)
        length, fields = json.loads(value[1 + DIGEST_SIZE : end])
        data = memoryview(value)[end + 1 :]
        if not 0 <= length <= max(_MAX_VALUE, limits().max_footer):
            raise StoreDamaged(f"a value of the store claims {length} bytes")
        stored = StoredFile(data=fast_zlib.decompressobj().decompress(data, max(1, length)), **fields)
    except _INVALID as error:
        raise StoreDamaged(f"a value of the store is damaged: {str(error)[:200]!r}") from error
    for name, kind in _FIELD_TYPES.items():
        if not isinstance(found := getattr(stored, name), kind):
            raise StoreDamaged(f"a value of the store is damaged: {name} is {repr(found)[:200]}")
    if len(stored.data) != length:
        raise StoreDamaged(f"a value of the store has {len(stored.data)} bytes instead of {length}")
    return stored


def prepare(connection: sqlite3.Connection, path: Path, busy_seconds: float) -> None:
    """Create the tables of an empty file, or check existing ones.

    Raises:
        StoreError: if it is another file or of a newer version.
        StoreDamaged: if the version or the layout is invalid.
    """
    run = connection.execute
    run("PRAGMA trusted_schema=OFF")
    run("PRAGMA cell_size_check=ON")
    if number(connection, "PRAGMA application_id") != APPLICATION_ID and _is_empty(connection):
        _create(connection, path, busy_seconds)
    if number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise StoreError(f"{path} is a SQLite file, but not a store of footers; choose another data folder")
    version = number(connection, "PRAGMA user_version")
    if version > VERSION:
        raise StoreError(f"{path} was written by a newer version of this tool (store version {version}); upgrade it")
    if version < VERSION:  # that of the first release
        raise StoreDamaged(f"{path} is damaged: it claims to be of version {version}; run: catalogue check --repair")
    for kind, table, layout in run("SELECT type, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL"):
        if kind in {"trigger", "view"} or _LAYOUT.get(table, layout) != layout:  # a crafted file may have them
            raise StoreDamaged(f"{path} has a {kind} {table!r} that is not part of a store; it is not opened")
    if number(connection, "SELECT count(*) FROM identity") != 1:
        raise StoreDamaged(f"{path} has no identity; it is not opened")
    run("PRAGMA synchronous=FULL")
    run(f"PRAGMA journal_size_limit={_LOG_LIMIT}")
    with suppress(sqlite3.OperationalError):  # sqlitedict may have set another; fails if read-only
        run("PRAGMA journal_mode=WAL")


def number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


def _is_empty(connection: sqlite3.Connection) -> bool:
    return number(connection, "PRAGMA application_id") == number(connection, "SELECT count(*) FROM sqlite_schema") == 0


def _create(connection: sqlite3.Connection, path: Path, busy_seconds: float) -> None:
    run, message = connection.execute, f"another process is creating {path}; try again when it is done"
    with exclusive_lock(path.with_name(f"{path.name}.lock"), message, seconds=busy_seconds):
        if not _is_empty(connection):  # another process was faster
            return
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        with transaction(connection):
            for layout in _LAYOUT.values():
                run(layout)
            run("INSERT INTO identity VALUES (?, '', '')", [secrets.token_hex(8)])
            run(f"PRAGMA application_id={APPLICATION_ID}")
            run(f"PRAGMA user_version={VERSION}")


def read_only(path: Path, *, immutable: bool = False, vfs: str = "") -> sqlite3.Connection:
    """Open a read-only connection; ``immutable`` tells SQLite that no process changes the file."""
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}{vfs and f'&vfs={vfs}'}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


@contextmanager
def transaction(connection: sqlite3.Connection, counter: str | None = None) -> Iterator[None]:
    """Commit all statements or none; ``counter`` is the column of ``identity`` to change."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        last = _last_rows(connection) if counter else []
        yield
        if counter:
            connection.execute(f"UPDATE identity SET {counter} = ?", [secrets.token_hex(8)])  # noqa: S608 - of COUNTERS
            if any(new < old for new, old in zip(_last_rows(connection), last, strict=True)):
                # SQLite may reuse numbers of deleted rows, which breaks the order; see Store.row_numbers.
                connection.execute("UPDATE identity SET id = ?", [secrets.token_hex(8)])
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read one state in several statements, which also saves locks."""
    begins = not connection.in_transaction
    if begins:
        connection.execute("BEGIN")
    try:
        yield
    finally:
        if begins and connection.in_transaction:
            connection.execute("ROLLBACK")


def _last_rows(connection: sqlite3.Connection) -> list[int]:
    return [number(connection, f'SELECT coalesce(max(rowid), 0) FROM "{table}"') for table in COUNTERS]  # noqa: S608


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and the disk to ``StoreError``."""
    try:
        yield
    except CatalogueError:  # some are OSErrors, too, and need no conversion
        raise
    except (sqlite3.Error, OSError, UnicodeDecodeError, OverflowError) as error:  # the last two: damaged texts
        name = getattr(error, "sqlite_errorname", "")
        if isinstance(error, sqlite3.ProgrammingError) and not name:  # raised by Python, as for a closed connection
            raise StoreError(f"{path} was closed ({error}); open the catalogue again") from error
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreLocked(f"{path} is locked by another process; try again when it is done") from error
        if isinstance(error, OSError) or name.startswith(_DISK_ERRORS):
            not_writable = name.startswith(_NOT_WRITABLE_NAMES) or getattr(error, "errno", None) in _NOT_WRITABLE_CODES
            hint = "its folder must be writable; " if not_writable else ""
            reason = f"{error}{room(path, error)}"
            raise DiskFailed(f"{path} cannot be written or read: {reason}; {hint}committed data is not lost") from error
        raise StoreDamaged(f"{path} is not a usable store: {error}; run: catalogue check --repair") from error


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def is_writable(path: Path) -> bool:
    """Return whether a file, which need not exist, and files next to it can be written."""
    allows = partial(os.access, mode=os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    if path.exists():
        return allows(path.parent) and allows(path)
    return allows(next(parent for parent in path.absolute().parents if parent.exists()))


def unwritable(path: Path) -> DiskFailed:
    return DiskFailed(
        f"{path.parent} cannot be written to, only read; choose another data folder, or run this as its owner"
    )


def open_to_read(path: Path) -> tuple[sqlite3.Connection, Footprint | None]:
    """Open a read-only connection without creating files; SQLite normally creates ``-wal`` and ``-shm`` even to read.

    Returns:
        The connection, and the footprint for which it is valid; None if SQLite itself detects changes.
    """
    if is_writable(path):
        return read_only(path), None
    log, footprint = log_of(path), footprint_of(path)
    with path.open("rb") as file:
        has_log = file.read(20)[18:] == _WAL_VERSIONS
    if not has_log or (log.exists() and path.with_name(f"{path.name}-shm").exists()):
        return read_only(path), None
    if log.exists() and log.stat().st_size:  # left by a killed process; without locks, its index is in memory
        connection = read_only(path, vfs="unix-none")
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        return connection, footprint
    return read_only(path, immutable=True), footprint


def footprint_of(path: Path) -> Footprint:
    return tuple(_stat(file) for file in (path, log_of(path)))


def _stat(path: Path) -> tuple[int, int, int] | None:
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None
