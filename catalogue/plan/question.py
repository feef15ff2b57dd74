"""Plan a query crawl by crawl, and make the requests that a plan needs first."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from catalogue.commoncrawl.indexes import CDX
from catalogue.plan.block_lists import BlockLists
from catalogue.plan.choice import CrawlIndexes, choose
from catalogue.plan.columnar_index import ColumnarIndex
from catalogue.plan.cost import Cost
from catalogue.plan.crawl_plan import CrawlPlan
from catalogue.plan.plan import ReadPlan
from catalogue.plan.requests import PlannedRequest
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.cache import AnySource
from catalogue.source.checks import Response


class Question:
    """A query and the indexes of its crawls."""

    def __init__(
        self,
        query: ResolvedQuery,
        crawls: Sequence[str],
        indexes_of: Callable[[str], CrawlIndexes],
        source: Callable[[], AnySource],
        lists: BlockLists,
        cost: Cost,
        unlisted: tuple[str, ...] = (),
    ) -> None:
        """Prepare a plan; nothing is opened.

        Args:
            query: the query.
            crawls: names of the crawls, newest first.
            indexes_of: returns the indexes that can answer for a crawl; called once.
            source: returns the source.
            lists: the lists of blocks.
            cost: cost of the source.
            unlisted: sentences about crawls that may exist.
        """
        self.query = query
        self.crawls = tuple(crawls)
        self.source = source
        self._indexes_of = indexes_of
        self._indexes: dict[str, CrawlIndexes] = {}
        self._lists = lists
        self._cost = cost
        self._unlisted = unlisted

    def limited(self, limit: int) -> "Question":
        known = self.query.limit
        return self._with(replace(self.query, limit=limit if known is None else min(limit, known)), self.crawls)

    def part(self, crawls: Sequence[str]) -> "Question":
        """Return the query of some of the crawls."""
        return self._with(self.query, crawls)

    def _with(self, query: ResolvedQuery, crawls: Sequence[str]) -> "Question":
        unlisted = self._unlisted if tuple(crawls[:1]) == self.crawls[:1] else ()  # they are newer than the first one
        other = Question(query, crawls, self._indexes_of, self.source, self._lists, self._cost, unlisted)
        other._indexes = self._indexes
        return other

    def indexes(self, crawl: str) -> CrawlIndexes:
        if crawl not in self._indexes:
            self._indexes[crawl] = self._indexes_of(crawl)
        return self._indexes[crawl]

    def columnar(self) -> list[ColumnarIndex] | None:
        """Return the columnar index of each crawl; None if one of them has no stored footers."""
        found = [self.indexes(crawl).columnar for crawl in self.crawls]
        return [each for each in found if each] if None not in found else None

    @property
    def candidate_row_groups(self) -> int:
        """The number of row groups that may match."""
        columnar = (self.indexes(crawl).columnar for crawl in self.crawls)
        return sum(len(file.ordinals) for each in columnar if each for file in each.scope.candidates)

    def plan(self, *, counts: bool = False, explain: bool = False) -> ReadPlan:
        """Plan the query.

        Args:
            counts: only the number of captures is needed.
            explain: find the cost of both indexes where possible.

        Raises:
            CatalogueError: if a crawl cannot be answered.
        """
        query = self.query.counting if counts else self.query
        plans: list[CrawlPlan] = []
        left = query.limit
        for crawl in self.crawls:
            if left is not None and left <= 0:
                break
            plans.append(choose(self.indexes(crawl), replace(query, limit=left), explain=explain))
            left = None if left is None else left - plans[-1].certain
        return self._divided(self.joined(query, plans))

    def joined(self, query: ResolvedQuery, plans: Iterable[CrawlPlan]) -> ReadPlan:
        return ReadPlan.of(query, self._cost, plans, self._unlisted)

    def _divided(self, plan: ReadPlan) -> ReadPlan:
        """Divide reads of blocks for the shortest time, unless a limit may end them early."""
        most = self._cost.quickest(sum(len(read.range) for each in plan.blocks for read in each.reads))
        if plan.stops_early or not plan.blocks:
            return plan
        crawls = (
            cdx.divided(each, most) if each.index == CDX and (cdx := self.indexes(each.crawl).cdx) else each
            for each in plan.crawls
        )
        return replace(plan, crawls=tuple(crawls))

    def prepare(self, plan: ReadPlan, report: Callable[[int], None] = lambda _: None) -> None:
        """Fetch the page indexes and make the searches that a plan needs; ``report`` gets received bytes.

        Raises:
            SourceError: if a request fails.
        """
        fetches = [
            (columnar, fetch)
            for each in plan.crawls
            for fetch in each.indexes
            if (columnar := self.indexes(each.crawl).columnar)
        ]
        searched = [cdx for crawl in plan.searched if (cdx := self.indexes(crawl).cdx)]
        executor = ThreadPoolExecutor(self.source().connections, thread_name_prefix="prepare")
        try:
            answers = executor.map(_fetch, fetches)
            searches = executor.map(lambda cdx: cdx.search(plan.query), searched)
            for (columnar, fetch), answer in zip(fetches, answers, strict=True):
                columnar.take(fetch, answer)
                report(len(fetch.range))
            for received in searches:
                report(received)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            self._lists.save(plan.searched)

    def note_version(self, crawl: str, path: str, version: FileVersion | None) -> None:
        """Note the version of a file with blocks; None if it is not the expected one."""
        if version:
            self._lists.note_version(crawl, path, version)
        else:
            self._lists.drop(crawl)

    def finish(self) -> None:
        """Store the noted versions."""
        self._lists.save_versions()


def _fetch(fetch: tuple[ColumnarIndex, PlannedRequest]) -> Response:
    columnar, request = fetch
    return columnar.fetch(request)
