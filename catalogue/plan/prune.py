"""What the metadata of a row group tell: which of its rows might match a query, and which do for certain."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.errors import BadFooter, BadPageIndex
from catalogue.parquet.model import ColumnChunk, Footer, RowGroup
from catalogue.parquet.page_index import decode_column_index, decode_offset_index
from catalogue.parquet.stored_indexes import ColumnIndex, Indexes, OffsetIndex
from catalogue.plan.requests import Part, PlannedRequest, Purpose, plan_requests
from catalogue.query.random_order import Drawn
from catalogue.query.resolved_query import ResolvedQuery, holds, near
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.surt import KeyInterval

PAGE_ROWS, PAGE_BYTES = 20_000, 1 << 20
"""Of a data page, uncompressed, at most, as parquet-mr writes it; where an index is not held yet this must do."""


def _none_held(_: int) -> Indexes | None:
    return None


@dataclass(frozen=True, slots=True)
class HeldFile:
    """An index file whose footer is held."""

    file: IndexFile
    pin: FileVersion
    footer: Footer
    indexes: Callable[[int], Indexes | None] = field(default=_none_held, compare=False)
    """What is held of the page indexes of a row group, by its ordinal; called for those that need them alone."""
    cached: tuple[ByteRange, ...] = ()
    """What is in the cache of it, disjoint and ascending."""
    drawn: Mapping[int, Drawn] | None = field(default=None, compare=False)
    """The rows that may be in the answer, by row group; all of them if None."""
    least: str = ""
    """By which files come in order: no key in it is less, whatever is known of its pages."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Consecutive rows of which metadata tell as a whole: a page of the key column, or a row group without pages."""

    rows: range
    certain: bool
    """Whether all of them match, but for those without a key."""
    nulls: int | None
    """How many have no key; None if that is not known."""

    @property
    def sure_rows(self) -> int:
        """How many rows match for certain."""
        return len(self.rows) - self.nulls if self.certain and self.nulls is not None else 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A row group that might match."""

    held: HeldFile
    group: RowGroup
    intervals: tuple[KeyInterval, ...]
    bounded: bool
    """Whether the bounds of its keys are known."""
    units: tuple[Unit, ...]
    """What of it might match; none if there is nothing. Where ``lacking``, the row group as a whole."""
    key_index: ColumnIndex | None = None
    offset_indexes: dict[str, OffsetIndex] = field(default_factory=dict)
    """Of the columns to be read; empty where it is not read by pages."""
    lacking: tuple[Part, ...] = ()
    """Page indexes that the file has and that are not held."""
    doubt: str = ""
    """Why its page index is not believed."""
    whole: bool = False
    """Whether every row matches for certain, so that what is held of its pages was not looked at."""
    counted: int = 0
    """Rows that match for certain and are not among the units."""
    drawn: Drawn | None = field(default=None, compare=False)
    """The rows, of those in the units, that may be in the answer; all of them if None."""

    @property
    def rows(self) -> tuple[range, ...]:
        """The rows that might match, as ascending runs."""
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


def choose(query: ResolvedQuery, held: HeldFile, group: RowGroup) -> Choice:
    """Look as closely at a row group that was not ruled out as what is held of it allows.

    Raises:
        BadFooter: if a column that is to be read has more than one value a row.
    """
    key = group.chunks[query.table.key]
    chunks = read_chunks(query, held, group)
    intervals = near(query.intervals, key.bounds)
    whole = Unit(range(group.num_rows), holds(intervals, key.bounds), key.null_count)
    drawn = None if held.drawn is None else held.drawn[group.ordinal]
    choice = Choice(held, group, intervals, key.bounds is not None, (whole,), drawn=drawn)
    if whole.certain and not drawn and not _enough(query, whole):
        return replace(choice, whole=True)  # no page of it can be left out
    indexes = held.indexes(group.ordinal) or Indexes()
    lacking = tuple(_lacking(indexes, chunks, group.ordinal))
    try:
        closer = _by_pages(choice, key, indexes)
    except BadPageIndex as error:
        return replace(choice, doubt=str(error))
    if not closer.units:
        return closer
    if lacking or not closer.key_index:
        return replace(closer, lacking=lacking)
    offset_indexes, doubt = _offset_indexes(indexes, chunks, group.num_rows)
    return replace(closer, offset_indexes=offset_indexes, doubt=doubt)


def _enough(query: ResolvedQuery, unit: Unit) -> bool:
    """Whether some of these rows are all that is wanted."""
    return query.limit is not None and query.keys_decide and not query.ordered and query.limit < unit.sure_rows


def read_chunks(query: ResolvedQuery, held: HeldFile, group: RowGroup) -> tuple[ColumnChunk, ...]:
    """The column chunks that a query reads of a row group, the key's first.

    Raises:
        BadFooter: if one has more than one value a row.
    """
    found = []
    for name in query.read_columns:
        chunk = group.chunks.get(name)
        nested = (
            not chunk.column.flat
            if chunk
            else any(other.startswith(f"{name}.") and not one.column.flat for other, one in group.chunks.items())
        )
        if nested:
            message = f"{held.file.path}: column {name} has more than one value a row, which cannot be read"
            raise BadFooter(message)
        if chunk:
            found.append(chunk)
    return tuple(found)


def _lacking(indexes: Indexes, chunks: Sequence[ColumnChunk], ordinal: int) -> Iterator[Part]:
    key = chunks[0]
    if not (indexes.column_index or (key.column_index and key.offset_index)):
        return  # without bounds of its pages it does not help to know where they are
    for chunk in chunks:
        name = chunk.column.name
        if chunk is key and chunk.column_index and not indexes.column_index:
            yield Part(Purpose.COLUMN_INDEX, ordinal, name, chunk.column_index)
        if chunk.offset_index and name not in indexes.offset_indexes:
            yield Part(Purpose.OFFSET_INDEX, ordinal, name, chunk.offset_index)


def key_indexes(held: HeldFile, key: str, max_gap: int) -> Iterator[PlannedRequest]:
    """The requests for the page indexes of a column of keys that a file has and that are not held."""
    parts: list[Part] = []
    for group in held.footer.row_groups:
        known = held.indexes(group.ordinal) or Indexes()
        parts += _lacking(known, [group.chunks[key]], group.ordinal) if key in group.chunks else []
    return plan_requests(held.file.path, parts, max_gap=max_gap)


def _by_pages(choice: Choice, key: ColumnChunk, indexes: Indexes) -> Choice:
    """The same with the pages of the key column that might match, if their index is held."""
    group, located = choice.group, indexes.offset_indexes.get(key.column.name)
    if located is None or indexes.column_index is None:
        return choice
    offset_index = decode_offset_index(located, key, group.num_rows)
    key_index = decode_column_index(indexes.column_index, key, len(offset_index), indexes.clusters)
    units = []
    for page in range(len(offset_index)):
        filled = key_index.filled(page)  # nothing, if it has not a single key
        if any(near(choice.intervals, part) for part in filled):
            nulls = key_index.null_counts[page] if key_index.null_counts else None
            rows = offset_index.rows(range(page, page + 1))
            units.append(Unit(rows, all(holds(choice.intervals, part) for part in filled), nulls))
    return _drawn(replace(choice, bounded=True, units=tuple(units), key_index=key_index))


def _drawn(choice: Choice) -> Choice:
    """The same with those units that hold rows that were drawn, and those rows that are in such."""
    if not choice.drawn:
        return choice
    rows = choice.drawn.rows
    ends = [np.searchsorted(rows, (unit.rows.start, unit.rows.stop)).tolist() for unit in choice.units]
    held = np.concatenate([np.arange(0), *(np.arange(first, behind) for first, behind in ends)])
    return replace(
        choice,
        units=tuple(unit for unit, (first, behind) in zip(choice.units, ends, strict=True) if first < behind),
        drawn=Drawn(rows[held], choice.drawn.times[held]),
    )


def _offset_indexes(
    indexes: Indexes, chunks: Sequence[ColumnChunk], num_rows: int
) -> tuple[dict[str, OffsetIndex], str]:
    """The indexes that can be believed, by column, and what is wrong with one that cannot."""
    found, doubt = {}, ""
    for chunk in chunks:
        if data := indexes.offset_indexes.get(chunk.column.name):
            try:
                found[chunk.column.name] = decode_offset_index(data, chunk, num_rows)
            except BadPageIndex as error:
                doubt = str(error)
    return found, doubt


def expected_pages(chunk: ColumnChunk) -> int:
    """How many data pages a column chunk has, about."""
    return max(1, -(-chunk.num_values // PAGE_ROWS), -(-chunk.total_uncompressed_size // PAGE_BYTES))


def expected_units(choice: Choice, query: ResolvedQuery) -> float:
    """How many pages of the key column might match, about, where its index is not held."""
    key = choice.group.chunks[query.table.key]
    pages = expected_pages(key)
    if choice.drawn:
        return pages * (1 - (1 - 1 / pages) ** len(choice.drawn.rows))
    if key.bounds is None:
        return float(pages)
    if query.limit is not None and _enough(query, choice.units[0]):
        return float(-(-query.limit // PAGE_ROWS))
    # An interval inside the bounds begins in a page and ends in it or the next; one that sticks out takes half of all.
    inside = [key.bounds.min < i.start and i.end <= key.bounds.max for i in choice.intervals]
    return float(min(pages, sum(2 if each else max(2, pages // 2) for each in inside)))
