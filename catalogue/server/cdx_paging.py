"""Pages of the CDX API: intervals of keys, cut at the first keys of blocks of the CDX index, whatever is stored.

A crawl without a CDX index is cut at keys that footers and page indexes contain. So pages are disjoint, complete and
the same for every filter, and a key is never on two pages. Bounds that a backfill found are not used, because pages
would change between a client's requests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TypeAlias

from catalogue.parquet.model import Bounds
from catalogue.surt.interval import KeyInterval, covers, intersect

BLOCK_ROWS = 3000
"""Captures of a block of the CDX index."""


Mark: TypeAlias = tuple[bytes, float]
"""A key at which a result can be cut, and about how many rows follow it."""


@dataclass(frozen=True, slots=True)
class ResultBlock:
    """A part of a result between two keys."""

    intervals: tuple[KeyInterval, ...]
    """The intervals are disjoint and ascending."""
    size: int
    """Approximate number of blocks of the CDX index, at least 1."""


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A page of a result, not read yet."""

    pages: int = 0
    """Number of pages; 0 without captures."""
    blocks: int = 0
    parts: tuple[tuple[KeyInterval, ...], ...] = ()
    """Intervals to read in turn; empty if the page does not exist."""
    missing: tuple[str, ...] = ()
    """Messages about files that are not stored."""

    def ordered(self, *, reverse: bool) -> "ResultPage":
        return replace(self, parts=self.parts[::-1]) if reverse else self


def marks(runs: Iterable[Sequence[tuple[Bounds, int]]]) -> list[Mark]:
    """Return keys to cut at, given for each row group the bounds and rows of its pages in order, or its own."""
    found: list[Mark] = []
    for run in runs:
        if all(one.max <= following.min for (one, _), (following, _) in pairwise(run)):
            found += [(bounds.min, rows) for bounds, rows in run]
        else:  # two sorted streams were zipped: one is at the lowest keys, the other at the highest
            found += [(key, rows / 2) for bounds, rows in run for key in (bounds.min, bounds.max)]
    return found


def cut(intervals: Sequence[KeyInterval], at: Iterable[Mark]) -> tuple[ResultBlock, ...]:
    """Cut disjoint ascending intervals into blocks. If there are several, each contains a mark, and so a row."""
    inside = sorted((mark for mark in at if covers(intervals, mark[0])), key=itemgetter(0))
    blocks: list[tuple[bytes, float]] = [(intervals[0].start, 0.0)]
    for key, here in groupby(inside, key=itemgetter(0)):
        start, rows = blocks[-1]
        if rows >= BLOCK_ROWS:
            start, rows = key, 0.0
            blocks.append((key, 0.0))
        blocks[-1] = (start, rows + sum(following for _, following in here))
    ends = [*(start for start, _ in blocks[1:]), intervals[-1].end]
    return tuple(
        ResultBlock(intersect(intervals, [KeyInterval(start, end)]), max(1, round(rows / BLOCK_ROWS)))
        for (start, rows), end in zip(blocks, ends, strict=True)
    )


def pages_of(blocks: Sequence[ResultBlock], size: int) -> list[tuple[ResultBlock, ...]]:
    """Group consecutive blocks into pages of a size; larger blocks have their own page."""
    pages: list[list[ResultBlock]] = []
    room = 0
    for block in blocks:
        if not pages or block.size > room:
            pages.append([])
            room = size
        pages[-1].append(block)
        room -= block.size
    return [tuple(page) for page in pages]
