"""Plan a query by the index that is cheaper for each crawl."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from catalogue.commoncrawl.indexes import CDX, COLUMNAR
from catalogue.commoncrawl.manifests import index_file
from catalogue.errors import QueryError
from catalogue.formatting import plural, size
from catalogue.plan.cdx_context import CdxContext
from catalogue.plan.context import PlanContext
from catalogue.plan.cost import Cost
from catalogue.plan.plan import ReadPlan
from catalogue.plan.planner import of_crawls
from catalogue.plan.question import AnySource
from catalogue.plan.ways import HARVEST_BYTES, HARVEST_REQUESTS, CrawlWay, Way
from catalogue.source.byte_ranges import FileVersion

_NO_FOOTERS = "no footers are stored"
_MUCH_CHEAPER = 2
"""How many times as much a request to each file must cost as the CDX index, so that no file is planned."""


class Stored(NamedTuple):
    """What is stored of the columnar index of a crawl."""

    missing: tuple[str, ...] = ()
    """A sentence for each subset that is not completely stored."""


class ChoiceContext:
    """Plans a query by both indexes, and takes the cheaper way for each crawl."""

    def __init__(
        self,
        crawls: Sequence[str],
        columnar: PlanContext | None,
        stored: Mapping[str, Stored],
        cdx: CdxContext,
        cost: Cost,
        notify: Callable[[str], None],
        missing: tuple[str, ...] = (),
    ) -> None:
        """Prepare a plan.

        Args:
            crawls: names of the crawls, newest first.
            columnar: the query of those crawls that have stored footers; None if there are none.
            stored: these crawls.
            cdx: the query of all crawls, of which the former are optional.
            cost: of the source.
            notify: called with a sentence when the CDX index cannot answer, and the other one does.
            missing: sentences about crawls that may exist and are not known.
        """
        self.query = cdx.query
        self.source: Callable[[], AnySource] = cdx.source
        self._columnar = columnar
        self._crawls = tuple(crawls)
        self._stored = stored
        self._cdx = cdx
        self._cost = cost
        self._notify = notify
        self._missing = missing
        self._told: set[str] = set()

    @property
    def candidate_row_groups(self) -> int:
        """The number of row groups of the columnar index that may match."""
        return self._columnar.candidate_row_groups if self._columnar else 0

    def limited(self, limit: int) -> "ChoiceContext":
        columnar = self._columnar.limited(limit) if self._columnar else None
        cdx = self._cdx.limited(limit)
        return ChoiceContext(self._crawls, columnar, self._stored, cdx, self._cost, self._notify, self._missing)

    def plan(self, *, counts: bool = False, explain: bool = False) -> ReadPlan:
        """Plan the query, or one that counts its captures.

        Args:
            counts: whether only the number of captures is needed.
            explain: whether the cost of the other way is always found.
        """
        cdx = self._cdx.plan(counts=counts)
        cdx_ways = _ways(cdx, self._crawls, CDX)
        self._tell()
        files = self._columnar.candidate_files() if self._columnar else Counter()
        for each in cdx.searches:  # the way of such a crawl is an estimate
            del files[each.crawl]
        by_cdx = {
            crawl: why
            for crawl in self._crawls
            if (why := self._surely_cdx(crawl, cdx_ways[crawl], files[crawl], explain=explain))
        }
        columnar = None
        if self._columnar and (explain or by_cdx.keys() != {*self._crawls}):
            columnar = self._columnar.plan(counts=counts)
        columnar_ways = _ways(columnar, self._stored, COLUMNAR) if columnar else {}
        ways = [
            self._way(crawl, by_cdx.get(crawl), cdx_ways[crawl], columnar_ways.get(crawl)) for crawl in self._crawls
        ]
        missing = [text for each in ways if each.way.index == COLUMNAR for text in self._stored[each.crawl].missing]
        return _combined(columnar, cdx, ways, (*self._missing, *missing))

    def _tell(self) -> None:
        """Report crawls that the CDX index cannot answer; raise the error if nothing else was wrong with the question.

        Where not all footers are stored, such an error does not depend on what is stored.
        """
        for crawl, error in self._cdx.refused.items():
            if isinstance(error, QueryError) and self._stored[crawl].missing:
                raise error
            if crawl not in self._told and not isinstance(error, QueryError):
                self._told.add(crawl)
                self._notify(f"the CDX index of {crawl} cannot be used, the columnar one answers: {error}")

    def _surely_cdx(self, crawl: str, way: Way, files: int, *, explain: bool) -> str:
        """Return why the CDX index answers, whatever the columnar one costs; empty if that is not sure."""
        if crawl in self._cdx.refused:
            return ""
        if crawl not in self._stored:
            return _NO_FOOTERS
        if self._stored[crawl].missing:
            return "not all footers of the columnar index are stored"
        if way.requests <= 1 and way.bytes <= self._cost.max_gap and not explain:
            return "one request is the least"
        # Planning hundreds of files would take longer than reading the blocks.
        if files and _MUCH_CHEAPER * self._price(way) < self._cost.price(files, 0) + self._cost.latency:
            return f"{plural(files, 'file')} of the columnar index may match"
        return ""

    def _way(self, crawl: str, sure: str | None, cdx: Way, columnar: Way | None) -> CrawlWay:
        if crawl in self._cdx.refused and columnar:
            return CrawlWay(crawl, columnar, str(self._cdx.refused[crawl]).partition(";")[0])
        if sure == _NO_FOOTERS and self._price(cdx) > self._cost.price(HARVEST_REQUESTS, HARVEST_BYTES):
            harvest = f"their harvest takes {HARVEST_REQUESTS} requests, {size(HARVEST_BYTES)}, and would save requests"
            return CrawlWay(crawl, cdx, f"{sure}; {harvest}", suggests_harvest=True)
        if sure or columnar is None:
            return CrawlWay(crawl, cdx, sure or "", columnar)
        by_cdx, by_columnar = (self._price(each) for each in (cdx, columnar))
        if by_cdx < by_columnar:
            return CrawlWay(crawl, cdx, "it is cheaper", columnar)
        return CrawlWay(crawl, columnar, "it is not dearer" if by_cdx == by_columnar else "it is cheaper", cdx)

    def _price(self, way: Way) -> float:
        """Return the seconds that a way adds to a plan of many requests, with its round trips."""
        return self._cost.price(way.requests, way.bytes) + way.round_trips * self._cost.latency

    def prepare(self, plan: ReadPlan, report: Callable[[int], None] = lambda _: None) -> None:
        """Fetch the page indexes and make the searches that a plan needs."""
        if plan.indexes and self._columnar:
            self._columnar.prepare(plan, report)
        if plan.searches:
            self._cdx.prepare(plan, report)

    def columnar_only(self) -> PlanContext | None:
        """Return the query of the columnar index; None if that is not stored of all crawls."""
        if self._columnar is None or self._stored.keys() != {*self._crawls}:
            return None
        missing = (text for crawl in self._crawls for text in self._stored[crawl].missing)
        return self._columnar.with_missing(tuple(missing))

    def note_version(self, crawl: str, path: str, version: FileVersion | None) -> None:
        """See ``CdxContext``."""
        self._cdx.note_version(crawl, path, version)

    def finish(self) -> None:
        """See ``CdxContext``."""
        self._cdx.finish()


def _ways(plan: ReadPlan, crawls: Iterable[str], index: str) -> dict[str, Way]:
    """Return what a plan costs for each crawl."""
    requests: defaultdict[str, float] = defaultdict(float)
    received: defaultdict[str, float] = defaultdict(float)
    for each in plan.searches:
        requests[each.crawl] += each.requests
        received[each.crawl] += each.bytes
    for awaited in plan.awaited:
        requests[_crawl_of(awaited.path)] += awaited.requests
        received[_crawl_of(awaited.path)] += awaited.bytes
    for fetch in plan.indexes:
        requests[_crawl_of(fetch.path)] += 1
        received[_crawl_of(fetch.path)] += len(fetch.range)
    for wave in plan.waves:
        for fetch in wave:
            if not fetch.cached:
                requests[_crawl_of(fetch.path)] += fetch.most
                received[_crawl_of(fetch.path)] += len(fetch.range)
    searched = {each.crawl: each.round_trips for each in plan.searches}
    waves = plan.round_trips - max(searched.values(), default=0)
    ways = {}
    for crawl in crawls:
        count, length = math.ceil(requests[crawl]), math.ceil(received[crawl])
        trips = searched.get(crawl, 0) + waves if count else 0
        ways[crawl] = Way(index, count, length, trips, plan.cost.seconds(count, length, trips))
    return ways


def _crawl_of(path: str) -> str:
    """Return the crawl of a file of either index."""
    file = index_file(path)
    return file.crawl if file else path.split("/")[2]


def _combined(columnar: ReadPlan | None, cdx: ReadPlan, ways: Sequence[CrawlWay], missing: Sequence[str]) -> ReadPlan:
    """Return the plan of the chosen ways."""
    chosen = {index: {each.crawl for each in ways if each.way.index == index} for index in (COLUMNAR, CDX)}
    searches = tuple(each for each in cdx.searches if each.crawl in chosen[CDX])
    blocks = tuple(each for each in cdx.blocks if each.crawl in chosen[CDX])
    requests = tuple(fetch for wave in cdx.waves for fetch in wave if _crawl_of(fetch.path) in chosen[CDX])
    if columnar is None or not chosen[COLUMNAR]:
        only = (requests,) if requests else ()
        return replace(cdx, searches=searches, blocks=blocks, waves=only, missing=tuple(missing), ways=tuple(ways))
    plan = of_crawls(columnar, chosen[COLUMNAR])
    first, *later = plan.waves or ((),)
    waves = tuple(wave for wave in ((*first, *requests), *later) if wave)
    incomplete = (*missing, *plan.missing)
    return replace(plan, searches=searches, blocks=blocks, waves=waves, missing=incomplete, ways=tuple(ways))
