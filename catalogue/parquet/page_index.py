"""Page indexes: stored, decoded and checked."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from catalogue.errors import BadPageIndex
from catalogue.parquet.model import DICTIONARY_ENCODINGS, Bounds, ColumnChunk, Footer, Order
from catalogue.parquet.thrift import Reader, ThriftError, typed
from catalogue.source.byte_ranges import ByteRange

_OFFSET_INDEXES, _COLUMN_INDEXES = 1024, 128
"""Cached indexes, of about 6 and 20 kB each: queries for one site need the same ones."""
LONGEST_BOUND = 256
"""Bytes; parquet-mr cuts at 64."""


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """Places of the data pages of a column chunk; pages are numbered from 0."""

    offsets: tuple[int, ...]
    """Offset of each page in the file, and the end."""
    first_rows: tuple[int, ...]
    """First row of each page in the row group, and the number of rows."""

    def __reduce__(self) -> tuple[type["OffsetIndex"], tuple[object, ...]]:  # see ByteRange
        return OffsetIndex, (self.offsets, self.first_rows)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def extent(self, pages: range) -> ByteRange:
        return ByteRange(self.offsets[pages.start], self.offsets[pages.stop])

    def rows(self, pages: range) -> range:
        return range(self.first_rows[pages.start], self.first_rows[pages.stop])

    def covering(self, rows: Iterable[range], *, ends: bool = False) -> tuple[range, ...]:
        """Return the runs of pages that contain rows, given as ascending, disjoint runs.

        ``ends``: if there are any, they include the first and the last page, whose numbers of rows show whether the
        index shifts the rows of the pages between them.
        """
        some: Iterable[range] = [*filter(None, rows)]
        if ends and some:
            last = self.first_rows[-1]
            some = [range(1), *some, range(last - 1, last)]
        runs: list[range] = []
        for run in some:
            first = bisect_right(self.first_rows, run.start) - 1
            after = bisect_left(self.first_rows, run.stop)
            if runs and first <= runs[-1].stop:
                runs[-1] = range(runs[-1].start, after)
            else:
                runs.append(range(first, after))
        return tuple(runs)


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """Bounds of the data pages of a column chunk."""

    bounds: tuple[Bounds | None, ...]
    """Bounds by page, often cut; None for a page of nulls."""
    null_counts: tuple[int, ...] | None
    """Counts by page, if the writer counted."""

    def __reduce__(self) -> tuple[type["ColumnIndex"], tuple[object, ...]]:
        return ColumnIndex, (self.bounds, self.null_counts)


@dataclass(frozen=True, slots=True)
class Indexes:
    """The encoded page indexes of one row group, its dictionary pages, and the bounds of its keys of a backfill."""

    column_index: bytes | None = None
    """Index of the key column."""
    offset_indexes: Mapping[str, bytes] = field(default_factory=dict)
    bounds: Bounds | None = None
    """Bounds of all keys, where the footer has none."""
    dictionaries: Mapping[str, bytes] = field(default_factory=dict)
    """Dictionary pages, with their headers, of columns whose values are all in them."""

    def __reduce__(self) -> tuple[type["Indexes"], tuple[object, ...]]:
        return Indexes, (self.column_index, self.offset_indexes, self.bounds, self.dictionaries)

    def joined(self, other: "Indexes") -> "Indexes":
        """Return the union; ``other`` wins."""
        merged = {**self.offset_indexes, **other.offset_indexes}
        dictionaries = {**self.dictionaries, **other.dictionaries}
        return Indexes(other.column_index or self.column_index, merged, other.bounds or self.bounds, dictionaries)

    @property
    def written(self) -> "Indexes | None":
        """Return the part that is in the file."""
        if not (self.column_index or self.offset_indexes or self.dictionaries):
            return None
        return Indexes(self.column_index, self.offset_indexes, dictionaries=self.dictionaries)

    def parts(self) -> list[bytes]:
        """Return the column index or empty bytes, then the offset indexes and the dictionary pages."""
        return [self.column_index or b"", *self.offset_indexes.values(), *self.dictionaries.values()]

    def pack(self) -> bytes:
        """Encode for the store: a line of JSON, then the indexes."""
        header: dict[str, object] = {
            "own": False,
            "column_index": len(self.column_index or b""),
            "offset_indexes": [[name, len(data)] for name, data in self.offset_indexes.items()],
        }
        if self.dictionaries:
            header["dictionaries"] = [[name, len(data)] for name, data in self.dictionaries.items()]
        if self.bounds:
            header["bounds"] = [self.bounds.min.decode("latin-1"), self.bounds.max.decode("latin-1")]
        return json.dumps(header).encode() + b"\n" + b"".join(self.parts())

    @classmethod
    def unpack(cls, packed: bytes) -> "Indexes":
        """Decode what ``pack`` returned.

        Earlier versions stored page indexes derived from pages: only their bounds are used, as those of the row group.

        Raises:
            BadPageIndex: if it is invalid.
        """
        head, _, body = packed.partition(b"\n")
        try:
            header = json.loads(head)
            derived, position = typed(header["own"], bool), typed(header["column_index"], int)
            written = header["offset_indexes"], header.get("dictionaries", ())
            indexes, dictionaries = ([(typed(n, str), typed(s, int)) for n, s in sizes] for sizes in written)
            lengths = [position, *(size for _, size in (*indexes, *dictionaries))]
            if min(lengths) < 0 or sum(lengths) != len(body):
                raise ValueError(len(body))  # noqa: TRY301 - like those of the lines around it
            if derived:
                return cls(bounds=_bounds_of_pages(body[:position]) if position else None)
            bounds = _decoded_bounds(*header["bounds"]) if "bounds" in header else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ThriftError) as error:
            raise BadPageIndex(f"a page index of the store cannot be read: {error}") from error
        column_index = body[:position] or None
        pieces: tuple[dict[str, bytes], dict[str, bytes]] = {}, {}
        for of_kind, sizes in zip(pieces, (indexes, dictionaries), strict=True):
            for name, size in sizes:
                of_kind[name] = body[position : position + size]
                position += size
        return cls(column_index, pieces[0], bounds, pieces[1])


def _decoded_bounds(least: str, greatest: str) -> Bounds:
    bounds = Bounds(least.encode("latin-1"), greatest.encode("latin-1"))
    if bounds.min > bounds.max:
        raise ValueError(least)
    return bounds


def _bounds_of_pages(column_index: bytes) -> Bounds | None:
    fields = Reader(column_index).struct()
    pages = [
        (typed(least, bytes), typed(greatest, bytes))
        for null, least, greatest in zip(fields[1], fields[2], fields[3], strict=True)
        if not typed(null, bool)
    ]
    return Bounds(min(least for least, _ in pages), max(greatest for _, greatest in pages)) if pages else None


def cut_indexes(footer: Footer, key_column: str, body: bytes, start: int) -> dict[int, Indexes]:
    """Return, by row group, all offset indexes and the key's column index in a part of a file."""
    stored = ByteRange(start, start + len(body))
    found = {}
    for group in footer.row_groups:
        located = {name: chunk.offset_index for name, chunk in group.chunks.items()}
        inside = {n: body[at.start - start : at.end - start] for n, at in located.items() if at and at in stored}
        at = group.chunks[key_column].column_index if key_column in group.chunks else None
        bounds = body[at.start - start : at.end - start] if at and at in stored else None
        if inside or bounds:
            found[group.ordinal] = Indexes(bounds, inside)
    return found


