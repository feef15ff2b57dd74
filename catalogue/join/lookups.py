"""Intervals of keys with the numbers of their patterns, and which of them contain the keys of captures."""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.join.batch_file import BatchFile
from catalogue.parquet.arrow_arrays import ascending, booleans, integers, numbers, positions
from catalogue.query.key_intervals import Intervals, KeyBatches, KeyIntervals, SingleKeys
from catalogue.surt import KeyInterval, merge

NUMBER = "number"
"""Column with the number of a pattern."""
LOOKUPS = pa.schema([("start", pa.binary()), ("end", pa.binary()), (NUMBER, pa.int64())])
"""An interval of keys, sorted by ``start``, and the number of its pattern; ``end`` is null for a single key."""
_BATCHES = 16
"""Maximum batches of intervals in memory."""
_Found = tuple[np.ndarray, np.ndarray]


class Lookups(ABC):
    """Some intervals, sorted."""

    @property
    @abstractmethod
    def intervals(self) -> KeyIntervals:
        """The same keys as disjoint ascending intervals."""

    @property
    @abstractmethod
    def patterns(self) -> np.ndarray:
        """The numbers of the patterns; shape (n,), int64."""

    @abstractmethod
    def find(self, keys: pa.BinaryArray) -> _Found:
        """Return places of keys and numbers of the patterns that match them, as pairs; both shape (n,), int64."""

    def present(self, keys: pa.BinaryArray) -> np.ndarray:
        """Return the numbers of the patterns that match any of the keys; shape (n,), int64."""
        return self.find(keys)[1]

    def numbered(self, batches: Iterable[pa.RecordBatch], key: str, *, alone: bool) -> Iterator[pa.RecordBatch]:
        """Yield rows with the number of each pattern that they match as the first column, once for each.

        Args:
            batches: the rows.
            key: name of the column with their keys.
            alone: yield the numbers alone, each at least once.
        """
        for batch in batches:
            keys = batch.column(key).cast(pa.binary())
            if alone:
                yield pa.RecordBatch.from_arrays([positions(self.present(keys))], names=[NUMBER])
                continue
            rows, patterns = self.find(keys)
            chosen = batch if np.array_equal(rows, np.arange(len(batch))) else batch.take(positions(rows))
            names = [NUMBER, *batch.schema.names]
            yield pa.RecordBatch.from_arrays([positions(patterns), *chosen.columns], names=names)


class WideLookups(Lookups):
    """Intervals, which may contain each other."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        """Use rows of ``LOOKUPS``."""
        self._numbers = integers(rows.column(NUMBER))
        self._starts: list[bytes] = rows.column("start").to_pylist()
        ends = zip(self._starts, rows.column("end").to_pylist(), strict=True)
        self._ends: list[bytes] = [start + b"\0" if end is None else end for start, end in ends]
        self._reached: list[bytes] = []
        for end in self._ends:
            self._reached.append(max(end, self._reached[-1]) if self._reached else end)

    @property
    def intervals(self) -> Intervals:
        return Intervals(merge(map(KeyInterval, self._starts, self._ends)))

    @property
    def patterns(self) -> np.ndarray:
        return self._numbers

    def find(self, keys: pa.BinaryArray) -> _Found:
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
        found, patterns = np.concatenate(rows), self._numbers[np.concatenate(places)]
        by_row = np.lexsort((patterns, found))
        return found[by_row], patterns[by_row]


class LookupFile(KeyBatches):
    """A file of ``LOOKUPS``; the batches that were read last stay in memory."""

    def __init__(self, file: BatchFile, *, is_ascii: bool) -> None:
        super().__init__(file.starts, [bytes.fromhex(first) for first, _ in file.places], is_ascii=is_ascii)
        self._read = lru_cache(_BATCHES)(lambda number: file.read(range(number, number + 1)))

    def keys(self, number: int) -> pa.BinaryArray:
        return self._read(number).column("start")

    def numbers(self, rows: range) -> np.ndarray:
        """Return the numbers of the patterns of consecutive rows."""
        batches = range(bisect_right(self.starts, rows.start) - 1, bisect_left(self.starts, rows.stop))
        found = [np.arange(0), *(integers(self._read(number).column(NUMBER)) for number in batches)]
        start = self.starts[max(0, batches.start)]
        return np.concatenate(found)[rows.start - start : rows.stop - start]


class SingleLookups(Lookups):
    """Single keys in a file; those near the keys of captures are read batch by batch."""

    def __init__(self, file: LookupFile, rows: range) -> None:
        """Use consecutive rows."""
        self._file = file
        self._keys = SingleKeys(file, rows)

    @property
    def intervals(self) -> SingleKeys:
        return self._keys

    @property
    def patterns(self) -> np.ndarray:
        return self._file.numbers(self._keys.rows)

    def find(self, keys: pa.BinaryArray) -> _Found:
        rows, patterns = [np.arange(0)], [np.arange(0)]
        inorder, places = ascending(keys)
        for some, near, part in self._keys.meet(inorder):
            at = pc.index_in(inorder[some], value_set=part)
            found = numbers(pa.chunked_array([pc.indices_nonzero(pc.is_valid(at))])) + some.start
            first = integers(at.drop_null())  # of equal keys
            ends = np.flatnonzero(np.append(booleans(pc.not_equal(part[1:], part[:-1])), [True])) + 1
            counts = ends[np.searchsorted(ends, first, side="right")] - first
            rows.append(np.repeat(found, counts))
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            patterns.append(self._file.numbers(near)[np.repeat(first, counts) + within])
        every = np.concatenate(rows)
        return (every if places is None else places[every]), np.concatenate(patterns)

    def present(self, keys: pa.BinaryArray) -> np.ndarray:
        found = [np.arange(0)]
        inorder, _ = ascending(keys)
        for some, near, part in self._keys.meet(inorder):
            found.append(self._file.numbers(near)[booleans(pc.is_in(part, value_set=inorder[some]))])
        return np.concatenate(found)
