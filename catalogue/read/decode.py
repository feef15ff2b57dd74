"""Decode the pages of columns to Arrow arrays of the requested rows, in batches."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise, starmap

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.errors import BadFooter, BadPageIndex
from catalogue.parquet.arrow_arrays import check_years, integer, least_and_greatest, positions
from catalogue.parquet.model import Bounds, Order
from catalogue.parquet.page_headers import PageHeader, check_headers, page_header, page_headers
from catalogue.parquet.splice import (
    PART_BYTES,
    ChunkPages,
    NotInflatedError,
    inflated,
    parts,
    splice,
    splice_dictionaries,
)
from catalogue.plan.crawl_plan import ColumnRead
from catalogue.query.resolved_query import MAY_BE_UNKNOWN, without_unknown
from catalogue.read.prefetch import Bundle, LoadedRowGroup, first_rows
from catalogue.read.streams import BATCH_BYTES, BATCH_ROWS
from catalogue.settings import limits

_FEW_ROWS = 1024
"""Rows of a batch that are enough, so that a bound of their size need not be exact."""

_SMALL_PAGE = 16 << 10
"""Average uncompressed bytes, below which pyarrow's zlib takes less time than a call of ISA-L by Python."""
_DELTA_BINARY_PACKED, _DELTA_BYTE_ARRAY = 5, 7
_TIME = SCHEMA.field("fetch_time").type

Numbered = tuple[np.ndarray, pa.Array]
"""Values of a column, and the ascending numbers of their rows."""

_INVALID = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError)


def decode(
    bundle: Bundle, reads: Sequence[ColumnRead], kind: pa.DataType, rows: np.ndarray | None = None
) -> Iterator[Numbered]:
    """Decode a column of a bundle to values of a ``kind``. Texts may be invalid; see ``valid``.

    ``rows`` are ascending numbers, None for all; rows after the last one, and row groups without any, are not decoded.

    Raises:
        BadFooter: if the bytes are not the pages of the column.
    """
    end = int(bundle.starts[-1] if rows is None or not len(rows) else rows[-1] + 1)
    pieces, of_groups = list[_Piece](), list[Sequence[range]]()
    at = 0
    try:
        for group, read in zip(bundle.groups, reads, strict=True):
            of_groups.append(read.rows if group.read.rows else ())
            if group.read.rows:
                pieces.append(_piece(group, read))
        if not pieces:
            return
        runs = bundle.runs(of_groups)
        needed = sum(len(range(run.start, min(run.stop, end))) for run in runs)
        most = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, _value_size(pieces))))
        is_common = pa.types.is_timestamp(kind) and kind.unit == "ms"  # times of Common Crawl
        is_fine = reads[0].chunk.column.physical_type == "INT96" and not is_common
        for spliced in _spliced(pieces, bundle.groups[0].file.created_by):
            if is_fine:
                some = _from_int96(spliced, min(most, needed - at))
            else:
                some = _values(spliced, min(most, needed - at), "ms")
            for piece in some:
                values = piece if piece.type == kind else piece.cast(kind)
                yield first_rows(runs, len(values)), values
                at += len(values)
                if at >= needed:
                    return
    except _INVALID as error:
        chunk = reads[0].chunk
        message = f"{bundle.where}, column {chunk.column.name}: {' '.join(str(error).split())}"
        if chunk.column.physical_type == "INT32" and _DELTA_BINARY_PACKED in chunk.encodings:
            message += "; perhaps DuckDB wrote differences of over 32 bits, by PARQUET_VERSION v2; write v1"
        raise BadFooter(message) from error


def _values(spliced: pa.Buffer, rows: int, unit: str) -> Iterator[pa.Array]:
    file = pq.ParquetFile(
        pa.BufferReader(spliced), coerce_int96_timestamp_unit=unit, page_checksum_verification=True, pre_buffer=False
    )
    for batch in file.iter_batches(rows, use_threads=False):
        yield batch.column(0)


def _from_int96(spliced: pa.Buffer, rows: int) -> Iterator[pa.Array]:
    """Yield INT96 times in microseconds, which contain all years; nanoseconds end in 2262.

    Raises:
        ValueError: if a time is finer.
    """
    for values, fine in zip(_values(spliced, rows, "us"), _values(spliced, rows, "ns"), strict=True):
        # Both wrap around, so they are also equal where nanoseconds do not contain the year.
        if not pc.multiply(values.cast(pa.int64()), integer(1000, pa.int64())).equals(fine.cast(pa.int64())):
            raise ValueError("a time is finer than a microsecond, which is not supported for INT96")
        yield values


_Piece = tuple[ChunkPages, Sequence[PageHeader]]


