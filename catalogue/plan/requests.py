"""Merge byte ranges into requests."""

import enum
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from catalogue.source.byte_ranges import ByteRange, coalesce

MAX_FETCH = 64 << 20
"""Maximum bytes of a merged request."""


class Purpose(enum.Enum):
    """The content of a range."""

    CHUNK = "column chunk"
    DICTIONARY = "dictionary page"
    PAGES = "data page"
    COLUMN_INDEX = "column index"
    OFFSET_INDEX = "offset index"


class Part(NamedTuple):
    """A part of a request."""

    purpose: Purpose
    row_group: int
    column: str
    range: ByteRange


class PlannedRequest(NamedTuple):
    """One request."""

    path: str
    range: ByteRange
    parts: tuple[Part, ...]
    """All within ``range``; bytes between them are dropped."""
    cached: bool = False
    most: int = 1
    """Maximum number of requests if only some pages are needed."""

    @property
    def reason(self) -> str:
        """Kinds of content and columns."""
        kinds = dict.fromkeys(f"{part.purpose.value}s" for part in self.parts)
        columns = dict.fromkeys(part.column for part in self.parts)
        return f"{' and '.join(kinds)} of {', '.join(columns)}"


def plan_requests(
    path: str, parts: Iterable[Part], *, max_gap: int, cached: Sequence[ByteRange] = ()
) -> Iterator[PlannedRequest]:
    """Yield the requests for disjoint parts of one file, in ascending order; a cached range is one read."""
    by_cached: dict[ByteRange | None, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.range):
        for piece, inside in _cut(part.range, cached):
            by_cached.setdefault(inside, []).append(part if piece == part.range else part._replace(range=piece))
    requests = [
        PlannedRequest(path, run, tuple(taken), cached=inside is not None)
        for inside, pieces in by_cached.items()
        for run, taken in _merged(pieces, max_gap)
    ]
    yield from sorted(requests, key=lambda request: request.range)


def _merged(parts: Sequence[Part], max_gap: int) -> Iterator[tuple[ByteRange, list[Part]]]:
    waiting = deque(parts)
    for run in coalesce((part.range for part in parts), max_gap=max_gap, max_length=MAX_FETCH):
        taken = []
        while waiting and waiting[0].range in run:
            taken.append(waiting.popleft())
        yield run, taken


def _cut(range_: ByteRange, cached: Sequence[ByteRange]) -> Iterator[tuple[ByteRange, ByteRange | None]]:
    """Cut a range by cached ranges, which are returned with their pieces."""
    at = range_.start
    for each in cached[bisect_right(cached, range_.start, key=attrgetter("end")) :]:
        if each.start >= range_.end:
            break
        if at < each.start:
            yield ByteRange(at, each.start), None
        end = min(each.end, range_.end)
        yield ByteRange(max(at, each.start), end), each
        at = end
    if at < range_.end:
        yield ByteRange(at, range_.end), None


def most_requests(ranges: Iterable[ByteRange], max_gap: int) -> int:
    """Return the maximum number of requests for any selection of ascending, disjoint ranges."""
    count, end = 0, None
    for each in ranges:
        if end is None or each.start - end > max_gap:
            count, end = count + 1, each.end
    return count
