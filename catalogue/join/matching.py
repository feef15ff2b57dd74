"""Find the patterns that captures match."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.join.keys import NUMBER, Lookups
from catalogue.parquet.arrow_arrays import booleans, integers, numbers, positions
from catalogue.query.exact_keys import ExactKeys


class Matcher:
    """Adds the numbers of patterns to captures."""

    def __init__(self, lookups: Lookups, key: str) -> None:
        """Prepare the intervals of the keys that captures can have; ``key`` is the name of their column."""
        self._key = key
        self._patterns = lookups.numbers
        self._inside = _Keys(lookups) if lookups.ends.null_count == len(lookups.ends) else _Intervals(lookups)

    def numbered(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatchReader:
        """Return captures with the number of each pattern that they match as the first column, once for each."""
        wider = schema.insert(0, pa.field(NUMBER, pa.int64()))
        return pa.RecordBatchReader.from_batches(wider, self._numbered(batches, wider))

    def _numbered(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows, places = self._inside.find(batch.column(self._key).cast(pa.binary()))
            chosen = batch if np.array_equal(rows, np.arange(len(batch))) else batch.take(positions(rows))
            yield pa.RecordBatch.from_arrays([positions(self._patterns[places]), *chosen.columns], schema=schema)


class _Keys:
    """Single keys, some of which may occur several times."""

    def __init__(self, lookups: Lookups) -> None:
        starts = lookups.starts
        is_first = np.ones(len(starts), np.bool_)
        if len(starts):
            is_first[1:] = booleans(pc.not_equal(starts[1:], starts[:-1]))
        self._firsts = np.flatnonzero(is_first)
        self._counts = np.diff(np.append(self._firsts, len(starts)))
        self._distinct = ExactKeys(starts.filter(pa.array(is_first)) if len(self._firsts) < len(starts) else starts)

    def find(self, keys: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
        """Return places of keys and of the intervals that contain them, as pairs."""
        start, near = self._distinct.between(keys)
        at = pc.index_in(keys, value_set=near.keys)
        found = numbers(pa.chunked_array([pc.indices_nonzero(pc.is_valid(at))]))
        distinct = start + integers(at.drop_null()).astype(np.int64)
        counts = self._counts[distinct]
        places = np.repeat(self._firsts[distinct], counts)
        within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(found, counts), places + within


class _Intervals:
    """Intervals, which may contain each other."""

    def __init__(self, lookups: Lookups) -> None:
        self._starts: list[bytes] = lookups.starts.to_pylist()
        ends = zip(self._starts, lookups.ends.to_pylist(), strict=True)
        self._ends: list[bytes] = [start + b"\0" if end is None else end for start, end in ends]
        self._reached: list[bytes] = []
        for end in self._ends:
            self._reached.append(max(end, self._reached[-1]) if self._reached else end)

    def find(self, keys: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
        """Return places of keys and of the intervals that contain them, as pairs."""
        order = integers(pc.sort_indices(keys)).astype(np.int64)
        inorder: list[bytes] = keys.take(positions(order)).to_pylist()
        rows, places = [np.arange(0)], [np.arange(0)]
        if inorder:
            at = bisect_right(self._reached, inorder[0])
            for place in range(at, bisect_right(self._starts, inorder[-1])):
                first = bisect_left(inorder, self._starts[place])
                after = bisect_left(inorder, self._ends[place], lo=first)
                rows.append(order[first:after])
                places.append(np.full(after - first, place))
        return np.concatenate(rows), np.concatenate(places)