def _spliced(pieces: Sequence[_Piece], created_by: str) -> Iterator[pa.Buffer]:
    waiting: list[_Piece] = []
    size = 0
    for piece, headers, more in chain.from_iterable(starmap(parts, pieces)):
        if waiting and size + more > PART_BYTES:
            yield _file(waiting, size, created_by)
            waiting, size = [], 0
        waiting.append((piece, headers))
        size += more
    yield _file(waiting, size, created_by)


def _file(pieces: Sequence[_Piece], size: int, created_by: str) -> pa.Buffer:
    chunks, headers = zip(*pieces, strict=True)
    if size >= _SMALL_PAGE * sum(map(len, headers)):
        with suppress(NotInflatedError):
            return splice([*starmap(inflated, pieces)], created_by=created_by)
    return splice(chunks, created_by=created_by)


def _piece(group: LoadedRowGroup, read: ColumnRead) -> _Piece:
    chunk, name = read.chunk, read.chunk.column.name
    data = b"".join([group.cut(name, part.range) for part in read.parts(group.read.ordinal)])
    dictionary = len(read.dictionary) if read.dictionary else 0
    if read.index is None and chunk.dictionary_page_offset is not None:
        dictionary = chunk.data_page_offset - chunk.dictionary_page_offset
    num_rows = sum(map(len, read.rows))
    known = group.headers.get(name)
    if known is None:
        headers = list(page_headers(data, num_rows))
    else:
        headers = [page_header(data)] if read.dictionary else []
        if read.dictionary and (headers[0].data_page or headers[0].size != len(read.dictionary)):
            raise BadPageIndex("the bytes before its first data page are not one dictionary page")
        headers += [known[page] for run in read.pages for page in run]
    check_headers(headers, chunk, num_rows)
    size, most = 0, limits().max_page
    for header in headers:
        size += header.size
        if header.inflated > most:
            found = f"a page of it would have {header.inflated:,} bytes decompressed"
            raise ValueError(limits().exceeded("max_page", found))
    data = data[:size]  # no decoder reads on
    return ChunkPages(chunk, [data], len(data), dictionary, num_rows, chunk.codec), headers


