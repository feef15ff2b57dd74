"""The plan of a crawl."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from catalogue.commoncrawl.datasets import IndexFile
from catalogue.formatting import duration, plural, size
from catalogue.parquet.model import Bounds, ColumnChunk
from catalogue.parquet.page_index import ColumnIndex, OffsetIndex
from catalogue.plan.requests import Cost, Part, PlannedRequest, Purpose, plan_requests
from catalogue.query.key_intervals import KeyIntervals
from catalogue.query.random_order import DrawnRows
from catalogue.source.byte_ranges import ByteRange, FileVersion

if TYPE_CHECKING:
    from catalogue.cdx.cluster import BlockList, BlockRead


def expected_of(pages: int, share: float) -> float:
    """Return how many pages a share is: a row group with a value has it in at least one page of each column."""
    return max(1.0, share * pages) if pages else 0.0


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """The read of a column chunk or of some of its pages."""

    chunk: ColumnChunk
    index: OffsetIndex | None = None
    """None if the chunk is read whole."""
    pages: tuple[range, ...] = ()
    """Runs of consecutive pages, ascending."""
    later: bool = False
    """It waits until the first wave has decided which pages match."""
    with_ends: bool = False
    """See ``OffsetIndex.covering``."""

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

    def parts(self, row_group: int) -> list[Part]:
        name = self.chunk.column.name
        if self.index is None:
            return [Part(Purpose.CHUNK, row_group, name, self.chunk.range)]
        found = [Part(Purpose.PAGES, row_group, name, self.index.extent(run)) for run in self.pages]
        return [Part(Purpose.DICTIONARY, row_group, name, self.dictionary), *found] if self.dictionary else found

    def single_pages(self) -> Iterator[ByteRange]:
        if self.index is None:
            yield self.chunk.range
            return
        if self.dictionary:
            yield self.dictionary
        for run in self.pages:
            for page in run:
                yield self.index.extent(range(page, page + 1))


def requests_of(
    path: str, row_group: int, reads: Iterable[ColumnRead], cost: Cost, cached: Sequence[ByteRange]
) -> list[PlannedRequest]:
    return plan_requests(path, (part for read in reads for part in read.parts(row_group)), cost, cached)


@dataclass(frozen=True, slots=True)
class PlannedRowGroup:
    """A row group to read, and its residual filter."""

    ordinal: int
    num_rows: int
    least: bytes
    """A lower bound of the keys that may match."""
    rows: tuple[range, ...]
    """The rows that may match, as ascending runs."""
    columns: tuple[ColumnRead, ...] = field(repr=False)
    """The key first, unless it need not be read."""
    key_bounds: Bounds | None
    """Bounds of the keys in the footer."""
    key_index: ColumnIndex | None = field(repr=False)
    """The index that chose the rows; it is compared with the keys that are read."""
    bounded: bool
    """The bounds of its keys are known."""
    counted: int = 0
    """Rows that the plan counts without reading them."""
    drawn: DrawnRows | None = field(default=None, compare=False)
    """The drawn rows of a sample; ``rows`` are those that no index excludes."""

    needed: float = 1.0
    """Expected share of the pages that wait for the first wave; 1 if it is not known."""

    @property
    def pages(self) -> float:
        """Data pages to read outside of whole column chunks; an estimate or a maximum."""
        numbers = ((column.later, sum(map(len, column.pages))) for column in self.columns if column.pages)
        return sum(expected_of(pages, self.needed) if later else pages for later, pages in numbers)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file and its row groups to read."""

    file: IndexFile
    pin: FileVersion
    created_by: str
    row_groups: tuple[PlannedRowGroup, ...] = field(repr=False)
    cached: tuple[ByteRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Awaited:
    """A row group whose page index is not stored; the costs are estimates."""

    file: IndexFile
    row_group: int
    num_rows: int
    requests: float
    bytes: float
    pages: float


@dataclass(frozen=True, slots=True)
class ListSearch:
    """The estimated cost of a search in a list of blocks, and of reading the blocks that it finds."""

    requests: int
    bytes: int
    round_trips: int
    """Requests to the list."""
    list_bytes: int
    """Bytes of the list."""
    is_least: bool
    """The keys are a large part of most lists, so it may cost far more."""


@dataclass(frozen=True, slots=True)
class PlannedBlocks:
    """Neighbouring blocks of a CDX index, and the keys to find in them."""

    crawl: str
    subsets: tuple[str, ...]
    """Sorted like the result."""
    blocks: "BlockList"
    reads: "tuple[BlockRead, ...]"
    intervals: KeyIntervals


@dataclass(frozen=True, slots=True)
class CrawlPlan:
    """The reads that answer a query for one crawl by one index, and their cost."""

    crawl: str
    index: str
    """``columnar`` or ``cdx``."""
    cost: Cost
    files: tuple[PlannedFile, ...] = field(default=(), repr=False)
    """Sorted like the result."""
    blocks: tuple[PlannedBlocks, ...] = field(default=(), repr=False)
    """Sorted by key."""
    waves: tuple[tuple[PlannedRequest, ...], ...] = field(default=(), repr=False)
    """See ``ReadPlan.waves``."""
    considered: int = 0
    """Row groups of the requested subsets."""
    counted: int = 0
    """Rows that a count need not read."""
    certain: int = 0
    """Rows that certainly match, up to the limit of the query."""
    indexes: tuple[PlannedRequest, ...] = field(default=(), repr=False)
    """See ``ReadPlan.indexes``."""
    awaited: tuple[Awaited, ...] = field(default=(), repr=False)
    """See ``ReadPlan.awaited``."""
    search: ListSearch | None = None
    """A search to make before the crawl is planned again."""
    missing: tuple[str, ...] = ()
    """Sentences about what is not stored and may match."""
    defects: tuple[str, ...] = ()
    """Sentences about invalid page indexes."""
    why: str = ""
    """Why this index answers; empty if the query names it."""
    other: "CrawlPlan | None" = None
    """The plan of the other index, if the choice needed it."""
    ruled_out: int = 0
    """Row groups that cannot match by the values of their columns."""
    values_advice: str = ""
    """A sentence about a harvest of values that might rule out row groups."""
    suggests_harvest: bool = False
    """A harvest of the footers costs less than this plan."""

    @property
    def requests(self) -> int:
        """See ``ReadPlan.requests``."""
        known = sum(fetch.requests for wave in self.waves for fetch in wave if not fetch.cached)
        searches = self.search.requests if self.search else 0
        return len(self.indexes) + searches + known + math.ceil(sum(each.requests for each in self.awaited))

    @property
    def bytes(self) -> int:
        """See ``ReadPlan.bytes``."""
        known = sum(fetch.size for wave in self.waves for fetch in wave if not fetch.cached)
        first = sum(len(fetch.range) for fetch in self.indexes) + (self.search.bytes if self.search else 0)
        return known + first + math.ceil(sum(each.bytes for each in self.awaited))

    @property
    def round_trips(self) -> int:
        """See ``ReadPlan.round_trips``."""
        if self.search:
            return 1 + self.search.round_trips
        return 1 + max(1, len(self.waves)) if self.indexes else len(self.waves)

    @property
    def seconds(self) -> float:
        return self.cost.seconds(self.requests, self.bytes, self.round_trips)

    @property
    def price(self) -> float:
        """The seconds that the crawl adds to a plan."""
        requests = self.requests
        return self.cost.price(requests, self.bytes) + (self.round_trips if requests else 0) * self.cost.latency

    def __str__(self) -> str:
        return f"{plural(self.requests, 'request')}, {size(self.bytes)}, {duration(self.seconds)}"

    def costs(self) -> dict[str, Any]:
        """Return a part of ``plan --json``."""
        seconds = round(self.seconds, 1)
        return {"index": self.index, "requests": self.requests, "bytes": self.bytes, "seconds": seconds}

    def summary(self) -> dict[str, Any]:
        return {
            "crawl": self.crawl,
            **self.costs(),
            "why": self.why,
            "other": self.other.costs() if self.other else None,
        }
