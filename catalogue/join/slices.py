"""Cut the keys of a join into slices that read no page and no block twice."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from catalogue.cdx.block_file import StoredList
from catalogue.join.keys import JoinKeys
from catalogue.query.query import CDX, COLUMNAR
from catalogue.surt import END, KeyInterval

KEYS = 100_000
"""About the most keys of a slice."""
_MOST = {COLUMNAR: 32, CDX: 2_000}
"""About the most row groups, or blocks, that a slice may have to read: some GB."""
_FEW = 1_000
"""Intervals that are never cut."""
_RUN = 16
"""Blocks."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a join that is done as a whole: keys of one crawl."""

    crawl: str
    index: str
    number: int
    """In the crawl, from 0 on."""
    keys: KeyInterval

    @property
    def name(self) -> str:
        return f"{self.crawl}-{self.number:05}"


class Piece(NamedTuple):
    """Row groups or blocks that are in the same slice, because a key may be in several of them."""

    least: bytes
    size: int
    may_start: Callable[[], bool] = lambda: True
    """Returns whether a slice may start here."""


def pieces_of_row_groups(extents: Iterable[tuple[bytes, bytes, int]]) -> Iterator[Piece]:
    """Yield the pieces of row groups, given as least key, greatest key and number of rows."""
    least, reached, count = b"", b"", 0
    for low, high, _ in sorted(extents):
        if count and low > reached:
            yield Piece(least, count)
            least, count = low, 0
        least = least if count else low
        reached, count = max(reached, high), count + 1
    if count:
        yield Piece(least, count)


def pieces_of_blocks(listed: StoredList, keys: JoinKeys) -> Iterator[Piece]:
    """Yield runs of blocks; a slice may not start with a key of the join, which the block before can have, too."""
    for part in listed.parts():
        for place in range(0, len(part), _RUN):
            key = part.key(place)
            yield Piece(key, min(_RUN, len(part) - place), partial(keys.lacks, key))


def cut(crawl: str, index: str, pieces: Iterable[Piece], keys: JoinKeys, *, most_keys: int = KEYS) -> list[Slice]:
    """Cut keys between pieces; return the slices that have keys."""
    if len(keys) <= _FEW:
        pieces = ()
    starts, count, begun = [b""], 0, 0
    for piece in pieces:
        place = keys.place(piece.least)
        if count and (place - begun >= most_keys or count + piece.size > _MOST[index]) and piece.may_start():
            starts.append(piece.least)
            count, begun = 0, place
        count += piece.size
    found: list[Slice] = []
    for start, end in pairwise([*starts, END]):
        if keys.place(end) > keys.place(start) or not keys.lacks_all(start, end):
            found.append(Slice(crawl, index, len(found), KeyInterval(start, end)))
    return found