def _value_size(pieces: Sequence[_Piece]) -> int:
    average = longest = rows = 0
    for piece, headers in pieces:
        chunk, rows = piece.chunk, rows + piece.num_rows
        average = max(average, chunk.total_uncompressed_size // max(1, chunk.num_values))
        # Repeated values in a dictionary, or values that share a prefix, take little space, however long they are.
        if chunk.column.physical_type.endswith("BYTE_ARRAY"):
            longest = max(longest, _longest(headers))
    if longest * min(_FEW_ROWS, rows) > BATCH_BYTES:
        longest = max(_longest_decoded(piece, headers) for piece, headers in pieces)
    return max(average, longest)


def _longest(headers: Iterable[PageHeader], *, dictionary: bool = True) -> int:
    """Return an upper bound of the bytes of a value that can be larger than its page; 0 if none can."""
    coded, of_dictionary, longest = False, 0, 0
    for each in headers:
        coded |= each.needs_dictionary
        if not each.data_page:
            of_dictionary = each.inflated
        elif each.encoding == _DELTA_BYTE_ARRAY:
            longest = max(longest, each.inflated)
    return max(longest, of_dictionary) if coded and dictionary else longest


def _longest_decoded(piece: ChunkPages, headers: Sequence[PageHeader]) -> int:
    """Return the same bound after decoding the dictionary."""
    longest = _longest(headers, dictionary=False)
    if headers[0].data_page or not any(each.needs_dictionary for each in headers):
        return longest
    if piece.chunk.column.physical_type != "BYTE_ARRAY":
        return max(longest, headers[0].inflated)
    page = b"".join(piece.pages)[: headers[0].size]
    file = pq.ParquetFile(pa.BufferReader(splice_dictionaries([(piece.chunk, page)])), page_checksum_verification=True)
    _, most = pc.min_max(pc.binary_length(file.read(use_threads=False).column(0))).values()
    return max(longest, most.as_py() or 0)


def requested(numbered: Iterable[Numbered], rows: np.ndarray) -> Iterator[pa.Array]:
    """Yield the values of rows with these ascending numbers.

    Raises:
        BadPageIndex: if one of the rows was not decoded.
    """
    for numbers, values in numbered:
        if not len(numbers):
            continue
        here = rows[slice(*np.searchsorted(rows, (numbers[0], numbers[-1] + 1)))]
        has_all = numbers[-1] - numbers[0] + 1 == len(numbers)
        at = here - numbers[0] if has_all else np.searchsorted(numbers, here)
        if not np.array_equal(numbers[at], here):
            raise BadPageIndex("a row that may match is in no page that was decoded")
        if len(here):
            yield values if len(here) == len(values) else values.take(positions(at))


def aligned(
    columns: Mapping[str, Iterator[pa.Array]],
    rows: np.ndarray | range,
    schema: pa.Schema,
    bundle: Bundle,
    dataset: Dataset,
) -> Iterator[pa.Table]:
    """Yield tables of columns whose pieces have different lengths; missing columns are null.

    ``rows`` are the numbers of all rows, and ``schema`` is that of the tables.

    Raises:
        BadFooter: if a column ends before the others.
    """
    pending: dict[str, pa.Array] = {}
    while len(rows):
        for name, pieces in columns.items():
            if not len(pending.get(name, ())):
                pending[name] = next(pieces, ())
        length = min(map(len, pending.values()), default=len(rows))
        if not length:
            ended = next(name for name, piece in pending.items() if not len(piece))
            raise BadFooter(f"{bundle.where}: column {ended} ends early")
        every = [
            pending[name].slice(0, length)
            if name in pending
            else bundle.path_column(name, rows[:length])
            if name in dataset.path_columns
            else pa.nulls(length, kind)
            for name, kind in zip(schema.names, schema.types, strict=True)
        ]
        yield pa.Table.from_arrays(every, schema=schema)
        for name, piece in pending.items():
            pending[name] = piece.slice(length)
        rows = rows[length:]


def valid(rows: pa.Table, bundle: Bundle, dataset: Dataset, columns: Collection[str] | None = None) -> pa.Table:
    """Return rows after checking some columns, or all; their unknown values are null.

    Raises:
        BadFooter: if a text is not UTF-8, or a time of Common Crawl is outside of the years 1 to 9999.
    """
    may_be_unknown = MAY_BE_UNKNOWN if dataset == COMMON_CRAWL else ()
    for place, name in enumerate(rows.column_names):
        if columns is None or name in columns:
            column = rows.column(place)
            try:
                column.validate(full=True)
                if column.type == _TIME:
                    check_years(column)
            except ValueError as error:  # pa.ArrowInvalid is one
                raise BadFooter(f"{bundle.where}, column {name}: {' '.join(str(error).split())}") from error
            if name in may_be_unknown:
                known = without_unknown(name, column)
                if known is not column:
                    rows = rows.set_column(place, name, known)
    return rows


def checked(bundle: Bundle, reads: Sequence[ColumnRead], numbered: Iterable[Numbered]) -> Iterator[Numbered]:
    """Yield the keys of a bundle, with the numbers of their rows, after checking them.

    Raises:
        BadFooter: if a key is outside the bounds in the footer, by which other queries skip the row group.
        BadPageIndex: if a key is outside the bounds of its page, or the number of nulls differs.
    """
    checks = [*map(_RowGroupCheck, bundle.groups, reads)]
    for numbers, values in numbered:
        keys = values.cast(pa.binary())
        for check, part, start in zip(checks, bundle.parts(numbers), bundle.starts.tolist(), strict=False):
            if part.start < part.stop:
                check(numbers[part] - start, keys.slice(part.start, part.stop - part.start))
        yield numbers, values


class _RowGroupCheck:
    def __init__(self, group: LoadedRowGroup, read: ColumnRead) -> None:
        bounds = read.chunk.bounds
        self._footer = bounds if bounds and bounds.order is Order.UNSIGNED else None
        self._group = group
        self._index, self._offsets = group.read.key_index, read.index
        pages = len(read.index) if read.index else 0
        self._rows, self._nulls = [0] * pages, [0] * pages

    def __call__(self, rows: np.ndarray, keys: pa.BinaryArray) -> None:
        if self._index is None or self._offsets is None:
            self._check_footer(least_and_greatest(keys))
            return
        pages = np.searchsorted(self._offsets.first_rows, rows, side="right") - 1
        cuts = (np.flatnonzero(pages[1:] != pages[:-1]) + 1).tolist()
        for first, after in pairwise([0, *cuts, len(pages)]):
            part, page = keys.slice(first, after - first), int(pages[first])
            found = least_and_greatest(part)
            self._check_footer(found)
            if not _are_inside(found, self._index.bounds[page]):
                raise BadPageIndex(f"page {page} of the keys has keys outside its bounds in the page index")
            self._rows[page] += len(part)
            self._nulls[page] += part.null_count
            counts, size = self._index.null_counts, len(self._offsets.rows(range(page, page + 1)))
            if counts is not None and self._rows[page] >= size and counts[page] != self._nulls[page]:
                raise BadPageIndex(
                    f"page {page} of the keys has {self._nulls[page]} nulls, which contradicts the page index"
                )

    def _check_footer(self, found: tuple[bytes, bytes] | None) -> None:
        if self._footer and not _are_inside(found, self._footer):
            raise BadFooter(
                f"{self._group.where}: it holds keys outside the bounds in the file's footer, so queries may miss "
                "rows; run: catalogue check --read-subset 100%"
            )


def _are_inside(found: tuple[bytes, bytes] | None, bounds: Bounds | None) -> bool:
    """Return whether keys are between bounds; without bounds there must be no keys."""
    return found is None or (bounds is not None and bounds.min <= found[0] and found[1] <= bounds.max)
