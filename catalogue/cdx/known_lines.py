"""The parts of a list of blocks that were read."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

import pyarrow as pa

from catalogue.cdx.cluster import BlockList, key_of, list_path, parse_blocks
from catalogue.errors import BadCdx
from catalogue.source.byte_ranges import ByteRange, FileVersion, divided
from catalogue.surt.interval import END

_LEAST_LINE = len(b"a 20220101000000\tcdx-00000.gz\t0\t1\t1\n")
_start = attrgetter("start")


@dataclass(slots=True)
class Fragment:
    """Consecutive lines of a list."""

    start: int
    """Offset of the first line in the file."""
    data: bytes
    """Complete lines."""
    blocks: pa.RecordBatch
    """The same lines; see ``cluster.COLUMNS``."""

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    @property
    def first(self) -> bytes:
        return self.data[: self.data.find(b"\n") + 1]

    @property
    def last(self) -> bytes:
        return self.data[self.data.rfind(b"\n", 0, -1) + 1 :]

    def place(self, key: bytes) -> int:
        """Return the offset of the first line with a key not less than ``key``, or the end."""
        return self.start + first_not_below(self.data, key)


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines that were not read."""

    start: int
    end: int
    before: bytes | None
    after: bytes | None

    def __len__(self) -> int:
        return self.end - self.start


class KnownLines:
    """Parts of one version of a list, checked against each other."""

    def __init__(
        self, crawl: str, version: FileVersion, parts: Iterable[tuple[int, bytes]] = (), *, shards: int | None = None
    ) -> None:
        """Take parts of an earlier search, offsets and lines; with ``shards``, the list must end with the last of them.

        Raises:
            BadCdx: if they are not parts of one list.
        """
        self.crawl = crawl
        self.version = version
        self.shards = shards
        self._fragments: list[Fragment] = []
        for start, data in parts:
            self.add(start, data)

    def __iter__(self) -> Iterator[Fragment]:
        """Yield the parts, ascending; touching ones are one."""
        return iter(self._fragments)

    def add(self, start: int, data: bytes) -> None:
        """Add complete lines that are not known yet.

        Raises:
            BadCdx: if they are not lines of a list, or contradict the known lines around them.
        """
        size = self.version.size
        parsed = parse_blocks(self.crawl, data, start=start, ends=start + len(data) == size, shards=self.shards)
        at = bisect_left(self._fragments, start, key=_start)
        new = Fragment(start, data, parsed.columns)
        if at:
            self._check(self._fragments[at - 1], new)
        if at < len(self._fragments):
            self._check(new, self._fragments[at])
        self._fragments.insert(at, new)
        for left in (at, at - 1):
            if 0 <= left < len(self._fragments) - 1:
                one, other = self._fragments[left : left + 2]
                if one.end == other.start:
                    blocks = pa.concat_batches([one.blocks, other.blocks])
                    self._fragments[left : left + 2] = [Fragment(one.start, one.data + other.data, blocks)]

    def add_part(self, start: int, body: bytes) -> bool:
        """Add the complete lines of an unknown part of the file; return whether there are any.

        Raises:
            BadCdx: see ``add``; or if a line does not start or end at the ends of the file or of known lines.
        """
        end = start + len(body)
        if not body.endswith(b"\n") and (end == self.version.size or any(end == each.start for each in self)):
            raise BadCdx(f"{list_path(self.crawl)}: byte {end:,} is not the end of a line")
        first = 0 if start == 0 or any(start == each.end for each in self) else body.find(b"\n") + 1
        last = body.rfind(b"\n") + 1
        if first < last:
            self.add(start + first, body[first:last])
        return first < last

    def _check(self, one: Fragment, other: Fragment) -> None:
        if one.end == other.start:
            parse_blocks(self.crawl, one.last + other.first, start=other.start - len(one.last), ends=False)
            return
        (key, number), (later_key, later) = parse_line(one.last), parse_line(other.first)
        gap, missing = other.start - one.end, later - number - 1
        if key > later_key or not 1 <= missing <= gap // _LEAST_LINE:
            lines = f"{one.last[:200]!r}, {other.first[:200]!r}"
            raise BadCdx(f"{list_path(self.crawl)}, byte {other.start:,}: the lines are not in order: {lines}")

    def check_shards(self, shards: int) -> None:
        """Compare the end of the list, which must be known, with the number of shards.

        Raises:
            BadCdx: if the last line is not of the last shard.
        """
        last = self._fragments[-1]
        start = last.end - len(last.last)
        parse_blocks(self.crawl, last.last, start=start, ends=last.end == self.version.size, shards=shards)
        self.shards = shards

    def border(self, key: bytes) -> int | Gap:
        """Return the offset of the first line with a key not less than ``key``, or the gap that may have it.

        The line before it must be known, too; the end of the file stands for no such line. The ends of an interval
        without limits need no known line.
        """
        if not key or key >= END:
            return self.version.size if key else 0
        at = bisect_left(self._fragments, key, key=lambda fragment: key_of(fragment.first)) - 1
        before = self._fragments[at] if at >= 0 else None
        after = self._fragments[at + 1] if at + 1 < len(self._fragments) else None
        if before and ((place := before.place(key)) < before.end or place == self.version.size):
            return place
        if not before and after and after.start == 0:
            return 0
        return Gap(
            before.end if before else 0,
            after.start if after else self.version.size,
            before.last if before else None,
            after.first if after else None,
        )

    def missing(self, part: ByteRange) -> list[ByteRange]:
        known = [ByteRange(each.start, each.end) for each in self]
        return [piece for piece, inside in divided(part, known) if inside is None]

    def list(self, start: int, end: int) -> BlockList:
        """Return the blocks of known lines between two offsets, with the lines before and after them."""
        size = self.version.size
        fragment = self._fragments[bisect_right(self._fragments, start, key=_start) - 1]
        first = fragment.data.rfind(b"\n", 0, max(0, start - fragment.start - 1)) + 1
        last = fragment.data.find(b"\n", end - fragment.start) + 1 if end < size else len(fragment.data)
        data = fragment.data[first:last]
        at = parse_line(data[: data.find(b"\n")])[1] - fragment.blocks.column("number")[0].as_py()
        blocks = fragment.blocks.slice(at, data.count(b"\n"))
        return BlockList(self.crawl, blocks, fragment.start + first == 0, fragment.start + last == size)


def parse_line(line: bytes) -> tuple[bytes, int]:
    return key_of(line), int(line[line.rfind(b"\t") :])


def first_not_below(data: bytes, key: bytes) -> int:
    """Return the offset of the first of sorted lines with a key not less than ``key``, or their length."""
    low, high = 0, len(data)
    while low < high:
        middle = (low + high) // 2
        start = data.rfind(b"\n", low, middle) + 1 or low
        if data[start : data.find(b" ", start)] < key:
            low = data.index(b"\n", middle) + 1
        else:
            high = start
    return low
