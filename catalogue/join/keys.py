"""The keys of a join, sorted on disk: each once, with the rows of the input that have it."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.join.batch_file import BatchFile
from catalogue.parquet.arrow_arrays import binaries, integers
from catalogue.query.exact_keys import ExactKeys, KeyTexts
from catalogue.surt import END, KeyInterval, merge

NUMBER, ROW = "number", "row_id"
PREFIX = "input_"
"""Of the columns of the input."""
LOOKUPS = pa.schema([("start", pa.binary()), ("end", pa.binary()), (NUMBER, pa.int64())])
"""An interval of keys, sorted by ``start``, and the number of its pattern; ``end`` is null for a single key."""
INPUTS_FILE, LOOKUPS_FILE = "inputs.arrow", "lookups.arrow"
_NEAR = 1 << 16
"""Difference of numbers up to which rows are read together."""


class Lookups(NamedTuple):
    """Some consecutive intervals."""

    starts: pa.BinaryArray
    ends: pa.BinaryArray
    numbers: np.ndarray
    """Of the patterns; shape (n,), int64."""

    @property
    def intervals(self) -> Sequence[KeyInterval]:
        """The same keys as disjoint ascending intervals."""
        if self.ends.null_count == len(self.ends):
            is_repeated = pc.any(pc.equal(self.starts[1:], self.starts[:-1]), min_count=0).as_py()
            return ExactKeys(pc.unique(self.starts) if is_repeated else self.starts)
        pairs = zip(self.starts.to_pylist(), self.ends.to_pylist(), strict=True)
        return merge(KeyInterval(start, start + b"\0" if end is None else end) for start, end in pairs)


class JoinKeys:
    """The sorted keys in a folder."""

    def __init__(self, folder: Path, patterns: int, *, is_ascii: bool) -> None:
        """Use the files that ``sort_keys`` wrote.

        Args:
            folder: of the files.
            patterns: number of different ones.
            is_ascii: whether all keys are ASCII.
        """
        self.patterns = patterns
        self.is_ascii = is_ascii
        self._inputs, self._lookups = BatchFile(folder / INPUTS_FILE), BatchFile(folder / LOOKUPS_FILE)
        self._firsts = [bytes.fromhex(first) for first, _ in self._lookups.places]
        self._reached = [bytes.fromhex(reached) for _, reached in self._lookups.places]
        self._starts = [0, *accumulate(self._lookups.counts)]

    def close(self) -> None:
        self._inputs.close()
        self._lookups.close()

    def __len__(self) -> int:
        """Return the number of intervals."""
        return self._starts[-1]

    @property
    def input_schema(self) -> pa.Schema:
        """Of the rows of the input, with the number of their pattern."""
        return self._inputs.schema

    def rows_between(self, first: int, last: int) -> pa.RecordBatch:
        """Return the rows of the input whose pattern has a number between two, inclusive; sorted by number."""
        start = bisect_left(self._inputs.places, first, key=itemgetter(1))
        stop = bisect_right(self._inputs.places, last, key=itemgetter(0))
        rows = self._inputs.read(range(start, max(start, stop)))
        known = integers(rows.column(NUMBER))
        begin, end = np.searchsorted(known, first), np.searchsorted(known, last, side="right")
        return rows.slice(begin, end - begin)

    def rows_of(self, patterns: np.ndarray) -> pa.RecordBatch:
        """Return the rows of the input that have one of some patterns, given by ascending numbers; sorted by number."""
        cuts = np.flatnonzero(np.diff(patterns) > _NEAR) + 1
        runs = [run for run in np.split(patterns, cuts) if len(run)]
        parts = [self.rows_between(int(run[0]), int(run[-1])) for run in runs] or [self.rows_between(0, -1)]
        (rows,) = pa.Table.from_batches(parts).combine_chunks().to_batches() or [parts[0]]
        return rows

    def place(self, key: bytes) -> int:
        """Return about how many intervals start before a key; at most those of a batch too few."""
        return self._starts[max(0, bisect_left(self._firsts, key) - 1)] if key < END else len(self)

    def about(self, keys: KeyInterval) -> int:
        """Return about how many intervals start in an interval of keys."""
        return self.place(keys.end) - self.place(keys.start)

    def lacks(self, key: bytes) -> bool:
        """Return whether no interval has a key."""
        return self.lacks_all(key, key + b"\0")

    def lacks_all(self, start: bytes, end: bytes) -> bool:
        """Return whether no interval has keys between two keys, the second exclusive."""
        return not len(self.between(start, end).numbers)

    def between(self, start: bytes, end: bytes) -> Lookups:
        """Return the intervals with keys between two keys, the second exclusive, cut to them."""
        first = min(max(0, bisect_right(self._firsts, start) - 1), bisect_right(self._reached, start))
        batch = self._lookups.read(range(first, max(first, bisect_left(self._firsts, end))))
        begins, ends = batch.column("start"), batch.column("end")
        if ends.null_count == len(ends):
            low = bisect_left(KeyTexts(begins), start)
            chosen = batch.slice(low, bisect_left(KeyTexts(begins), end, lo=low) - low)
            begins, ends = chosen.column("start"), chosen.column("end")
        else:
            low, high = binaries([start, end])
            inside = pc.or_(pc.greater_equal(begins, low), pc.greater(pc.fill_null(ends, b""), low))
            chosen = batch.filter(pc.and_(inside, pc.less(begins, high)))
            begins, ends = chosen.column("start"), chosen.column("end")
            begins = pc.if_else(pc.less(begins, low), low, begins)
            ends = pc.if_else(pc.greater(ends, high), high, ends)
        return Lookups(begins, ends, integers(chosen.column(NUMBER)))
