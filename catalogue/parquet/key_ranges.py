"""Reduce keys to the few disjoint intervals that contain them.

Index files before mid 2022 are two sorted streams zipped together (commoncrawl/cc-index-table#12): the bounds of a page
span nearly everything, and most of it is empty.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from catalogue.parquet.model import Bounds
from catalogue.surt import shared_prefix

if TYPE_CHECKING:
    import numpy as np

MOST = 4
"""Largest number of intervals."""
WORTH = 0.5
"""Share of the range that must be empty to split it."""
NOTABLE = 0.05
"""The same for a single gap."""

WIDTH = 8
"""Bytes after the common prefix by which distances of keys are measured."""


def merged(parts: Iterable[Bounds]) -> tuple[Bounds, ...]:
    """Return the union of intervals, ascending and few."""
    joined: list[Bounds] = []
    for part in sorted(parts, key=lambda each: each.min):
        if joined and part.min <= joined[-1].max:
            joined[-1] = Bounds(joined[-1].min, max(part.max, joined[-1].max))
        else:
            joined.append(Bounds(part.min, part.max))
    if len(joined) <= 1:
        return tuple(joined)
    import numpy as np

    prefix = shared_prefix(joined[0].min, joined[-1].max)
    first = _numbers([each.min for each in joined], prefix)
    last = _numbers([each.max for each in joined], prefix)
    found = []
    for start, end in split_at_gaps(first, last):
        begins, stop = np.searchsorted(first, start), np.searchsorted(last, end, side="right")
        found.append(Bounds(joined[begins].min, joined[stop - 1].max))
    return tuple(found)


def split_at_gaps(first: "np.ndarray", last: "np.ndarray") -> "list[tuple[np.uint64, np.uint64]]":
    """Return where to split ascending intervals of numbers: at the widest gaps, if that is worth it."""
    import numpy as np

    gaps = (first[1:] - np.minimum(last[:-1], first[1:])).astype(float)
    whole = float(last[-1] - first[0])
    widest = np.sort(np.argsort(gaps, kind="stable")[-(MOST - 1) :])
    widest = widest[gaps[widest] > NOTABLE * whole]
    if gaps[widest].sum() < WORTH * whole or not whole:
        return [(first[0], last[-1])]
    starts, ends = [first[0], *first[widest + 1]], [*last[widest], last[-1]]
    return list(zip(starts, ends, strict=True))


def _numbers(keys: Iterable[bytes], start: int) -> "np.ndarray":
    """Return some bytes of each key as a number in the order of the keys; shape (len(keys),), uint64."""
    import numpy as np

    parts = (key[start : start + WIDTH].ljust(WIDTH, b"\0") for key in keys)
    return np.frombuffer(b"".join(parts), ">u8").astype(np.uint64)


def covers(parts: Sequence[Bounds], seen: Iterable[Bounds]) -> bool:
    """Return whether bounds begin and end inside the intervals."""
    return all(any(part.min <= end <= part.max for part in parts) for each in seen for end in (each.min, each.max))


def disjoint(parts: Sequence[Bounds]) -> bool:
    """Return whether intervals are ascending and disjoint."""
    return all(part.min <= part.max for part in parts) and all(a.max < b.min for a, b in pairwise(parts))
