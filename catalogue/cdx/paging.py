"""Where an answer is cut into pages: at keys that footers and page indexes of the files name, and nowhere else.

So pages have no row in common and none is missing, whatever is filtered, and asked again they are cut at the same keys.
A key is never parted. What reading has taught about files takes no part, or pages would shift while a client goes
through them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import attrgetter

from catalogue.parquet.model import Bounds
from catalogue.surt import KeyInterval, covers

BLOCK_ROWS = 3000
"""Captures of a block of the CDX index, as Common Crawl makes it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A key that is in a file, and about how many rows lie there."""

    key: bytes
    rows: float


@dataclass(frozen=True, slots=True)
class Block:
    """A part of an answer between two keys."""

    intervals: tuple[KeyInterval, ...]
    """Of keys; disjoint and ascending."""
    size: int
    """In blocks of the CDX index, about; at least 1."""


def marks(runs: Iterable[Sequence[tuple[Bounds, int]]]) -> list[Mark]:
    """Keys at which to cut, and what lies there.

    Args:
        runs: for each row group the bounds of its pages, in their order, and how many rows they have; or its own.
    """
    found = []
    for run in runs:
        if all(one.max <= following.min for (one, _), (following, _) in pairwise(run)):
            found += [Mark(bounds.min, rows) for bounds, rows in run]
        else:  # two sorted streams were zipped: one lies at the least keys, the other at the greatest
            found += [Mark(key, rows / 2) for bounds, rows in run for key in (bounds.min, bounds.max)]
    return found


def cut(intervals: Sequence[KeyInterval], at: Iterable[Mark]) -> tuple[Block, ...]:
    """Cut intervals of keys into blocks.

    Each block but a single one has a mark in it, so that there are rows in it.

    Args:
        intervals: disjoint and ascending.
        at: marks, in any order; those outside do not matter.
    """
    inside = sorted((mark for mark in at if covers(intervals, mark.key)), key=attrgetter("key"))
    blocks: list[tuple[bytes, float]] = [(intervals[0].start, 0.0)]
    for key, here in groupby(inside, key=attrgetter("key")):
        start, rows = blocks[-1]
        if rows >= BLOCK_ROWS:
            start, rows = key, 0.0
            blocks.append((key, 0.0))
        blocks[-1] = (start, rows + sum(mark.rows for mark in here))
    ends = [*(start for start, _ in blocks[1:]), intervals[-1].end]
    return tuple(
        Block(tuple(_between(intervals, start, end)), max(1, round(rows / BLOCK_ROWS)))
        for (start, rows), end in zip(blocks, ends, strict=True)
    )


def _between(intervals: Iterable[KeyInterval], start: bytes, end: bytes) -> Iterable[KeyInterval]:
    for each in intervals:
        low, high = max(each.start, start), min(each.end, end)
        if low < high:
            yield replace(each, start=low, end=high)


def pages_of(blocks: Sequence[Block], size: int) -> list[tuple[Block, ...]]:
    """Consecutive blocks, as many a page as have its size together, but at least one."""
    pages: list[list[Block]] = []
    room = 0
    for block in blocks:
        if pages and block.size <= room:
            pages[-1].append(block)
        else:
            pages.append([block])
            room = size
        room -= block.size
    return [tuple(page) for page in pages]