def cut_bounds(least: bytes, greatest: bytes) -> Bounds:
    if len(greatest) > LONGEST_BOUND:
        prefix = greatest[:LONGEST_BOUND].rstrip(b"\xff")
        greatest = prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else greatest
    return Bounds(least[:LONGEST_BOUND], greatest)


@lru_cache(_OFFSET_INDEXES)
def decode_offset_index(data: bytes, chunk: ColumnChunk, num_rows: int) -> OffsetIndex:
    """Decode an ``OffsetIndex`` and check it against its column chunk.

    All writers place data pages consecutively up to the end of the chunk.

    Raises:
        BadPageIndex: if it is invalid or contradicts the footer.
    """
    try:
        locations = Reader(data).struct()[1]
        offsets, sizes, first_rows = ([typed(location[number], int) for location in locations] for number in (1, 2, 3))
    except (ThriftError, KeyError, TypeError, IndexError) as error:
        raise BadPageIndex(f"the offset index of {chunk.column.name} cannot be decoded: {error}") from error
    offsets.append(chunk.range.end)
    first_rows.append(num_rows)
    # Only a dictionary page without an offset in the footer may precede the first data page.
    untold = chunk.dictionary_page_offset is None and not {*DICTIONARY_ENCODINGS}.isdisjoint(chunk.encodings)
    fits = (
        (offsets[0] == chunk.data_page_offset or (untold and offsets[0] > chunk.data_page_offset))
        and all(size > 0 for size in sizes)
        and all(start + size == end for (start, end), size in zip(pairwise(offsets), sizes, strict=True))
        and first_rows[0] == 0
        and all(first < following for first, following in pairwise(first_rows))
    )
    if not fits:
        raise BadPageIndex(f"the offset index of {chunk.column.name} contradicts its column chunk")
    return OffsetIndex(tuple(offsets), tuple(first_rows))


