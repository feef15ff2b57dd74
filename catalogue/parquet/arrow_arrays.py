"""Convert between Arrow and Python values without importing pandas.

``pyarrow.array``, ``scalar``, ``to_numpy``, and ``to_pylist`` of times with a zone import it, which takes longer than a
query.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from struct import pack
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MOST_BYTES = (1 << 31) - 1
_TEXTS = (pa.string(), pa.binary())
_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def binaries(values: Sequence[bytes]) -> pa.BinaryArray:
    ends = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
    if ends[-1] > _MOST_BYTES:
        raise ValueError(f"{ends[-1]:,} bytes do not fit into an array")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def texts(values: Sequence[str | None]) -> pa.StringArray:
    return array_of(pa.string(), values)


def array_of(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Convert texts, binaries, integers or booleans, each possibly None."""
    valid = None
    if None in values:
        valid = pa.py_buffer(np.packbits([value is not None for value in values], bitorder="little"))
    if kind in _TEXTS:
        encoded = [value.encode() if isinstance(value, str) else value or b"" for value in values]
        _, ends, data = binaries(encoded).buffers()
        return pa.Array.from_buffers(kind, len(values), [valid, ends, data])
    known = [0 if value is None else value for value in values]
    if kind == pa.bool_():
        packed = np.packbits(np.array(known, bool), bitorder="little")
    else:
        packed = np.array(known, np.dtype(f"i{kind.bit_width // 8}"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(packed)])


def text(value: str) -> pa.StringScalar:
    return texts([value])[0]


def integer(value: int, kind: pa.DataType) -> pa.Scalar:
    return positions(np.array([value])).cast(kind)[0]


def integers(values: pa.Array) -> np.ndarray:
    """Return integers without nulls."""
    kind = np.dtype(f"i{values.type.bit_width // 8}")
    return np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]


def bounds_and_bytes(keys: pa.BinaryArray) -> tuple[np.ndarray, memoryview]:
    """Return the start of each key and the end of the last one, and the data."""
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return bounds, memoryview(data or b"")


def arrow_memory(data: bytes | memoryview) -> pa.Buffer:
    """Copy bytes into memory of Arrow, for its readers of CSV and JSON.

    Their threads may release the bytes when the reader has returned. They need Python's lock for memory of Python, and
    abort a process that ends then.
    """
    copy = pa.allocate_buffer(len(data))
    with pa.FixedSizeBufferWriter(copy) as file:
        file.write(data)
    return copy


def moment(milliseconds: int) -> pa.Scalar:
    return pa.Array.from_buffers(pa.timestamp("ms", "UTC"), 1, [None, pa.py_buffer(pack("<q", milliseconds))])[0]


def positions(numbers: np.ndarray) -> pa.Int64Array:
    return pa.Array.from_buffers(
        pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers, np.int64))]
    )


def flags(values: np.ndarray) -> pa.BooleanArray:
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def booleans(values: pa.BooleanArray) -> np.ndarray:
    """Return values without nulls."""
    bits = np.unpackbits(np.frombuffer(values.buffers()[1], np.uint8), bitorder="little")
    return bits[values.offset : values.offset + len(values)].astype(bool)


def numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Return 8-byte integers without nulls."""
    return np.concatenate([np.arange(0), *(integers(piece) for piece in values.chunks if len(piece))])


def true_positions(mask: pa.BooleanArray | pa.ChunkedArray) -> np.ndarray:
    return integers(pc.indices_nonzero(mask))


def joined(values: pa.ChunkedArray) -> pa.Array:
    """Return one array; combining copies even a single chunk."""
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def rows_of(some: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return rows as dicts; times are in UTC, without a zone."""
    columns = [
        column.cast(pa.timestamp(column.type.unit)) if pa.types.is_timestamp(column.type) else column
        for column in some.columns
    ]
    rows: list[dict[str, Any]] = type(some).from_arrays(columns, names=some.schema.names).to_pylist()
    return rows


def check_years(column: pa.ChunkedArray) -> None:
    """Raise ValueError for times outside of the years 1 to 9999, which Python cannot represent."""
    try:
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            pc.min_max(column.cast(pa.timestamp("ms"), safe=False)).as_py()
    except OverflowError as error:
        raise ValueError("a time is not in the years 1 to 9999") from error


