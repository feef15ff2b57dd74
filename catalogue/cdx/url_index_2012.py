"""The URL index of the crawl of 2012: parse and check its blocks, and search it through a source.

::

    header       block size, number of index blocks: 4 bytes each; all numbers are little-endian
    index block  block number, then repeatedly: prefix, NUL, block number; the rest is NULs
    data block   repeatedly: URL, NUL, location of 32 bytes; the rest is NULs
    location     segment 8, date of the file 8, partition 4, offset 8, size 4

Block 0 is the root. Block ``n`` starts at 8 + ``n`` times the block size. Data blocks follow the index blocks, in the
order of their URLs, compared by bytes. A prefix is between the URLs of the blocks before and after it, inclusive.

The real file has 217 GB in blocks of 64 KiB; its 2,644 index blocks have about 1,250 entries each, in three levels.
Header and upper two levels take one request each, once for all patterns. A site then takes two requests; a large result
takes two in the lowest level, and one for every 16 MiB.
"""

import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from catalogue.commoncrawl.capture import MAX_RECORD, Capture
from catalogue.errors import BadCdx, NotFound, QueryError
from catalogue.formatting import ReprMixin
from catalogue.source.byte_ranges import ByteRange, FileVersion, coalesce
from catalogue.source.cache import drop_cached
from catalogue.source.checks import Source
from catalogue.surt.interval import EVERYTHING, KeyInterval, prefix_interval
from catalogue.surt.key import NEWEST, canonical_host

_TYPED = re.compile(r"(?:(https?)://)?(\*\.)?([^/?]*)(.*)", re.DOTALL | re.IGNORECASE)
_AUTHORITY = re.compile(r"([a-z0-9_.-]+)(:[0-9]{1,5})?")
_NOT_IN_KEYS = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_HOST = re.compile("[^/?:]*")


@dataclass(frozen=True, slots=True)
class KeyPattern:
    """A pattern, and the URLs of the index that it matches."""

    interval: KeyInterval
    """An interval with all matches."""
    form: re.Pattern[bytes]
    """A regular expression; the interval may have other keys."""

    def matches(self, key: bytes) -> bool:
        return key in self.interval and self.form.fullmatch(key) is not None


def parse_key_prefix(text: str) -> KeyPattern:
    typed = text.strip()
    if typed == "*":
        return KeyPattern(EVERYTHING, re.compile(b".*", re.DOTALL))
    scheme, below, authority, rest = _TYPED.fullmatch(typed).groups()  # type: ignore[union-attr]  # matches anything
    ended = rest.endswith("*")
    rest = rest.removesuffix("*")
    if _NOT_IN_KEYS.search(typed) or "*" in rest:
        raise _refused(typed, "has a * that is not its last character, or a character that no URL contains")
    if "#" in typed:
        raise _refused(typed, "contains a #; URLs were archived without # and the text after it")
    base, port = _turned(typed, authority)
    ending = b":" + scheme.lower().encode() if scheme else b":https?"
    if below:
        if port or rest not in {"", "/"}:
            raise _refused(typed, "combines subdomains with a port or a path")
        # Among the bytes from . to ? are 0 to 9, of hosts such as com.example2, which the form leaves out.
        found = KeyInterval(base + b".", base + b"@")
        return KeyPattern(found, _form(base, b"[./:?].*", ending if scheme else b""))
    start = base + port + (b"" if rest.startswith("/") else b"/") + rest.encode()
    if ended:
        if scheme:
            return KeyPattern(prefix_interval(start), _form(start, b".*", ending))
        # The scheme at the end of a key is no part of what was typed; some keys have none.
        either = rb"%b.*:https?|(?!.*:https?\Z)%b.*" % (2 * (re.escape(start),))
        return KeyPattern(prefix_interval(start), re.compile(either, re.DOTALL))
    return KeyPattern(prefix_interval(start + b":http"), _form(start, b"", ending))


