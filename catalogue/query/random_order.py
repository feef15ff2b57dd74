"""Rows in a random order, as many as are wanted, without counting through them all.

Each row of each row group has a time that is drawn for it: independent, exponentially distributed with mean 1, and a
function of nothing but the seed, the path of the file, the row group's ordinal and the row's number. By their times
rows are in a random order of which every beginning is a simple random sample; and those of them that match some
question, or lie in some of the files, are in a random order too. So it makes no difference to which are drawn first
what is known of the rows, or which are looked at.

The times of n rows in their order are sums of independent waits, the k-th with mean 1 / (n - k + 1) (A. Renyi, On the
theory of order statistics, 1953): so the first few rows of a row group are found without the others. Which rows those
are says a permutation of their numbers, a Feistel network of which values beyond n are walked through (J. Black and
P. Rogaway, Ciphers with arbitrary finite domains, 2002).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

Place = tuple[str, int]
"""A file's path and the ordinal of a row group in it."""

_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 12
"""With half as many, permutations of a dozen rows are not all as likely."""
_TOGETHER = 8
"""Rows of each row group that are drawn for all row groups at once; those of which more are due come one by one."""
_WALKED = np.uint64(1) << np.uint64(63)
"""Where the numbers begin that shuffle, apart from those that tell times."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Rows of one row group that were drawn."""

    rows: np.ndarray
    """Their numbers in it, ascending."""
    times: np.ndarray
    """Drawn for each of them."""


