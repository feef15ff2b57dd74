"""Byte ranges that are wanted → requests."""

import enum
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from catalogue.source.byte_ranges import ByteRange, coalesce

MAX_FETCH = 64 << 20
"""Bytes up to which ranges are merged into one request, so that a broken one costs no more than that."""


class Purpose(enum.Enum):
    """What a range is for."""

    CHUNK = "column chunk"
    DICTIONARY = "dictionary page"
    PAGES = "data pages"
    COLUMN_INDEX = "column index"
    OFFSET_INDEX = "offset index"


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of a fetch, and what they are for."""

    purpose: Purpose
    row_group: int
    column: str
    range: ByteRange


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request."""

    path: str
    range: ByteRange
    parts: tuple[Part, ...]
    """All within ``range``; what lies between them is dropped."""
    cached: bool = False
    """Whether all of it is in the cache, so that nothing is asked for."""
    most: int = 1
    """Requests that it may become where only some of it turns out to be wanted, at most."""


def plan_requests(
    path: str, parts: Iterable[Part], *, max_gap: int, cached: Sequence[ByteRange] = ()
) -> Iterator[PlannedRequest]:
    """The requests for parts of one file, in ascending order.

    Args:
        path: of the file.
        parts: in any order, disjoint.
        max_gap: see ``Cost.max_gap``.
        cached: ranges that need not be asked for, disjoint and ascending.
    """
    here: list[Part] = []
    wanted: list[Part] = []
    for part in sorted(parts, key=lambda part: part.range):
        for piece, is_held in _cut(part.range, cached):
            (here if is_held else wanted).append(part if piece == part.range else replace(part, range=piece))
    merged = [(run, False) for run in coalesce((part.range for part in wanted), max_gap=max_gap, max_length=MAX_FETCH)]
    merged += [(part.range, True) for part in here]
    waiting, waiting_here = deque(wanted), iter(here)
    for run, is_cached in sorted(merged):
        if is_cached:
            yield PlannedRequest(path, run, (next(waiting_here),), cached=True)
            continue
        inside = []
        while waiting and waiting[0].range in run:
            inside.append(waiting.popleft())
        yield PlannedRequest(path, run, tuple(inside))


def _cut(wanted: ByteRange, held: Sequence[ByteRange]) -> Iterator[tuple[ByteRange, bool]]:
    """The pieces of a range, and whether each is among those that are held."""
    at = wanted.start
    for each in held[bisect_right(held, wanted.start, key=attrgetter("end")) :]:
        if each.start >= wanted.end:
            break
        if at < each.start:
            yield ByteRange(at, each.start), False
        end = min(each.end, wanted.end)
        yield ByteRange(max(at, each.start), end), True
        at = end
    if at < wanted.end:
        yield ByteRange(at, wanted.end), False


def most_requests(ranges: Iterable[ByteRange], max_gap: int) -> int:
    """Into how many requests some of these ranges, whichever they are, can fall at most.

    Args:
        ranges: ascending and disjoint.
        max_gap: up to which neighbours are merged.
    """
    count, end = 0, None
    for each in ranges:
        if end is None or each.start - end > max_gap:
            count, end = count + 1, each.end
    return count
