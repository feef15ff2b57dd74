"""Row groups that are decoded together: opening a small one takes longer than decoding it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from catalogue.parquet.arrow_arrays import positions, texts
from catalogue.parquet.model import ColumnChunk
from catalogue.plan.crawl_plan import ColumnRead, PlannedFile, PlannedRowGroup
from catalogue.plan.plan import ReadPlan
from catalogue.read.prefetch import LoadedRowGroup

MOST_ROW_GROUPS = 64
"""Bundles grow from one row group, at most twofold, so that the first rows come early."""
MOST_ROWS = 1 << 16
"""Rows of a bundle that may match; a larger row group is a separate bundle."""
MOST_BYTES = 2 << 20
"""Uncompressed bytes of these rows."""


class Bundle:
    """Row groups with the same columns and writer, and consecutive numbers of rows."""

    def __init__(self, groups: Sequence[LoadedRowGroup]) -> None:
        self.groups = groups
        self.starts = np.cumsum([0, *(group.read.num_rows for group in groups)])
        """First row of each row group, and the number of rows."""

    @property
    def columns(self) -> list[tuple[ColumnRead, ...]]:
        """The reads of each column, by row group; the key first."""
        return list(zip(*(group.read.columns for group in self.groups), strict=True))

    @property
    def candidates(self) -> np.ndarray:
        """The ascending numbers of the rows that may match."""
        return RowRuns(self, [group.read.rows for group in self.groups]).between(0)

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(group.size for group in self.groups)

    @property
    def where(self) -> str:
        more = len(self.groups) - 1
        return f"{self.groups[0].where} and {more} more" if more else self.groups[0].where

    def parts(self, rows: np.ndarray) -> list[slice]:
        """Divide ascending numbers of rows by row group."""
        return [slice(start, end) for start, end in pairwise(np.searchsorted(rows, self.starts).tolist())]

    def path_column(self, name: str, rows: np.ndarray) -> pa.StringArray:
        """Return a column derived from the paths of the files."""
        values = texts([getattr(group.file.file, name) for group in self.groups])
        if len(self.groups) == 1:
            return pa.repeat(values[0], len(rows))
        return values.take(positions(np.searchsorted(self.starts, rows, side="right") - 1))


class RowRuns:
    """Runs of consecutive rows of a bundle."""

    def __init__(self, bundle: Bundle, runs: Iterable[tuple[range, ...]]) -> None:
        bounds = [
            (start + run.start, len(run))
            for start, of_group in zip(bundle.starts.tolist(), runs, strict=False)
            for run in of_group
        ]
        starts, lengths = np.array(bounds, np.int64).reshape(-1, 2).T
        self._starts, self._ends = starts, np.cumsum(lengths)
        self._shifts = starts + lengths - self._ends
        self.count = int(self._ends[-1]) if bounds else 0

    def until(self, last: int) -> int:
        """Count the rows up to ``last``, which is in a run."""
        run = np.searchsorted(self._starts, last, side="right") - 1
        return int(last - self._shifts[run]) + 1

    def between(self, first: int, after: int | None = None) -> np.ndarray:
        """Return numbers of rows by their positions in the runs."""
        at = np.arange(first, self.count if after is None else after)
        if len(self._ends) <= 1:
            return at + self._shifts
        return at + self._shifts[np.searchsorted(self._ends, at, side="right")]


def bundle_sizes(plan: ReadPlan) -> Iterator[int]:
    """Yield the number of row groups of each bundle, in the order of the plan."""
    most = 1
    count = rows = 0
    size = 0.0
    shape: tuple[object, ...] = ()
    for file in plan.files:
        # Rows of a section are returned before those of the next.
        section = (file.file.crawl, file.file.subset) if plan.query.is_inorder else None
        for group in file.row_groups:
            its_shape = section, _shape(file, group)
            its_rows = sum(map(len, group.rows))
            its_size = sum(_value_bytes(read.chunk) for read in group.columns) * its_rows
            full = count >= most or rows + its_rows > MOST_ROWS or size + its_size > MOST_BYTES
            if count and (full or plan.stops_early or its_shape != shape):
                yield count
                most = min(2 * most, MOST_ROW_GROUPS)
                count = rows = 0
                size = 0.0
            shape, count, rows, size = its_shape, count + 1, rows + its_rows, size + its_size
    if count:
        yield count


def _value_bytes(chunk: ColumnChunk) -> float:
    return chunk.total_uncompressed_size / max(1, chunk.num_values)


def _shape(file: PlannedFile, group: PlannedRowGroup) -> tuple[object, ...]:
    columns = tuple((read.chunk.column.name, read.chunk.column.element, read.later) for read in group.columns)
    return file.created_by, group.untyped, columns


def is_read_whole(group: PlannedRowGroup) -> bool:
    """Return whether all rows may match, and all columns are read at once."""
    return group.key_index is None and not group.later