class Draws:
    """All rows of some row groups, in a random order."""

    def __init__(self, groups: Mapping[Place, int], seed: int) -> None:
        """Begin before the first row.

        Args:
            groups: how many rows there are in each row group; in any order.
            seed: the same gives the same order.
        """
        self._places = list(groups)
        self._sizes = np.fromiter(groups.values(), np.int64, len(groups))
        self._keys = _keys(self._places, seed)
        self._drawn = np.zeros(len(groups), np.int64)
        self._when = np.full(len(groups), np.inf)
        """The time of the row of each row group that is to be drawn next."""
        some = np.flatnonzero(self._sizes)
        self._when[some] = _waits(self._keys[some], np.uint64(0)) / self._sizes[some]
        self._ahead = (np.arange(0), np.arange(0), np.arange(0.0))
        """Drawn and not handed out yet, by time: indexes of row groups, numbers of rows, times."""
        self.rows = int(self._sizes.sum())
        """How many there are."""
        self.done = 0
        """How many of them were handed out."""
        self.time = 0.0
        """Of the last of these."""

    def next(self, count: int) -> dict[Place, Drawn]:
        """The next rows, by row group; fewer than ``count`` if these are the last."""
        count = min(count, self.rows - self.done)
        more = 8 + 4 * math.sqrt(count)
        while len(self._ahead[0]) < count:
            self._advance(time_of((self.done + count + more) / max(1, self.rows)))
            more *= 2
        groups, rows, times = (each[:count] for each in self._ahead)
        self._ahead = tuple(each[count:] for each in self._ahead)  # type: ignore[assignment]  # three as before
        self.done += count
        self.time = float(times[-1]) if count else self.time
        return self._by_place(groups, rows, times)

    def between(self, after: float, until: float) -> dict[Place, Drawn]:
        """All rows whose times lie behind ``after`` and not behind ``until``; before any was handed out."""
        self._advance(until)
        groups, rows, times = self._ahead
        wanted = (times > after) & (times <= until)
        return self._by_place(groups[wanted], rows[wanted], times[wanted])

    def _by_place(self, groups: np.ndarray, rows: np.ndarray, times: np.ndarray) -> dict[Place, Drawn]:
        order = np.lexsort((rows, groups))
        groups, rows, times = groups[order], rows[order], times[order]
        begins = np.flatnonzero(np.diff(groups, prepend=-1))
        ends = [*begins[1:].tolist(), len(groups)]
        return {
            self._places[groups[begin]]: Drawn(rows[begin:end], times[begin:end])
            for begin, end in zip(begins.tolist(), ends, strict=False)  # with no row there is an end of none
        }

    def _advance(self, until: float) -> None:
        """Draw every row whose time comes before a time, or with it."""
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for _ in range(_TOGETHER):  # of most row groups a few rows are due at most
            due = self._due(until)
            found.append((due, self._drawn[due], self._when[due]))
            self._drawn[due] += 1
            drawn, left = self._drawn[due].astype(np.uint64), self._sizes[due] - self._drawn[due]
            waits = _waits(self._keys[due], drawn) / np.maximum(left, 1)
            self._when[due] = np.where(left > 0, self._when[due] + waits, np.inf)
        found += [self._of_group(group, until) for group in self._due(until).tolist()]
        groups, numbers, times = (np.concatenate(each) for each in zip(*found, strict=True))
        rows = _shuffled(numbers, self._sizes[groups], self._keys[groups])
        groups, rows, times = map(np.concatenate, zip(self._ahead, (groups, rows, times), strict=True))
        order = np.argsort(times, kind="stable")
        self._ahead = (groups[order], rows[order], times[order])

    def _due(self, until: float) -> np.ndarray:
        """The row groups of which a row comes before a time, or with it."""
        return np.flatnonzero((self._when <= until) & (self._drawn < self._sizes))

    def _of_group(self, group: int, until: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same of one row group: itself, the ranks of rows, and their times, which ascend."""
        size, first, when = int(self._sizes[group]), int(self._drawn[group]), float(self._when[group])
        key, times = self._keys[group], []
        at = first
        while when <= until and at < size:
            # About as many as will come until then, and some more; a time is the one before it and a wait.
            expected = (size - at) * -math.expm1(when - until)
            behind = min(size, at + 8 + int(expected + 4 * math.sqrt(expected)))
            following = np.arange(at + 1, behind)
            waits = _waits(key, following.astype(np.uint64)) / (size - following)
            block = np.cumsum(np.concatenate([[when], waits]))
            taken = int(np.searchsorted(block, until, side="right"))
            times.append(block[:taken])
            at += taken
            if taken < len(block):
                when = float(block[taken])
            elif at < size:
                when = float(block[-1] + (_waits(key, np.uint64(at)) / (size - at)))
        self._drawn[group], self._when[group] = at, when if at < size else np.inf
        return np.full(at - first, group), np.arange(first, at), np.concatenate(times)


def time_of(share: float) -> float:
    """The time by which about this share of all rows has come."""
    return -math.log1p(-share) if share < 1 else math.inf


def _keys(places: Sequence[Place], seed: int) -> np.ndarray:
    """What makes each row group's numbers its own."""
    paths = dict.fromkeys(path for path, _ in places)
    of_path = {path: blake2b(f"{seed} {path}".encode(), digest_size=8).digest() for path in paths}
    first = np.frombuffer(b"".join(of_path[path] for path, _ in places), "<u8").astype(np.uint64)
    ordinals = np.fromiter((ordinal for _, ordinal in places), np.uint64, len(places))
    return _mixed(_mixed(first) + ordinals * _STEP)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Numbers that look unlike those they are made of (SplitMix64: Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        values = values + _STEP
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


def _waits(key: np.ndarray, number: np.ndarray | np.uint64) -> np.ndarray:
    """Exponentially distributed with mean 1, by key and number."""
    with np.errstate(over="ignore"):
        numbers = _mixed(key + number * _STEP)
    waits: np.ndarray = -np.log(((numbers >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
    return waits


def _shuffled(numbers: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Where permutations of 0 … size-1, one for each key, take numbers."""
    half = np.maximum(1, (np.frexp((sizes - 1).astype(np.float64))[1] + 1) >> 1).astype(np.uint64)
    mask = (np.uint64(1) << half) - np.uint64(1)
    found, most = numbers.astype(np.uint64), sizes.astype(np.uint64)
    outside = np.arange(len(found))
    while len(outside):
        shift, low, key = half[outside], mask[outside], keys[outside]
        left, right = found[outside] >> shift, found[outside] & low
        for turn in range(_ROUNDS):
            with np.errstate(over="ignore"):
                round_key = key + (_WALKED + np.uint64(turn) * _STEP)
            left, right = right, left ^ (_mixed(round_key ^ right) & low)
        found[outside] = left << shift | right
        outside = outside[found[outside] >= most[outside]]
    return found.astype(np.int64)
