"""The bounds of all row groups in a mapped file, in which a query finds its row groups by bisection.

Each crawl and subset has a part: a table of its files and one of its row groups, sorted by least key, column by column.
Numbers take 8 bytes each; texts are an array of where each ends, 4 bytes each, and then all of them. A header in JSON
has what a plan needs besides. Header and parts have digests, since wrong bounds would hide rows. The file is derived
from the metadata database, like which it can be deleted. It needs no Arrow, which a harvest does not import.
"""

import json
import mmap
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

from catalogue.errors import DiskFailed
from catalogue.surt import KeyInterval, overlap

Pair: TypeAlias = tuple[str, str]
"""A crawl and a subset."""
Rows: TypeAlias = Sequence[tuple[Any, ...]]

_MAGIC = b"CATBND3\n"
_DIGEST_SIZE = 16
_LENGTH_SIZE = 8
_ALIGNMENT = 8
"""Of parts and columns."""
_NUMBER: Final = "q"
_END: Final = "i"
"""Formats of ``array``."""
_NULL = -1 << 63
"""Instead of a number that is unknown."""
_MANY = 64
"""Intervals from which on keys are converted once instead of one by one."""

_FILES = {"path": str, "version": bytes, "footer_rest": int, "file_least": str, "columns": int}
_ROW_GROUPS = {
    "file": int,
    "row_group": int,
    "footer_offset": int,
    "num_rows": int,
    "first_fetch": int,
    "last_fetch": int,
    "signed": int,
    "min_key": bytes,
    "max_key": bytes,
}
_REACHED = {"reached": bytes}
"""The greatest key so far, if it is not always the row's own."""


def bounds_path(database: Path) -> Path:
    """Return the path of the bounds that belong to a database."""
    return database.with_suffix(".bounds")


class RowGroupPlace(NamedTuple):
    """A row group that may match."""

    path: str
    version: bytes
    """Digest of the file's value in the store."""
    footer_rest: int | None
    """See ``Footer.rest``."""
    file_least: str
    """A lower bound of the keys in the file, from its footer."""
    columns: int
    """Number of the combination of columns; see ``BoundsFile.columns``."""
    row_group: int
    footer_offset: int
    num_rows: int
    first_fetch: int | None
    """In milliseconds; None if the footer does not say."""
    last_fetch: int | None


class _Texts(Sequence[bytes]):
    """A column of texts, which are copied when they are needed."""

    def __init__(self, ends: memoryview, data: memoryview) -> None:
        self._ends, self._data = ends, data

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - a number here; slices are part of the protocol
        return bytes(self._data[self._ends[row - 1] if row else 0 : self._ends[row]])


