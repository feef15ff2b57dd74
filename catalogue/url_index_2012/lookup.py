"""Search the URL index of the crawl of 2012 through a source.

The header and the top of the tree take one request each, once for all patterns. Then a pattern takes one request for
each level below, and one for every 16 MiB of the result. The real file has 217 GB in blocks of 64 KiB; its 2,644 index
blocks have about 1,250 entries each, so there are three levels, and the upper two are at the beginning of the file. A
site takes two requests after those for header and top; a large result takes two in the lowest level.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from catalogue.commoncrawl.capture import Capture
from catalogue.errors import BadUrlIndex
from catalogue.source.byte_ranges import ByteRange, FileVersion, coalesce
from catalogue.source.checks import Source
from catalogue.url_index_2012.blocks import (
    HEADER_SIZE,
    Header,
    IndexBlock,
    parse_data_block,
    parse_header,
    parse_index_block,
)
from catalogue.url_index_2012.url_keys import KeyPattern, parse_key_prefix

PATH = "projects/url-index/url-index.1356128792"
"""Path of the index at Common Crawl's address."""

_TOP = 512 << 10
"""Bytes that are read with the root; 8 blocks of the real file."""
_GAP = 1 << 20
"""Bytes between two blocks of a level that cost less than another request."""
_PIECE = 16 << 20
"""Bytes of data blocks in one request."""
_USUAL_ENTRY = 128
"""Estimated bytes of an entry, rather too many."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The data blocks with the result of a pattern."""

    pattern: KeyPattern
    first: int
    """Number of the first data block."""
    last: int
    """Number of the last."""
    lower: bytes
    """Lower bound of the URLs in these blocks."""
    upper: bytes | None
    """Upper bound; None if unknown."""
    range: ByteRange


class OldIndex:
    """An index file; its blocks are checked against each other."""

    def __init__(self, source: Source, path: str = PATH) -> None:
        """Prepare; the first pattern makes the first request."""
        self._source = source
        self._path = path

    def find(self, text: str) -> Extent:
        """Find the result of a pattern; reads index blocks only.

        Args:
            text: see ``parse_key_prefix``.

        Raises:
            QueryError: if the pattern is invalid.
            BadUrlIndex: if the file is not such an index.
            SourceError: if it cannot be read.
        """
        pattern = parse_key_prefix(text)
        left = right = 0
        lower, upper = b"", None
        while left < self._header.index_blocks and right < self._header.index_blocks:
            blocks = self._index_blocks(left, right)
            _check_bounds(blocks[left].prefixes, lower, None, left)
            _check_bounds(blocks[right].prefixes, None, upper, right)
            left, before, _ = blocks[left].down(pattern.interval.start)
            right, _, stop = blocks[right].down(pattern.interval.end)
            lower = lower if before is None else before
            upper = upper if stop is None else stop
        if left > right or left < self._header.index_blocks or right < self._header.index_blocks:
            message = f"{self._path} has branches of different lengths, or out of order"
            raise BadUrlIndex(message)
        return Extent(pattern, left, right, lower, upper, self._header.place(left, right))

    def cost(self, extent: Extent, *, limit: int | None = None) -> tuple[int, int]:
        """Return requests and bytes of reading the captures; an estimate with a limit."""
        size = len(extent.range) if limit is None else min(len(extent.range), self._about(limit))
        return -(-size // _PIECE), size

    def captures(self, extent: Extent, *, limit: int | None = None) -> Iterator[Capture]:
        """Yield the captures of an extent, in the order of the index, without times, digests and states.

        Raises:
            BadUrlIndex: if blocks are damaged, or contradict the index blocks.
            SourceError: if they cannot be read.
        """
        size, requested, end = self._header.block_size, limit, extent.pattern.interval.end
        at, lower = extent.first, extent.lower
        while at <= extent.last and requested != 0:
            few = _PIECE if requested is None else min(_PIECE, self._about(requested))
            last = min(extent.last, at + max(1, few // size) - 1)
            body = self._get(self._header.place(at, last))
            for number in range(at, last + 1):
                start = (number - at) * size
                entries = parse_data_block(number, body[start : start + size])
                keys = entries[0].key, entries[-1].key
                _check_bounds(keys, lower, extent.upper if number == extent.last else None, number)
                lower = keys[1]
                for entry in entries:
                    if entry.key >= end or requested == 0:
                        return
                    if extent.pattern.takes(entry.key):
                        yield entry.capture()
                        requested = None if requested is None else requested - 1
            at = last + 1

    def _about(self, captures: int) -> int:
        """Estimate the bytes of captures."""
        return 2 * self._header.block_size + captures * _USUAL_ENTRY

    @cached_property
    def _opened(self) -> tuple[Header, FileVersion]:
        answer = self._source.get(self._path, ByteRange(0, HEADER_SIZE))
        return parse_header(answer.body, answer.total_size), FileVersion(answer.total_size, answer.etag)

    @property
    def _header(self) -> Header:
        return self._opened[0]

    @cached_property
    def _top(self) -> dict[int, IndexBlock]:
        count = max(1, min(self._header.index_blocks, _TOP // self._header.block_size))
        return self._parsed(self._header.place(0, count - 1))

    def _index_blocks(self, left: int, right: int) -> dict[int, IndexBlock]:
        """Return two blocks of a level, which may be the same."""
        found = dict(self._top)
        missing = {left, right} - found.keys()
        places = (self._header.place(number, number) for number in missing)
        for run in coalesce(places, max_gap=_GAP, max_length=_PIECE):
            found |= self._parsed(run)
        return found

    def _parsed(self, run: ByteRange) -> dict[int, IndexBlock]:
        size = self._header.block_size
        first, body = (run.start - HEADER_SIZE) // size, self._get(run)
        return {
            first + at // size: parse_index_block(self._header, first + at // size, body[at : at + size])
            for at in range(0, len(body), size)
        }

    def _get(self, requested: ByteRange) -> bytes:
        return self._source.get(self._path, requested, pin=self._opened[1]).body


def _check_bounds(keys: tuple[bytes, ...], lower: bytes | None, upper: bytes | None, number: int) -> None:
    """Check that ascending keys of a block are inside the bounds of the blocks before and above it."""
    if keys and ((lower is not None and keys[0] < lower) or (upper is not None and keys[-1] > upper)):
        message = f"block {number:,} of the index holds what the blocks above it, or before it, say it does not"
        raise BadUrlIndex(message)
