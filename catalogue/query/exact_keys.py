"""Many single keys as intervals, in an Arrow array instead of Python objects."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import least_and_greatest, numbers, positions
from catalogue.surt import KeyInterval, exact_interval


class KeyTexts(Sequence[bytes]):
    """Keys that are converted when they are needed, as in a bisection."""

    def __init__(self, array: pa.BinaryArray) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - a number here; slices are part of the protocol
        return self._array[row].as_py()


class ManyKeys(Sequence[KeyInterval], ABC):
    """Ascending keys, as intervals of one key each, without a Python object for each."""

    @abstractmethod
    def place(self, key: bytes) -> int:
        """Return how many of the keys are less than another."""

    @abstractmethod
    def mask(self, keys: pa.BinaryArray | pa.ChunkedArray) -> pa.BooleanArray | pa.ChunkedArray:
        """Return whether each of some keys, which may be null, is one of these."""

    @abstractmethod
    def joined(self, others: Sequence["ManyKeys"]) -> "ManyKeys":
        """Return the keys of this and other parts of the same keys; maybe with some that are between the parts."""

    @property
    @abstractmethod
    def not_ascii(self) -> np.ndarray:
        """The places of keys that are not ASCII; shape (n,), int64."""

    @abstractmethod
    def take(self, places: np.ndarray) -> "ManyKeys":
        """Return the keys at ascending places."""


class ExactKeys(ManyKeys):
    """Distinct keys in an Arrow array, which slices share."""

    def __init__(self, keys: pa.BinaryArray) -> None:
        """Use an array without nulls."""
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401 - an interval, or a slice with some
        return ExactKeys(self.keys[at]) if isinstance(at, slice) else exact_interval(self.keys[at].as_py())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactKeys) and bool(self.keys.equals(other.keys))

    def __hash__(self) -> int:
        return hash((len(self), *self[:1], *self[-1:]))

    def __reduce__(self) -> tuple[Callable[[pa.BinaryArray], "ExactKeys"], tuple[pa.BinaryArray]]:
        return ExactKeys, (pa.concat_arrays([self.keys, self.keys[:0]]),)  # a slice is pickled with all of its array

    def __repr__(self) -> str:
        return f"ExactKeys({len(self):,} keys)"

    def between(self, keys: pa.BinaryArray | pa.ChunkedArray) -> tuple[int, "ExactKeys"]:
        """Return the keys between the least and the greatest of others, which may be null, and the place of the first.

        Looking up others in these takes less time than in all.
        """
        bounds = least_and_greatest(keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys)
        if bounds is None:
            return 0, self[:0]
        least, greatest = bounds
        start = self.place(least)
        return start, self[start : self.place(greatest + b"\0")]

    def place(self, key: bytes) -> int:
        return bisect_left(KeyTexts(self.keys), key)

    @cached_property
    def not_ascii(self) -> np.ndarray:
        return numbers(
            pa.chunked_array([pc.indices_nonzero(pc.invert(pc.string_is_ascii(self.keys.cast(pa.string()))))])
        )

    def take(self, places: np.ndarray) -> "ExactKeys":
        return ExactKeys(self.keys.take(positions(places)))

    def mask(self, keys: pa.BinaryArray | pa.ChunkedArray) -> pa.BooleanArray | pa.ChunkedArray:
        return pc.is_in(keys, value_set=self.between(keys)[1].keys)

    def joined(self, others: Sequence[ManyKeys]) -> "ExactKeys":
        parts = [self, *(other for other in others if isinstance(other, ExactKeys))]
        keys = pc.unique(pa.concat_arrays([part.keys for part in parts]))
        if not all(before[-1] < after[0] for before, after in pairwise(part for part in parts if part)):
            keys = keys.take(pc.sort_indices(keys))
        return ExactKeys(keys)


def is_ascii(intervals: Sequence[KeyInterval]) -> bool:
    """Return whether starts and ends of intervals are ASCII."""
    if isinstance(intervals, ManyKeys):
        return not len(intervals.not_ascii)
    return all(interval.start.isascii() and interval.end.isascii() for interval in intervals)
