"""Convert between Arrow and Python values without importing pandas.

``pyarrow.array``, ``pyarrow.scalar``, ``to_numpy``, and ``to_pylist`` of times with a zone import it, which takes
longer than a query.
"""

from collections.abc import Sequence
from itertools import accumulate
from struct import pack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def binaries(values: Sequence[bytes]) -> pa.BinaryArray:
    ends = np.fromiter(accumulate((len(value) for value in values), initial=0), np.int32, len(values) + 1)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


def texts(values: Sequence[str]) -> pa.StringArray:
    return binaries([value.encode() for value in values]).cast(pa.string())


def text(value: str) -> pa.StringScalar:
    return texts([value])[0]


def integer(value: int, kind: pa.DataType) -> pa.Scalar:
    return positions(np.array([value])).cast(kind)[0]


def integers(values: pa.Array) -> np.ndarray:
    """Return integers without nulls as a NumPy array."""
    kind = np.dtype(f"i{values.type.bit_width // 8}")
    return np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]


def moment(milliseconds: int) -> pa.Scalar:
    """Return a timestamp from milliseconds since 1970 UTC."""
    return pa.Array.from_buffers(pa.timestamp("ms", "UTC"), 1, [None, pa.py_buffer(pack("<q", milliseconds))])[0]


def positions(numbers: np.ndarray) -> pa.Int64Array:
    return pa.Array.from_buffers(
        pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers, np.int64))]
    )


def fractions(values: np.ndarray) -> pa.DoubleArray:
    return pa.Array.from_buffers(
        pa.float64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.float64))]
    )


def flags(values: np.ndarray) -> pa.BooleanArray:
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def booleans(values: pa.BooleanArray) -> np.ndarray:
    """Return values without nulls as a NumPy array."""
    bits = np.unpackbits(np.frombuffer(values.buffers()[1], np.uint8), bitorder="little")
    return bits[values.offset : values.offset + len(values)].astype(bool)


def numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Return 8-byte integers, without nulls, as a NumPy array."""
    pieces = [np.frombuffer(p.buffers()[1], np.int64)[p.offset : p.offset + len(p)] for p in values.chunks if len(p)]
    return np.concatenate([np.arange(0), *pieces])


def without_zones(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return times with a zone as times in UTC without one."""
    columns = [
        column.cast(pa.timestamp(column.type.unit)) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def sorted_places(keys: pa.BinaryArray) -> pa.Int64Array:
    """Return the places of keys in ascending order, of equal ones the first one first.

    Keys that are nearly sorted take half the time, because those that are compared are close together in memory.
    """
    nearly = np.argsort(_first_bytes(keys), kind="stable")
    return positions(nearly[integers(pc.sort_indices(keys.take(positions(nearly))))])


def _first_bytes(keys: pa.BinaryArray) -> np.ndarray:
    """Return the first eight bytes of keys as numbers in the same order."""
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    padded = np.append(np.frombuffer(data or b"", np.uint8), np.zeros(8, np.uint8))
    anywhere: np.ndarray = np.ndarray(len(padded) - 7, ">u8", padded, strides=(1,))
    behind = 8 * np.maximum(8 - np.diff(bounds), 0).astype(np.uint64)  # bits that belong to the next key
    return np.where(behind < 64, anywhere[bounds[:-1]].astype(np.uint64) >> behind << behind, 0)  # noqa: PLR2004
