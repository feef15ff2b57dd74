"""Cut the keys of a join into slices that read no page and no block twice."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from catalogue.cdx.block_file import StoredList
from catalogue.commoncrawl.crawls import COLUMNAR
from catalogue.join.keys import JoinKeys
from catalogue.surt import END, KeyInterval


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that decide about the memory of a join and the cost of an interruption."""

    keys: int = 100_000
    """Keys of a slice, about."""
    row_groups: int = 32
    """Row groups of a slice: some GB."""
    blocks: int = 500
    """Blocks of a slice, of whose rows some wait in memory."""
    run: int = 16
    """Blocks between which no slice starts."""
    few: int = 1_000
    """Keys that are one slice in any case."""
    planned: int = 6
    """Slices of a crawl that are planned for its price."""
    rows: int = 200_000
    """Rows of the input for a file of the result."""
    unbounded: int = 1_000_000
    """Intervals of a crawl that is one slice, because keys of row groups are unknown."""
    batch: int = 1 << 13
    """Rows of a batch of sorted keys."""


DEFAULT_SIZES = Sizes()


@dataclass(frozen=True, slots=True)
class Slice:
    """Keys of one crawl, which are read as a whole."""

    crawl: str
    index: str
    subset: str
    """Subset of the columnar index, sorted separately; empty for all subsets of the query."""
    number: int
    keys: KeyInterval

    @property
    def name(self) -> str:
        return "-".join(filter(None, [self.crawl, self.subset, f"{self.number:05}"]))


Piece: TypeAlias = tuple[bytes, int]
"""Least key and number of row groups or blocks that are in one slice, because a key may be in several of them."""


def pieces_of_row_groups(bounds: Iterable[tuple[bytes, bytes]]) -> Iterator[Piece]:
    """Yield the pieces of row groups, given by their least and greatest keys."""
    least, reached, count = b"", b"", 0
    for low, high in sorted(bounds):
        if count and low > reached:
            yield least, count
            least, count = low, 0
        least = least if count else low
        reached, count = max(reached, high), count + 1
    if count:
        yield least, count


def pieces_of_blocks(listed: StoredList, run: int) -> Iterator[Piece]:
    for part in listed.parts():
        for place in range(0, len(part), run):
            yield part.key(place), min(run, len(part) - place)


def cut(
    crawl: str, index: str, subset: str, pieces: Iterable[Piece], keys: JoinKeys, sizes: Sizes, *, splits: bool
) -> list[Slice]:
    """Cut keys between pieces; return the slices that have keys.

    Only with ``splits`` a cut may be within an interval of the join.
    """
    if len(keys) <= sizes.few:
        pieces = ()
    most = sizes.row_groups if index == COLUMNAR else sizes.blocks
    starts, count, begun = [b""], 0, 0
    size, before = 0, 0  # of the last piece, and the place where it starts
    for least, size_of_piece in pieces:
        place = keys.place(least)
        if keys.is_wide or place > before:  # a piece without keys is not read
            count += size
        size, before = size_of_piece, place
        if (
            (count + size > most or place - begun >= sizes.keys)
            and place > begun
            and (splits or keys.lacks_all(least, least + b"\0"))
        ):
            starts.append(least)
            count, begun = 0, place
    found: list[Slice] = []
    for start, end in pairwise([*starts, END]):
        if keys.place(end) > keys.place(start) or not keys.lacks_all(start, end):
            found.append(Slice(crawl, index, subset, len(found), KeyInterval(start, end)))
    return found
