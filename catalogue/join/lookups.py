"""Intervals of keys with the numbers of their patterns, and which of them contain the keys of captures."""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.join.batch_file import BatchFile
from catalogue.parquet.arrow_arrays import ascending, booleans, flags, integers, numbers, positions
from catalogue.query.exact_keys import ExactKeys, KeyTexts, ManyKeys
from catalogue.surt import END, KeyInterval, exact_interval, merge

NUMBER = "number"
"""Column with the number of a pattern."""
LOOKUPS = pa.schema([("start", pa.binary()), ("end", pa.binary()), (NUMBER, pa.int64())])
"""An interval of keys, sorted by ``start``, and the number of its pattern; ``end`` is null for a single key."""
_BATCHES = 16
"""Of intervals, that stay in memory."""
_Found = tuple[np.ndarray, np.ndarray]


class Lookups(ABC):
    """Some intervals, sorted."""

    @property
    @abstractmethod
    def intervals(self) -> Sequence[KeyInterval]:
        """The same keys as disjoint ascending intervals."""

    def noting(self) -> Sequence[KeyInterval]:
        """Return the same intervals for a read of which only the patterns that have rows are needed.

        They may keep the rows back, and note the patterns, which ``numbered`` yields after the rows.
        """
        return self.intervals

    @property
    @abstractmethod
    def patterns(self) -> np.ndarray:
        """The numbers of the patterns; shape (n,), int64."""

    @property
    def noted(self) -> np.ndarray:
        """The numbers of the patterns that were noted; shape (n,), int64."""
        return np.arange(0)

    @abstractmethod
    def find(self, keys: pa.BinaryArray) -> _Found:
        """Return places of keys and numbers of the patterns that match them, as pairs; both shape (n,), int64."""

    def numbered(self, batches: Iterable[pa.RecordBatch], key: str, *, alone: bool) -> Iterator[pa.RecordBatch]:
        """Yield rows with the number of each pattern that they match as the first column, once for each.

        Args:
            batches: of rows.
            key: name of the column with their keys.
            alone: yield the numbers alone, those of ``noting`` too.
        """
        for batch in batches:
            rows, patterns = self.find(batch.column(key).cast(pa.binary()))
            if alone:
                yield _numbers_alone(patterns)
                continue
            chosen = batch if np.array_equal(rows, np.arange(len(batch))) else batch.take(positions(rows))
            names = [NUMBER, *batch.schema.names]
            yield pa.RecordBatch.from_arrays([positions(patterns), *chosen.columns], names=names)
        if alone:
            yield _numbers_alone(self.noted)


