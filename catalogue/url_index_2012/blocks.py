"""Parse and check the blocks of the URL index.

::

    header       block size, number of index blocks: 4 bytes each; all numbers are little-endian
    index block  block number, then repeatedly: prefix, NUL, block number; the rest is NULs
    data block   repeatedly: URL, NUL, location of 32 bytes; the rest is NULs
    location     segment 8, date of the file 8, partition 4, offset 8, size 4

Block 0 is the root. Block ``n`` starts at 8 + ``n`` times the block size. Data blocks follow the index blocks, in the
order of their URLs, compared by bytes. A prefix is not greater than any URL of the block after it, and not less than
any URL of the block before it.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from catalogue.commoncrawl.capture import MAX_RECORD, Capture
from catalogue.errors import BadUrlIndex
from catalogue.source.byte_ranges import ByteRange
from catalogue.url_index_2012.url_keys import url_of

HEADER_SIZE = 8
MAX_BLOCK = 4 << 20
"""Maximum bytes of a block; the real index has 64 KiB."""

_HEADER = struct.Struct("<II")
_NUMBER = struct.Struct("<I")
_LOCATION = struct.Struct("<QQIQI")
_LEAST_BLOCK = 64
_MAX_OFFSET = 1 << 50


@dataclass(frozen=True, slots=True)
class Header:
    """How a file is divided into blocks."""

    block_size: int
    index_blocks: int
    """Number of index blocks, which come first."""
    file_size: int

    @property
    def blocks(self) -> int:
        """Number of blocks; the last may be shorter."""
        return -(-(self.file_size - HEADER_SIZE) // self.block_size)

    def place(self, first: int, last: int) -> ByteRange:
        """Return the range of consecutive blocks, both included.

        Raises:
            BadUrlIndex: if they are not all in the file.
        """
        if not 0 <= first <= last < self.blocks:
            message = f"the index has no blocks {first:,} to {last:,}: its {self.file_size:,} bytes are {self.blocks:,}"
            raise BadUrlIndex(message)
        end = HEADER_SIZE + (last + 1) * self.block_size
        return ByteRange(HEADER_SIZE + first * self.block_size, min(end, self.file_size))


@dataclass(frozen=True, slots=True)
class IndexBlock:
    """The consecutive blocks below one block, and the prefixes between them."""

    first: int
    """Number of the first block below."""
    prefixes: tuple[bytes, ...]
    """One less than blocks, ascending; equal ones where the captures of a URL fill more than a block."""

    def down(self, key: bytes) -> tuple[int, bytes | None, bytes | None]:
        """Return the first block below that may contain ``key``, and the prefixes before and after it."""
        at = bisect_left(self.prefixes, key)  # where a prefix equals the key, the block before it may hold it too
        return (
            self.first + at,
            self.prefixes[at - 1] if at else None,
            self.prefixes[at] if at < len(self.prefixes) else None,
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """A URL of a data block, and where it was archived."""

    key: bytes
    """The URL in the spelling of the index."""
    location: bytes

    def capture(self) -> Capture:
        """Return the place of its record.

        Raises:
            BadUrlIndex: if it is invalid.
        """
        segment, date, partition, offset, size = _LOCATION.unpack(self.location)
        if not (offset < _MAX_OFFSET and 0 < size <= MAX_RECORD):
            message = f"the index says of {url_of(self.key)[:200]!r} that {size:,} bytes at {offset:,} are its record"
            raise BadUrlIndex(message)
        name = f"parse-output/segment/{segment}/{date}_{partition}.arc.gz"
        return Capture(name, offset, size, url_of(self.key))


def parse_header(data: bytes, file_size: int) -> Header:
    """Parse the file's first 8 bytes.

    Raises:
        BadUrlIndex: if they are invalid, or contradict the file's size.
    """
    if len(data) != HEADER_SIZE:
        message = f"the index has {len(data)} bytes, too few for its header"
        raise BadUrlIndex(message)
    block_size, index_blocks = _HEADER.unpack(data)
    header = Header(block_size, index_blocks, file_size)
    if not _LEAST_BLOCK <= header.block_size <= MAX_BLOCK:
        message = f"invalid size of blocks in a URL index: {header.block_size:,} bytes"
        raise BadUrlIndex(message)
    if not 0 < header.index_blocks < header.blocks:
        message = f"a file of {header.blocks:,} blocks cannot have {header.index_blocks:,} index blocks and data blocks"
        raise BadUrlIndex(message)
    return header


def parse_index_block(header: Header, number: int, data: bytes) -> IndexBlock:
    """Parse an index block.

    Raises:
        BadUrlIndex: if it is invalid, or names blocks that do not follow it.
    """
    numbers, prefixes = [_number(number, data, 0)], []
    at = _NUMBER.size
    while at < len(data) and data[at]:
        end = data.find(b"\0", at)
        if end < 0:
            raise _bad(number, "ends within an entry")
        prefixes.append(data[at:end])
        numbers.append(_number(number, data, end + 1))
        at = end + 1 + _NUMBER.size
    _check_rest(number, data, at)
    _check_order(number, prefixes)
    first, last = numbers[0], numbers[-1]
    if any(other != one + 1 for one, other in pairwise(numbers)):
        raise _bad(number, "names blocks that do not follow each other")
    if first <= number:  # so there are no cycles
        raise _bad(number, f"points at block {first:,}, which does not lie behind it")
    if last >= header.blocks:
        raise _bad(number, f"points at block {last:,}, which is not there")
    if first < header.index_blocks <= last:
        raise _bad(number, "points at index blocks and at data blocks")
    return IndexBlock(first, tuple(prefixes))


def parse_data_block(number: int, data: bytes) -> list[Entry]:
    """Parse a data block; ``number`` is for messages.

    Raises:
        BadUrlIndex: if it is invalid or empty, or its URLs are not in order.
    """
    entries = list(_entries(number, data))
    if not entries:
        raise _bad(number, "is empty")
    _check_order(number, [entry.key for entry in entries])
    return entries


def _entries(number: int, data: bytes) -> Iterator[Entry]:
    at = 0
    while at < len(data) and data[at]:
        end = data.find(b"\0", at)
        following = end + 1 + _LOCATION.size
        if end < 0 or following > len(data):
            raise _bad(number, "ends within an entry")
        yield Entry(data[at:end], data[end + 1 : following])
        at = following
    _check_rest(number, data, at)


def _number(number: int, data: bytes, at: int) -> int:
    if at + _NUMBER.size > len(data):
        raise _bad(number, "ends within an entry")
    found: int = _NUMBER.unpack_from(data, at)[0]
    return found


def _check_rest(number: int, data: bytes, at: int) -> None:
    if data.count(b"\0", at) < len(data) - at:
        raise _bad(number, "goes on behind its end")


def _check_order(number: int, keys: list[bytes]) -> None:
    if any(one > other for one, other in pairwise(keys)):
        raise _bad(number, "is not in order")


def _bad(number: int, what: str) -> BadUrlIndex:
    return BadUrlIndex(f"block {number:,} of the index {what}")
