"""The keys of a join, sorted on disk: each once, with the rows of the input that have it."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.atomic_files import whole_file
from catalogue.errors import QueryError
from catalogue.parquet.arrow_arrays import (
    ascending,
    binaries,
    booleans,
    flags,
    integers,
    numbers,
    positions,
)
from catalogue.query.key_intervals import Intervals, KeyBatches, SingleKeys
from catalogue.surt.interval import KeyInterval, merge


@contextmanager
def batch_writer(path: Path, schema: pa.Schema, *, compress: bool) -> Iterator[Callable[[pa.RecordBatch, Any], None]]:
    """Yield a function that writes a batch to a new file, and its place among the others, as a JSON value."""
    options: Any = pa.ipc.IpcWriteOptions(compression="lz4" if compress else None, use_threads=False)
    places: list[tuple[int, Any]] = []
    with whole_file(path) as file, pa.ipc.new_file(file, schema, options=options) as writer:

        def write(batch: pa.RecordBatch, place: Any) -> None:  # noqa: ANN401 - whatever JSON can have
            if len(batch):
                writer.write_batch(batch)
                places.append((len(batch), place))

        yield write
    with whole_file(_places(path)) as file:
        file.write(json.dumps(places).encode())


class BatchFile:
    """A file that ``batch_writer`` wrote."""

    def __init__(self, path: Path) -> None:
        self._file = pa.OSFile(str(path))
        self._reader = pa.ipc.open_file(self._file)
        entries = json.loads(_places(path).read_text())
        self.counts: list[int] = [count for count, _ in entries]
        self.places: list[Any] = [place for _, place in entries]
        self.starts: list[int] = [0, *accumulate(self.counts)]
        """First row of each batch, and the number of rows."""

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def read(self, batches: range) -> pa.RecordBatch:
        if len(batches) == 1:
            return self._reader.get_batch(batches.start)
        return one_batch(pa.Table.from_batches(map(self._reader.get_batch, batches), self.schema))

    def close(self) -> None:
        self._file.close()


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch.

    Raises:
        QueryError: if a column has more than 2 GiB of text.
    """
    batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    if len(batches) > 1:
        raise QueryError("too many rows of the list have the same key, or the rows are too large; remove some of both")
    return batches[0]


def _places(path: Path) -> Path:
    return path.with_suffix(".json")


NUMBER = "number"
"""Column with the number of a pattern."""
LOOKUPS = pa.schema([("start", pa.binary()), ("end", pa.binary()), (NUMBER, pa.int64())])
"""An interval of keys, sorted by ``start``, and the number of its pattern; ``end`` is null for a single key."""
_BATCHES = 16
"""Batches of intervals in memory."""
_Found = tuple[np.ndarray, np.ndarray]


class WideLookups:
    """Sorted intervals, which may contain each other."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._numbers = integers(rows.column(NUMBER))
        self._starts: list[bytes] = rows.column("start").to_pylist()
        ends = zip(self._starts, rows.column("end").to_pylist(), strict=True)
        self._ends: list[bytes] = [start + b"\0" if end is None else end for start, end in ends]
        self._reached: list[bytes] = []
        for end in self._ends:
            self._reached.append(max(end, self._reached[-1]) if self._reached else end)

    @property
    def intervals(self) -> Intervals:
        """The same keys, disjoint and ascending."""
        return Intervals(merge(map(KeyInterval, self._starts, self._ends)))

    @property
    def patterns(self) -> np.ndarray:
        """Numbers of the patterns; shape (n,), int64."""
        return self._numbers

    def find(self, keys: pa.BinaryArray) -> _Found:
        """Return pairs of places of keys and numbers of their patterns; both shape (n,), int64."""
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
        batches = range(bisect_right(self.starts, rows.start) - 1, bisect_left(self.starts, rows.stop))
        found = [np.arange(0), *(integers(self._read(number).column(NUMBER)) for number in batches)]
        start = self.starts[max(0, batches.start)]
        return np.concatenate(found)[rows.start - start : rows.stop - start]


class SingleLookups:
    """Sorted single keys in a file; those near the keys of captures are read batch by batch. See ``WideLookups``."""

    def __init__(self, file: LookupFile, rows: range) -> None:
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


Lookups: TypeAlias = WideLookups | SingleLookups

ROW = "row_id"
"""Column with the number of a row of the input, from 1 on."""
PREFIX = "input_"
INPUTS_FILE, LOOKUPS_FILE = "inputs.arrow", "lookups.arrow"
_SAME = {b"values": b"keys"}


def same_as_keys(name: str) -> pa.Field:
    """Return the schema of a column without values, whose values are the keys."""
    return pa.field(name, pa.null(), metadata=_SAME)


class JoinKeys:
    """The sorted keys in a folder, as ``sort_keys`` writes them."""

    def __init__(self, folder: Path, patterns: int, column: str, *, is_ascii: bool) -> None:
        self.patterns = patterns
        self.column = column
        self.is_ascii = is_ascii
        self._inputs, self._lookups = BatchFile(folder / INPUTS_FILE), BatchFile(folder / LOOKUPS_FILE)
        self._file = LookupFile(self._lookups, is_ascii=is_ascii)
        schema = self._inputs.schema
        same = [place for place, field in enumerate(schema) if field.metadata == _SAME and field.type == pa.null()]
        self._same = same[0] if same else None
        """Place of the column whose values are the keys."""
        self.are_keys = self._same is not None
        self.input_schema = schema
        if self._same is not None:
            self.input_schema = schema.set(self._same, pa.field(schema[self._same].name, pa.string()))
        self._input_numbers = np.array(self._inputs.places, np.int64).reshape(-1, 2).T
        """Least and greatest pattern of each batch of rows."""
        self._reached = [bytes.fromhex(reached) for _, reached in self._lookups.places]
        self.is_wide = self._reached[-1:] > [b""]
        """Whether intervals have many keys."""

    def close(self) -> None:
        self._inputs.close()
        self._lookups.close()

    def __len__(self) -> int:
        return self._lookups.starts[-1]

    def rows_of(self, patterns: np.ndarray) -> pa.Table:
        """Return the rows of some patterns, given as ascending numbers; sorted by number."""
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
        columns[self._same] = keys.view(pa.string())
        return pa.RecordBatch.from_arrays(columns, schema=self.input_schema)

    def spans(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield first and last number of consecutive patterns with about ``rows`` rows."""
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
        return self.place(keys.end) - self.place(keys.start)

    def lacks_all(self, start: bytes, end: bytes) -> bool:
        return not len(self.between(start, end).intervals)

    def between(self, start: bytes, end: bytes) -> Lookups:
        """Return the intervals from ``start`` to ``end``, exclusive, cut to them."""
        if not self.is_wide:
            return SingleLookups(self._file, range(self.place(start), self.place(end)))
        first = min(max(0, bisect_right(self._file.firsts, start) - 1), bisect_right(self._reached, start))
        rows = self._lookups.read(range(first, max(first, bisect_left(self._file.firsts, end))))
        begins, ends = rows.column("start"), rows.column("end")
        low, high, none = binaries([start, end, b""])
        inside = pc.or_(pc.greater_equal(begins, low), pc.greater(pc.fill_null(ends, none), low))
        chosen = rows.filter(pc.and_(inside, pc.less(begins, high)))
        begins, ends = chosen.column("start"), chosen.column("end")
        begins = pc.if_else(pc.less(begins, low), low, begins)
        ends = pc.if_else(pc.greater(ends, high), high, ends)
        return WideLookups(pa.RecordBatch.from_arrays([begins, ends, chosen.column(NUMBER)], schema=LOOKUPS))
