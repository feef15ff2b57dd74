"""Plan a query of the CDX index: search the lists of blocks, then read the blocks."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from catalogue.cdx.block_file import StoredList
from catalogue.cdx.cluster import MAX_READ, BlockList, BlockRead, list_path
from catalogue.cdx.columns import COLUMNS
from catalogue.cdx.list_search import (
    NEXT_SEARCH,
    PREDICTED_SEARCH,
    SEARCH_BY_ROW_GROUPS,
    START,
    ClusterSearch,
    Predictor,
)
from catalogue.commoncrawl.crawls import has_columnar_index, no_columnar_index, suggest_crawl
from catalogue.errors import (
    CatalogueError,
    FileChanged,
    FormatError,
    NotFound,
    NotHarvested,
    QueryError,
    UncoveredColumns,
    UnknownCrawl,
)
from catalogue.formatting import join_first, plural, size
from catalogue.plan.block_lists import BlockLists
from catalogue.plan.cost import Cost
from catalogue.plan.plan import PlannedBlocks, ReadPlan, Search
from catalogue.plan.question import AnySource
from catalogue.plan.requests import PlannedRequest
from catalogue.query.key_intervals import KeyIntervals
from catalogue.query.resolved_query import ResolvedQuery, schema_of
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.cache import CachedSource
from catalogue.surt import KeyInterval

_end = attrgetter("end")
_MOST_LISTED = 4 << 20
"""Largest part of a list, in bytes, that is read for one interval: some 50,000 blocks of 0.2 MB."""
_MOST_BLOCKS = 50_000
"""The same of a stored list, in blocks."""
_BLOCK = 250_000
"""Estimated bytes of the blocks that have one key."""


class _Run(NamedTuple):
    """Consecutive intervals whose blocks are read together."""

    start: int
    stop: int
    first_number: int
    """Of the first block."""
    last_number: int
    first: tuple[int, int]
    """Shard and offset of the first block."""
    end: tuple[int, int]
    """Shard and end of the last block."""

    @classmethod
    def of(cls, start: int, stop: int, found: BlockList, blocks: range) -> "_Run":
        """Take some intervals and their blocks in a part of the list."""
        first, last = blocks[0], blocks[-1]
        begin, end = found.extent(first).start, found.extent(last).end
        return cls(
            start, stop, found.number(first), found.number(last), (found.shard(first), begin), (found.shard(last), end)
        )

    def joined(self, after: "_Run", gap: int) -> "list[_Run]":
        """Return this run and the next one, as one if no more than some bytes of a shard are between them."""
        is_near = self.end[0] == after.first[0] and after.first[1] - self.end[1] <= gap
        if after.first_number > self.last_number + 1 and not is_near:
            return [self, after]
        last = max(self, after, key=attrgetter("last_number"))
        return [self._replace(stop=after.stop, last_number=last.last_number, end=last.end)]


class CdxContext:
    """Plans a query of the CDX index of some crawls, and searches their lists of blocks."""

    def __init__(
        self,
        query: ResolvedQuery,
        crawls: Sequence[str],
        subsets: Sequence[str],
        lists: BlockLists,
        source: Callable[[], AnySource],
        cost: Cost,
        *,
        optional: Collection[str] = (),
        missing: tuple[str, ...] = (),
    ) -> None:
        """Prepare a plan.

        Args:
            query: the query.
            crawls: names of crawls, newest first.
            subsets: in the order of the result.
            lists: the lists of blocks.
            source: returns the source of blocks.
            cost: of the source.
            optional: crawls that another index can answer; their errors are ``refused``, not raised.
            missing: sentences about crawls that may exist and are not known.

        Raises:
            UncoveredColumns: if the query needs columns that lines of the CDX index do not have.
        """
        self.query = query
        self.source = source
        self.refused: dict[str, CatalogueError] = {}
        """Reasons why this index cannot answer for optional crawls."""
        self._crawls = crawls
        self._subsets = tuple(subsets)
        self._missing = missing
        self._lists = lists
        self._cost = cost
        self._optional = optional
        read = [*query.read_columns, *query.of(untyped=True).read_columns]
        if unknown := [name for name in dict.fromkeys(read) if name not in COLUMNS]:
            raise UncoveredColumns(f"the CDX index has no column {join_first(unknown)}; use --index columnar")

    @property
    def candidate_row_groups(self) -> int:
        """Zero: row groups are of the other index."""
        return 0

    def limited(self, limit: int) -> "CdxContext":
        query = replace(self.query, limit=limit if self.query.limit is None else min(limit, self.query.limit))
        other = CdxContext(
            query,
            self._crawls,
            self._subsets,
            self._lists,
            self.source,
            self._cost,
            optional=self._optional,
            missing=self._missing,
        )
        other.refused |= self.refused
        return other

    def plan(self, *, counts: bool = False, explain: bool = False) -> ReadPlan:  # noqa: ARG002 - of a Question
        """Plan the query, or one that counts its captures, for all crawls but the refused ones."""
        query = replace(self.query, columns=(), ordered=False, counts=True) if counts else self.query
        searches: list[Search] = []
        blocks: list[PlannedBlocks] = []
        for crawl in self._crawls:
            if crawl in self.refused:
                continue
            if search := self._needed(crawl):
                searches.append(search)
            else:
                with self._refusing(crawl):
                    blocks += [*self._blocks(crawl)]
        if query.limit is None or query.ordered:  # otherwise they are read in turn until there are enough rows
            most = self._cost.quickest(sum(len(read.range) for each in blocks for read in each.reads))
            blocks = [self._divided(each, most) for each in blocks]
        requests = tuple(request for each in blocks for request in self._requests(each))
        return ReadPlan(
            query=query,
            schema=schema_of(query, query.columns),
            row_schema=schema_of(query, (*query.read_columns, *query.of(untyped=True).read_columns)),
            files=(),
            waves=(requests,) if requests else (),
            cost=self._cost,
            considered=0,
            searches=tuple(searches),
            blocks=tuple(blocks),
            missing=self._missing,
        )

    @contextmanager
    def _refusing(self, crawl: str) -> Iterator[None]:
        try:
            yield
        except (QueryError, FormatError, NotFound, FileChanged) as error:
            if crawl in self._optional:
                self.refused[crawl] = error
            elif isinstance(error, NotFound):
                raise self._no_index(crawl, error) from error
            else:
                raise

    def _needed(self, crawl: str) -> Search | None:
        """Return the estimated search of a crawl's list; None if everything needed of it is known."""
        known, intervals = self._lists.get(crawl), self.query.intervals
        if isinstance(known, StoredList):
            return None
        unknown = [each for each in intervals if known is None or not known.knows(each)]
        if not unknown:
            return None
        predictor = self._lists.predictor(crawl)
        by_row_groups = predictor is not None and predictor.size is not None
        later = SEARCH_BY_ROW_GROUPS if by_row_groups else PREDICTED_SEARCH if predictor else NEXT_SEARCH
        first = later if known or by_row_groups else START + later
        more = len(unknown) - 1
        return Search(
            crawl,
            first.requests + more * later.requests + len(intervals),
            first.bytes + more * later.bytes + len(intervals) * _BLOCK,
            first.requests + more * later.requests,
        )

    def _blocks(self, crawl: str) -> Iterator[PlannedBlocks]:
        """Yield the blocks of a crawl; intervals whose blocks are read by one request together."""
        search, intervals = self._lists.get(crawl), self.query.intervals
        assert search is not None  # noqa: S101 - everything needed of it is known
        runs: list[_Run] = []
        at = 0
        while at < len(intervals):
            interval = intervals[at]
            if isinstance(search, StoredList) and (count := search.count(interval)) > _MOST_BLOCKS:
                raise self._too_many(crawl, plural(count, "block"))
            found = search.find(interval)
            blocks = found.blocks_for(interval)
            after = at + 1
            if blocks:
                if blocks.stop < len(found):  # other intervals that end in the same block
                    after = bisect_right(intervals, found.key(blocks.stop), lo=after, key=_end)
                gap = self._cost.max_gap if isinstance(search, StoredList) else 0
                run = _Run.of(at, after, found, blocks)
                runs += runs.pop().joined(run, gap) if runs else [run]
            at = after
        for run in runs:
            some = intervals.part(run.start, run.stop)
            hull = KeyInterval(some[0].start, some[-1].end)
            found = search.find(hull)
            yield self._planned(crawl, found, found.reads(found.blocks_for(hull)), some)

    def _planned(
        self, crawl: str, blocks: BlockList, reads: Sequence[BlockRead], intervals: KeyIntervals
    ) -> PlannedBlocks:
        pins = tuple(self._lists.version(crawl, read.path) for read in reads)
        return PlannedBlocks(crawl, self._subsets, blocks, tuple(reads), intervals, pins)

    def _divided(self, planned: PlannedBlocks, most: int) -> PlannedBlocks:
        """Return the same blocks in requests of at most ``most`` bytes, or of one block."""
        if all(len(read.range) <= most for read in planned.reads):
            return planned
        places = range(planned.reads[0].blocks.start, planned.reads[-1].blocks.stop)
        reads = planned.blocks.reads(places, max_length=min(most, MAX_READ))
        return self._planned(planned.crawl, planned.blocks, reads, planned.intervals)

    def _requests(self, planned: PlannedBlocks) -> Iterator[PlannedRequest]:
        source = self.source()
        for read, pin in zip(planned.reads, planned.pins, strict=True):
            cached = (
                pin is not None and isinstance(source, CachedSource) and source.is_cached(read.path, pin, read.range)
            )
            yield PlannedRequest(read.path, read.range, (), cached=cached)

    def prepare(self, plan: ReadPlan, report: Callable[[int], None] = lambda _: None) -> None:
        """Search what a plan needs; ``report`` is called with the bytes of each crawl's search.

        Raises:
            NotHarvested: if an interval has so many blocks that the columnar index must answer.
            BadCdx: if a list of blocks is invalid.
            SourceError: if it cannot be read.
        """
        predictors = {each.crawl: self._lists.predictor(each.crawl) for each in plan.searches}
        executor = ThreadPoolExecutor(self.source().connections, thread_name_prefix="search")
        try:
            for received in executor.map(self._search, predictors, predictors.values()):
                report(received)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            self._lists.save(predictors)

    def _search(self, crawl: str, predict: Predictor | None) -> int:
        """Search a list; return about the bytes that were received."""
        search = self._lists.get(crawl)
        before = 0
        with self._refusing(crawl):
            if isinstance(search, ClusterSearch):
                before = search.bytes
            else:
                search = self._lists.search(crawl)
            search.predict = predict
            try:
                for interval in self.query.intervals:
                    self._search_interval(search, interval)
            except FileChanged:
                self._lists.drop(crawl)  # the next query searches the new version
                raise
        return search.bytes - before if isinstance(search, ClusterSearch) else 0

    def _search_interval(self, search: ClusterSearch, interval: KeyInterval) -> None:
        place = search.locate(interval)
        if place and len(place) > _MOST_LISTED:
            raise self._too_many(search.crawl, f"{size(len(place))} of lines")
        search.find(interval)

    def _no_index(self, crawl: str, error: NotFound) -> QueryError:
        if not has_columnar_index(crawl):
            message = f"{no_columnar_index(crawl)}; the source has no CDX index of it: {error}"
            return NotHarvested(message, crawl=crawl)
        listed = self._lists.listed
        # A monthly crawl may be published before its CDX index, and before it is listed.
        if listed and crawl not in listed and not crawl.startswith("CC-MAIN-"):
            missing = f"the source has no CDX index of {crawl}, and does not list it"
            return UnknownCrawl(f"{missing}; {suggest_crawl(crawl, listed)}")
        message = f"{crawl} is not harvested, and the source has no CDX index of it ({error})"
        if not listed:
            message += "; see: catalogue crawls"
        command = self.query.table.harvest_command(crawl)
        return NotHarvested(f"{message}; run: {command}", crawl=crawl, call=self.query.table.harvest_call(crawl))

    def _too_many(self, crawl: str, what: str) -> NotHarvested:
        return NotHarvested(
            f"{list_path(crawl)} has {what} for {join_first(self.query.patterns)}, too many blocks to read; "
            f"harvest the columnar index, run: catalogue harvest --crawl {crawl}",
            crawl=crawl,
            call=f"harvest({crawl!r})",
        )

    def note_version(self, crawl: str, path: str, version: FileVersion | None) -> None:
        """Note the version of a file with blocks that was read; None if it is another than expected."""
        if version:
            self._lists.note_version(crawl, path, version)
        else:
            self._lists.drop(crawl)

    def columnar_only(self) -> None:
        """Return None: this is the CDX index."""

    def learn(self, *_: object) -> None:
        """Do nothing: blocks teach nothing."""

    def would_learn(self, *_: object) -> bool:
        """Return false."""
        return False

    def finish(self) -> None:
        """Store the versions of the files that were read."""
        self._lists.save_versions()
