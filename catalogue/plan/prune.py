"""Prune by metadata: which rows may match a query, and which match for certain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from catalogue.errors import BadFooter, BadPageIndex
from catalogue.parquet.model import Bounds, ColumnChunk, Order, RowGroup
from catalogue.parquet.page_index import ColumnIndex, Indexes, OffsetIndex, decode_column_index, decode_offset_index
from catalogue.plan.requests import Cost, Part, PlannedRequest, Purpose, plan_requests
from catalogue.query.key_intervals import KeyIntervals, is_lower_bound
from catalogue.query.random_order import DrawnRows
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.surt.interval import END
from catalogue.tables.crawl_table import FileMetadata

PAGE_ROWS, PAGE_BYTES = 20_000, 1 << 20
"""Maximum size of an uncompressed data page of parquet-mr; an estimate where an index is not stored."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Consecutive rows with common bounds: a page of the key column, or a row group."""

    rows: range
    certain: bool
    """All of them match, except those without a key."""
    nulls: int | None
    """Rows without a key, which do not match; None if unknown, or if only the footer counts them."""
    least: bytes = b""
    """A lower bound of the keys that may match."""
    greatest: bytes = END

    @property
    def sure_rows(self) -> int:
        return len(self.rows) - self.nulls if self.certain and self.nulls is not None else 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A row group that may match."""

    metadata: FileMetadata
    group: RowGroup
    chunks: tuple[ColumnChunk, ...]
    """The column chunks that the query reads, the key first."""
    intervals: KeyIntervals
    bounded: bool
    units: tuple[Unit, ...]
    """Its parts that may match; the whole row group if page indexes are ``missing``."""
    least: bytes = b""
    """See ``Unit.least``; from the footer if possible, whose bounds reading checks."""
    key_index: ColumnIndex | None = None
    offset_indexes: dict[str, OffsetIndex] = field(default_factory=dict)
    """Indexes of the columns to read; empty if pages are not read."""
    missing: tuple[Part, ...] = ()
    """Page indexes that are not stored."""
    defect: str = ""
    counted: int = 0
    """Certain matches outside of ``units``."""
    drawn: DrawnRows | None = field(default=None, compare=False)
    """The drawn rows in ``units``; None for all."""

    @property
    def rows(self) -> tuple[range, ...]:
        if self.drawn:
            rows = self.drawn.rows
            parted = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
            return tuple(range(int(run[0]), int(run[-1]) + 1) for run in parted if len(run))
        runs: list[range] = []
        for unit in self.units:
            if runs and runs[-1].stop == unit.rows.start:
                runs[-1] = range(runs[-1].start, unit.rows.stop)
            else:
                runs.append(unit.rows)
        return tuple(runs)


def choose_pages(query: ResolvedQuery, metadata: FileMetadata, group: RowGroup, *, rare: bool = False) -> Choice:
    """Choose the pages that may match, by the stored page indexes.

    ``rare``: other conditions than that on keys match few rows.

    Raises:
        BadFooter: if a column has more than one value a row.
    """
    key, chunks = group.chunks[query.table.key], _read_chunks(query, metadata, group)
    bounds = key.bounds or (metadata.indexes(group.ordinal) or Indexes()).bounds
    intervals = query.intervals.near(bounds)
    least = intervals.least_match(bounds)
    # Some writers count nulls once for each page, so a count of the footer alone is not used.
    nulls = 0 if query.with_nulls or key.null_count == 0 or not key.column.optional else None
    is_certain = query.with_nulls or intervals.contain_all(bounds)
    whole = Unit(range(group.num_rows), is_certain, nulls, least, _greatest(bounds))
    drawn = metadata.drawn.get((metadata.path, group.ordinal))
    choice = Choice(metadata, group, chunks, intervals, bounds is not None, (whole,), least, drawn=drawn)
    if not len(intervals):
        return replace(choice, units=())
    if whole.certain and not (rare or drawn or _few_pages_suffice(query, whole)):
        return choice  # every page is needed
    indexes = metadata.indexes(group.ordinal) or Indexes()
    with_bounds = not whole.certain or _few_pages_suffice(query, whole)
    missing = tuple(_missing_indexes(indexes, chunks, group.ordinal, with_bounds=with_bounds))
    try:
        closer = _by_pages(choice, key, indexes, with_bounds=with_bounds, with_nulls=query.with_nulls)
    except BadPageIndex as error:
        return replace(choice, defect=str(error))
    if not closer.units:
        return closer
    if missing or closer is choice:
        return replace(closer, missing=missing)
    offset_indexes, defect = _offset_indexes(indexes, chunks, group.num_rows)
    return replace(closer, offset_indexes=offset_indexes, defect=defect)


def _greatest(bounds: Bounds | None) -> bytes:
    return bounds.max if bounds and bounds.order is Order.UNSIGNED else END


def _few_pages_suffice(query: ResolvedQuery, unit: Unit) -> bool:
    """Return whether fewer pages may be enough; their own null counts decide."""
    return query.limit is not None and query.keys_decide and not query.ordered and query.limit < len(unit.rows)


def _read_chunks(query: ResolvedQuery, metadata: FileMetadata, group: RowGroup) -> tuple[ColumnChunk, ...]:
    """Return the column chunks that a query reads of a row group, the key first.

    Raises:
        BadFooter: if one has more than one value a row.
    """
    columns, found = metadata.footer.columns, []
    for name in query.read_columns:
        if name in columns:
            is_flat = columns[name].flat
        else:
            is_flat = all(column.flat for other, column in columns.items() if other.startswith(f"{name}."))
        if not is_flat:
            raise BadFooter(f"{metadata.file.path}: column {name} has more than one value a row, which cannot be read")
        if chunk := group.chunks.get(name):
            found.append(chunk)
    return tuple(found)


def _missing_indexes(
    indexes: Indexes, chunks: Sequence[ColumnChunk], ordinal: int, *, with_bounds: bool = True
) -> Iterator[Part]:
    key = chunks[0]
    if with_bounds and not (indexes.column_index or (key.column_index and key.offset_index)):
        return  # positions of pages do not help without bounds
    for chunk in chunks:
        name = chunk.column.name
        if with_bounds and chunk is key and chunk.column_index and not indexes.column_index:
            yield Part(Purpose.INDEX, ordinal, name, chunk.column_index)
        if chunk.offset_index and name not in indexes.offset_indexes:
            yield Part(Purpose.INDEX, ordinal, name, chunk.offset_index)


def key_indexes(metadata: FileMetadata, key: str, cost: Cost) -> list[PlannedRequest]:
    parts: list[Part] = []
    for group in metadata.footer.row_groups:
        known = metadata.indexes(group.ordinal) or Indexes()
        parts += _missing_indexes(known, [group.chunks[key]], group.ordinal)
    return plan_requests(metadata.file.path, parts, cost)


def _by_pages(choice: Choice, key: ColumnChunk, indexes: Indexes, *, with_bounds: bool, with_nulls: bool) -> Choice:
    """Divide a row group into the pages of its key column; where all keys match, their bounds are not needed."""
    group, located = choice.group, indexes.offset_indexes.get(key.column.name)
    column_index = indexes.column_index if key.column_index else None
    if located is None or (column_index is None and with_bounds):
        return choice
    offset_index = decode_offset_index(located, key, group.num_rows)
    key_index = None if column_index is None else decode_column_index(column_index, key, offset_index)
    units = []
    first, last, whole = choice.intervals[0].start, choice.intervals[-1].end, choice.units[0]
    for page in range(len(offset_index)):
        rows = offset_index.rows(range(page, page + 1))
        if key_index is None:
            units.append(replace(whole, rows=rows))
            continue
        of_page = key_index.bounds[page]
        if with_nulls:
            units.append(Unit(rows, certain=True, nulls=0, least=of_page.min if of_page else b""))
            continue
        if of_page is None or (of_page.order is Order.UNSIGNED and (of_page.max < first or of_page.min >= last)):
            continue
        if some := choice.intervals.near(of_page):
            nulls = key_index.null_counts[page] if key_index.null_counts and key.null_count is not None else None
            is_certain = choice.intervals.contain_all(of_page)
            units.append(Unit(rows, is_certain, nulls, some.least_match(of_page), _greatest(of_page)))
    if not is_lower_bound(key.bounds or indexes.bounds):
        choice = replace(choice, least=min((unit.least for unit in units), default=b""))
    return _drawn(replace(choice, bounded=True, units=tuple(units), key_index=key_index))


def _drawn(choice: Choice) -> Choice:
    if not choice.drawn:
        return choice
    rows = choice.drawn.rows
    ends = [np.searchsorted(rows, (unit.rows.start, unit.rows.stop)).tolist() for unit in choice.units]
    metadata = np.concatenate([np.arange(0), *(np.arange(first, after) for first, after in ends)])
    return replace(
        choice,
        units=tuple(unit for unit, (first, after) in zip(choice.units, ends, strict=True) if first < after),
        drawn=DrawnRows(rows[metadata], choice.drawn.order[metadata]),
    )


def _offset_indexes(
    indexes: Indexes, chunks: Sequence[ColumnChunk], num_rows: int
) -> tuple[dict[str, OffsetIndex], str]:
    found, defect = {}, ""
    for chunk in chunks:
        if data := indexes.offset_indexes.get(chunk.column.name):
            try:
                found[chunk.column.name] = decode_offset_index(data, chunk, num_rows)
            except BadPageIndex as error:
                defect = str(error)
    return found, defect


def expected_pages(chunk: ColumnChunk) -> int:
    return max(1, -(-chunk.num_values // PAGE_ROWS), -(-chunk.total_uncompressed_size // PAGE_BYTES))


def expected_units(choice: Choice, query: ResolvedQuery) -> float:
    """Estimate the number of matching pages of the key column, without its index."""
    key = choice.group.chunks[query.table.key]
    pages = expected_pages(key)
    if choice.drawn:
        return pages * (1 - (1 - 1 / pages) ** len(choice.drawn.rows))
    if key.bounds is None:
        return float(pages)
    if query.limit is not None and _few_pages_suffice(query, choice.units[0]):
        return float(-(-query.limit // PAGE_ROWS))
    # An interval within the bounds takes one or two pages; one that exceeds them is assumed to take half of all.
    some = islice(choice.intervals, pages)  # more of them do not change the result
    low, high, half = key.bounds.min, key.bounds.max, max(2, pages // 2)
    return float(min(pages, sum(2 if low < each.start and each.end <= high else half for each in some)))
