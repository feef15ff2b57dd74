"""A damaged store's file → a new one of all that is still whole in it, which takes its place.

SQLite finds rows by way of pages that lead to others; where one of these is damaged it finds none of hundreds that are
whole. So pages are gone through one by one, see ``catalogue.store.carving``. A row is taken if its value has the digest
that was written with it, and, as no digest tells of keys, its key stands in an index with the same number.
"""

import os
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from catalogue.atomic_files import create, put_in_place, temporary_folder
from catalogue.errors import StoreLocked
from catalogue.store.carving import Entry, Pages, TableRow, carve, mended_head
from catalogue.store.locks import nobody_harvesting
from catalogue.store.log import log_of
from catalogue.store.schema import COUNTERS, TABLES, disk_errors, prepare, row_group_of, transaction
from catalogue.store.stored_file import label_of, version_of

_FACTS = re.compile(r"[0-9]+:[0-9a-f]{32}")
_LEFT = ("-wal", "-shm", "-journal")
"""What SQLite may leave beside a file."""


@dataclass(slots=True)
class Salvaged:
    """What came of it."""

    aside: Path
    """What the old file is called now."""
    rows: Counter[str] = field(default_factory=Counter)
    """How many were whole, by table."""
    lost: set[str] = field(default_factory=set)
    """Keys that were there, of which no table has a whole value any more."""


def salvage(path: Path, is_file: Callable[[str], bool], known: Collection[str]) -> Salvaged:
    """Put a new store of what is whole in a damaged one in its place; the old one is kept under another name.

    Killed at any time, either is whole in its place.

    Args:
        path: of the damaged one.
        is_file: whether a key is that of a footer.
        known: keys of which it is known that they were there.

    Raises:
        DiskFailed: if the new one cannot be written.
        StoreLocked: if another process harvests, or has it open.
    """
    making = temporary_folder(path.with_name(f"{path.name}.new"))
    with nobody_harvesting(path), disk_errors(path), making as folder:
        new, copy = folder / path.name, folder / "copy"
        _fold(path)
        before = _state(path)
        _copy(path, copy)
        carved = _Carved(copy, is_file, frozenset(known))
        salvaged = Salvaged(_aside(path))
        _fill(new, carved.rows(), salvaged)
        salvaged.lost = carved.lost
        if _state(path) != before:
            message = f"another process wrote to {path} meanwhile; nothing was changed, run: catalogue repair"
            raise StoreLocked(message)
        _swap(new, path, salvaged.aside)
    return salvaged


def _fold(path: Path) -> None:
    """Have SQLite bring what was committed last into the file itself.

    Raises:
        StoreLocked: if another process has it open, which would go on writing beside its successor.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=1.0)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
            raise
        return  # then it is no more than a file
    if log_of(path).exists():  # whoever closes it last deletes that
        message = f"another process has {path} open; close it there, and run: catalogue repair"
        raise StoreLocked(message)


def _copy(path: Path, copy: Path) -> None:
    """A copy whose header says what that of every store says, and which has what was committed last."""
    shutil.copyfile(path, copy)
    with copy.open("rb+") as file:
        head = mended_head(file.read(100))
        file.seek(0)
        file.write(head)
    if log_of(path).exists():
        shutil.copyfile(log_of(path), log_of(copy))
        with (
            suppress(sqlite3.Error, UnicodeDecodeError),
            closing(sqlite3.connect(copy, isolation_level=None)) as connection,
        ):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class _Carved:
    """The rows of a damaged file that can be believed."""

    def __init__(self, path: Path, is_file: Callable[[str], bool], known: Collection[str]) -> None:
        self._path = path
        self._is_file = is_file
        indexed: set[tuple[str, int]] = set()
        touched: set[tuple[str, str]] = set()
        claims: dict[tuple[str, str], dict[int, bytes]] = {}
        for found in self._found():
            match found:
                case TableRow(rowid, key, value):
                    claims.setdefault((self._table(found), key), {})[rowid] = version_of(value)
                case Entry((str(key), int(rowid))):
                    indexed.add((key, rowid))
                case Entry((str(kind), str(key), int())) if kind in COUNTERS:
                    touched.add((kind, key))
        self._believed: dict[tuple[str, str], int] = {}
        for (table, key), versions in claims.items():
            sure = {rowid: version for rowid, version in versions.items() if (key, rowid) in indexed}
            if not sure and (key in known or (table, key) in touched):
                sure = versions
            if table and len({*sure.values()}) == 1:  # of two that were there at different times nobody knows the last
                self._believed[table, key] = next(iter(sure))
        there = {table: {key for each, key in self._believed if each == table} for table in TABLES}
        of_files = {key for key in {key for key, _ in indexed} | set(known) if is_file(key)}
        rest = {key for key, _ in indexed if not is_file(key)}
        self.lost = (of_files - there["files"] - there["failures"]) | rest.difference(*there.values())

    def rows(self) -> Iterator[tuple[str, str, bytes]]:
        """Table, key and value of each."""
        left = dict(self._believed)
        for found in self._found():
            if isinstance(found, TableRow):
                place = self._table(found), found.key
                if left.get(place) == found.rowid:
                    del left[place]
                    yield *place, found.value

    def _found(self) -> Iterator[TableRow | Entry]:
        with Pages(self._path) as pages:
            yield from carve(pages)

    def _table(self, row: TableRow) -> str:
        """In which table a row belongs; none for one that is damaged."""
        label = label_of(row.value)
        if label is None or not row.key.isprintable():
            return ""
        if label.length and _FACTS.fullmatch(label.note):
            return "facts"
        if label.note:
            return "failures"
        if row_group_of(row.key):
            return "indexes"
        return "files" if self._is_file(row.key) else "documents"


def _fill(new: Path, rows: Iterator[tuple[str, str, bytes]], salvaged: Salvaged) -> None:
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        prepare(connection, new, busy_seconds=0.0)
        with transaction(connection):
            for table, key, value in rows:
                connection.execute(f'INSERT INTO "{table}" VALUES (?, ?)', [key, value])  # noqa: S608 - of TABLES
                if table in COUNTERS:
                    connection.execute("INSERT INTO touched VALUES (?, ?, 0)", [table, key])
                salvaged.rows[table] += 1


def _swap(new: Path, path: Path, aside: Path) -> None:
    """Put the new file in the old one's place, which has another name beside it first."""
    try:
        os.link(path, aside)
    except OSError:  # not every file system knows how
        with path.open("rb") as old, create(aside) as kept:
            shutil.copyfileobj(old, kept)
    for suffix in _LEFT:  # SQLite would take it for the new file's
        left = path.with_name(path.name + suffix)
        if left.exists():
            left.replace(aside.with_name(aside.name + suffix))
    put_in_place(new, path)


def _state(path: Path) -> list[tuple[str, int, int]]:
    """What changes when somebody writes to it."""
    files = (path, log_of(path))
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]


def _aside(path: Path) -> Path:
    stem = f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    names = (path.with_name(stem + (f"-{n}" if n else "")) for n in range(1000))
    return next(name for name in names if not name.exists())
