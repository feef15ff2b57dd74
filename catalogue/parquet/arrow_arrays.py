"""Arrow values from and to Python's, without ``pyarrow.array``, ``pyarrow.scalar`` and ``to_numpy``.

Those look whether they were given something of pandas, and import it to find out, which takes longer than a whole
question.
"""

from collections.abc import Sequence
from itertools import accumulate
from struct import pack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def binaries(values: Sequence[bytes]) -> pa.BinaryArray:
    """Byte strings as an array."""
    ends = np.fromiter(accumulate((len(value) for value in values), initial=0), np.int32, len(values) + 1)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


def texts(values: Sequence[str]) -> pa.StringArray:
    """Texts as an array."""
    return binaries([value.encode() for value in values]).cast(pa.string())


def moment(milliseconds: int) -> pa.Scalar:
    """A time as a scalar, from milliseconds since 1970 UTC."""
    return pa.Array.from_buffers(pa.timestamp("ms", "UTC"), 1, [None, pa.py_buffer(pack("<q", milliseconds))])[0]


def positions(numbers: np.ndarray) -> pa.Int64Array:
    """Numbers of rows as an array."""
    return pa.Array.from_buffers(
        pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers, np.int64))]
    )


def fractions(values: np.ndarray) -> pa.DoubleArray:
    """Numbers that need not be whole as an array."""
    return pa.Array.from_buffers(
        pa.float64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.float64))]
    )


def flags(values: np.ndarray) -> pa.BooleanArray:
    """Truth values as an array."""
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def true_positions(values: pa.ChunkedArray) -> np.ndarray:
    """Where truth values are true, ascending."""
    return numbers(pa.chunked_array([pc.indices_nonzero(values)]))


def numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Integers of 8 bytes, none of them null, as numbers."""
    pieces = [np.frombuffer(p.buffers()[1], np.int64)[p.offset : p.offset + len(p)] for p in values.chunks if len(p)]
    return np.concatenate([np.arange(0), *pieces])
