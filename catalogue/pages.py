"""Page indexes and page headers → where the pages of a column chunk lie, which rows and which keys they hold.

An index written with the file (apache/parquet-format, PageIndex.md: ``OffsetIndex`` and ``ColumnIndex``) and one of our
own making, from the headers of pages that were read anyway, have the same form here and in the store. What an index
says is checked against the footer when it is decoded and against each page when that is read; one that is wrong is no
worse than none.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from catalogue.errors import BadPageIndex
from catalogue.footer import DATA_PAGES, DICTIONARY_ENCODINGS, Bounds, ColumnChunk, Footer, Order
from catalogue.ranges import ByteRange
from catalogue.thrift import (
    BINARY,
    BOOLEAN_TRUE,
    I32,
    I64,
    LIST,
    STRUCT,
    Reader,
    ThriftError,
    encode_list,
    encode_struct,
)

MAX_PAGES = 20_000
"""Of a column chunk; Common Crawl's have some 120."""
LONGEST_BOUND = 256
"""Bytes up to which bounds of our own making are kept whole; parquet-mr cuts at 64."""

_DECODED = 1024
"""Offset indexes, of some 6 kB each, that are remembered: questions about one site meet the same ones."""
_V1 = DATA_PAGES[0]
_T = TypeVar("_T", int, bytes, bool, str)


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """Where the data pages of a column chunk lie, and which rows they hold; pages are numbered from 0."""

    offsets: tuple[int, ...]
    """Of the start of each page in the file, and of the end of the last: one more than there are pages."""
    first_rows: tuple[int, ...]
    """Number in the row group of the first row of each page, and last the number of rows: one more likewise."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def extent(self, pages: range) -> ByteRange:
        """Where consecutive pages lie."""
        return ByteRange(self.offsets[pages.start], self.offsets[pages.stop])

    def rows(self, pages: range) -> range:
        """The rows that consecutive pages hold."""
        return range(self.first_rows[pages.start], self.first_rows[pages.stop])

    def covering(self, rows: Iterable[range]) -> tuple[range, ...]:
        """The pages, as runs of consecutive ones, that hold rows, which are given as ascending, disjoint runs."""
        runs: list[range] = []
        for run in filter(None, rows):
            first = bisect_right(self.first_rows, run.start) - 1
            behind = bisect_left(self.first_rows, run.stop)
            if runs and first <= runs[-1].stop:
                runs[-1] = range(runs[-1].start, behind)
            else:
                runs.append(range(first, behind))
        return tuple(runs)


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """Which values the data pages of a column chunk hold."""

    bounds: tuple[Bounds | None, ...]
    """A page each; None for a page of nothing but nulls. Often cut short, which leaves them valid bounds."""
    null_counts: tuple[int, ...] | None
    """A page each, if the writer counted them."""

    def overall(self) -> Bounds | None:
        """Bounds of the whole chunk; None if it holds nothing but nulls."""
        known = [bounds for bounds in self.bounds if bounds]
        return Bounds(min(b.min for b in known), max(b.max for b in known)) if known else None


@dataclass(frozen=True, slots=True)
class Indexes:
    """What is held, raw, of the page indexes of one row group."""

    column_index: bytes | None = None
    """Of the key column."""
    offset_indexes: Mapping[str, bytes] = field(default_factory=dict)
    """By column."""
    own: bool = False
    """Whether some were made from pages that were read, and not written with the file."""

    def joined(self, other: "Indexes") -> "Indexes":
        """Both; what was read from the pages themselves is believed before what the file says of them."""
        below, above = (other, self) if self.own and not other.own else (self, other)
        merged = {**below.offset_indexes, **above.offset_indexes}
        return Indexes(above.column_index or below.column_index, merged, own=self.own or other.own)

    def pack(self) -> bytes:
        """As bytes for the store: a line of JSON that names what follows, and the indexes one behind the other."""
        parts = [("", self.column_index or b""), *self.offset_indexes.items()]
        header = {"own": self.own, "column_index": len(parts[0][1])}
        sizes = [[name, len(data)] for name, data in parts[1:]]
        return json.dumps({**header, "offset_indexes": sizes}).encode() + b"\n" + b"".join(data for _, data in parts)

    @classmethod
    def unpack(cls, packed: bytes) -> "Indexes":
        """The reverse.

        Raises:
            BadPageIndex: if it is nothing that ``pack`` made.
        """
        head, _, body = packed.partition(b"\n")
        try:
            header = json.loads(head)
            own, position = _typed(header["own"], bool), _typed(header["column_index"], int)
            sizes = [(_typed(name, str), _typed(size, int)) for name, size in header["offset_indexes"]]
            lengths = [position, *(size for _, size in sizes)]
            if min(lengths) < 0 or sum(lengths) != len(body):
                raise ValueError(len(body))  # noqa: TRY301 - like those of the lines around it
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            message = f"a page index of the store cannot be read: {error}"
            raise BadPageIndex(message) from error
        column_index, pieces = body[:position] or None, {}
        for name, size in sizes:
            pieces[name] = body[position : position + size]
            position += size
        return cls(column_index, pieces, own=own)


def cut_indexes(footer: Footer, key_column: str, body: bytes, start: int) -> dict[int, Indexes]:
    """The page indexes in some bytes of a file, by row group: all offset indexes, and the key's column index.

    Args:
        footer: of the file.
        key_column: its name.
        body: the bytes.
        start: their offset in the file.
    """
    held = ByteRange(start, start + len(body))
    found = {}
    for group in footer.row_groups:
        located = {name: chunk.offset_index for name, chunk in group.chunks.items()}
        inside = {n: body[at.start - start : at.end - start] for n, at in located.items() if at and at in held}
        at = group.chunks[key_column].column_index if key_column in group.chunks else None
        bounds = body[at.start - start : at.end - start] if at and at in held else None
        if inside or bounds:
            found[group.ordinal] = Indexes(bounds, inside)
    return found


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What a page says of itself."""

    data_page: bool
    size: int
    """Bytes, as stored, with this header."""
    num_values: int
    """Nulls included; rows, where the column is flat."""
    needs_dictionary: bool


