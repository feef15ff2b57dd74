"""The blocks of a CDX index.

A block is one gzip member of lines ``KEY SP TIMESTAMP SP JSON LF``, sorted by their bytes.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.cdx.cluster import BlockList, BlockRead
from catalogue.commoncrawl.gzip_members import inflate
from catalogue.errors import BadCdx, BadManifest
from catalogue.parquet.arrow_arrays import booleans
from catalogue.query.key_intervals import ALL_KEYS, KeyIntervals
from catalogue.surt.interval import END

MAX_INFLATED = 64 << 20
"""Largest inflated block in bytes; most have 1.3 MB."""

_LF, _FIRST_PRINTABLE = ord("\n"), 32
_AT_ONCE = 96 << 10
"""Bytes compared at once; larger results need new memory from the system."""
_MANY = 32
"""Intervals with which all lines are compared at once."""


class FoundLines(NamedTuple):
    """Consecutive lines of a block."""

    path: str
    offset: int
    line: int
    """Number of the first line, from 1 on."""
    data: bytes
    """Each line ends with a line feed."""


class Block:
    """An inflated block, whose lines are in order."""

    def __init__(self, path: str, offset: int, data: bytes) -> None:
        """Check the order of the lines.

        Raises:
            BadCdx: if it has no lines, the last line does not end, or they are not in order.
        """
        self.path, self.offset = path, offset
        self._data = data
        if not data.endswith(b"\n"):
            raise self.error("the last line does not end" if data else "it is empty")
        self._starts, self._lines, plain = split_lines(data)
        if not (plain and pc.all(pc.less_equal(self._lines[:-1], self._lines[1:]), min_count=0).as_py()):
            self._check_keys()
        if self.key(len(self) - 1) >= END:
            raise self.error("a key is not text", len(self))

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def size(self) -> int:
        return len(self._data) + self._starts.nbytes

    def _check_keys(self) -> None:
        before: list[bytes] = []
        for number, line in enumerate(self._data.split(b"\n")[:-1], 1):
            place = line.split(b" ", 2)[:2]
            if place < before:
                raise self.error("its key or time is less than that of the line before it", number)
            before = place

    def first(self, line: int) -> bytes:
        """Return key, blank and time of a line; lines count from 0."""
        text = self._data[int(self._starts[line]) : int(self._starts[line + 1]) - 1]
        return b" ".join(text.split(b" ", 2)[:2])

    def key(self, line: int) -> bytes:
        start, end = int(self._starts[line]), int(self._starts[line + 1]) - 1
        blank = self._data.find(b" ", start, end)
        return self._data[start : blank if blank >= 0 else end]

    def find(self, intervals: KeyIntervals) -> Iterator[FoundLines]:
        """Yield the lines with keys in the intervals, together for each interval."""
        some = intervals.between(self.key(0), self.key(len(self) - 1))
        if len(some) > _MANY:
            yield from self._find_all(some)
            return
        lines = range(len(self))
        end = 0
        for interval in some:
            start = bisect_left(lines, interval.start, lo=end, key=self.key)
            end = bisect_left(lines, interval.end, lo=start, key=self.key)
            if start < end:
                found = self._data[self._starts[start] : self._starts[end]]
                yield FoundLines(self.path, self.offset, start + 1, found)

    def _find_all(self, intervals: KeyIntervals) -> Iterator[FoundLines]:
        parts = pc.split_pattern(self._lines, b" ", max_splits=1)
        chosen = intervals.mask(parts.flatten().take(parts.offsets[:-1]))
        edges = np.flatnonzero(np.diff(np.concatenate([[False], booleans(chosen), [False]]).astype(np.int8)))
        for start, end in edges.reshape(-1, 2).tolist():
            yield FoundLines(self.path, self.offset, start + 1, self._data[self._starts[start] : self._starts[end]])

    def error(self, what: str, line: int | None = None) -> BadCdx:
        return block_error(self.path, self.offset, what, line)


def split_lines(data: bytes) -> tuple[np.ndarray, pa.BinaryArray, bool]:
    """Return the starts of lines that each end with a line feed, and the end, as 32-bit numbers; and the lines.

    The last value says whether there are no other control characters.
    """
    codes, plain = np.frombuffer(data, np.uint8), True
    marks = np.empty(_AT_ONCE, np.bool_)
    found = [np.zeros(1, np.int32)]
    for at in range(0, len(codes), _AT_ONCE):
        part = codes[at : at + _AT_ONCE]
        ends = np.flatnonzero(np.less(part, _FIRST_PRINTABLE, out=marks[: len(part)]))
        breaks = part[ends] == _LF
        plain = plain and bool(breaks.all())
        found.append((ends[breaks] + (at + 1)).astype(np.int32))
    starts = np.concatenate(found)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(data)]
    return starts, pa.Array.from_buffers(pa.binary(), len(starts) - 1, buffers), plain


def block_error(path: str, offset: int, what: str, line: int | None = None) -> BadCdx:
    return BadCdx(f"{path}, block at byte {offset:,}{f', line {line:,}' if line else ''}: {what}")


def inflate_blocks(
    blocks: BlockList, read: BlockRead, body: bytes, total_size: int, intervals: KeyIntervals = ALL_KEYS
) -> Iterator[Block]:
    """Inflate the blocks that may have keys of the intervals, and compare them with the list.

    ``body`` is what was read of a shard, which has ``total_size`` bytes, as its source states; 0 if it does not.

    Raises:
        BadCdx: if a block is damaged, or not the one of the list; blocks before it were yielded.
    """
    last = read.blocks.stop - 1
    is_end = blocks.ends_shard(last)
    if total_size and (total_size < read.range.end or (is_end and total_size != read.range.end)):
        what = f"the shard has {total_size:,} bytes, and the list has a block that ends at {read.range.end:,}"
        raise block_error(read.path, read.range.start, what)
    if len(body) != len(read.range):
        raise block_error(read.path, read.range.start, f"{len(body):,} bytes instead of {len(read.range):,}")
    for place in read.blocks:
        end = blocks.key(place + 1) if place + 1 < len(blocks) else END
        if not intervals.overlap(blocks.key(place), end):
            continue
        extent = blocks.extent(place)
        start = extent.start - read.range.start
        try:
            data = inflate(body[start : start + len(extent)], limit=MAX_INFLATED)
        except BadManifest as error:
            raise block_error(read.path, extent.start, f"{error}") from error
        block = Block(read.path, extent.start, data)
        if block.first(0) != blocks.first(place):
            what = f"it starts with {block.first(0)[:200]!r}, and in the list with {blocks.first(place)[:200]!r}"
            raise block.error(what)
        if place + 1 < len(blocks) and block.first(len(block) - 1) > blocks.first(place + 1):
            raise block.error(f"it ends after {blocks.first(place + 1)[:200]!r}, with which the next one starts")
        yield block
