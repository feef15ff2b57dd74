"""The keys of a query: disjoint ascending intervals in a tuple, or single keys in Arrow arrays."""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter, methodcaller
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import ascending, binaries, booleans, flags, least_and_greatest
from catalogue.parquet.model import Bounds, Order
from catalogue.surt.interval import EVERYTHING, KeyInterval, covers, exact_interval

_FEW = 64
"""Maximum intervals for which comparing all keys is faster than searching each."""
_start, _end = attrgetter("start"), attrgetter("end")
as_bytes = methodcaller("as_py")
"""The value of a key in an array, for bisections, which convert few of them."""


class KeyIntervals(ABC):
    """Disjoint ascending intervals of keys."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, place: int, /) -> KeyInterval: ...

    @abstractmethod
    def __iter__(self) -> Iterator[KeyInterval]: ...

    @abstractmethod
    def part(self, first: int, stop: int) -> Self:
        """Return consecutive intervals; none if ``first`` is not less than ``stop``."""

    @abstractmethod
    def count_ended(self, key: bytes) -> int:
        """Count the intervals that contain only keys less than ``key``."""

    @abstractmethod
    def count_started(self, key: bytes) -> int:
        """Count the intervals that contain ``key`` or a lesser one."""

    @property
    @abstractmethod
    def not_ascii(self) -> range:
        """The places from the first to the last interval that is not ASCII."""

    @abstractmethod
    def mask(self, keys: pa.BinaryArray) -> pa.BooleanArray:
        """Return which keys are in an interval; false or null for null."""

    def span(self, bounds: Bounds | None) -> tuple[int, int]:
        """Return the places, the second exclusive, of the intervals that may contain keys between the bounds.

        The signed order of old writers is safe: it keeps strings with a prefix consecutive, and the order of ASCII.
        """
        if bounds is None:
            return 0, len(self)
        first, stop = self.count_ended(bounds.min), self.count_started(bounds.max)
        if bounds.order is not Order.UNSIGNED and (others := self.not_ascii):
            return min(first, others.start), max(stop, others.stop)
        return first, stop

    def near(self, bounds: Bounds | None) -> Self:
        """Return at least the intervals with keys between the bounds."""
        return self.part(*self.span(bounds))

    def between(self, least: bytes, greatest: bytes) -> Self:
        """Return the intervals with keys between two keys, inclusive."""
        return self.part(self.count_ended(least), self.count_started(greatest))

    def overlap(self, least: bytes, greatest: bytes) -> bool:
        """Return whether ``between`` has any."""
        return self.count_ended(least) < self.count_started(greatest)

    def contain_all(self, bounds: Bounds | None) -> bool:
        if bounds is None or bounds.order is not Order.UNSIGNED:
            return False
        place = self.count_ended(bounds.min)
        return place < len(self) and (interval := self[place]).start <= bounds.min and bounds.max < interval.end

    def least_match(self, bounds: Bounds | None) -> bytes:
        """Return a lower bound of the keys in the intervals and between the bounds."""
        start = self[0].start if len(self) else b""
        return max(start, bounds.min) if bounds and is_lower_bound(bounds) else start


def is_lower_bound(bounds: Bounds | None) -> bool:
    """Return whether no key is less than ``min``, compared byte by byte.

    Keys that follow ASCII text in the signed order of old writers follow it in the order of bytes too.
    """
    return bounds is not None and (bounds.order is Order.UNSIGNED or bounds.min.isascii())


class Intervals(tuple[KeyInterval, ...], KeyIntervals):
    """Intervals in a tuple."""

    __slots__ = ()

    def part(self, first: int, stop: int) -> Self:
        return type(self)(self[first:stop])

    def count_ended(self, key: bytes) -> int:
        return bisect_right(self, key, key=_end)

    def count_started(self, key: bytes) -> int:
        return bisect_right(self, key, key=_start)

    @property
    def not_ascii(self) -> range:
        found = [at for at, each in enumerate(self) if not (each.start.isascii() and each.end.isascii())]
        return range(found[0], found[-1] + 1) if found else range(0)

    def mask(self, keys: pa.BinaryArray) -> pa.BooleanArray:
        some = self
        if len(self) > _FEW:
            bounds = least_and_greatest(keys)
            some = self.between(*bounds) if bounds else self.part(0, 0)
        single, wide = list[bytes](), list[KeyInterval]()
        for interval in some:
            if interval.end == interval.start + b"\0":
                single.append(interval.start)
            else:
                wide.append(interval)
        mask = pc.equal(keys, binaries(single)[0]) if len(single) == 1 else pc.is_in(keys, value_set=binaries(single))
        if len(wide) > _FEW:
            inside = np.fromiter((key is not None and covers(wide, key) for key in keys.to_pylist()), bool, len(keys))
            return pc.or_(mask, flags(inside))
        for interval in wide:
            low, high = binaries([interval.start, interval.end])
            mask = pc.or_(mask, pc.and_(pc.greater_equal(keys, low), pc.less(keys, high)))
        return mask


ALL_KEYS = Intervals([EVERYTHING])


class KeyBatches(ABC):
    """Ascending keys, not necessarily distinct, in Arrow arrays, which may be read when they are needed."""

    def __init__(self, starts: Sequence[int], firsts: Sequence[bytes], *, is_ascii: bool) -> None:
        """Describe the arrays by the number of the first key of each, with the number of keys, and by their least keys.

        ``is_ascii`` says that all keys are known to be ASCII.
        """
        self.starts, self.firsts, self.is_ascii = starts, firsts, is_ascii

    @abstractmethod
    def keys(self, number: int) -> pa.BinaryArray:
        pass

    def parts(self, rows: range) -> Iterator[tuple[range, pa.BinaryArray]]:
        """Yield keys array by array, with their numbers."""
        first = rows.start
        while first < rows.stop:
            number = bisect_right(self.starts, first) - 1
            begin, stop = self.starts[number], min(rows.stop, self.starts[number + 1])
            yield range(first, stop), self.keys(number).slice(first - begin, stop - first)
            first = stop

    def place(self, key: bytes) -> int:
        """Count the keys less than ``key``."""
        number = bisect_left(self.firsts, key) - 1
        return self.starts[number] + bisect_left(self.keys(number), key, key=as_bytes) if number >= 0 else 0


class _OneArray(KeyBatches):
    def __init__(self, keys: pa.BinaryArray) -> None:
        super().__init__([0, len(keys)], keys[:1].to_pylist(), is_ascii=False)
        self._array = keys

    def keys(self, _: int) -> pa.BinaryArray:
        return self._array


class SingleKeys(KeyIntervals):
    """Single keys, without a Python object for each."""

    def __init__(self, batches: KeyBatches, rows: range) -> None:
        self._batches, self.rows = batches, rows

    @staticmethod
    def of(keys: pa.BinaryArray) -> "SingleKeys":
        return SingleKeys(_OneArray(keys), range(len(keys)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int, /) -> KeyInterval:
        row = self.rows[place]
        ((_, keys),) = self._batches.parts(range(row, row + 1))
        return exact_interval(keys[0].as_py())

    def __iter__(self) -> Iterator[KeyInterval]:
        return (exact_interval(key) for _, keys in self._batches.parts(self.rows) for key in keys.to_pylist())

    def __reduce__(self) -> tuple[Callable[[pa.BinaryArray], "SingleKeys"], tuple[pa.BinaryArray]]:
        # Other machines do not have the files of the batches.
        parts = [keys for _, keys in self._batches.parts(self.rows)]
        return SingleKeys.of, (pc.unique(pa.concat_arrays([binaries([]), *parts])),)

    def part(self, first: int, stop: int) -> Self:
        return type(self)(self._batches, self.rows[first : max(first, stop)])

    def count_ended(self, key: bytes) -> int:
        return min(max(self._batches.place(key), self.rows.start), self.rows.stop) - self.rows.start

    def count_started(self, key: bytes) -> int:
        return self.count_ended(key + b"\0")

    @cached_property
    def not_ascii(self) -> range:
        found: list[int] = []
        for rows, keys in () if self._batches.is_ascii else self._batches.parts(self.rows):
            places = np.flatnonzero(~booleans(pc.string_is_ascii(keys.cast(pa.string()))))
            found += (places[[0, -1]] + (rows.start - self.rows.start)).tolist() if len(places) else []
        return range(found[0], found[-1] + 1) if found else range(0)

    def mask(self, keys: pa.BinaryArray) -> pa.BooleanArray:
        inorder, places = ascending(keys)
        is_there = np.zeros(len(keys), np.bool_)
        for some, _, part in self.meet(inorder):
            is_there[some if places is None else places[some]] |= booleans(pc.is_in(inorder[some], value_set=part))
        return flags(is_there)

    def meet(self, keys: pa.BinaryArray) -> Iterator[tuple[slice, range, pa.BinaryArray]]:
        """Yield slices of ascending keys, with the query's keys near them and their numbers."""
        if not len(keys):
            return
        first, near = 0, self.between(keys[0].as_py(), keys[-1].as_py())
        for rows, part in self._batches.parts(near.rows):
            first = bisect_left(keys, part[0].as_py(), lo=first, key=as_bytes)
            stop = bisect_right(keys, part[-1].as_py(), lo=first, key=as_bytes)
            if first < stop:
                yield slice(first, stop), rows, part