@lru_cache(_DECODED)
def decode_offset_index(data: bytes, chunk: ColumnChunk, num_rows: int) -> OffsetIndex:
    """Decode an ``OffsetIndex`` and check it against its column chunk.

    Every writer so far puts a chunk's data pages one behind the other up to its end, and an index that says otherwise
    is not believed.

    Raises:
        BadPageIndex: if it cannot be decoded or contradicts the footer.
    """
    try:
        locations = Reader(data).struct()[1]
        offsets, sizes, first_rows = ([_typed(location[number], int) for location in locations] for number in (1, 2, 3))
    except (ThriftError, KeyError, TypeError, IndexError) as error:
        message = f"the offset index of {chunk.column.name} cannot be decoded: {error}"
        raise BadPageIndex(message) from error
    return _offset_index([*offsets, chunk.range.end], sizes, [*first_rows, num_rows], chunk)


def _offset_index(offsets: list[int], sizes: list[int], first_rows: list[int], chunk: ColumnChunk) -> OffsetIndex:
    # Only a dictionary page of which the footer does not tell may lie before the first data page.
    untold = chunk.dictionary_page_offset is None and not {*DICTIONARY_ENCODINGS}.isdisjoint(chunk.encodings)
    fits = (
        len(sizes) > 0
        and (offsets[0] == chunk.data_page_offset or (untold and offsets[0] > chunk.data_page_offset))
        and all(size > 0 for size in sizes)
        and all(start + size == end for (start, end), size in zip(pairwise(offsets), sizes, strict=True))
        and first_rows[0] == 0
        and all(first < following for first, following in pairwise(first_rows))
    )
    if not fits:
        message = f"the offset index of {chunk.column.name} contradicts its column chunk"
        raise BadPageIndex(message)
    return OffsetIndex(tuple(offsets), tuple(first_rows))


