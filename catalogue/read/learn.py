"""Check page indexes against the keys that were read, and build them where files have none."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from catalogue.errors import BadFooter, BadPageIndex
from catalogue.parquet.arrow_arrays import least_and_greatest
from catalogue.parquet.key_ranges import covers, merged
from catalogue.parquet.model import Bounds, ColumnChunk, Order
from catalogue.parquet.page_headers import locate_pages
from catalogue.parquet.page_index import encode_column_index, encode_offset_index
from catalogue.parquet.stored_indexes import ColumnIndex, Indexes, OffsetIndex, cut_bounds
from catalogue.plan.crawl_plan import ColumnRead
from catalogue.read.bundle import Bundle
from catalogue.read.decode import Numbered
from catalogue.read.key_clusters import clusters, contain
from catalogue.read.prefetch import LoadedRowGroup


class KeyObserver(Protocol):
    """Gets the keys of a row group while they are decoded."""

    def see(self, rows: np.ndarray, keys: pa.BinaryArray) -> None:
        """Take the keys of rows with these ascending numbers.

        Raises:
            BadFooter: if a key is outside of the bounds in the footer, by which other queries skip the row group.
        """


class WithinBounds:
    """Checks keys against the bounds of their column chunk."""

    def __init__(self, chunk: ColumnChunk, where: str) -> None:
        """Check the keys of a column chunk; ``where`` is for messages."""
        self._bounds = _comparable(chunk)
        self._where = where

    def see(self, rows: np.ndarray, keys: pa.BinaryArray) -> None:  # noqa: ARG002
        if self._bounds and (found := _bounds(keys)):
            _check_bounds(found, self._bounds, self._where)


def _comparable(chunk: ColumnChunk) -> Bounds | None:
    return chunk.bounds if chunk.bounds and chunk.bounds.order is Order.UNSIGNED else None


def _bounds(keys: pa.BinaryArray) -> Bounds | None:
    found = least_and_greatest(keys)
    return Bounds(*found) if found else None


def _check_bounds(found: Bounds, stated: Bounds, where: str) -> None:
    if not stated.min <= found.min <= found.max <= stated.max:
        message = (
            f"{where}: it holds keys outside the bounds in the file's footer, so queries may miss rows; "
            "run: catalogue check --read-subset 100%"
        )
        raise BadFooter(message)


class Observed:
    """Observes keys while they are decoded."""

    def __init__(self, index: OffsetIndex, chunk: ColumnChunk, where: str, claimed: ColumnIndex | None) -> None:
        """Observe the keys of a column chunk.

        Args:
            index: of the chunk.
            chunk: whose bounds are checked, too; see ``WithinBounds``.
            where: for messages.
            claimed: the index of bounds, for ``check``. Intervals of keys are found where it may have none yet.
        """
        self._index = index
        self._stated = _comparable(chunk)
        self._where = where
        self._claimed = claimed
        self._zipped = claimed is not None and claimed.overlapping
        self._denied: set[int] = set()
        """Pages with keys outside of the claimed intervals."""
        self._bounds: dict[int, Bounds] = {}
        self._nulls = [0] * len(index)
        self._parts: dict[int, tuple[Bounds, ...]] = {}
        self._waiting: dict[int, list[pa.BinaryArray]] = {}
        """Keys of the last pages, until it is known whether they overlap."""
        self._rows = [0] * len(index)

    def see(self, rows: np.ndarray, keys: pa.BinaryArray) -> None:
        pages = np.searchsorted(self._index.first_rows, rows, side="right") - 1
        cuts = (np.flatnonzero(pages[1:] != pages[:-1]) + 1).tolist()
        for first, after in pairwise([0, *cuts, len(pages)]):
            self._see_page(int(pages[first]), keys.slice(first, after - first))

    def _see_page(self, page: int, keys: pa.BinaryArray) -> None:
        self._nulls[page] += keys.null_count
        self._rows[page] += len(keys)
        if found := _bounds(keys):
            if self._stated:
                _check_bounds(found, self._stated, self._where)
            if known := self._bounds.get(page):
                found = Bounds(min(found.min, known.min), max(found.max, known.max))
            self._bounds[page] = found
            if self._claimed is None:
                self._note_overlap(page, keys)
            elif filled := self._claimed.clusters.get(page):
                if not contain(filled, keys):
                    self._denied.add(page)
            elif self._zipped:
                self._note_clusters(page, keys)

    def _note_overlap(self, page: int, keys: pa.BinaryArray) -> None:
        """Find intervals of keys where a page overlaps the one before it; elsewhere its bounds are enough."""
        if len(self._index) == 1:
            self._note_clusters(page, keys)
            return
        self._waiting = {n: parts for n, parts in self._waiting.items() if n >= page - 1}
        self._waiting.setdefault(page, []).append(keys)
        before = self._bounds.get(page - 1)
        if before and before.max > self._bounds[page].min:
            for each in (page - 1, page):
                for part in self._waiting.get(each, ()):
                    self._note_clusters(each, part)
                self._waiting[each] = []

    def _note_clusters(self, page: int, keys: pa.BinaryArray) -> None:
        intervals = clusters(keys)
        known = self._parts.get(page)
        self._parts[page] = merged([*known, *intervals]) if known else intervals

    @property
    def complete(self) -> bool:
        return sum(self._rows) == self._index.first_rows[-1]

    def clusters(self) -> dict[int, tuple[Bounds, ...]]:
        """Return the intervals of keys of completely observed pages, where there are several."""
        return {page: self._parts[page] for page in self._complete_pages() if len(self._parts.get(page, ())) > 1}

    def _complete_pages(self) -> list[int]:
        rows = map(len, (self._index.rows(range(page, page + 1)) for page in range(len(self._index))))
        return [page for page, (seen, there) in enumerate(zip(self._rows, rows, strict=True)) if seen == there]

    def check(self) -> None:
        """Compare the observed keys with the claimed index, if there is one.

        Raises:
            BadPageIndex: if a key is outside of the bounds of its page, or the number of nulls differs.
        """
        claimed = self._claimed
        if claimed is None:
            return
        for page in self._complete_pages():
            if claimed.null_counts is not None and claimed.null_counts[page] != self._nulls[page]:
                message = f"page {page} of the keys has {self._nulls[page]} nulls, which its index denies"
                raise BadPageIndex(message)
        for page, seen in self._bounds.items():
            if page in self._denied or not covers(claimed.filled(page), [seen]):
                message = f"page {page} of the keys holds keys that its index denies"
                raise BadPageIndex(message)

    def column_index(self) -> ColumnIndex:
        bounds = (self._bounds.get(page) for page in range(len(self._index)))
        return ColumnIndex(tuple(b and cut_bounds(b.min, b.max) for b in bounds), tuple(self._nulls))


def observer(group: LoadedRowGroup, read: ColumnRead) -> Observed | None:
    """Return what learns from the keys of a row group, unless they teach nothing."""
    if not group.teaches:
        return None
    try:
        index = read.index or locate_pages(group.all_headers(read), len(read.chunk.range), read.chunk)
    except BadPageIndex:
        return None
    return Observed(index, read.chunk, group.where, group.read.key_index)


def watched(
    bundle: Bundle, reads: Sequence[ColumnRead], seen: Sequence[Observed | None], numbered: Iterable[Numbered]
) -> Iterator[Numbered]:
    """Yield the keys of a bundle unchanged, after each row group's observer has seen its own."""
    observers: list[KeyObserver] = [
        observed or WithinBounds(read.chunk, group.where)
        for group, read, observed in zip(bundle.groups, reads, seen, strict=True)
    ]
    for numbers, values in numbered:
        keys = values.cast(pa.binary())
        for observer, part, start in zip(observers, bundle.parts(numbers), bundle.starts.tolist(), strict=False):
            if part.start < part.stop:
                observer.see(numbers[part] - start, keys.slice(part.start, part.stop - part.start))
        yield numbers, values


def own_indexes(seen: Observed | None, key: str, group: LoadedRowGroup) -> Indexes:
    """Build page indexes of column chunks that were read whole, with bounds if all keys were observed."""
    located = {}
    for read in group.read.columns:
        name = read.chunk.column.name
        if read.index is None and name in group.pieces:
            with suppress(BadPageIndex):  # such a chunk is read whole next time, too
                index = locate_pages(group.all_headers(read), len(read.chunk.range), read.chunk)
                located[name] = encode_offset_index(index)
    complete = seen is not None and seen.complete and key in located
    if seen is None or not complete:
        return Indexes(None, located, own=True)
    return Indexes(encode_column_index(seen.column_index()), located, own=True, clusters=seen.clusters())