class BoundsPart:
    """The row groups of one crawl and subset; those without bounds first, the others by least key."""

    def __init__(self, content: memoryview, files: int, row_groups: int, unbounded: int, *, reached: bool) -> None:
        """Use the bytes of a part.

        Args:
            content: the bytes.
            files: rows of the table of files.
            row_groups: rows of the table of row groups, whose ``file`` is the number of a row of the other.
            unbounded: row groups without bounds.
            reached: whether the second table has a column of the greatest key so far.
        """
        self._files, rest = _columns(content, _FILES, files)
        self._groups, _ = _columns(rest, {**_ROW_GROUPS, **(_REACHED if reached else {})}, row_groups)
        self.unbounded = unbounded
        """Number of row groups without bounds."""

    def matching(self, intervals: Sequence[KeyInterval]) -> list[int]:
        """Return the numbers of the rows whose keys may be in one of the ascending, disjoint intervals, ascending."""
        least, greatest, reached = self._keys if len(intervals) < _MANY else self._as_lists
        found = {*range(self.unbounded)}
        if len(intervals) > len(least):
            found.update(
                row for row in range(self.unbounded, len(least)) if overlap(intervals, least[row], greatest[row])
            )
        else:
            for interval in intervals:
                end = bisect_left(least, interval.end, self.unbounded)
                start = bisect_left(reached, interval.start, self.unbounded, end)
                found.update(row for row in range(start, end) if greatest[row] >= interval.start)
        # Bounds in signed order are valid for ASCII only; see resolved_query.near.
        if self.signed and not _is_ascii(intervals):
            found.update(self.signed)
        return sorted(found)

    def places(self, rows: Sequence[int]) -> Iterator[RowGroupPlace]:
        """Yield what rows say of their row groups."""
        for row in rows:
            file = self._groups["file"][row]
            yield RowGroupPlace(
                *(_value(self._files[name][file], kind) for name, kind in _FILES.items()),
                *(_value(self._groups[name][row], int) for name in RowGroupPlace._fields[len(_FILES) :]),
            )

    @property
    def versions(self) -> list[tuple[bytes, bytes]]:
        """Path of each file, and digest of its value in the store."""
        return [*zip(self._files["path"], self._files["version"], strict=True)]

    def extents(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield least key, greatest key and number of rows of each row group with bounds."""
        least, greatest, _ = self._as_lists
        bounded = slice(self.unbounded, None)
        return zip(least[bounded], greatest[bounded], self._groups["num_rows"][bounded], strict=True)

    def hulls(self) -> list[tuple[bytes, bytes]]:
        """Return least and greatest key of each row group with bounds, which may have several rows here."""
        found: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        numbers = (self._groups[name][self.unbounded :] for name in ("file", "row_group"))
        for *group, (least, greatest, _) in zip(*numbers, self.extents(), strict=True):
            low, high = found.get((group[0], group[1]), (least, greatest))
            found[group[0], group[1]] = min(low, least), max(high, greatest)
        return [*found.values()]

    @property
    def _keys(self) -> tuple[Sequence[bytes], ...]:
        least, greatest = self._groups["min_key"], self._groups["max_key"]
        return least, greatest, self._groups.get("reached", greatest)

    @cached_property
    def _as_lists(self) -> tuple[list[bytes], ...]:
        return tuple(map(list, self._keys))

    @cached_property
    def signed(self) -> list[int]:
        """The rows whose bounds are in signed order."""
        return [row for row, signed in enumerate(self._groups["signed"]) if signed]


class BoundsFile:
    """The open file."""

    def __init__(self, content: memoryview, header: Mapping[str, Any]) -> None:
        self._content = content
        self._header = header
        self._parts: dict[Pair, BoundsPart] = {}
        self.meta: dict[str, str] = header["meta"]
        """From which state of the store it was made."""

    @classmethod
    def open(cls, path: Path) -> "BoundsFile | None":
        """Map a file; None if it does not exist or is damaged."""
        with suppress(OSError, ValueError, KeyError, TypeError), path.open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            start = len(_MAGIC) + _LENGTH_SIZE + _DIGEST_SIZE
            length = int.from_bytes(content[len(_MAGIC) : len(_MAGIC) + _LENGTH_SIZE], "little")
            header = bytes(content[start : start + length])
            if content[: len(_MAGIC)] == _MAGIC and content[start - _DIGEST_SIZE : start] == _digest(header):
                return cls(content, json.loads(header))
        return None

    def counts(self, name: str) -> dict[Pair, int]:
        """Return counts by crawl and subset; see ``write_bounds``."""
        return {(crawl, subset): count for crawl, subset, count in self._header["counts"][name]}

    @property
    def columns(self) -> list[tuple[list[str], list[str]]]:
        """Names and kinds of the columns of files, each combination once, oldest file first."""
        return [(names, kinds) for names, kinds in self._header["columns"]]

    def crawl_times(self, crawl: str) -> tuple[int, int] | None:
        """Return when a crawl was fetched by the list of crawls, in milliseconds."""
        times = self._header["crawls"].get(crawl)
        return (times[0], times[1]) if times else None

    def part(self, pair: Pair) -> BoundsPart | None:
        """Return the row groups of a crawl and subset; None if it has none.

        Raises:
            DiskFailed: if the part is damaged.
        """
        if pair not in self._parts:
            place = next((each for each in self._header["parts"] if (each[0], each[1]) == pair), None)
            if place is None:
                return None
            _, _, start, size, digest, *counts, reached = place
            stored = self._content[start : start + size]
            if _digest(stored).hex() != digest:
                message = "the bounds of row groups are damaged; run: catalogue check --repair"
                raise DiskFailed(message)
            self._parts[pair] = BoundsPart(stored, *counts, reached=reached)
        return self._parts[pair]

    def is_complete(self) -> bool:
        """Check all digests."""
        try:
            return all(self.part((crawl, subset)) for crawl, subset, *_ in self._header["parts"])
        except DiskFailed:
            return False


def write_bounds_file(
    file: BinaryIO, header: Mapping[str, Any], pairs: Sequence[Pair], tables: Callable[[Pair], tuple[Rows, Rows]]
) -> None:
    """Write a file, one part after the other.

    Args:
        file: open and empty.
        header: has ``meta``, ``counts``, ``columns`` and ``crawls``.
        pairs: crawls and subsets that may have row groups.
        tables: returns the files and the sorted row groups of a crawl and subset, with the columns of ``_FILES`` and
            ``_ROW_GROUPS``.
    """

    def encode(places: list[list[Any]]) -> bytes:
        return json.dumps({**header, "parts": places}).encode()

    prefix = len(_MAGIC) + _LENGTH_SIZE + _DIGEST_SIZE
    largest = [1 << 60, 1 << 60, bytes(_DIGEST_SIZE).hex(), 1 << 60, 1 << 60, 1 << 60, False]
    end = prefix + len(encode([[*pair, *largest] for pair in pairs]))  # the header is as long as this, or shorter
    places: list[list[Any]] = []
    for pair in pairs:
        files, row_groups = tables(pair)
        if row_groups:
            content, unbounded, reached = _part(files, row_groups)
            start = file.seek(_padded(end))
            end = start + file.write(content)
            places.append([*pair, start, len(content), _digest(content).hex(), len(files), len(row_groups)])
            places[-1] += [unbounded, reached]
    encoded = encode(places)
    file.seek(0)
    file.write(_MAGIC + len(encoded).to_bytes(_LENGTH_SIZE, "little") + _digest(encoded) + encoded)


def _part(files: Rows, row_groups: Rows) -> tuple[bytes, int, bool]:
    """Return the bytes of a part, the number of row groups without bounds, and whether it has ``_REACHED``."""
    *_, greatest = zip(*row_groups, strict=True)
    known = [key for key in greatest if key is not None]
    unbounded = len(greatest) - len(known)
    columns = [*zip(_FILES.values(), zip(*files, strict=True), strict=True)]
    columns += zip(_ROW_GROUPS.values(), zip(*row_groups, strict=True), strict=True)
    reached = any(before > after for before, after in pairwise(known))
    if reached:
        columns.append((bytes, (*[None] * unbounded, *accumulate(known, max))))
    return b"".join(_column(kind, values) for kind, values in columns), unbounded, reached


def _column(kind: type, values: Sequence[Any]) -> bytes:
    if kind is int:
        return array(_NUMBER, _without_none(values, _NULL)).tobytes()
    first = next((value for value in values if value is not None), b"")
    known = _without_none(values, type(first)())
    texts = [*map(str.encode, known)] if isinstance(first, str) else known
    ends = array(_END, accumulate(map(len, texts))).tobytes()
    return b"".join(each.ljust(_padded(len(each)), b"\0") for each in (ends, b"".join(texts)))


def _without_none(values: Sequence[Any], instead: object) -> Sequence[Any]:
    return [instead if value is None else value for value in values] if None in values else values


def _columns(content: memoryview, kinds: Mapping[str, type], rows: int) -> tuple[dict[str, Any], memoryview]:
    """Return the columns of a table, and the bytes after it."""
    columns: dict[str, Any] = {}
    for name, kind in kinds.items():
        if kind is int:
            size = array(_NUMBER).itemsize * rows
            columns[name] = content[:size].cast(_NUMBER)
            content = content[size:]
        else:
            size = array(_END).itemsize * rows
            ends, content = content[:size].cast(_END), content[_padded(size) :]
            columns[name] = _Texts(ends, content[: ends[-1]])
            content = content[_padded(ends[-1]) :]
    return columns, content


def _value(stored: Any, kind: type) -> Any:  # noqa: ANN401 - of the kind, or None
    if kind is int:
        return None if stored == _NULL else stored
    return stored.decode() if kind is str else stored


def _is_ascii(intervals: Sequence[KeyInterval]) -> bool:
    from catalogue.query.exact_keys import is_ascii

    return is_ascii(intervals)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _digest(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=_DIGEST_SIZE).digest()
