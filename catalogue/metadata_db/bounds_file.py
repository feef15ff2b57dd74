"""The bounds of all row groups in a mapped file, in which a query finds its row groups by bisection.

Each crawl and subset has a part: two Arrow streams, of its files and of its row groups, sorted by least key. A header
in JSON has what a plan needs besides. Header and parts have digests, since wrong bounds would hide rows. The file is
derived from the metadata database, like which it can be deleted.
"""

import json
import mmap
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from io import RawIOBase
from itertools import starmap
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import pyarrow as pa

from catalogue.errors import DiskFailed
from catalogue.query.exact_keys import KeyTexts, is_ascii
from catalogue.surt import KeyInterval, overlap

Pair: TypeAlias = tuple[str, str]
"""A crawl and a subset."""

_MAGIC = b"CATBND2\n"
_DIGEST_SIZE = 16
_LENGTH_SIZE = 8
_ALIGNMENT = 64
"""Of parts, for Arrow."""
_MANY = 64
"""Intervals from which on keys are converted once instead of one by one."""


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


class BoundsPart:
    """The row groups of one crawl and subset; those without bounds first, the others by least key.

    The column ``reached`` has the greatest key so far; without it, the greatest keys ascend.
    """

    def __init__(self, files: pa.Table, row_groups: pa.Table) -> None:
        """Use the rows of files, and row groups whose column ``file`` is the number of such a row."""
        self._files, self._columns = map(_columns, (files, row_groups))
        self._least, self._greatest = (_as_bytes(self._columns[name]) for name in ("min_key", "max_key"))
        self._reached = _as_bytes(self._columns["reached"]) if "reached" in self._columns else self._greatest
        self.unbounded = self._least.null_count
        """Number of row groups without bounds."""

    def matching(self, intervals: Sequence[KeyInterval]) -> list[int]:
        """Return the numbers of the rows whose keys may be in one of the ascending, disjoint intervals, ascending."""
        least, greatest, reached = self._keys(len(intervals))
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
        if self.signed and not is_ascii(intervals):
            found.update(self.signed)
        return sorted(found)

    def places(self, rows: Sequence[int]) -> Iterator[RowGroupPlace]:
        """Yield what rows say of their row groups."""
        files = [self._columns["file"][row].as_py() for row in rows]
        columns = (
            [self._files[name][file].as_py() for file in files]
            if name in self._files
            else [self._columns[name][row].as_py() for row in rows]
            for name in RowGroupPlace._fields
        )
        return starmap(RowGroupPlace, zip(*columns, strict=True))

    def extents(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield least key, greatest key and number of rows of each row group with bounds."""
        arrays = (self._least, self._greatest, self._columns["num_rows"])
        return zip(*(array.slice(self.unbounded).to_pylist() for array in arrays), strict=True)

    def hulls(self) -> list[tuple[bytes, bytes]]:
        """Return least and greatest key of each row group with bounds, which may have several rows here."""
        found: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        columns = (self._columns["file"], self._columns["row_group"], self._least, self._greatest)
        for *group, least, greatest in zip(*(c.slice(self.unbounded).to_pylist() for c in columns), strict=True):
            low, high = found.get((group[0], group[1]), (least, greatest))
            found[group[0], group[1]] = min(low, least), max(high, greatest)
        return [*found.values()]

    def _keys(self, intervals: int) -> tuple[Sequence[bytes], ...]:
        return (
            self._as_lists if intervals >= _MANY else tuple(map(KeyTexts, (self._least, self._greatest, self._reached)))
        )

    @cached_property
    def _as_lists(self) -> tuple[list[bytes], ...]:
        return tuple(each.to_pylist() for each in (self._least, self._greatest, self._reached))

    @cached_property
    def signed(self) -> list[int]:
        """The rows whose bounds are in signed order."""
        return [row for row, signed in enumerate(self._columns["signed"].to_pylist()) if signed]


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
            _, _, start, size, digest = place
            stored = self._content[start : start + size]
            if _digest(stored).hex() != digest:
                message = "the bounds of row groups are damaged; run: catalogue check --repair"
                raise DiskFailed(message)
            reader = pa.BufferReader(pa.py_buffer(stored))
            self._parts[pair] = BoundsPart(*(pa.ipc.open_stream(reader).read_all() for _ in range(2)))
        return self._parts[pair]

    def is_complete(self) -> bool:
        """Check all digests."""
        try:
            return all(self.part((crawl, subset)) for crawl, subset, *_ in self._header["parts"])
        except DiskFailed:
            return False


def write_bounds_file(
    file: BinaryIO,
    header: Mapping[str, Any],
    pairs: Sequence[Pair],
    tables: Callable[[Pair], tuple[pa.Table, pa.Table]],
) -> None:
    """Write a file, one part after the other.

    Args:
        file: open and empty.
        header: has ``meta``, ``counts``, ``columns`` and ``crawls``.
        pairs: crawls and subsets that may have row groups.
        tables: returns the files and the sorted row groups of a crawl and subset; see ``BoundsPart``.
    """

    def encode(places: list[list[Any]]) -> bytes:
        return json.dumps({**header, "parts": places}).encode()

    prefix = len(_MAGIC) + _LENGTH_SIZE + _DIGEST_SIZE
    largest = [1 << 60, 1 << 60, bytes(_DIGEST_SIZE).hex()]
    end = prefix + len(encode([[*pair, *largest] for pair in pairs]))  # the header is as long as this, or shorter
    places: list[list[Any]] = []
    for pair in pairs:
        files, row_groups = tables(pair)
        if row_groups.num_rows:
            start = file.seek(_padded(end))
            digest = _write_streams(file, files, row_groups)
            end = file.tell()
            places.append([*pair, start, end - start, digest])
    encoded = encode(places)
    file.seek(0)
    file.write(_MAGIC + len(encoded).to_bytes(_LENGTH_SIZE, "little") + _digest(encoded) + encoded)


def _write_streams(file: BinaryIO, *tables: pa.Table) -> str:
    """Write Arrow streams; return their digest."""
    sink = _Digested(file)
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
    return sink.digest.hexdigest()


class _Digested(RawIOBase):
    """A file that is written, and its digest."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = blake2b(digest_size=_DIGEST_SIZE)

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - the protocol accepts any buffer
        self.digest.update(data)
        return self._file.write(data)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _digest(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=_DIGEST_SIZE).digest()


def _columns(table: pa.Table) -> dict[str, pa.Array]:
    return {name: table.column(name).combine_chunks() for name in table.column_names}


def _as_bytes(texts: pa.StringArray) -> pa.BinaryArray:
    return texts.cast(pa.binary())
