"""All rows of some row groups in a random order, which the seed and the row groups decide.

The first rows are drawn one by one, without replacement, so that a few of billions of rows are found at once. After
half of all rows, or ``MOST_SINGLE``, the rest is drawn row group by row group.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

RowGroupId = tuple[str, int]
"""The path of a file, and the number of a row group."""

MOST_SINGLE = 1 << 20
"""Maximum rows drawn one by one, and about the rows of the rest at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class DrawnRows:
    """Drawn rows of one row group."""

    rows: np.ndarray
    """Ascending row numbers in the row group."""
    order: np.ndarray
    """Place of each row in the random order."""


class RandomOrder:
    """Rows in random order; each row comes once. The same seed and row groups give the same order."""

    def __init__(
        self, sizes: Mapping[RowGroupId, int], seed: int, possible: Container[RowGroupId] | None = None
    ) -> None:
        """Take the number of rows of each row group; drawn rows are returned of ``possible`` row groups only."""
        self._possible = sizes if possible is None else possible
        self._groups = sorted(sizes)
        self._sizes = np.array([sizes[group] for group in self._groups], np.int64)
        self._ends = np.cumsum(self._sizes)
        self._seed = seed % (1 << 64)  # numpy takes no negative seeds
        self._random = np.random.default_rng(self._seed)
        self._drawn = np.empty(0, np.int64)
        self.rows = int(self._sizes.sum())
        self.single = min(self.rows // 2, MOST_SINGLE)
        self.drawn = 0

    def next(self, count: int) -> dict[RowGroupId, DrawnRows]:
        """Return the next rows; fewer than ``count`` once ``single`` rows are drawn."""
        numbers, order = self._draw(count)
        groups = np.searchsorted(self._ends, numbers, side="right")
        rows = numbers - (self._ends - self._sizes)[groups]
        found = {}
        for group in np.unique(groups).tolist():
            if self._groups[group] not in self._possible:
                continue
            of_group = slice(*np.searchsorted(groups, (group, group + 1)))
            found[self._groups[group]] = DrawnRows(rows[of_group], order[of_group])
        return found

    def rest(self) -> Iterator[dict[RowGroupId, DrawnRows]]:
        """Yield all other rows, some row groups at a time."""
        earlier = np.sort(self._drawn)
        single, order = self._draw(self.single)
        groups = zip(self._groups, self._sizes.tolist(), self._ends, strict=True)
        some: dict[RowGroupId, DrawnRows] = {}
        total = 0
        # From 1 on: to numpy, the seeds [n, 0] and n are the same.
        for index, (group, size, end) in enumerate(groups, start=1):
            if group not in self._possible:
                continue
            first = end - size
            places = self.single + np.random.default_rng([self._seed, index]).random(size)
            among = slice(*np.searchsorted(single, (first, end)))
            places[single[among] - first] = order[among]
            left = np.ones(size, bool)
            left[earlier[slice(*np.searchsorted(earlier, (first, end)))] - first] = False
            if left.any():
                some[group] = DrawnRows(np.flatnonzero(left), places[left])
                total += size
            if total >= MOST_SINGLE:
                yield some
                some, total = {}, 0
        self.drawn = self.rows
        if some:
            yield some

    def _draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the next single rows, ascending, and their places in the random order."""
        start = self.drawn
        self.drawn = max(start, min(start + count, self.single))
        while len(self._drawn) < self.drawn:
            # No more than missing, so that the order does not depend on how many are drawn at a time.
            more = (self._random.random(self.drawn - len(self._drawn)) * self.rows).astype(np.int64)
            _, first = np.unique(more, return_index=True)
            more = more[np.sort(first)]
            self._drawn = np.concatenate([self._drawn, more[~np.isin(more, self._drawn)]])
        by_number = np.argsort(self._drawn[start : self.drawn])
        return self._drawn[start + by_number], (start + by_number).astype(np.float64)
