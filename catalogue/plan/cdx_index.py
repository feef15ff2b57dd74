"""The CDX index: plan the blocks to read for a crawl, and search its list of blocks for them."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from catalogue.cdx.block_file import StoredList
from catalogue.cdx.cluster import MAX_READ, BlockList, BlockRead, list_path
from catalogue.cdx.lines import COLUMNS
from catalogue.cdx.list_search import ClusterSearch
from catalogue.commoncrawl.crawls import CDX, has_columnar_index, may_exist, no_columnar_index, suggest_crawl
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import (
    UNUSABLE,
    CatalogueError,
    FileChanged,
    NotFound,
    NotHarvested,
    QueryError,
    StoreDamaged,
    UnknownCrawl,
)
from catalogue.formatting import join_first, plural, size
from catalogue.plan.block_lists import AnyList, BlockLists, estimate_search
from catalogue.plan.crawl_plan import CrawlPlan, ListSearch, PlannedBlocks
from catalogue.plan.requests import Cost, PlannedRequest
from catalogue.query.key_intervals import KeyIntervals
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.source.cache import AnySource, CachedSource
from catalogue.surt.interval import KeyInterval

_end = attrgetter("end")
_MOST_LISTED = 4 << 20
"""Bytes of a list that are read for one interval, at most: some 50,000 blocks of 0.2 MB."""
_MOST_BLOCKS = 50_000
"""The same limit for a stored list, in blocks."""


def uncovered_columns(query: ResolvedQuery) -> list[str]:
    return [name for name in query.row_columns if name not in COLUMNS]


@dataclass(eq=False, slots=True)
class CdxIndex:
    """Plans queries from the list of blocks, and searches it where it is not stored."""

    crawl: str
    _subsets: tuple[str, ...]
    _lists: BlockLists
    _source: Callable[[], AnySource]
    _cost: Cost
    _listed: Callable[[], Collection[str]]
    """It returns the list of crawls, or nothing if it cannot be fetched."""
    _is_outside: bool
    """The crawl was fetched at other times than those of the query."""
    _failure: CatalogueError | None = field(default=None, init=False)
    """An error of a search, which the next plan raises."""

    def plan(self, query: ResolvedQuery) -> CrawlPlan:
        """Plan a query.

        Raises:
            NotHarvested: if an interval has so many blocks that the columnar index must answer.
            BadCdx: if the list of blocks is invalid.
            FileChanged: if it was replaced while it was searched.
            NotFound, Forbidden: if it does not exist, or is refused.
        """
        if self._failure:
            failure, self._failure = self._failure, None
            raise failure
        if self._is_outside:
            return replace(self._planned(None, ()), why="the crawl was fetched at other times")
        known = self._lists.get(self.crawl)
        length = known.lines.version.size if isinstance(known, ClusterSearch) and known.lines else 0
        if query.is_of_everything and length > _MOST_LISTED:
            raise self._too_many(query, f"{size(length)} of lines")
        try:
            search = self._needed(known, query.intervals)
            return self._planned(search, () if search else tuple(self._blocks(known, query)))
        except StoreDamaged as error:
            self._lists.lose(self.crawl, error)
            return self.plan(query)

    def _planned(self, search: ListSearch | None, blocks: tuple[PlannedBlocks, ...]) -> CrawlPlan:
        source, requests = self._source(), []
        cache = source if isinstance(source, CachedSource) else None
        for each in blocks:
            for path, part, _, pin in each.reads:
                is_cached = cache is not None and pin is not None and cache.is_cached(path, pin, part)
                requests.append(PlannedRequest(path, part, (), cached=is_cached))
        waves = (tuple(requests),) if requests else ()
        return CrawlPlan(self.crawl, CDX, self._cost, blocks=blocks, waves=waves, search=search)

    def divided(self, plan: CrawlPlan, most: int) -> CrawlPlan:
        """Return a plan with the same blocks in requests of at most ``most`` bytes, or of one block."""
        blocks = []
        for each in plan.blocks:
            places = range(each.reads[0].blocks.start, each.reads[-1].blocks.stop)
            reads = each.blocks.reads(places, max_length=min(most, MAX_READ))
            blocks.append(self._reads(each.blocks, reads, each.intervals))
        divided = self._planned(None, tuple(blocks))
        return replace(plan, blocks=divided.blocks, waves=divided.waves)

    def _needed(self, known: AnyList, intervals: KeyIntervals) -> ListSearch | None:
        if isinstance(known, StoredList):
            return None
        unknown = [each for each in intervals if not known.knows(each)]
        if not unknown:
            return None
        known.predict = self._lists.predictor(self.crawl)
        list_size = self._lists.expected_size(self.crawl)
        return estimate_search(intervals, unknown, known.predict, list_size, is_begun=known.lines is not None)

    def _blocks(self, search: AnyList, query: ResolvedQuery) -> Iterator[PlannedBlocks]:
        intervals = query.intervals
        gap = self._cost.max_gap if isinstance(search, StoredList) else 0
        runs: list[tuple[int, int, BlockList | None]] = []  # intervals, and the part of the list for a single one
        last = (0, -1, 0)  # number, shard and end of the last block
        at = 0
        while at < len(intervals):
            interval = intervals[at]
            if isinstance(search, StoredList) and (count := search.count(interval)) > _MOST_BLOCKS:
                raise self._too_many(query, plural(count, "block"))
            found = search.find(interval)
            blocks = found.blocks_for(interval)
            after = at + 1
            if blocks:
                if blocks.stop < len(found):  # other intervals that end in the same block
                    after = bisect_right(intervals, found.key(blocks.stop), lo=after, key=_end)
                number, shard, end = last
                is_near = found.shard(blocks[0]) == shard and found.extent(blocks[0]).start - end <= gap
                is_joined = runs and (is_near or found.number(blocks[0]) <= number + 1)
                first = runs.pop()[0] if is_joined else at
                runs.append((first, after, found if after == first + 1 else None))
                last = max(last, (found.number(blocks[-1]), found.shard(blocks[-1]), found.extent(blocks[-1]).end))
            at = after
        for start, stop, part in runs:
            some = intervals.part(start, stop)
            hull = KeyInterval(some[0].start, some[-1].end)
            found = search.find(hull) if part is None else part
            yield self._reads(found, found.reads(found.blocks_for(hull)), some)

    def _reads(self, blocks: BlockList, reads: Sequence[BlockRead], intervals: KeyIntervals) -> PlannedBlocks:
        pinned = tuple(read._replace(pin=self._lists.version(self.crawl, read.path)) for read in reads)
        return PlannedBlocks(self.crawl, self._subsets, blocks, pinned, intervals)

    def search(self, query: ResolvedQuery) -> None:
        """Search the list for a planned query. Thread-safe.

        The next plan raises an error that concerns this list alone.

        Raises:
            SourceError: if the source cannot be read.
        """
        search = self._lists.get(self.crawl)
        if isinstance(search, StoredList):  # another process has stored it since the query was planned
            return
        try:
            for interval in query.intervals:
                if search.knows(interval):
                    continue
                place = search.locate(interval)
                if place and len(place) > _MOST_LISTED:
                    raise self._too_many(query, f"{size(len(place))} of lines")
                search.find(interval)
        except (QueryError, *UNUSABLE) as error:
            self._failure = error
            if isinstance(error, FileChanged):
                self._lists.drop(self.crawl)  # the next query searches the new version

    def no_index(self, error: NotFound) -> QueryError:
        crawl = self.crawl
        if not has_columnar_index(crawl):
            message = f"{no_columnar_index(crawl)}; the source has no CDX index of it: {error}"
            return NotHarvested(message, crawl=crawl)
        listed = self._listed()
        # A monthly crawl may be published before its CDX index, and before it is listed.
        if listed and crawl not in listed and not (crawl.startswith("CC-MAIN-") and may_exist(crawl, listed)):
            return UnknownCrawl(f"there is no crawl {crawl}; {suggest_crawl(crawl, listed)}")
        message = f"{crawl} is not harvested, and the source has no CDX index of it ({error})"
        if not listed:
            message += "; see: catalogue crawls"
        return self._not_harvested(message)

    def _too_many(self, query: ResolvedQuery, what: str) -> NotHarvested:
        message = f"{list_path(self.crawl)} has {what} for {join_first(query.patterns)}, too many blocks to read"
        return self._not_harvested(message)

    def _not_harvested(self, message: str) -> NotHarvested:
        return COMMON_CRAWL.not_harvested(message, [self.crawl], self._subsets)