def url_of(key: bytes) -> str:
    """Return the usual spelling of a URL, as in the header of its record; ``http`` if it has no scheme."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = key.decode("iso-8859-1")  # as warcio reads the header
    rest, _, scheme = text.rpartition(":")
    if scheme not in {"http", "https"}:
        rest, scheme = text, "http"
    host = _HOST.match(rest)[0]  # type: ignore[index]  # matches anything
    return f"{scheme}://{'.'.join(reversed(host.split('.')))}{rest[len(host) :]}"


def _form(start: bytes, middle: bytes, ending: bytes) -> re.Pattern[bytes]:
    return re.compile(re.escape(start) + middle + ending, re.DOTALL)


def _turned(typed: str, authority: str) -> tuple[bytes, bytes]:
    name, colon, port = authority.partition(":")
    found = _AUTHORITY.fullmatch(canonical_host(name, NEWEST) + colon + port)
    if not found:
        raise _refused(typed, f"has {authority[:100]!r} where a host should be")
    return ".".join(reversed(found[1].split("."))).encode(), (found[2] or "").encode()


def _refused(typed: str, why: str) -> QueryError:
    message = f"{typed[:200]!r} {why}; patterns look like example.com/page, example.com/* or *.example.com"
    return QueryError(message)


PATH = "projects/url-index/url-index.1356128792"

_TOP = 512 << 10
"""Bytes that are read with the root."""
_GAP = 1 << 20
"""Bytes between two blocks that cost less than another request."""
_PIECE = 16 << 20
"""Bytes of data blocks in one request."""
_USUAL_ENTRY = 128
"""Estimated bytes of an entry, at most."""
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
    """The division of a file into blocks."""

    block_size: int
    index_blocks: int
    """They come first."""
    file_size: int

    @property
    def blocks(self) -> int:
        """Number of blocks; the last may be shorter."""
        return -(-(self.file_size - HEADER_SIZE) // self.block_size)

    def place(self, first: int, last: int) -> ByteRange:
        """Return the range of consecutive blocks, both inclusive."""
        if not 0 <= first <= last < self.blocks:
            message = f"the index has no blocks {first:,} to {last:,}: its {self.file_size:,} bytes are {self.blocks:,}"
            raise BadCdx(message)
        end = HEADER_SIZE + (last + 1) * self.block_size
        return ByteRange(HEADER_SIZE + first * self.block_size, min(end, self.file_size))


@dataclass(frozen=True, slots=True)
class IndexBlock:
    """The consecutive blocks below one block, and the prefixes between them."""

    first: int
    """Number of the first block below."""
    prefixes: tuple[bytes, ...]
    """Ascending; equal ones where the captures of a URL fill more than a block."""

    def down(self, key: bytes) -> tuple[int, bytes | None, bytes | None]:
        """Return the first block below that may contain ``key``, and the prefixes before and after it."""
        at = bisect_left(self.prefixes, key)  # where a prefix equals the key, the block before it may hold it too
        return (
            self.first + at,
            self.prefixes[at - 1] if at else None,
            self.prefixes[at] if at < len(self.prefixes) else None,
        )


def capture_at(key: bytes, location: bytes) -> Capture:
    segment, date, partition, offset, size = _LOCATION.unpack(location)
    if not (offset < _MAX_OFFSET and 0 < size <= MAX_RECORD):
        message = f"invalid place of the record of {url_of(key)[:200]!r}: {size:,} bytes at {offset:,}"
        raise BadCdx(message)
    return Capture(f"parse-output/segment/{segment}/{date}_{partition}.arc.gz", offset, size, url_of(key))


def parse_header(data: bytes, file_size: int) -> Header:
    if len(data) != HEADER_SIZE:
        raise BadCdx(f"the index has {len(data)} bytes, too few for its header")
    block_size, index_blocks = _HEADER.unpack(data)
    header = Header(block_size, index_blocks, file_size)
    if not _LEAST_BLOCK <= header.block_size <= MAX_BLOCK:
        raise BadCdx(f"invalid size of blocks in a URL index: {header.block_size:,} bytes")
    if not 0 < header.index_blocks < header.blocks:
        message = f"a file of {header.blocks:,} blocks cannot have {header.index_blocks:,} index blocks and data blocks"
        raise BadCdx(message)
    return header


def parse_index_block(header: Header, number: int, data: bytes) -> IndexBlock:
    if len(data) < _NUMBER.size:
        raise _bad(number, "ends within an entry")
    entries = list(_entries(number, data, _NUMBER.size, _NUMBER.size))
    prefixes = [prefix for prefix, _ in entries]
    numbers = [_NUMBER.unpack(each)[0] for each in (data[: _NUMBER.size], *(below for _, below in entries))]
    _check_order(number, prefixes)
    first, last = numbers[0], numbers[-1]
    if any(other != one + 1 for one, other in pairwise(numbers)):
        raise _bad(number, "names blocks that do not follow each other")
    if first <= number:  # so there are no cycles
        raise _bad(number, f"points at block {first:,}, which is not after it")
    if last >= header.blocks:
        raise _bad(number, f"points at block {last:,}, which does not exist")
    if first < header.index_blocks <= last:
        raise _bad(number, "points at index blocks and at data blocks")
    return IndexBlock(first, tuple(prefixes))


def parse_data_block(number: int, data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the URLs in the spelling of the index, and their locations."""
    entries = list(_entries(number, data, 0, _LOCATION.size))
    if not entries:
        raise _bad(number, "is empty")
    _check_order(number, [key for key, _ in entries])
    return entries