def _numbers_alone(patterns: np.ndarray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([positions(patterns)], names=[NUMBER])


class ExactLookups(Lookups):
    """Single keys, some of which may occur several times."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        """Use rows of ``LOOKUPS``."""
        starts, self._numbers = rows.column("start"), integers(rows.column(NUMBER))
        is_first = np.ones(len(starts), np.bool_)
        if len(starts):
            is_first[1:] = booleans(pc.not_equal(starts[1:], starts[:-1]))
        self._firsts = np.flatnonzero(is_first)
        self._counts = np.diff(np.append(self._firsts, len(starts)))
        self._distinct = ExactKeys(starts.filter(flags(is_first)) if len(self._firsts) < len(starts) else starts)

    @property
    def intervals(self) -> ExactKeys:
        return self._distinct

    @property
    def patterns(self) -> np.ndarray:
        return self._numbers

    def find(self, keys: pa.BinaryArray) -> _Found:
        start, near = self._distinct.between(keys)
        at = pc.index_in(keys, value_set=near.keys)
        found = numbers(pa.chunked_array([pc.indices_nonzero(pc.is_valid(at))]))
        distinct = start + integers(at.drop_null()).astype(np.int64)
        if len(self._firsts) == len(self._numbers):
            return found, self._numbers[distinct]
        counts = self._counts[distinct]
        places = np.repeat(self._firsts[distinct], counts)
        within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(found, counts), self._numbers[places + within]


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
    def intervals(self) -> Sequence[KeyInterval]:
        return merge(map(KeyInterval, self._starts, self._ends))

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


class LookupFile:
    """A file of ``LOOKUPS``, of which the batches that were read last stay in memory."""

    def __init__(self, file: BatchFile) -> None:
        self.starts = file.starts
        """Number of the first row of each batch, and the number of rows."""
        self.firsts = [bytes.fromhex(first) for first, _ in file.places]
        """The least key of each batch."""
        self.read = lru_cache(_BATCHES)(lambda number: file.read(range(number, number + 1)))

    def parts(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield consecutive rows in batches."""
        while first < stop:
            number = bisect_right(self.starts, first) - 1
            begin, batch = self.starts[number], self.read(number)
            after = min(stop, begin + len(batch))
            yield batch.slice(first - begin, after - first)
            first = after

    def place(self, key: bytes) -> int:
        """Return how many intervals start before a key."""
        if key >= END or not self.firsts:
            return self.starts[-1]
        number = max(0, bisect_left(self.firsts, key) - 1)
        return self.starts[number] + bisect_left(KeyTexts(self.read(number).column("start")), key)


class StoredLookups(Lookups):
    """Single keys in a file; those near the keys of captures are read batch by batch."""

    def __init__(self, file: LookupFile, first: int, stop: int) -> None:
        """Use consecutive rows."""
        self._file = file
        self._keys = StoredKeys(file, first, stop)
        self._noted: np.ndarray | None = None

    @property
    def intervals(self) -> "StoredKeys":
        return self._keys

    def noting(self) -> "StoredKeys":
        rows = self._keys.rows
        noted = self._noted = np.zeros(len(rows), np.bool_)

        def note(first: int, is_there: np.ndarray) -> None:
            noted[first - rows.start + np.flatnonzero(is_there)] = True  # threads write nothing but true

        return StoredKeys(self._file, rows.start, rows.stop, note)

    @property
    def noted(self) -> np.ndarray:
        if self._noted is None:
            return np.arange(0)
        found, row = [np.arange(0)], 0
        for some in self._numbers():
            found.append(some[self._noted[row : row + len(some)]])
            row += len(some)
        return np.concatenate(found)

    @property
    def patterns(self) -> np.ndarray:
        return np.concatenate([np.arange(0), *self._numbers()])

    def _numbers(self) -> Iterator[np.ndarray]:
        return (integers(part.column(NUMBER)) for part in self._keys.parts(b"", END))

    def find(self, keys: pa.BinaryArray) -> _Found:
        rows, patterns = [np.arange(0)], [np.arange(0)]
        inorder, places = ascending(keys)
        for some, _, part in self._keys.near(inorder):
            at, found = ExactLookups(part).find(inorder[some])
            rows.append(at + some.start)
            patterns.append(found)
        every = np.concatenate(rows)
        return (every if places is None else places[every]), np.concatenate(patterns)


class StoredKeys(ManyKeys):
    """ASCII keys in a file."""

    def __init__(
        self, file: LookupFile, first: int, stop: int, note: Callable[[int, np.ndarray], None] | None = None
    ) -> None:
        """Use consecutive rows.

        Args:
            file: of the rows.
            first: number of the first row.
            stop: number after the last one.
            note: called by ``mask``, which keeps no row then, with the number of a row and, for it and those that
                follow, whether its key is in the rows.
        """
        self._file = file
        self._note = note
        self.rows = range(first, max(first, stop))
        """Numbers of the rows."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401 - an interval, or a slice with some
        if isinstance(at, slice):
            some = self.rows[at]
            return StoredKeys(self._file, some.start, some.stop, self._note)
        place = self.rows[at]
        number = bisect_right(self._file.starts, place) - 1
        return exact_interval(self._file.read(number).column("start")[place - self._file.starts[number]].as_py())

    def __reduce__(self) -> tuple[Callable[[pa.BinaryArray], ExactKeys], tuple[pa.BinaryArray]]:
        # Other machines do not have the file.
        parts = [part.column("start") for part in self.parts(b"", END)]
        return ExactKeys, (
            pc.unique(pa.concat_arrays(parts)) if parts else LOOKUPS.empty_table()["start"].combine_chunks(),
        )

    def place(self, key: bytes) -> int:
        return min(max(self._file.place(key), self.rows.start), self.rows.stop) - self.rows.start

    def parts(self, start: bytes, end: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows between two keys, the second exclusive, in batches."""
        return self._file.parts(*(self.rows.start + self.place(key) for key in (start, end)))

    def near(self, keys: pa.BinaryArray) -> Iterator[tuple[slice, int, pa.RecordBatch]]:
        """Yield the places of ascending keys, and number of the first row and rows among which they may be."""
        if not len(keys):
            return
        texts, first = KeyTexts(keys), 0
        after = self.rows.start + self.place(texts[0])
        for part in self.parts(texts[0], texts[-1] + b"\0"):
            row, after = after, after + len(part)
            starts = KeyTexts(part.column("start"))
            first = bisect_left(texts, starts[0], lo=first)
            stop = bisect_right(texts, starts[-1], lo=first)
            if first < stop:
                yield slice(first, stop), row, part

    def mask(self, keys: pa.BinaryArray | pa.ChunkedArray) -> pa.BooleanArray:
        inorder, places = ascending(keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys)
        is_there = np.zeros(len(keys), np.bool_)
        for some, row, part in self.near(inorder):
            if self._note:  # no row is kept
                self._note(row, booleans(pc.is_in(part.column("start"), value_set=inorder[some])))
                continue
            found = booleans(pc.is_in(inorder[some], value_set=part.column("start")))
            is_there[some if places is None else places[some]] |= found
        return flags(is_there)

    def joined(self, others: Sequence[ManyKeys]) -> "StoredKeys":
        parts = [self.rows, *(other.rows for other in others if isinstance(other, StoredKeys))]
        first, stop = min(part.start for part in parts), max(part.stop for part in parts)
        return StoredKeys(self._file, first, stop, self._note)

    @property
    def not_ascii(self) -> np.ndarray:
        return np.arange(0)

    def take(self, places: np.ndarray) -> "StoredKeys":
        start = self.rows.start + int(places[0]) if len(places) else 0
        return StoredKeys(self._file, start, start + len(places), self._note)  # consecutive, as all are ASCII
