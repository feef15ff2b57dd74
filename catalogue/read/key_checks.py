"""Check keys against the footer and the page index by which rows were chosen."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from catalogue.errors import BadFooter, BadPageIndex
from catalogue.parquet.arrow_arrays import least_and_greatest
from catalogue.parquet.model import Bounds, Order
from catalogue.parquet.page_index import ColumnIndex, OffsetIndex
from catalogue.plan.crawl_plan import ColumnRead
from catalogue.read.bundle import Bundle
from catalogue.read.decode import Numbered
from catalogue.read.prefetch import LoadedRowGroup


def checked(bundle: Bundle, reads: Sequence[ColumnRead], numbered: Iterable[Numbered]) -> Iterator[Numbered]:
    """Yield the keys of a bundle, with the numbers of their rows, after checking them.

    Raises:
        BadFooter: if a key is outside the bounds in the footer, by which other queries skip the row group.
        BadPageIndex: if a key is outside the bounds of its page, or the number of nulls differs.
    """
    checks = [_RowGroupCheck(group, read) for group, read in zip(bundle.groups, reads, strict=True)]
    for numbers, values in numbered:
        keys = values.cast(pa.binary())
        for check, part, start in zip(checks, bundle.parts(numbers), bundle.starts.tolist(), strict=False):
            if part.start < part.stop:
                check(numbers[part] - start, keys.slice(part.start, part.stop - part.start))
        yield numbers, values


class _RowGroupCheck:
    def __init__(self, group: LoadedRowGroup, read: ColumnRead) -> None:
        bounds = read.chunk.bounds
        self._footer = bounds if bounds and bounds.order is Order.UNSIGNED else None
        self._where = group.where
        self._index, self._offsets = group.read.key_index, read.index
        pages = len(read.index) if read.index else 0
        self._rows, self._nulls = [0] * pages, [0] * pages

    def __call__(self, rows: np.ndarray, keys: pa.BinaryArray) -> None:
        if self._index is None or self._offsets is None:
            self._check_footer(least_and_greatest(keys))
            return
        pages = np.searchsorted(self._offsets.first_rows, rows, side="right") - 1
        cuts = (np.flatnonzero(pages[1:] != pages[:-1]) + 1).tolist()
        for first, after in pairwise([0, *cuts, len(pages)]):
            part, page = keys.slice(first, after - first), int(pages[first])
            found = least_and_greatest(part)
            self._check_footer(found)
            if not _are_inside(found, self._index.bounds[page]):
                message = f"page {page} of the keys holds keys that its index denies"
                raise BadPageIndex(message)
            self._rows[page] += len(part)
            self._nulls[page] += part.null_count
            self._check_nulls(page, self._index, self._offsets)

    def _check_footer(self, found: tuple[bytes, bytes] | None) -> None:
        if self._footer and not _are_inside(found, self._footer):
            message = (
                f"{self._where}: it holds keys outside the bounds in the file's footer, so queries may miss rows; "
                "run: catalogue check --read-subset 100%"
            )
            raise BadFooter(message)

    def _check_nulls(self, page: int, index: ColumnIndex, offsets: OffsetIndex) -> None:
        if index.null_counts is None or self._rows[page] < len(offsets.rows(range(page, page + 1))):
            return
        if index.null_counts[page] != self._nulls[page]:
            message = f"page {page} of the keys has {self._nulls[page]} nulls, which its index denies"
            raise BadPageIndex(message)


def _are_inside(found: tuple[bytes, bytes] | None, bounds: Bounds | None) -> bool:
    """Return whether keys are between bounds; without bounds there must be no keys."""
    return found is None or (bounds is not None and bounds.min <= found[0] and found[1] <= bounds.max)
