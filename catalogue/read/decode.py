"""Decode column bytes to Arrow arrays of the requested rows, in batches."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalogue.errors import BadFooter
from catalogue.parquet.arrow_arrays import positions, texts
from catalogue.parquet.model import ColumnChunk
from catalogue.parquet.page_headers import PageHeader, check_headers, page_header, page_headers
from catalogue.parquet.splice import splice, splice_dictionary
from catalogue.plan.plan import ColumnRead
from catalogue.read.prefetch import LoadedRowGroup

BATCH_ROWS = 1 << 16
"""Maximum rows decoded at a time."""
BATCH_BYTES = 64 << 20
"""About the uncompressed bytes decoded at a time."""
MAX_PAGE = 256 << 20
"""Maximum uncompressed bytes of a page. Writers start another after 1 MiB, or after some thousand values."""

_DELTA_BYTE_ARRAY = 7
"""Of the format's ``Encoding``."""

Numbered = tuple[int, pa.Array]
"""Consecutive values of a column, and the row number of the first."""


def decode(group: LoadedRowGroup, read: ColumnRead, data: bytes, kind: pa.DataType) -> Iterator[Numbered]:
    """Decode the bytes of a column; ``kind`` is its type in the result.

    Raises:
        BadFooter: if the bytes are not the pages of the column.
    """
    chunk = read.chunk
    runs = iter(read.rows)
    dictionary = len(read.dictionary) if read.dictionary else 0
    if read.index is None and chunk.dictionary_page_offset is not None:
        dictionary = chunk.data_page_offset - chunk.dictionary_page_offset
    num_rows = sum(map(len, read.rows))
    size = chunk.total_uncompressed_size // max(1, chunk.num_values)
    most = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, size)))
    run = next(runs, range(0))
    try:
        headers = _headers(group, read, data, num_rows)
        most = max(1, min(most, BATCH_BYTES // max(1, _longest(chunk, data, headers, num_rows))))
        file = pq.ParquetFile(
            pa.BufferReader(
                splice(chunk, data, dictionary_size=dictionary, num_rows=num_rows, created_by=group.file.created_by)
            ),
            coerce_int96_timestamp_unit="ms",
            page_checksum_verification=True,
            pre_buffer=False,
        )
        for batch in file.iter_batches(most, use_threads=False):
            batch.validate(full=True)
            values = batch.column(0)
            # Times finer than the index's own seconds would be of no use to anybody; anything else must fit.
            values = values if values.type == kind else values.cast(kind, safe=not pa.types.is_timestamp(kind))
            while len(values):
                if not run:
                    run = next(runs)
                piece = values.slice(0, len(run))
                yield run.start, piece
                run, values = run[len(piece) :], values.slice(len(piece))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        message = f"{group.where}, column {chunk.column.name}: {' '.join(str(error).split())}"
        raise BadFooter(message) from error


def _headers(group: LoadedRowGroup, read: ColumnRead, data: bytes, num_rows: int) -> list[PageHeader]:
    checked = group.headers.get(read.chunk.column.name)
    if checked is None or read.index is None:
        return list(page_headers(data, num_rows))
    dictionary = [page_header(data)] if read.dictionary else []
    return dictionary + [checked[page] for run in read.pages for page in run]


def _longest(chunk: ColumnChunk, data: bytes, headers: Sequence[PageHeader], num_rows: int) -> int:
    """Return the maximum bytes of a value, where values can be larger than their pages.

    Repeated values in a dictionary, or values that share a prefix, take little space, however long they are.

    Args:
        chunk: the column chunk.
        data: its pages, the dictionary page first.
        headers: of these pages.
        num_rows: number of rows in them.

    Returns:
        0 if the values together are not much larger than the inflated pages.

    Raises:
        ValueError: if a page would inflate to more than ``MAX_PAGE``, or has no header.
    """
    check_headers(headers, chunk, num_rows)
    if (largest := max((each.inflated for each in headers), default=0)) > MAX_PAGE:
        message = f"a page of it would inflate to {largest:,} bytes; {MAX_PAGE:,} are the most"
        raise ValueError(message)
    if not chunk.column.physical_type.endswith("BYTE_ARRAY") or largest * min(num_rows, BATCH_ROWS) <= BATCH_BYTES:
        return 0
    longest = max((each.inflated for each in headers if each.encoding == _DELTA_BYTE_ARRAY), default=0)
    if headers[0].data_page or not any(each.needs_dictionary for each in headers):
        return longest
    if chunk.column.physical_type != "BYTE_ARRAY":
        return max(longest, headers[0].inflated)
    file = pq.ParquetFile(
        pa.BufferReader(splice_dictionary(chunk, data[: headers[0].size])), page_checksum_verification=True
    )
    _, most = pc.min_max(pc.binary_length(file.read(use_threads=False).column(0))).values()
    return max(longest, most.as_py() or 0)


def requested(numbered: Iterable[Numbered], rows: np.ndarray) -> Iterator[pa.Array]:
    """Yield the values of rows with these ascending numbers."""
    for start, values in numbered:
        first, end = np.searchsorted(rows, (start, start + len(values)))
        if end - first == len(values):
            yield values
        elif first < end:
            yield values.take(positions(rows[first:end] - start))


def aligned(
    columns: Mapping[str, Iterator[pa.Array]],
    num_rows: int,
    schema: pa.Schema,
    group: LoadedRowGroup,
    path_columns: Sequence[str],
) -> Iterator[pa.Table]:
    """Yield tables of columns whose pieces have different lengths; columns that the file does not have are null.

    Args:
        columns: pieces of the columns that are read.
        num_rows: of all tables together.
        schema: of each table.
        group: the row group.
        path_columns: columns whose value is derived from the file's path.

    Raises:
        BadFooter: if a column ends before the others.
    """
    fixed = {name: getattr(group.file.file, name) for name in path_columns}
    pending: dict[str, pa.Array] = {}
    left = num_rows
    while left:
        for name, pieces in columns.items():
            if not len(pending.get(name, ())):
                pending[name] = next(pieces, ())
        length = min((len(piece) for piece in pending.values()), default=left)
        if not length:
            ended = next(name for name, piece in pending.items() if not len(piece))
            message = f"{group.where}: column {ended} ends early"
            raise BadFooter(message)
        every = [
            pending[name].slice(0, length)
            if name in pending
            else pa.repeat(texts([fixed[name]])[0], length)
            if name in fixed
            else pa.nulls(length, kind)
            for name, kind in zip(schema.names, schema.types, strict=True)
        ]
        yield pa.Table.from_arrays(every, schema=schema)
        pending = {name: piece.slice(length) for name, piece in pending.items()}
        left -= length