def _entries(number: int, data: bytes, at: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    while at < len(data) and data[at]:
        end = data.find(b"\0", at)
        following = end + 1 + size
        if end < 0 or following > len(data):
            raise _bad(number, "ends within an entry")
        yield data[at:end], data[end + 1 : following]
        at = following
    if data.count(b"\0", at) < len(data) - at:
        raise _bad(number, "has data after its end")


def _check_order(number: int, keys: list[bytes]) -> None:
    if any(one > other for one, other in pairwise(keys)):
        raise _bad(number, "is not in order")


def _bad(number: int, what: str) -> BadCdx:
    return BadCdx(f"block {number:,} of the index {what}")


@dataclass(frozen=True, slots=True)
class Extent:
    """The data blocks that contain the captures of a pattern."""

    pattern: KeyPattern
    first: int
    last: int
    lower: bytes
    """Lower bound of the URLs in these blocks."""
    upper: bytes | None
    """Upper bound; None if unknown."""
    range: ByteRange


class OldIndex(ReprMixin):
    """The URL index of 2012; its blocks are checked against each other."""

    def __init__(self, source: Source, path: str = PATH) -> None:
        self._source = source
        self._path = path

    def _line(self) -> str:
        return f"in {self._path}"

    def find(self, text: str) -> Extent:
        """Find the result of a pattern, see ``parse_key_prefix``; reads index blocks only.

        Raises:
            QueryError: if the pattern is invalid.
            BadCdx: if the file is not such an index.
            SourceError: if it cannot be read.
        """
        pattern = parse_key_prefix(text)
        left = right = 0
        lower, upper = b"", None
        with self._dropping_damage():
            while left < self._header.index_blocks and right < self._header.index_blocks:
                blocks = self._index_blocks(left, right)
                _check_bounds(blocks[left].prefixes, lower, None, left)
                _check_bounds(blocks[right].prefixes, None, upper, right)
                left, before, _ = blocks[left].down(pattern.interval.start)
                right, _, stop = blocks[right].down(pattern.interval.end)
                lower = lower if before is None else before
                upper = upper if stop is None else stop
            if left > right or left < self._header.index_blocks or right < self._header.index_blocks:
                raise BadCdx(f"{self._path} has branches of different lengths, or out of order")
        return Extent(pattern, left, right, lower, upper, self._header.place(left, right))

    def cost(self, extent: Extent, *, limit: int | None = None) -> tuple[int, int]:
        size = min(len(extent.range), self._bytes_of(limit))
        return -(-size // _PIECE), size

    def captures(self, extent: Extent, *, limit: int | None = None) -> Iterator[Capture]:
        """Yield the captures of an extent, in the order of the index, without times, digests and states.

        Raises:
            BadCdx: if blocks are damaged, or contradict the index blocks.
            SourceError: if they cannot be read.
        """
        size, requested, end = self._header.block_size, limit, extent.pattern.interval.end
        at, lower = extent.first, extent.lower
        with self._dropping_damage():
            while at <= extent.last and requested != 0:
                blocks = max(1, min(_PIECE, self._bytes_of(requested)) // size)
                last = min(extent.last, at + blocks - 1)
                body = self._get(self._header.place(at, last))
                for number in range(at, last + 1):
                    start = (number - at) * size
                    entries = parse_data_block(number, body[start : start + size])
                    keys = entries[0][0], entries[-1][0]
                    _check_bounds(keys, lower, extent.upper if number == extent.last else None, number)
                    lower = keys[1]
                    for key, location in entries:
                        if key >= end or requested == 0:
                            return
                        if extent.pattern.matches(key):
                            yield capture_at(key, location)
                            requested = None if requested is None else requested - 1
                at = last + 1

    @contextmanager
    def _dropping_damage(self) -> Iterator[None]:
        """Drop what is cached of an index that is not valid, so that the next command requests it again."""
        try:
            yield
        except BadCdx:
            if "_opened" in self.__dict__:  # its header is valid
                version = self._opened[1]
                drop_cached(self._source, self._path, version, [ByteRange(0, version.size)])
            raise

    def _bytes_of(self, limit: int | None) -> int:
        return 1 << 63 if limit is None else 2 * self._header.block_size + limit * _USUAL_ENTRY

    @cached_property
    def _opened(self) -> tuple[Header, FileVersion]:
        try:
            answer = self._source.get(self._path, ByteRange(0, HEADER_SIZE))
        except NotFound as error:
            raise NotFound(f"{error}; Common Crawl has the URL index of 2012: add --source commoncrawl") from error
        return parse_header(answer.body, answer.total_size), answer.version

    @property
    def _header(self) -> Header:
        return self._opened[0]

    @cached_property
    def _top(self) -> dict[int, IndexBlock]:
        count = max(1, min(self._header.index_blocks, _TOP // self._header.block_size))
        return self._parsed(self._header.place(0, count - 1))

    def _index_blocks(self, left: int, right: int) -> dict[int, IndexBlock]:
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
    if keys and ((lower is not None and keys[0] < lower) or (upper is not None and keys[-1] > upper)):
        raise BadCdx(f"block {number:,} of the index contradicts the blocks above it, or before it")