def decode_column_index(data: bytes, chunk: ColumnChunk, num_pages: int) -> ColumnIndex:
    """Decode a ``ColumnIndex`` of texts and check it against its column chunk.

    Args:
        data: its bytes.
        chunk: whose pages it describes.
        num_pages: how many there are.

    Raises:
        BadPageIndex: if it cannot be decoded or contradicts itself or the footer.
    """
    try:
        index = Reader(data).struct()
        nulls, mins, maxs, order = index[1], index[2], index[3], index[4]
        counts = index.get(5)
        if any(len(each) != num_pages for each in (nulls, mins, maxs, nulls if counts is None else counts)):
            raise ValueError(num_pages)  # noqa: TRY301
        bounds = tuple(
            None if _typed(null, bool) else Bounds(_typed(low, bytes), _typed(high, bytes))
            for null, low, high in zip(nulls, mins, maxs, strict=True)
        )
        null_counts = None if counts is None else tuple(_typed(count, int) for count in counts)
        first_doubt = next(_doubts(bounds, null_counts, _typed(order, int), chunk), None)
    except (ThriftError, KeyError, TypeError, ValueError) as error:
        message = f"the column index of {chunk.column.name} cannot be decoded: {error}"
        raise BadPageIndex(message) from error
    if first_doubt:
        message = f"the column index of {chunk.column.name} {first_doubt}"
        raise BadPageIndex(message)
    return ColumnIndex(bounds, null_counts)


def _doubts(
    bounds: Sequence[Bounds | None], null_counts: Sequence[int] | None, order: int, chunk: ColumnChunk
) -> Iterator[str]:
    known = [each for each in bounds if each]
    if any(each.min > each.max for each in known):
        yield "has a page whose least value is greater than its greatest"
    ascending, descending = 1, 2
    for claimed, sign in ((ascending, 1), (descending, -1)):
        if order == claimed and any(a.min > b.min or a.max > b.max for a, b in pairwise(known[::sign])):
            yield "claims an order that its pages do not have"
    if null_counts is not None and any(count < 0 for count in null_counts):
        yield "counts less than no nulls"
    if null_counts is not None and chunk.null_count not in {None, sum(null_counts)}:
        yield "counts other nulls than the footer"
    nulls = null_counts or [1] * len(bounds)
    if any(each is None and (chunk.null_count == 0 or count == 0) for each, count in zip(bounds, nulls, strict=True)):
        yield "has a page of nothing but nulls without any"
    if chunk.bounds and chunk.bounds.order is Order.UNSIGNED:
        yield from _contradictions(known, chunk.bounds)


def _contradictions(known: Sequence[Bounds], whole: Bounds) -> Iterator[str]:
    """What speaks against bounds of pages, given those of their chunk."""
    if not known:
        yield "knows no values where the footer does"
        return
    if not whole.cut and (min(each.min for each in known) > whole.min or max(each.max for each in known) < whole.max):
        yield "leaves out values that the footer knows"
    if any(_below(each.min, whole.min) or _above(each.max, whole.max) for each in known):
        yield "knows values that the footer leaves out"


def _below(cut: bytes, least: bytes) -> bool:
    """Whether no value from ``least`` on can have been cut to this bound."""
    return cut < least[: len(cut)]


def _above(cut: bytes, greatest: bytes) -> bool:
    """Whether no value up to ``greatest`` can have been cut, and its last character incremented, to this bound.

    Beyond ASCII the character that follows may have more bytes than the one it takes the place of; keys have none such.
    The last of ASCII is therefore left as it is, and the character before it incremented.
    """
    raised = cut.rstrip(b"\x7f")[:-1]
    return cut.isascii() and cut > greatest and raised > greatest[: len(raised)]


