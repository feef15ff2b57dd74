"""The keys of a join, sorted on disk: each once, with the rows of the input that have it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.join.batch_file import BatchFile
from catalogue.join.lookups import LOOKUPS, NUMBER, LookupFile, Lookups, SingleLookups, WideLookups
from catalogue.parquet.arrow_arrays import binaries, flags, integers, numbers, positions, texts_of_keys
from catalogue.surt import KeyInterval

ROW = "row_id"
"""Column with the number of a row of the input, from 1 on."""
PREFIX = "input_"
INPUTS_FILE, LOOKUPS_FILE = "inputs.arrow", "lookups.arrow"
_SAME = {b"values": b"keys"}
"""Metadata of a column without values."""


def same_as_keys(name: str) -> pa.Field:
    """Return a column without values, for one of the input whose values are those of the keys."""
    return pa.field(name, pa.null(), metadata=_SAME)


class JoinKeys:
    """The sorted keys in a folder."""

    def __init__(self, folder: Path, patterns: int, column: str, *, is_ascii: bool) -> None:
        """Use the files that ``sort_keys`` wrote.

        Args:
            folder: the files' folder.
            patterns: number of different ones.
            column: the input's column of patterns.
            is_ascii: whether all keys are ASCII.
        """
        self.patterns = patterns
        self.column = column
        self.is_ascii = is_ascii
        self._inputs, self._lookups = BatchFile(folder / INPUTS_FILE), BatchFile(folder / LOOKUPS_FILE)
        self._file = LookupFile(self._lookups, is_ascii=is_ascii)
        schema = self._inputs.schema
        same = [place for place, field in enumerate(schema) if field.metadata == _SAME and field.type == pa.null()]
        self._same = same[0] if same else None
        """Place of the column that has the values of the keys, of which each is an interval then."""
        self.are_keys = self._same is not None
        """Whether the patterns are keys, and not URLs."""
        self.input_schema = schema
        """Schema of the input's rows, with the number of their pattern."""
        if self._same is not None:
            self.input_schema = schema.set(self._same, pa.field(schema[self._same].name, pa.string()))
        self._input_numbers = np.array(self._inputs.places, np.int64).reshape(-1, 2).T
        """Least and greatest number of a pattern in each batch of rows of the input."""
        self._reached = [bytes.fromhex(reached) for _, reached in self._lookups.places]
        self.is_wide = self._reached[-1:] > [b""]
        """Whether there are intervals of many keys."""

    def close(self) -> None:
        self._inputs.close()
        self._lookups.close()

    def __len__(self) -> int:
        """Return the number of intervals."""
        return self._lookups.starts[-1]

    def rows_between(self, first: int, last: int) -> pa.Table:
        """Return the rows of the input whose pattern has a number between two, inclusive; sorted by number."""
        start = bisect_left(self._inputs.places, first, key=itemgetter(1))
        stop = bisect_right(self._inputs.places, last, key=itemgetter(0))
        batches = [self._rows(number) for number in range(start, max(start, stop))]
        rows = pa.Table.from_batches(batches, self.input_schema)
        known = numbers(rows[NUMBER])
        begin, end = np.searchsorted(known, first), np.searchsorted(known, last, side="right")
        return rows.slice(begin, end - begin)

    def rows_of(self, patterns: np.ndarray) -> pa.Table:
        """Return the rows of the input that have one of some patterns, given by ascending numbers; sorted by number."""
        parts = []
        firsts, lasts = self._input_numbers
        begins, ends = np.searchsorted(patterns, firsts), np.searchsorted(patterns, lasts, side="right")
        for number in np.flatnonzero(begins < ends).tolist():
            batch = self._rows(number)
            of = integers(batch.column(NUMBER))
            at = np.searchsorted(patterns, of)
            is_there = patterns[np.minimum(at, len(patterns) - 1)] == of
            parts.append(batch if is_there.all() else batch.filter(flags(is_there)))
        return pa.Table.from_batches(parts, self.input_schema)

    def _rows(self, number: int) -> pa.RecordBatch:
        batch = self._inputs.read(range(number, number + 1))
        if self._same is None:
            return batch
        first, last = self._inputs.places[number]
        parts = [keys for _, keys in self._file.parts(range(first, last + 1))]
        keys = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        if len(keys) < len(batch):
            keys = keys.take(positions(integers(batch.column(NUMBER)) - first))
        columns = batch.columns
        columns[self._same] = texts_of_keys(keys)
        return pa.RecordBatch.from_arrays(columns, schema=self.input_schema)

    def spans(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield first and last number of consecutive patterns, of about as many rows of the input."""
        first, count = 0, 0
        for (_, last), size in zip(self._inputs.places, self._inputs.counts, strict=True):
            count += size
            if count >= rows and last >= first:
                yield first, last
                first, count = last + 1, 0
        if first < self.patterns:
            yield first, self.patterns - 1

    def place(self, key: bytes) -> int:
        """Return how many intervals start before a key."""
        return self._file.place(key)

    def count(self, keys: KeyInterval) -> int:
        """Return how many intervals start in an interval of keys."""
        return self.place(keys.end) - self.place(keys.start)

    def lacks(self, key: bytes) -> bool:
        """Return whether no interval has a key."""
        return self.lacks_all(key, key + b"\0")

    def lacks_all(self, start: bytes, end: bytes) -> bool:
        """Return whether no interval has keys between two keys, the second exclusive."""
        return not len(self.between(start, end).intervals)

    def between(self, start: bytes, end: bytes) -> Lookups:
        """Return the intervals with keys between two keys, the second exclusive, cut to them."""
        if not self.is_wide:
            return SingleLookups(self._file, range(self.place(start), self.place(end)))
        first = min(max(0, bisect_right(self._file.firsts, start) - 1), bisect_right(self._reached, start))
        rows = self._lookups.read(range(first, max(first, bisect_left(self._file.firsts, end))))
        begins, ends = rows.column("start"), rows.column("end")
        low, high = binaries([start, end])
        inside = pc.or_(pc.greater_equal(begins, low), pc.greater(pc.fill_null(ends, b""), low))
        chosen = rows.filter(pc.and_(inside, pc.less(begins, high)))
        begins, ends = chosen.column("start"), chosen.column("end")
        begins = pc.if_else(pc.less(begins, low), low, begins)
        ends = pc.if_else(pc.greater(ends, high), high, ends)
        return WideLookups(pa.RecordBatch.from_arrays([begins, ends, chosen.column(NUMBER)], schema=LOOKUPS))