@lru_cache(_COLUMN_INDEXES)
def decode_column_index(data: bytes, chunk: ColumnChunk, pages: OffsetIndex) -> ColumnIndex:
    """Decode a ``ColumnIndex`` of texts and check it against its column chunk.

    Raises:
        BadPageIndex: if it contradicts itself or the footer.
    """
    try:
        index = Reader(data).struct()
        nulls, mins, maxs, order = index[1], index[2], index[3], index[4]
        counts = index.get(5)
        if any(len(each) != len(pages) for each in (nulls, mins, maxs, nulls if counts is None else counts)):
            raise ValueError(len(pages))  # noqa: TRY301
        bounds = tuple(
            None if typed(null, bool) else Bounds(typed(low, bytes), typed(high, bytes))
            for null, low, high in zip(nulls, mins, maxs, strict=True)
        )
        null_counts = None if counts is None else tuple(typed(count, int) for count in counts)
        first_doubt = next(_doubts(bounds, null_counts, typed(order, int), chunk, pages), None)
    except (ThriftError, KeyError, TypeError, ValueError) as error:
        raise BadPageIndex(f"the column index of {chunk.column.name} cannot be decoded: {error}") from error
    if first_doubt:
        raise BadPageIndex(f"the column index of {chunk.column.name} {first_doubt}")
    return ColumnIndex(bounds, null_counts)


def has_damage(found: Mapping[int, Indexes], footer: Footer, key: str, *, keys_only: bool = False) -> bool:
    """Return whether page indexes are invalid, given by row group; ``keys_only`` does not decode those of others."""
    try:
        for group in footer.row_groups:
            indexes = found.get(group.ordinal, Indexes())
            located = {
                name: decode_offset_index(data, group.chunks[name], group.num_rows)
                for name, data in indexes.offset_indexes.items()
                if name == key or not keys_only
            }
            if indexes.column_index and key in located:
                decode_column_index(indexes.column_index, group.chunks[key], located[key])
    except BadPageIndex:
        return True
    return False


def page_bounds(indexes: Indexes, chunk: ColumnChunk, num_rows: int) -> list[tuple[Bounds, int]]:
    """Return bounds and rows of each page of a text column, except pages of nulls."""
    located = indexes.offset_indexes.get(chunk.column.name)
    if located is None or indexes.column_index is None:
        return []
    with suppress(BadPageIndex):
        offsets = decode_offset_index(located, chunk, num_rows)
        bounds = decode_column_index(indexes.column_index, chunk, offsets).bounds
        return [(each, len(offsets.rows(range(page, page + 1)))) for page, each in enumerate(bounds) if each]
    return []


def _doubts(
    bounds: Sequence[Bounds | None],
    null_counts: Sequence[int] | None,
    order: int,
    chunk: ColumnChunk,
    pages: OffsetIndex,
) -> Iterator[str]:
    known = [each for each in bounds if each]
    if any(each.min > each.max for each in known):
        yield "has a page whose smallest value is greater than its largest"
    ascending, descending = 1, 2
    for claimed, sign in ((ascending, 1), (descending, -1)):
        if order == claimed and any(a.min > b.min or a.max > b.max for a, b in pairwise(known[::sign])):
            yield "states an order that its pages do not have"
    if null_counts is not None:
        yield from _doubtful_counts(bounds, null_counts, chunk, pages)
    if chunk.null_count == 0 and None in bounds:
        yield "has a page of nulls only, and the footer counts no nulls"
    if chunk.bounds and chunk.bounds.order is Order.UNSIGNED:
        yield from _contradictions(known, chunk.bounds)


def _doubtful_counts(
    bounds: Sequence[Bounds | None], null_counts: Sequence[int], chunk: ColumnChunk, pages: OffsetIndex
) -> Iterator[str]:
    for each, nulls, (first, after) in zip(bounds, null_counts, pairwise(pages.first_rows), strict=True):
        rows = after - first
        is_possible = nulls == rows if each is None else 0 <= nulls < rows
        if not is_possible or (nulls and not chunk.column.optional):
            yield f"counts {nulls:,} nulls in a page of {rows:,} values, which contradicts its other values"
    if chunk.null_count not in {None, sum(null_counts)}:
        yield "has another number of nulls than the footer"


def _contradictions(known: Sequence[Bounds], whole: Bounds) -> Iterator[str]:
    if not known:
        yield "has no bounds, although the footer has bounds"
        return
    if not whole.cut and (min(each.min for each in known) > whole.min or max(each.max for each in known) < whole.max):
        yield "does not cover the bounds in the footer"
    # Bounds of pages may be cut.
    if any(each.min < whole.min[: len(each.min)] or _above(each.max, whole.max) for each in known):
        yield "has bounds outside those in the footer"


def _above(cut: bytes, greatest: bytes) -> bool:
    """Return whether a bound cannot be a cut and incremented value of ``greatest`` or below.

    The character after the last of ASCII has more bytes, so writers increment another.
    """
    raised = cut.rstrip(b"\x7f")[:-1]
    return cut.isascii() and cut > greatest and raised > greatest[: len(raised)]