def _typed(value: object, kind: type[_T]) -> _T:
    """The value, if it is of that type; what others can be made into, and how large, is not for a file to say."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        message = f"{type(value).__name__} instead of {kind.__name__}"
        raise TypeError(message)
    return value


def page_header(data: bytes, start: int = 0) -> PageHeader:
    """The header of the page at an offset of ``data``.

    Raises:
        BadPageIndex: if there is none.
    """
    reader = Reader(data, start)
    try:
        header = reader.struct()
        kind, stored = _typed(header[1], int), _typed(header[3], int)
        data_page = kind in DATA_PAGES
        details = header[5 if kind == _V1 else 8] if data_page else {}
        # DataPageHeader.encoding is its field 2, that of DataPageHeaderV2 4.
        encoding = details.get(2 if kind == _V1 else 4)
        values = _typed(details.get(1, 0), int)
    except (ThriftError, KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"no page starts there: {error}"
        raise BadPageIndex(message) from error
    if stored < 0 or values < 0:
        message = "no page starts there"
        raise BadPageIndex(message)
    size = reader.position - start + stored
    return PageHeader(data_page, size, values, data_page and encoding in DICTIONARY_ENCODINGS)


def check_pages(data: bytes, index: OffsetIndex, pages: range, *, dictionary: bool) -> None:
    """Check consecutive pages against what the index says of them.

    Args:
        data: the pages' bytes.
        index: of their column.
        pages: which they are.
        dictionary: whether the dictionary page is at hand.

    Raises:
        BadPageIndex: if a page is of another length, holds other rows or needs a dictionary that is not there.
    """
    base = index.offsets[pages.start]
    for page in pages:
        start = index.offsets[page] - base
        header = page_header(data, start)
        rows = index.first_rows[page + 1] - index.first_rows[page]
        expected = index.offsets[page + 1] - index.offsets[page]
        if not header.data_page or header.size != expected or header.num_values != rows:
            message = f"page {page} is not what the index says of it"
            raise BadPageIndex(message)
        if header.needs_dictionary and not dictionary:
            message = f"page {page} needs a dictionary against what the footer says"
            raise BadPageIndex(message)


def walk(data: bytes, chunk: ColumnChunk) -> OffsetIndex:
    """The index of a flat column chunk that was read whole, from its pages' headers.

    Raises:
        BadPageIndex: if the headers do not lead to the chunk's end and to all of its rows.
    """
    offsets: list[int] = []
    sizes: list[int] = []
    first_rows: list[int] = []
    position = row = 0
    while position < len(data):
        header = page_header(data, position)
        if header.data_page:
            if len(sizes) >= MAX_PAGES:
                message = f"{chunk.column.name} has more than {MAX_PAGES} pages"
                raise BadPageIndex(message)
            offsets.append(chunk.range.start + position)
            sizes.append(header.size)
            first_rows.append(row)
            row += header.num_values
        elif position:
            message = f"{chunk.column.name} has a page that holds no values behind the first"
            raise BadPageIndex(message)
        position += header.size
    if row != chunk.num_values:
        message = f"the pages of {chunk.column.name} hold {row} rows, not {chunk.num_values}"
        raise BadPageIndex(message)
    return _offset_index([*offsets, chunk.range.end], sizes, [*first_rows, row], chunk)


def encode_offset_index(index: OffsetIndex) -> bytes:
    """An index in the format's own form."""
    sizes = (end - start for start, end in pairwise(index.offsets))
    locations = [
        encode_struct([(1, I64, offset), (2, I32, size), (3, I64, row)])
        for offset, size, row in zip(index.offsets, sizes, index.first_rows, strict=False)
    ]
    return encode_struct([(1, LIST, encode_list(STRUCT, locations))])


def encode_column_index(index: ColumnIndex) -> bytes:
    """An index of texts in the format's own form, without a claim of order."""
    unordered = 0
    return encode_struct(
        [
            (1, LIST, encode_list(BOOLEAN_TRUE, [bounds is None for bounds in index.bounds])),
            (2, LIST, encode_list(BINARY, [bounds.min if bounds else b"" for bounds in index.bounds])),
            (3, LIST, encode_list(BINARY, [bounds.max if bounds else b"" for bounds in index.bounds])),
            (4, I32, unordered),
            (5, LIST, None if index.null_counts is None else encode_list(I64, index.null_counts)),
        ]
    )


def cut_bounds(least: bytes, greatest: bytes) -> Bounds:
    """Bounds of values, cut to a length that is worth keeping."""
    if len(greatest) > LONGEST_BOUND:
        kept = greatest[:LONGEST_BOUND].rstrip(b"\xff")
        greatest = kept[:-1] + bytes([kept[-1] + 1]) if kept else greatest
    return Bounds(least[:LONGEST_BOUND], greatest)
