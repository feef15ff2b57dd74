"""Plan a query of the CDX index: search the lists of blocks, then read the blocks."""

from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from catalogue.cdx.cluster import count_shards, list_path, shards_path
from catalogue.cdx.list_search import FIRST_SEARCH, NEXT_SEARCH, ClusterSearch, Predictor
from catalogue.cdx.rows import COLUMNS
from catalogue.commoncrawl.crawls import SUBSETS, newest_first
from catalogue.errors import FileChanged, NotFound, QueryError
from catalogue.formatting import join_first, size
from catalogue.plan.cost import Cost
from catalogue.plan.plan import PlannedBlocks, ReadPlan, Search
from catalogue.plan.requests import PlannedRequest
from catalogue.query.resolved_query import ResolvedQuery, schema_of
from catalogue.source.retry import PoliteSource
from catalogue.surt import KeyInterval

_MOST_LISTED = 4 << 20
"""Largest part of a list, in bytes, that is read for one interval: some 50,000 blocks of 0.2 MB."""
_BLOCK = 250_000
"""Estimated bytes of the blocks that have one key."""

Searches = MutableMapping[str, ClusterSearch]
"""Searches by crawl; they keep what they read."""


class CdxContext:
    """Plans a query of the CDX index of some crawls, and searches their lists of blocks."""

    def __init__(
        self,
        query: ResolvedQuery,
        crawls: Iterable[str],
        subsets: Collection[str],
        searches: Searches,
        source: Callable[[], PoliteSource],
        cost: Cost,
        predict: Callable[[str], Predictor | None] = lambda _: None,
    ) -> None:
        """Prepare a plan.

        Args:
            query: the query.
            crawls: names of crawls.
            subsets: in any order; the result has that of ``SUBSETS``.
            searches: earlier searches, to which new ones are added.
            source: returns the source.
            cost: of the source.
            predict: returns where keys of a crawl are in its list, if row groups are stored of it.

        Raises:
            QueryError: if the query needs columns that lines of the CDX index do not have.
        """
        self.query = query
        self.source = source
        self._crawls = newest_first(crawls)
        self._subsets = tuple(subset for subset in SUBSETS if subset in subsets)
        self._searches = searches
        self._cost = cost
        self._predict = predict
        read = [*query.read_columns, *query.of(untyped=True).read_columns]
        if unknown := [name for name in dict.fromkeys(read) if name not in COLUMNS]:
            raise QueryError(f"the CDX index has no column {join_first(unknown)}; use --index columnar")

    def limited(self, limit: int) -> "CdxContext":
        query = replace(self.query, limit=limit if self.query.limit is None else min(limit, self.query.limit))
        return CdxContext(query, self._crawls, self._subsets, self._searches, self.source, self._cost, self._predict)

    def plan(self, *, counts: bool = False) -> ReadPlan:
        """Plan the query, or one that counts its captures."""
        query = replace(self.query, columns=(), ordered=False, counts=True) if counts else self.query
        searches: list[Search] = []
        blocks: list[PlannedBlocks] = []
        for crawl in self._crawls:
            if search := self._needed(crawl):
                searches.append(search)
            else:
                blocks += self._blocks(crawl)
        requests = tuple(PlannedRequest(read.path, read.range, ()) for each in blocks for read in each.reads)
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
            subsets=self._subsets,
        )

    def _needed(self, crawl: str) -> Search | None:
        """Return the estimated search of a crawl's list; None if everything needed of it is known."""
        search, intervals = self._searches.get(crawl), self.query.intervals
        unknown = [each for each in intervals if search is None or not search.knows(each)]
        if not unknown:
            return None
        first, later = (NEXT_SEARCH if search else FIRST_SEARCH), NEXT_SEARCH
        more = len(unknown) - 1
        return Search(
            crawl,
            first.requests + more * later.requests + len(intervals),
            first.bytes + more * later.bytes + len(intervals) * _BLOCK,
            first.requests + more * later.requests,
        )

    def _blocks(self, crawl: str) -> Iterator[PlannedBlocks]:
        """Yield the blocks of a crawl; intervals that share blocks or have neighbouring ones together."""
        search = self._searches[crawl]
        runs: list[list[KeyInterval]] = []
        end = -1
        for interval in self.query.intervals:
            found = search.find(interval)
            blocks = found.blocks_for(interval)
            if not blocks:
                continue
            first, last = found.number(blocks[0]), found.number(blocks[-1])
            if runs and first <= end + 1:
                runs[-1].append(interval)
            else:
                runs.append([interval])
            end = max(end, last)
        for run in runs:
            hull = KeyInterval(run[0].start, run[-1].end)
            found = search.find(hull)
            yield PlannedBlocks(crawl, found, tuple(found.reads(found.blocks_for(hull))), tuple(run))

    def prepare(self, plan: ReadPlan, report: Callable[[int], None] = lambda _: None) -> None:
        """Search what a plan needs; ``report`` is called with the bytes of each crawl's search.

        Raises:
            QueryError: if an interval has so many blocks that the columnar index must answer.
            BadCdx: if a list of blocks is invalid.
            SourceError: if it cannot be read.
        """
        source = self.source()
        predictors = {each.crawl: self._predict(each.crawl) for each in plan.searches}
        executor = ThreadPoolExecutor(source.connections, thread_name_prefix="search")
        try:
            for received in executor.map(self._search, predictors, predictors.values()):
                report(received)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _search(self, crawl: str, predict: Predictor | None) -> int:
        """Search a list; return about the bytes that were received."""
        source = self.source()
        search = self._searches.get(crawl)
        received = 0
        if search is None:
            try:
                response = source.get(shards_path(crawl))
            except NotFound as error:
                raise NotFound(f"the source has no CDX index of {crawl}: {error}") from error
            received += len(response.body)
            search = ClusterSearch(source, crawl, predict=predict, shards=count_shards(crawl, response.body))
        before = search.bytes
        try:
            for interval in self.query.intervals:
                self._search_interval(search, interval)
        except FileChanged:
            self._searches.pop(crawl, None)  # the next query searches the new version
            raise
        self._searches[crawl] = search
        return received + search.bytes - before

    def _search_interval(self, search: ClusterSearch, interval: KeyInterval) -> None:
        place = search.locate(interval)
        if place and len(place) > _MOST_LISTED:
            raise QueryError(
                f"{list_path(search.crawl)} has {size(len(place))} of lines for {join_first(self.query.patterns)}, "
                f"too many blocks to read; harvest the columnar index, run: catalogue harvest --crawl {search.crawl}"
            )
        search.find(interval)

    def learn(self, *_: object) -> None:
        """Do nothing: blocks teach nothing."""

    def would_learn(self, *_: object) -> bool:
        return False

    def finish(self) -> None:
        """Do nothing: nothing was learned."""
