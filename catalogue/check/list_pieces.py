"""Divide the list of blocks of a crawl into pieces, and find the keys at which a piece starts and ends.

The blocks that start in a piece have some 30,000 rows. The intervals of all pieces are disjoint and have all keys.
"""

import math

from catalogue.cdx.cluster import MAX_LINE, count_shards, key_of, list_path, shards_path
from catalogue.cdx.known_lines import KnownLines
from catalogue.cdx.list_search import ClusterSearch
from catalogue.errors import BadCdx
from catalogue.plan.block_lists import BlockLists
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.retry import PoliteSource
from catalogue.surt import END, KeyInterval

PIECE = 1 << 10
"""Bytes of a piece of a list, about 12 lines."""
MARGIN = 4 << 10
"""Bytes that are read before and after a piece, since the keys of a piece are in the lines around its ends."""


class ListPieces:
    """The pieces of one version of a list, by number from 0 on."""

    def __init__(self, source: PoliteSource, crawl: str, lists: BlockLists) -> None:
        """Open the list at the source by two requests, or less if it was searched before.

        Args:
            source: of the list.
            crawl: name of the crawl.
            lists: with earlier searches, to which a new one is added.

        Raises:
            NotFound: if the crawl has no CDX index.
            BadCdx: if the list is invalid.
            SourceError: if it cannot be read.
        """
        self._source = source
        self._path = list_path(crawl)
        search = lists.get(crawl)
        if not isinstance(search, ClusterSearch):
            search = lists.search(crawl)
        self._known = search.known
        if self._known.shards is None:
            self._key_after(self._known.version.size, len(self) - 1)  # so that the last line is known
            self._known.check_shards(count_shards(crawl, source.get(shards_path(crawl)).body))

    def __len__(self) -> int:
        return math.ceil(self._known.version.size / PIECE)

    def interval(self, number: int) -> KeyInterval | None:
        """Return the keys of the blocks that start in a piece; in most cases this takes one request at most.

        Returns:
            The interval from the key of its first block to that of the first block after it. The first piece has all
            keys below, and the last one all keys above. None if the piece has no keys of its own.

        Raises:
            BadCdx: if the list is invalid.
            FileChanged: if it is another version than before.
            SourceError: if it cannot be read.
        """
        start = b"" if number == 0 else self._key_after(number * PIECE, number)
        end = END if number == len(self) - 1 else self._key_after((number + 1) * PIECE, number)
        return KeyInterval(start, end) if start < end else None

    def _key_after(self, offset: int, number: int) -> bytes:
        """Return the key of the first line that starts at or after an offset; ``END`` if there is none."""
        margin = MARGIN
        while (key := _known_key(self._known, offset)) is None:
            if margin > 2 * MAX_LINE:
                raise BadCdx(f"{self._path} has a line of more than {MAX_LINE:,} bytes at byte {offset:,}")
            self._read(number, margin)
            margin *= 2
        return key

    def _read(self, number: int, margin: int) -> None:
        """Read the unknown complete lines of a piece and of the margins around it."""
        size = self._known.version.size
        part = ByteRange(max(0, number * PIECE - margin), min(size, (number + 1) * PIECE + margin))
        for missing in self._known.missing(part):
            body = self._source.get(self._path, missing, pin=self._known.version).body
            self._known.add_part(missing.start, body)


def _known_key(known: KnownLines, offset: int) -> bytes | None:
    """Return the key of the first line that starts at or after an offset; None if it is not known."""
    for fragment in known:
        if fragment.start < offset <= fragment.end:
            first = fragment.data.find(b"\n", offset - 1 - fragment.start) + 1
            if first < len(fragment.data):
                return key_of(fragment.data[first : fragment.data.index(b"\n", first)])
            if fragment.end == known.version.size:
                return END
    return None
