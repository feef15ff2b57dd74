"""A plan: what is read of which file, row group and column, in which requests."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.formatting import ReprMixin, duration, join_first, plural, size
from catalogue.parquet.model import ColumnChunk
from catalogue.parquet.stored_indexes import ColumnIndex, OffsetIndex
from catalogue.plan.cost import Cost
from catalogue.plan.requests import Part, PlannedRequest, Purpose
from catalogue.plan.ways import CrawlWay, sentences
from catalogue.query.key_intervals import KeyIntervals
from catalogue.query.random_order import DrawnRows
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.source.byte_ranges import ByteRange, FileVersion

if TYPE_CHECKING:
    from catalogue.cdx.cluster import BlockList, BlockRead


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """What is read of a column chunk: all of it, or some pages."""

    chunk: ColumnChunk
    index: OffsetIndex | None = None
    """None if the chunk is read whole."""
    pages: tuple[range, ...] = ()
    """Runs of consecutive pages, ascending."""
    later: bool = False
    """Whether it is read in the second wave, after the first has decided which pages match."""

    @property
    def dictionary(self) -> ByteRange | None:
        """The dictionary page, if one of the pages needs it."""
        if self.index is None or not self.pages:
            return None
        start, end = self.chunk.range.start, self.index.offsets[0]
        coded = self.chunk.dictionary_coded
        if start == end or (coded is not None and self.pages[0].start >= coded):
            return None
        return ByteRange(start, end)

    @property
    def rows(self) -> tuple[range, ...]:
        if self.index is None:
            return (range(self.chunk.num_values),)
        return tuple(self.index.rows(run) for run in self.pages)

    @property
    def ranges(self) -> list[ByteRange]:
        """The bytes to read: the dictionary page and runs of pages, or the whole chunk."""
        if self.index is None:
            return [self.chunk.range]
        pages = [self.index.extent(run) for run in self.pages]
        return [self.dictionary, *pages] if self.dictionary else pages

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(map(len, self.ranges))

    def parts(self, row_group: int) -> list[Part]:
        name = self.chunk.column.name
        if self.index is None:
            return [Part(Purpose.CHUNK, row_group, name, self.chunk.range)]
        found = [Part(Purpose.PAGES, row_group, name, self.index.extent(run)) for run in self.pages]
        return [Part(Purpose.DICTIONARY, row_group, name, self.dictionary), *found] if self.dictionary else found

    def single_pages(self) -> Iterator[ByteRange]:
        """Yield the pages one by one, of which the second wave may need some."""
        if self.index is None:
            yield self.chunk.range
            return
        if self.dictionary:
            yield self.dictionary
        for run in self.pages:
            for page in run:
                yield self.index.extent(range(page, page + 1))


@dataclass(frozen=True, slots=True)
class PlannedRowGroup:
    """A row group to read, and its residual filter."""

    ordinal: int
    num_rows: int
    least: bytes
    """A lower bound of the keys that may match."""
    rows: tuple[range, ...]
    """The rows that may match, as ascending runs; others are skipped."""
    columns: tuple[ColumnRead, ...]
    """The key first."""
    key_index: ColumnIndex | None
    """The page index by which rows were chosen; it is compared with the keys that are read."""
    bounded: bool
    """Whether the bounds of its keys are known."""
    whole: bool = False
    """Whether every row matches for certain, so that page indexes were not needed."""
    indexed: bool = True
    """Whether a page index is derived if it is read whole; see ``planner``."""
    counted: int = 0
    """Rows that the plan counts without reading them."""
    drawn: DrawnRows | None = field(default=None, compare=False)
    """The drawn rows of a sample; None otherwise. ``rows`` are those that no index excludes."""

    untyped: bool = False
    """Whether the group has no detected media types; see ``Query.of``."""

    @property
    def later(self) -> bool:
        return any(column.later for column in self.columns)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """The row groups that are read of one file."""

    file: IndexFile
    pin: FileVersion
    created_by: str
    row_groups: tuple[PlannedRowGroup, ...]
    cached: tuple[ByteRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Awaited:
    """A row group whose page index is not stored yet, with the estimated cost of reading it."""

    path: str
    row_group: int
    num_rows: int
    requests: float
    bytes: float
    pages: float


@dataclass(frozen=True, slots=True)
class Search:
    """A search in a crawl's list of blocks, before it can be planned which blocks are read; all are estimates."""

    crawl: str
    requests: int
    """With those of the blocks."""
    bytes: int
    """With those of the blocks."""
    round_trips: int
    """Of the search."""


@dataclass(frozen=True, slots=True)
class PlannedBlocks:
    """Neighbouring blocks of a crawl's CDX index, and the keys that are looked for in them."""

    crawl: str
    subsets: tuple[str, ...]
    """The subsets whose rows are returned, in the order of the result."""
    blocks: "BlockList"
    reads: "tuple[BlockRead, ...]"
    intervals: KeyIntervals
    pins: tuple[FileVersion | None, ...]
    """Known versions of the files of ``reads``."""


