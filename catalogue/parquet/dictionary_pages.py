"""Decode dictionary pages, which have all values of a column chunk where the footer states so."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalogue.errors import BadPageIndex
from catalogue.parquet.arrow_arrays import least_and_greatest
from catalogue.parquet.column_chunk import number
from catalogue.parquet.model import ColumnChunk, Order, is_stored_as_text
from catalogue.parquet.page_headers import page_header
from catalogue.parquet.splice import splice_dictionaries
from catalogue.parquet.thrift import ThriftError

TEXT, INTEGER = "text", "integer"
"""The types of values that are decoded."""

_LARGEST: Final = 8 << 20
"""Uncompressed bytes of a dictionary page; writers give up dictionaries of over 1 MiB."""
_BATCH: Final = 4 << 20
"""Uncompressed bytes of pages that are decoded together, which takes a fifth of the time."""
_WIDTHS: Final = {"INT32": 4, "INT64": 8}
_INVALID = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, ThriftError, BadPageIndex)
_Page = tuple[ColumnChunk, bytes]


def kind_of_values(chunk: ColumnChunk) -> str | None:
    """Return ``TEXT`` or ``INTEGER``; None for a column whose values are not decoded."""
    column = chunk.column
    if not column.flat:
        return None
    if is_stored_as_text(column):
        return TEXT
    return INTEGER if column.plain_integer else None


def missing_bytes(page: bytes, chunk: ColumnChunk) -> int:
    """Return the bytes of a dictionary page that were not read; 0 also for an invalid one."""
    try:
        return max(0, min(page_header(page).size, len(chunk.range)) - len(page))
    except BadPageIndex:
        return 0


def dictionary_values(pages: Sequence[_Page]) -> Iterator[pa.Array | None]:
    """Yield the distinct values of column chunks with values of one kind, as text or 64-bit integers, without null.

    Each chunk comes with the bytes of its ``dictionary_page``. None stands for a page of which nothing can be
    concluded: it is damaged, or contradicts the bounds or the number of nulls in the footer.
    """
    waiting: list[_Page] = []
    size = 0
    for chunk, page in pages:
        inflated = _inflated(chunk, page)
        # Files may have the same column with 32 and with 64 bits.
        other = waiting and waiting[0][0].column.physical_type != chunk.column.physical_type
        if waiting and (inflated is None or size + inflated > _BATCH or other):
            yield from _decoded(waiting)
            waiting, size = [], 0
        if inflated is None:
            yield None
        else:
            waiting.append((chunk, page))
            size += inflated
    yield from _decoded(waiting)


def _inflated(chunk: ColumnChunk, page: bytes) -> int | None:
    """Return the size of a page that may be decoded."""
    try:
        header = page_header(page)
    except BadPageIndex:
        return None
    exact = chunk.dictionary_page_offset is not None
    is_complete = header.size == len(page) if exact else header.size <= len(page)
    return header.inflated if is_complete and not header.data_page and header.inflated <= _LARGEST else None


def _decoded(pages: Sequence[_Page]) -> Iterator[pa.Array | None]:
    if not pages:
        return
    try:
        found = [*_values(pages)]
    except _INVALID:
        if len(pages) == 1:
            yield None
        else:
            for page in pages:
                yield from _decoded([page])
        return
    for (chunk, _), values in zip(pages, found, strict=True):
        yield values if _agree(values, chunk) else None


def _values(pages: Sequence[_Page]) -> Iterator[pa.Array]:
    cut = [(chunk, page[: page_header(page).size]) for chunk, page in pages]
    file = pq.ParquetFile(pa.BufferReader(splice_dictionaries(cut)), page_checksum_verification=True, pre_buffer=False)
    kind = pa.string() if kind_of_values(pages[0][0]) == TEXT else pa.int64()
    counts = [file.metadata.row_group(number).num_rows for number in range(len(pages))]
    (values,) = file.read(use_threads=False).combine_chunks().columns
    every = values.cast(kind).combine_chunks()
    every.validate(full=True)
    if width := _WIDTHS.get(pages[0][0].column.physical_type):
        sizes = [page_header(page).inflated for _, page in cut]
        if sizes != [count * width for count in counts]:
            raise ValueError("a dictionary page has another length than its values")
    start = 0
    for count in counts:
        yield every.slice(start, count)
        start += count


def _agree(values: pa.Array, chunk: ColumnChunk) -> bool:
    """Return whether values have the bounds that the footer states, and it counts only nulls if there are none."""
    if not len(values) or chunk.null_count == chunk.num_values:
        return not len(values) and chunk.null_count == chunk.num_values
    if (bounds := chunk.bounds) is None:
        return True
    if values.type == pa.int64():
        least, greatest = (each.as_py() for each in pc.min_max(values).values())
        low, high = (number(chunk.column.physical_type, plain) for plain in (bounds.min, bounds.max))
        return (least, greatest) == (low, high)
    found = least_and_greatest(values.cast(pa.binary()))
    if found is None or (bounds.order is Order.SIGNED and not pc.all(pc.string_is_ascii(values)).as_py()):
        return False
    if bounds.cut:
        return bounds.min <= found[0] and found[1] <= bounds.max
    return found == (bounds.min, bounds.max)
