"""Find the few disjoint intervals that contain the keys of an Arrow array."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import binaries, flags
from catalogue.parquet.key_ranges import WIDTH, split_at_gaps
from catalogue.parquet.model import Bounds
from catalogue.parquet.stored_indexes import cut_bounds
from catalogue.surt import shared_prefix


def clusters(keys: pa.BinaryArray) -> tuple[Bounds, ...]:
    """Return the ascending intervals of keys: one if more would gain little, none without keys."""
    least, greatest = pc.min_max(keys).values()
    if not least.is_valid:
        return ()
    keys = keys.drop_null()
    prefix = shared_prefix(least.as_py(), greatest.as_py())
    numbers = _numbers(keys, prefix)
    there = np.sort(numbers)  # not np.unique, which imports numpy.ma
    parts = split_at_gaps(there, there)
    if len(parts) == 1:
        return (cut_bounds(least.as_py(), greatest.as_py()),)
    found = []
    for first, last in parts:
        inside = pc.min_max(keys.filter(flags((numbers >= first) & (numbers <= last)))).values()
        low, high = (each.as_py() for each in inside)
        found.append(cut_bounds(low, high))
    return tuple(found)


def contain(parts: Sequence[Bounds], keys: pa.BinaryArray) -> bool:
    """Return whether all keys are in disjoint intervals."""
    inside = 0
    for part in parts:
        low, high = binaries([part.min, part.max])
        inside += pc.and_(pc.greater_equal(keys, low), pc.less_equal(keys, high)).true_count
    return bool(inside == len(keys) - keys.null_count)


def _numbers(keys: pa.BinaryArray, start: int) -> np.ndarray:
    """Return some bytes of each key as a number in the order of the keys; shape (len(keys),), uint64."""
    padding = binaries([b"\0" * WIDTH])[0]
    part = pc.binary_join_element_wise(pc.binary_slice(keys, start, start + WIDTH), padding, binaries([b""])[0])
    fixed = pc.binary_slice(part, 0, WIDTH).cast(pa.binary(WIDTH))
    return np.frombuffer(fixed.buffers()[1], ">u8", len(fixed), fixed.offset * WIDTH).astype(np.uint64)