READS = pa.schema(
    [
        ("path", pa.string()),  # relative to the source
        ("crawl", pa.string()),
        ("subset", pa.string()),
        ("row_group", pa.int32()),
        ("column", pa.string()),
        ("start", pa.int64()),  # of the file's byte
        ("end", pa.int64()),  # exclusive
        ("bytes", pa.int64()),
    ]
)
"""A plan as a table; the last four are null until page indexes are fetched."""


@dataclass(frozen=True, slots=True, repr=False)
class ReadPlan(ReprMixin):
    """The reads that answer a query, and what they cost."""

    query: ResolvedQuery
    schema: pa.Schema
    row_schema: pa.Schema
    """Of the rows before the residual filter: everything that is read."""
    files: tuple[PlannedFile, ...]
    waves: tuple[tuple[PlannedRequest, ...], ...]
    """Requests that can be sent at the same time; the second wave is what may be needed after the first."""
    cost: Cost
    considered: int
    """Number of row groups of the requested crawls and subsets."""
    counted: tuple[tuple[str, int], ...] = ()
    """Rows that match without being read, by crawl, of a query that counts."""
    indexes: tuple[PlannedRequest, ...] = ()
    """Page indexes to fetch first; then the query is planned again."""
    awaited: tuple[Awaited, ...] = ()
    """The row groups they belong to, not among ``files`` yet."""
    searches: tuple[Search, ...] = ()
    """Searches of lists of blocks to make first; then the query is planned again."""
    blocks: tuple[PlannedBlocks, ...] = ()
    """Blocks of the CDX index to read, newest crawl first, by key."""
    ways: tuple[CrawlWay, ...] = ()
    """The index of each crawl, newest first; empty if the query names the index."""
    missing: tuple[str, ...] = ()
    """Sentences about what is not stored and may match; if any, the result may be incomplete."""
    warnings: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """Number of requests: an estimate without page indexes, a maximum with a limit or a second wave."""
        known = sum(fetch.most for wave in self.waves for fetch in wave if not fetch.cached)
        searches = sum(each.requests for each in self.searches)
        return len(self.indexes) + searches + known + math.ceil(sum(each.requests for each in self.awaited))

    @property
    def bytes(self) -> int:
        """Bytes to receive: an estimate or a maximum, as ``requests``."""
        known = sum(len(fetch.range) for wave in self.waves for fetch in wave if not fetch.cached)
        first = sum(len(fetch.range) for fetch in self.indexes) + sum(each.bytes for each in self.searches)
        return known + first + math.ceil(sum(each.bytes for each in self.awaited))

    @property
    def cached_bytes(self) -> int:
        return sum(len(fetch.range) for wave in self.waves for fetch in wave if fetch.cached)

    @property
    def row_groups(self) -> int:
        return sum(len(file.row_groups) for file in self.files) + len(self.awaited)

    @property
    def is_columnar(self) -> bool:
        """Whether files of the columnar index are read or counted."""
        return bool(self.files or self.awaited or self.counted)

    @property
    def index_files(self) -> tuple[str, ...]:
        """The paths of the files of the columnar index."""
        return tuple(dict.fromkeys([file.file.path for file in self.files] + [each.path for each in self.awaited]))

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files."""
        of_blocks = dict.fromkeys(read.path for planned in self.blocks for read in planned.reads)
        return (*self.index_files, *of_blocks)

    @property
    def pages(self) -> int:
        """Number of data pages that are read, without whole column chunks; an estimate or a maximum."""
        known = sum(
            len(run)
            for file in self.files
            for group in file.row_groups
            for column in group.columns
            for run in column.pages
        )
        return known + math.ceil(sum(each.pages for each in self.awaited))

    @property
    def chunks(self) -> int:
        """Number of column chunks that are read whole."""
        every = (column for file in self.files for group in file.row_groups for column in group.columns)
        return sum(column.index is None for column in every)

    @property
    def block_count(self) -> int:
        """Number of blocks of the CDX index that are read."""
        return sum(len(read.blocks) for planned in self.blocks for read in planned.reads)

    @property
    def rows(self) -> int:
        """Number of rows that are read or counted; the maximum size of the result."""
        looked_at = sum(len(run) for file in self.files for group in file.row_groups for run in group.rows)
        return sum(rows for _, rows in self.counted) + looked_at + sum(each.num_rows for each in self.awaited)

    @property
    def unbounded(self) -> tuple[int, int]:
        """Number and bytes of row groups that are read because their bounds are unknown."""
        sizes = [
            sum(column.size for column in group.columns if not column.later)
            for file in self.files
            for group in file.row_groups
            if not group.bounded
        ]
        return len(sizes), sum(sizes)

    @property
    def seconds(self) -> float:
        return self.cost.seconds(self.requests, self.bytes, self.round_trips)

    @property
    def price(self) -> str:
        what = f"{plural(self.requests, 'request')}, {size(self.bytes)}, {duration(self.seconds)}"
        return f"{self.about}{what}"

    @property
    def about(self) -> str:
        """``about``, ``at most``, or empty if requests and bytes are exact."""
        return "about " if self.estimated else "" if self.exact or not self.requests else "at most "

    @property
    def round_trips(self) -> int:
        """Number of waves, with those of page indexes and searches."""
        if self.searches:
            return 1 + max(each.round_trips for each in self.searches)
        return 1 + max(1, len(self.waves)) if self.indexes else len(self.waves)

    @property
    def estimated(self) -> bool:
        """Whether the cost is an estimate, because page indexes or places of blocks must be found first."""
        return bool(self.awaited or self.searches)

    @property
    def exact(self) -> bool:
        """Whether requests and bytes are exact; otherwise they are maximums, or ``estimated``."""
        return not (self.estimated or self.stops_early or len(self.waves) > 1)

    @property
    def stops_early(self) -> bool:
        """Whether reading ends when there are enough rows."""
        return self.query.limit is not None and not self.query.ordered

    def _line(self) -> str:
        groups = f"{self.row_groups:,} of {plural(self.considered, 'row group')}"
        patterns = join_first(self.query.patterns)
        parts = [f"{plural(self.block_count, 'block')} of the CDX index"] if self.searches or self.blocks else []
        parts += [f"{plural(len(self.index_files), 'file')}, {groups}"] if self.is_columnar or not parts else []
        return f"of {patterns}: {', '.join(parts)}, {self.price}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        from_blocks = bool(self.searches or self.blocks)
        if from_blocks:
            yield "blocks of the CDX index", f"{self.block_count:,}" if self.blocks else "not known yet"
        if self.is_columnar or not from_blocks:
            yield "files", f"{len(self.index_files):,}"
            yield "row groups", f"{self.row_groups:,} of {self.considered:,}"
        if self.pages:
            yield "pages", f"{self.about}{self.pages:,}"
        if self.chunks:
            yield "column chunks read whole", f"{self.chunks:,}"
        if not from_blocks:
            yield "captures in them", f"{self.rows:,}"
        yield "requests", f"{self.about}{self.requests:,}"
        yield "bytes", f"{self.about}{size(self.bytes)}"
        if self.cached_bytes:
            yield "from the cache", size(self.cached_bytes)
        yield "time", f"about {duration(self.seconds)}"

    def _notes(self) -> Iterator[str]:
        if self.indexes:
            needed = f"{plural(len(self.indexes), 'request')}, {size(sum(len(fetch.range) for fetch in self.indexes))}"
            yield f"Page indexes are fetched first ({needed}); until then the rest is an estimate."
        if self.searches:
            crawls = plural(len(self.searches), "crawl")
            yield f"The lists of blocks of {crawls} are searched first; until then the rest is an estimate."
        yield from sentences(self.ways)
        yield from (f"Note: {warning}" for warning in self.warnings)
        yield from (f"The answer may be incomplete: {problem}" for problem in self.missing)

    def to_arrow(self) -> pa.Table:
        """Return the plan as a table, a row for each byte range of a column; see ``READS``. Ranges are half-open."""
        rows: list[tuple[object, ...]] = []
        for read in self.files:
            for group in read.row_groups:
                place = (read.file.path, read.file.crawl, read.file.subset, group.ordinal)
                parts = (part for column in group.columns for part in column.parts(group.ordinal))
                rows += ((*place, part.column, part.range.start, part.range.end, len(part.range)) for part in parts)
        for planned in self.blocks:
            for each_read in planned.reads:
                at = each_read.range
                rows.append((each_read.path, planned.crawl, None, None, None, at.start, at.end, len(at)))
        for each in self.awaited:
            file = self.query.table.file(each.path)
            partition = (file.crawl, file.subset) if file else (None, None)
            rows.append((each.path, *partition, each.row_group, None, None, None, None))
        columns = zip(*rows, strict=True) if rows else ((),) * len(READS)
        return pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, READS, strict=True)], schema=READS
        )

    def summary(self) -> dict[str, Any]:
        """Return the numbers of ``plan --json``."""
        groups, size = self.unbounded
        return {
            "files": len(self.paths),
            "row_groups": self.row_groups,
            "row_groups_considered": self.considered,
            "blocks": self.block_count,
            "pages": self.pages,
            "chunks": self.chunks,
            "rows": self.rows,
            "requests": self.requests,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 1),
            "waves": self.round_trips,
            "exact": self.exact,
            "estimated": self.estimated,
            "searches": len(self.searches),
            "crawls": [each.summary() for each in self.ways],
            "indexes": {"requests": len(self.indexes), "bytes": sum(len(fetch.range) for fetch in self.indexes)},
            "cached_bytes": self.cached_bytes,
            "complete": not self.missing,
            "missing": list(self.missing),
            "without_bounds": {"row_groups": groups, "bytes": size},
            "warnings": list(self.warnings),
        }
