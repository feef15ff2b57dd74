"""Decode and check page indexes."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise

from catalogue.errors import BadPageIndex
from catalogue.parquet.model import DICTIONARY_ENCODINGS, Bounds, ColumnChunk, Order
from catalogue.parquet.stored_indexes import ColumnIndex, Indexes, OffsetIndex
from catalogue.parquet.thrift import Reader, ThriftError, typed

_OFFSET_INDEXES, _COLUMN_INDEXES = 1024, 128
"""Cached indexes, of about 6 and 20 kB each: queries for one site need the same ones."""


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
        message = f"the offset index of {chunk.column.name} cannot be decoded: {error}"
        raise BadPageIndex(message) from error
    offsets.append(chunk.range.end)
    first_rows.append(num_rows)
    # Only a dictionary page without an offset in the footer may precede the first data page.
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


@lru_cache(_COLUMN_INDEXES)
def decode_column_index(data: bytes, chunk: ColumnChunk, num_pages: int) -> ColumnIndex:
    """Decode a ``ColumnIndex`` of texts and check it against its column chunk.

    Raises:
        BadPageIndex: if it contradicts itself or the footer.
    """
    try:
        index = Reader(data).struct()
        nulls, mins, maxs, order = index[1], index[2], index[3], index[4]
        counts = index.get(5)
        if any(len(each) != num_pages for each in (nulls, mins, maxs, nulls if counts is None else counts)):
            raise ValueError(num_pages)  # noqa: TRY301
        bounds = tuple(
            None if typed(null, bool) else Bounds(typed(low, bytes), typed(high, bytes))
            for null, low, high in zip(nulls, mins, maxs, strict=True)
        )
        null_counts = None if counts is None else tuple(typed(count, int) for count in counts)
        first_doubt = next(_doubts(bounds, null_counts, typed(order, int), chunk), None)
    except (ThriftError, KeyError, TypeError, ValueError) as error:
        message = f"the column index of {chunk.column.name} cannot be decoded: {error}"
        raise BadPageIndex(message) from error
    if first_doubt:
        message = f"the column index of {chunk.column.name} {first_doubt}"
        raise BadPageIndex(message)
    return ColumnIndex(bounds, null_counts)


def page_bounds(indexes: Indexes, chunk: ColumnChunk, num_rows: int) -> list[tuple[Bounds, int]]:
    """Return bounds and rows of each page of a text column, except pages of nulls."""
    located = indexes.offset_indexes.get(chunk.column.name)
    if located is None or indexes.column_index is None:
        return []
    with suppress(BadPageIndex):
        offsets = decode_offset_index(located, chunk, num_rows)
        bounds = decode_column_index(indexes.column_index, chunk, len(offsets)).bounds
        return [(each, len(offsets.rows(range(page, page + 1)))) for page, each in enumerate(bounds) if each]
    return []


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
    """Yield contradictions of page bounds with those of their chunk."""
    if not known:
        yield "knows no values where the footer does"
        return
    if not whole.cut and (min(each.min for each in known) > whole.min or max(each.max for each in known) < whole.max):
        yield "leaves out values that the footer knows"
    if any(_below(each.min, whole.min) or _above(each.max, whole.max) for each in known):
        yield "knows values that the footer leaves out"


def _below(cut: bytes, least: bytes) -> bool:
    """Return whether a bound cannot be a cut value of ``least`` or above."""
    return cut < least[: len(cut)]


def _above(cut: bytes, greatest: bytes) -> bool:
    """Return whether a bound cannot be a cut and incremented value of ``greatest`` or below.

    The character after the last of ASCII has more bytes, so writers increment the one before it.
    """
    raised = cut.rstrip(b"\x7f")[:-1]
    return cut.isascii() and cut > greatest and raised > greatest[: len(raised)]