def limited(tables: Iterable[_Rows], limit: int | None) -> Iterator[_Rows]:
    """Yield the rows up to a limit, None for all; ``tables`` is not read further than necessary."""
    for rows in tables:
        yield rows.slice(0, limit)
        if limit is not None and (limit := limit - rows.num_rows) <= 0:
            return


def chunks(batches: Iterable[pa.RecordBatch], most_rows: int, most_bytes: int = sys.maxsize) -> Iterator[pa.Table]:
    """Yield rows in tables of about so many rows or bytes."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= most_rows or size >= most_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def least_and_greatest(keys: pa.BinaryArray) -> tuple[bytes, bytes] | None:
    """Return the least and the greatest key; None if all are null."""
    if len(keys) < _FEW:
        known = [key for key in keys.to_pylist() if key is not None]
        return (min(known), max(known)) if known else None
    if len(keys) > _MANY and ascends(keys[:_FEW]) and ascends(keys):  # a sixth of the time
        return keys[0].as_py(), keys[-1].as_py()
    least, greatest = pc.min_max(keys).values()
    return (least.as_py(), greatest.as_py()) if least.is_valid else None


_FEW, _MANY = 64, 1024


def ascends(keys: pa.BinaryArray) -> bool:
    return not keys.null_count and bool(pc.all(pc.less_equal(keys[:-1], keys[1:]), min_count=0).as_py())


def ascending(keys: pa.BinaryArray) -> tuple[pa.BinaryArray, np.ndarray | None]:
    """Return keys in ascending order, without nulls, and their places; None for the same order."""
    if ascends(keys[:_FEW]) and ascends(keys):
        return keys, None
    order = pc.sort_indices(keys)[: len(keys) - keys.null_count]
    return keys.take(order), integers(order).astype(np.int64)


def sorted_pieces(keys: pa.BinaryArray, rows: int) -> Iterator[tuple[pa.Int64Array, pa.BinaryArray]]:
    """Yield the places of keys in ascending order, and the keys there, about ``rows`` at a time; the order is stable.

    Sorting by the first eight bytes first halves the time: compared and copied keys are then close together in memory.
    """
    first = _first_bytes(keys)
    nearly = np.argsort(first, kind="stable")
    inorder = first[nearly]
    stops = np.append(np.flatnonzero(inorder[1:] != inorder[:-1]) + 1, len(inorder))
    start = 0
    while start < len(keys):
        last = np.searchsorted(stops, start + rows, side="right") - 1
        stop = int(stops[max(last, np.searchsorted(stops, start, side="right"))])
        some = nearly[start:stop]
        together = keys.take(positions(some))
        order = pc.sort_indices(together)
        for at in range(0, len(order), rows):
            piece = order[at : at + rows]
            yield positions(some[integers(piece)]), together.take(piece)
        start = stop


_WORD = 8


def _first_bytes(keys: pa.BinaryArray) -> np.ndarray:
    bounds, data = bounds_and_bytes(keys)
    every, starts = np.frombuffer(data, np.uint8), bounds[:-1]
    within = int(np.searchsorted(starts, len(every) - _WORD, side="right"))
    words = np.empty(len(starts), np.uint64)
    words[:within] = _words(every, starts[:within])
    if within < len(starts):  # they end after the data
        end = int(starts[within])
        words[within:] = _words(np.append(every[end:], np.zeros(_WORD, np.uint8)), starts[within:] - end)
    short = np.flatnonzero(np.diff(bounds) < _WORD)
    behind = _WORD * (_WORD - np.diff(bounds)[short]).astype(np.uint64)  # bits that belong to the next key
    words[short] = np.where(behind < 8 * _WORD, words[short] >> behind << behind, 0)
    return words


def _words(data: np.ndarray, starts: np.ndarray) -> np.ndarray:
    anywhere: np.ndarray = np.ndarray(max(0, len(data) - _WORD + 1), ">u8", data, strides=(1,))
    found: np.ndarray = anywhere[starts]
    return found
