"""Merge byte ranges into requests."""

import enum
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from catalogue.source.byte_ranges import ByteRange, coalesce

MAX_FETCH = 64 << 20
"""Maximum bytes of a merged request; a failed one is repeated whole."""


class Purpose(enum.Enum):
    """The content of a range."""

    CHUNK = "column chunk"
    DICTIONARY = "dictionary page"
    PAGES = "data pages"
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
    """Whether it is in the cache, so that no request is made."""
    most: int = 1
    """Maximum number of requests if only some of its pages are needed."""


def plan_requests(
    path: str, parts: Iterable[Part], *, max_gap: int, cached: Sequence[ByteRange] = ()
) -> Iterator[PlannedRequest]:
    """Yield the requests for disjoint parts of one file, in ascending order."""
    here: list[Part] = []
    needed: list[Part] = []
    for part in sorted(parts, key=lambda part: part.range):
        for piece, is_cached in _cut(part.range, cached):
            (here if is_cached else needed).append(part if piece == part.range else part._replace(range=piece))
    merged = [(run, False) for run in coalesce((part.range for part in needed), max_gap=max_gap, max_length=MAX_FETCH)]
    merged += [(part.range, True) for part in here]
    waiting, waiting_here = deque(needed), iter(here)
    for run, in_cache in sorted(merged):
        if in_cache:
            yield PlannedRequest(path, run, (next(waiting_here),), cached=True)
            continue
        inside = []
        while waiting and waiting[0].range in run:
            inside.append(waiting.popleft())
        yield PlannedRequest(path, run, tuple(inside))


def _cut(range_: ByteRange, cached: Sequence[ByteRange]) -> Iterator[tuple[ByteRange, bool]]:
    """Cut a range into cached and missing pieces."""
    at = range_.start
    for each in cached[bisect_right(cached, range_.start, key=attrgetter("end")) :]:
        if each.start >= range_.end:
            break
        if at < each.start:
            yield ByteRange(at, each.start), False
        end = min(each.end, range_.end)
        yield ByteRange(max(at, each.start), end), True
        at = end
    if at < range_.end:
        yield ByteRange(at, range_.end), False


def most_requests(ranges: Iterable[ByteRange], max_gap: int) -> int:
    """Return the maximum number of requests for any selection of these ascending, disjoint ranges."""
    count, end = 0, None
    for each in ranges:
        if end is None or each.start - end > max_gap:
            count, end = count + 1, each.end
    return count
