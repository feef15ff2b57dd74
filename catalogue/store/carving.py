"""The pages of a SQLite file, one by one, without believing what leads from one to the other.

The format is https://www.sqlite.org/fileformat2.html; what is said here of page sizes and reserved bytes holds for
stores. What cannot be read is passed over.
"""

import mmap
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from catalogue.store.records import record, varint
from catalogue.store.schema import TABLES, read_only

_PAGE = 4096
"""Bytes of a page, unless the header says otherwise."""
_SIZES = {1 << power for power in range(9, 16)}
_MAGIC = b"SQLite format 3\0"
_WAL = b"\x02\x02"
_CONSTANT = {20: b"\x00\x40\x20\x20", 44: b"\x00\x00\x00\x04", 52: b"\x00\x00\x00\x00\x00\x00\x00\x01"}
"""By place, what the header of every store says: nothing reserved; schema format 4, no auto-vacuum, UTF-8."""
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER = 0x0D, 0x0A, 0x02
_LONGEST = 80 << 20
"""Bytes of a row; values are bounded by less."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of one of the tables of keys and values."""

    rowid: int
    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of an index, or a row of a table without row numbers, which is one."""

    values: tuple[object, ...]


def mended_head(head: bytes) -> bytes:
    """The header of a file, 100 bytes, with what that of every store has."""
    mended = bytearray(head)
    mended[:16] = _MAGIC
    if head[18:20] not in {b"\x01\x01", _WAL}:
        mended[18:20] = _WAL
    if int.from_bytes(head[16:18]) not in _SIZES:
        mended[16:18] = _PAGE.to_bytes(2)
    for place, constant in _CONSTANT.items():
        mended[place : place + len(constant)] = constant
    return bytes(mended)


class Pages:
    """A file, as pages that are numbered from 1."""

    def __init__(self, path: Path) -> None:
        """Open it; its header is as it should be, see ``mended_head``."""
        self.path = path
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = int.from_bytes(self._data[16:18])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._data.close()

    def __len__(self) -> int:
        return len(self._data) // self.size

    def __getitem__(self, number: int) -> bytes:
        if not 1 <= number <= len(self):
            raise IndexError(number)
        return self._data[(number - 1) * self.size : number * self.size]

    def free(self) -> set[int] | None:
        """Pages that hold nothing, but may hold what was deleted; None if the list of them is damaged."""
        trunk, count = (int.from_bytes(self._data[place : place + 4]) for place in (32, 36))
        found: set[int] = set()
        while trunk:
            if trunk in found or not 1 < trunk <= len(self):
                return None
            page = self[trunk]
            leaves = int.from_bytes(page[4:8])
            if leaves > self.size // 4 - 2:
                return None
            found |= {trunk, *(int.from_bytes(page[8 + 4 * n : 12 + 4 * n]) for n in range(leaves))}
            trunk = int.from_bytes(page[:4])
        return found if len(found) == count and all(1 < each <= len(self) for each in found) else None


def carve(pages: Pages) -> Iterator[TableRow | Entry]:
    """All rows and entries that can be read."""
    free = pages.free()
    if free is None:  # pages of what was deleted cannot be told from others; but then these may all be well
        if _finds_its_way(pages.path):
            yield from _by_sqlite(pages.path)
            return
        free = set()
    for number in range(1, len(pages) + 1):
        if number not in free:
            yield from _of_page(pages, number)


def _finds_its_way(path: Path) -> bool:
    """Whether SQLite can read all rows."""
    with suppress(sqlite3.Error, OverflowError, UnicodeDecodeError):
        return sum(1 for _ in _by_sqlite(path)) > 0
    return False


def _by_sqlite(path: Path) -> Iterator[TableRow | Entry]:
    """All rows as SQLite finds them."""
    with closing(read_only(path, immutable=True)) as connection:
        for table in TABLES:
            query = f'SELECT rowid, key, value FROM "{table}" NOT INDEXED'  # noqa: S608 - of TABLES
            for rowid, key, value in connection.execute(query):
                if isinstance(key, str) and isinstance(value, bytes):
                    yield TableRow(rowid, key, value)
                    yield Entry((key, rowid))


def _of_page(pages: Pages, number: int) -> Iterator[TableRow | Entry]:
    page = pages[number]
    start = 100 if number == 1 else 0
    kind = page[start]
    if kind not in {_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER}:
        return
    first = start + (12 if kind == _INDEX_INNER else 8)
    count = min(int.from_bytes(page[start + 3 : start + 5]), (pages.size - first) // 2)
    for at in range(first, first + 2 * count, 2):
        with suppress(IndexError, ValueError):
            yield from _cell(pages, page, int.from_bytes(page[at : at + 2]), kind)


def _cell(pages: Pages, page: bytes, at: int, kind: int) -> Iterator[TableRow | Entry]:
    """What a cell holds.

    Raises:
        IndexError: if it is damaged; or
        ValueError: likewise.
    """
    if kind == _INDEX_INNER:
        at += 4
    size, at = varint(page, at)
    rowid, at = varint(page, at) if kind == _TABLE_LEAF else (0, at)
    values = record(_payload(pages, page, at, size, of_table=kind == _TABLE_LEAF))
    match kind, values:
        case 0x0D, (str(key), bytes(value)):
            yield TableRow(rowid, key, value)
        case 0x0A | 0x02, _:
            yield Entry(values)


def _payload(pages: Pages, page: bytes, at: int, size: int, *, of_table: bool) -> bytes:
    """The bytes of a row, those among them that are on other pages."""
    if size > min(_LONGEST, len(pages) * pages.size):
        raise ValueError(size)
    least = (pages.size - 12) * 32 // 255 - 23
    most = pages.size - 35 if of_table else (pages.size - 12) * 64 // 255 - 23
    here = size
    if size > most:
        here = least + (size - least) % (pages.size - 4)
        here = here if here <= most else least
    parts, left = [page[at : at + here]], size - here
    following = int.from_bytes(page[at + here : at + here + 4])
    while left > 0:
        other = pages[following]
        parts.append(other[4 : 4 + left])
        left -= pages.size - 4
        following = int.from_bytes(other[:4])
    return b"".join(parts)
