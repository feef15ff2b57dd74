"""Choose an index for each crawl of a query, and make the requests that a plan needs first."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Any

from catalogue.commoncrawl.crawls import CDX, COLUMNAR, INDEX_NAMES
from catalogue.errors import UNUSABLE, CatalogueError, FileChanged, NotFound, QueryError, StoreLocked
from catalogue.formatting import plural, size
from catalogue.plan.block_lists import BlockLists
from catalogue.plan.cdx_index import CdxIndex
from catalogue.plan.columnar_index import ColumnarIndex
from catalogue.plan.crawl_plan import CrawlPlan, PlannedBlocks
from catalogue.plan.plan import ReadPlan
from catalogue.plan.requests import Cost
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.cache import AnySource
from catalogue.source.parallel import run_ahead

HARVEST_REQUESTS, HARVEST_BYTES = 300, 25_500_000
"""Usual cost of a harvest of the footers of one subset of a crawl."""
_MUCH_CHEAPER = 2
"""Files are not planned if requests to them cost so many times as much as the plan by blocks."""


@dataclass(slots=True)
class CrawlIndexes:
    """The indexes that can answer for a crawl, one or both."""

    columnar: ColumnarIndex | None
    """None if no footers are stored, or the query names the other index."""
    cdx: CdxIndex | None
    """None if it does not have a column of the query, or the query names the other index."""
    is_named: bool
    """The query names the index."""
    notify: Callable[[str], None]
    """Called with a sentence when the other index must answer instead."""
    refusals: dict[str, CatalogueError] = field(default_factory=dict, init=False)
    """Why an index cannot answer."""
    _lock: Lock = field(default_factory=Lock, init=False)

    def refuse(self, crawl: str, index: str, error: CatalogueError) -> None:
        """Let the other index answer, unless it cannot; other threads go on after the first one has notified."""
        with self._lock:
            if self.refusals:
                return
            if not isinstance(error, QueryError):
                names = INDEX_NAMES[index], INDEX_NAMES[CDX if index == COLUMNAR else COLUMNAR]
                self.notify(f"the {names[0]} of {crawl} cannot be used, so the {names[1]} answers: {error}")
            self.refusals[index] = error


def choose(indexes: CrawlIndexes, query: ResolvedQuery, *, explain: bool = False) -> CrawlPlan:
    """Plan a query of a crawl by the cheaper index; ``explain`` always finds the cost of both.

    Raises:
        CatalogueError: if no index can answer.
    """
    columnar, refusals = indexes.columnar, indexes.refusals
    by_cdx = _plan_by_cdx(indexes, query)
    if by_cdx is None:
        assert columnar  # noqa: S101 - one of them can answer
        return replace(columnar.plan(query), why=str(refusals.get(CDX, "")).partition(";")[0])
    if by_cdx.why:  # it has no captures of the requested time
        return by_cdx
    if COLUMNAR in refusals:
        return replace(by_cdx, why=str(refusals[COLUMNAR]).partition(";")[0])
    if columnar is None:
        return by_cdx if indexes.is_named else _without_footers(by_cdx)
    if by_cdx.search and query.is_of_everything and not columnar.missing:
        return replace(columnar.plan(query), why="the CDX index would have to be read completely")
    why = _why_cdx(by_cdx, columnar, explain=explain)
    if why and not explain:
        return replace(by_cdx, why=why)
    by_columnar = columnar.plan(query)
    if why or by_cdx.price < by_columnar.price:
        return replace(by_cdx, why=why or "it is cheaper", other=by_columnar)
    why = "it costs the same" if by_cdx.price == by_columnar.price else "it is cheaper"
    return replace(by_columnar, why=why, other=by_cdx)


def _plan_by_cdx(indexes: CrawlIndexes, query: ResolvedQuery) -> CrawlPlan | None:
    columnar, cdx = indexes.columnar, indexes.cdx
    if cdx is None or CDX in indexes.refusals:
        return None
    try:
        return cdx.plan(query)
    except (QueryError, *UNUSABLE) as error:
        if COLUMNAR in indexes.refusals:
            raise indexes.refusals[COLUMNAR] from error
        if columnar is None and isinstance(error, NotFound):
            raise cdx.no_index(error) from error
        if columnar is None or (isinstance(error, QueryError) and columnar.missing):
            raise
        if isinstance(error, NotFound):  # the source has no list, which no user needs to know
            indexes.refusals[CDX] = error
        else:
            indexes.refuse(columnar.crawl, CDX, error)
        return None


def _why_cdx(plan: CrawlPlan, columnar: ColumnarIndex, *, explain: bool) -> str:
    """Return why the CDX index answers whatever the columnar one costs; empty if that is uncertain."""
    if columnar.missing:
        return "not all footers of the columnar index are stored"
    if plan.requests <= 1 and plan.bytes <= plan.cost.max_gap and not explain:
        return "it takes one request"
    # Planning hundreds of files would take longer than reading the blocks.
    files, cost = len(columnar.candidates), plan.cost
    if files and not plan.search and _MUCH_CHEAPER * plan.price < cost.price(files, 0) + cost.latency:
        return f"{plural(files, 'file')} of the columnar index may match"
    return ""


def _without_footers(plan: CrawlPlan) -> CrawlPlan:
    why = "no footers are stored"
    if plan.price <= plan.cost.price(HARVEST_REQUESTS, HARVEST_BYTES):
        return replace(plan, why=why)
    harvest = f"harvesting them takes {HARVEST_REQUESTS} requests, {size(HARVEST_BYTES)}, and makes this query cheaper"
    return replace(plan, why=f"{why}; {harvest}", suggests_harvest=True)


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A query and the indexes of its crawls."""

    query: ResolvedQuery
    crawls: tuple[str, ...]
    """Newest first."""
    subsets: tuple[str, ...]
    indexes: Callable[[str], CrawlIndexes]
    """Returns the indexes of a crawl, always the same ones."""
    source: Callable[[], AnySource]
    """Opens the source of blocks and files."""
    lists: Callable[[], BlockLists]
    cost: Cost
    unlisted: tuple[str, ...] = ()
    """Sentences about crawls that may exist."""

    def limited(self, limit: int) -> "Question":
        known = self.query.limit
        return replace(self, query=replace(self.query, limit=limit if known is None else min(limit, known)))

    def part(self, crawls: Sequence[str]) -> "Question":
        """Return the query of some of the crawls."""
        unlisted = self.unlisted if tuple(crawls[:1]) == self.crawls[:1] else ()  # they are newer than the first one
        return replace(self, crawls=tuple(crawls), unlisted=unlisted)

    def columnar(self) -> list[ColumnarIndex] | None:
        found = [self.indexes(crawl).columnar for crawl in self.crawls]
        return [each for each in found if each] if None not in found else None

    def reaches(self, most: int) -> bool:
        """Return whether more row groups than this may match by their keys and stored values."""
        columnar = (self.indexes(crawl).columnar for crawl in self.crawls)
        return any(count > most for count in accumulate(len(each.possible(self.query)) for each in columnar if each))

    def plan(self, *, counts: bool = False, explain: bool = False) -> ReadPlan:
        """Plan the query; ``counts`` asks only for a number, ``explain`` for the cost of both indexes where possible.

        Raises:
            CatalogueError: if a crawl cannot be answered.
        """
        query = self.query.counting if counts else self.query
        plans: list[CrawlPlan] = []
        left = query.limit
        for crawl in self.crawls:
            if left is not None and left <= 0:
                break
            try:
                plans.append(choose(self.indexes(crawl), replace(query, limit=left), explain=explain))
            except StoreLocked as error:  # another process has changed what is stored
                self.note_failure(crawl, COLUMNAR, error)
                plans.append(choose(self.indexes(crawl), replace(query, limit=left), explain=explain))
            left = None if left is None else left - plans[-1].certain
        plan = ReadPlan(query, self.cost, tuple(plans), self.unlisted)
        # A limit may end the read early; several connections do not help where requests are limited.
        return plan if query.stops_early or self.cost.rate or not plan.blocks else self._divided(plan)

    def failed(self, plan: ReadPlan) -> list[str]:
        """Return the crawls whose planned index has failed since, such as in a count of the same query."""
        return [each.crawl for each in plan.crawls if each.index in self.indexes(each.crawl).refusals]

    def _divided(self, plan: ReadPlan) -> ReadPlan:
        most = self.cost.quickest(sum(len(read.range) for each in plan.blocks for read in each.reads))
        crawls = (
            cdx.divided(each, most) if each.index == CDX and (cdx := self.indexes(each.crawl).cdx) else each
            for each in plan.crawls
        )
        return replace(plan, crawls=tuple(crawls))

    def blocks_of(self, crawl: str) -> tuple[PlannedBlocks, ...] | None:
        """Return the blocks of a crawl, after a search if one is needed; None if it has no CDX index, but footers.

        Raises:
            CatalogueError: if no index can answer, there are too many blocks, or they were just replaced.
        """
        indexes = self.indexes(crawl)
        plan = _plan_by_cdx(indexes, self.query)
        if plan and plan.search and indexes.cdx:
            indexes.cdx.search(self.query)
            self.lists().save([crawl])
            plan = _plan_by_cdx(indexes, self.query)
        refusal = indexes.refusals.get(CDX)
        if isinstance(refusal, QueryError | FileChanged):
            raise refusal
        return plan.blocks if plan else None

    def prepare(self, plan: ReadPlan, report: Callable[[], None] = lambda: None) -> None:
        """Fetch the page indexes and make the searches that a plan needs; ``report`` is called after each.

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
        jobs: list[Callable[[], Any]] = [partial(columnar.fetch, fetch) for columnar, fetch in fetches]
        jobs += [partial(cdx.search, plan.query) for cdx in searched]
        calls = run_ahead(self.source().connections, lambda job: job(), jobs)
        try:
            with closing(calls):
                for (columnar, fetch), (_, call) in zip(fetches, calls, strict=False):
                    try:
                        columnar.take(fetch, call.result())
                    except UNUSABLE as error:
                        self.note_failure(columnar.crawl, COLUMNAR, error)
                        if COLUMNAR not in self.indexes(columnar.crawl).refusals:
                            raise
                    report()
                for _, call in calls:
                    call.result()
                    report()
        finally:
            for columnar in {each for each, _ in fetches}:
                columnar.save()
            if plan.searched:
                self.lists().save(plan.searched)

    def note_version(self, crawl: str, path: str, version: FileVersion) -> None:
        self.lists().note_version(crawl, path, version)

    def note_failure(self, crawl: str, index: str, error: CatalogueError) -> None:
        """Note that an index cannot be used, so that the other one answers, if it can; thread-safe."""
        indexes = self.indexes(crawl)
        columnar = indexes.columnar
        if index == CDX:
            self.lists().drop(crawl)
        can_answer = indexes.cdx if index == COLUMNAR else columnar and not columnar.missing
        if can_answer:
            indexes.refuse(crawl, index, error)
