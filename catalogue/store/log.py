"""Whether SQLite's write-ahead log beside a store is that store's own.

SQLite takes whatever log lies there: a backup that was put in the store's place under the log of what was there before
becomes a mixture of both, and is one for good as soon as it is closed. But each transaction of a store counts itself in
its table ``identity``. So what the first transaction in a log counts to follows what the file itself says, and what the
last counts to is not behind that. The format is https://www.sqlite.org/fileformat2.html, sections 1 and 4.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from catalogue.errors import ForeignLog
from catalogue.store.records import record, varint
from catalogue.store.schema import read_only

_HEADER, _FRAME = 32, 24
"""Bytes: of the log's header, and before each page in it."""
_LEAF = 0x0D
"""A page of a table's rows."""
_TRIES = 5


class _Identity(NamedTuple):
    id: str
    changes: int
    index_changes: int


def log_of(path: Path) -> Path:
    """The write-ahead log of a store."""
    return path.with_name(path.name + "-wal")


def check_log(path: Path) -> None:
    """See that the log beside a store's file, if there is one, belongs to it.

    Raises:
        ForeignLog: if it surely does not.
    """
    for _ in range(_TRIES):
        try:
            log = log_of(path).open("rb", buffering=0)
        except FileNotFoundError:
            return
        with log:
            salts = _salts(log.fileno())
            if salts and not path.exists():  # SQLite would delete it, and a store that was moved may want it
                message = f"{log_of(path)} is the log of a store that is not there; put that back, or move the log away"
                raise ForeignLog(message)
            root = _root(path) if salts else None
            if not salts or root is None:
                return
            first = next(_identities(log.fileno(), salts, root), None)
            own = _own(path)
            last = max(_identities(log.fileno(), salts, root), key=lambda each: each[1:], default=None)
            if _salts(log.fileno()) != salts or not _is_at(log.fileno(), log_of(path)):
                continue  # others have begun it anew meanwhile, or the last of them has folded it in
        if own is None or first is None or last is None:
            return
        follows = first.changes + first.index_changes <= own.changes + own.index_changes + 1
        leads = own.changes <= last.changes and own.index_changes <= last.index_changes
        if own.id == first.id and follows and leads:
            return
        message = (
            f"{log_of(path)} is the log of another store, or of {path.name} at another time; put the file back that it "
            "goes with, or move the log away: what is in it alone is lost then"
        )
        raise ForeignLog(message)


def _is_at(log: int, path: Path) -> bool:
    """Whether an open file still has its name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(log), path.stat())
    return False


def _salts(log: int) -> bytes | None:
    """What tells the log from those before it; None if it has nothing in it."""
    header = os.pread(log, _HEADER, 0)
    return header[8:12] + header[16:24] if len(header) == _HEADER else None


def _query(path: Path, query: str) -> tuple[object, ...] | None:
    """A row of the file itself, without its log."""
    with closing(read_only(path, immutable=True)) as connection:
        try:
            row: tuple[object, ...] | None = connection.execute(query).fetchone()
        except sqlite3.DatabaseError:  # not made yet, or by an earlier version, or not ours: others say so
            return None
    return row


def _root(path: Path) -> int | None:
    """The page in which the identity is."""
    row = _query(path, "SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = 'identity'")
    return row[0] if row and isinstance(row[0], int) else None


def _own(path: Path) -> _Identity | None:
    row = _query(path, "SELECT id, changes, index_changes FROM identity")
    return _identity(row) if row else None


def _identity(row: tuple[object, ...]) -> _Identity | None:
    name, changes, index_changes = row
    if isinstance(name, str) and isinstance(changes, int) and isinstance(index_changes, int):
        return _Identity(name, changes, index_changes)
    return None


def _identities(log: int, salts: bytes, root: int) -> Iterator[_Identity]:
    """The identities in a log, as one transaction after the other wrote them."""
    size = int.from_bytes(salts[:4], "big")
    size = 1 << 16 if size == 1 else size
    at = _HEADER
    while len(frame := os.pread(log, _FRAME, at)) == _FRAME and frame[8:16] == salts[4:]:
        if int.from_bytes(frame[:4], "big") == root and (found := _parsed(os.pread(log, size, at + _FRAME))):
            yield found
        at += _FRAME + size


def _parsed(page: bytes) -> _Identity | None:
    """The one row in a page; None if that is something else."""
    try:
        if page[0] != _LEAF or int.from_bytes(page[3:5], "big") != 1:
            return None
        size, at = varint(page, int.from_bytes(page[8:10], "big"))
        _, at = varint(page, at)  # the number of the row
        return _identity(record(page[at : at + size]))
    except (IndexError, ValueError):
        return None
