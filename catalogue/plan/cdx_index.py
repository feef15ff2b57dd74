"""The CDX index: the lists of blocks of a session, their search, and the plan of the blocks to read for a crawl."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from catalogue.cdx.block_file import StoredList
from catalogue.cdx.cluster import MAX_READ, BlockList, BlockRead, list_path
from catalogue.cdx.lines import COLUMNS
from catalogue.cdx.list_search import USUAL, ClusterSearch, Predictor, predict_from
from catalogue.commoncrawl.crawls import (
    CDX,
    has_columnar_index,
    may_be_unlisted,
    newest_first,
    no_columnar_index,
    suggest_crawl,
)
from catalogue.errors import (
    UNUSABLE,
    CatalogueError,
    FileChanged,
    NotFound,
    NotHarvested,
    QueryError,
    StoreDamaged,
    StoreError,
    UnknownCrawl,
)
from catalogue.formatting import join_first, plural, size
from catalogue.plan.crawl_plan import CrawlPlan, ListSearch, PlannedBlocks
from catalogue.plan.requests import Cost, PlannedRequest
from catalogue.plan.search_estimate import ListFigures, estimate_search, predict_like
from catalogue.query.key_intervals import KeyIntervals
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.cache import AnySource, CachedSource
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_lists import (
    crawls_with_blocks,
    crawls_with_lines,
    forget_lines,
    forget_list,
    list_version,
    open_list,
    save_lines,
    save_versions,
    stored_lines,
    stored_versions,
)
from catalogue.surt import KeyInterval

_end = attrgetter("end")
_MOST_LISTED = 4 << 20
"""Bytes of a list that are read for one interval, at most: some 50,000 blocks of 0.2 MB."""
_MOST_BLOCKS = 50_000
"""The same limit for a stored list, in blocks."""


AnyList: TypeAlias = StoredList | ClusterSearch
Extents: TypeAlias = Callable[[str], dict[str, list[tuple[bytes, bytes, int]]]]
"""Row groups of a crawl by subset; see ``list_search.predict_from``."""


class BlockLists:
    """Lists of blocks by crawl. ``save`` stores what searches read."""

    def __init__(
        self,
        source: Callable[[], PoliteSource],
        store: Callable[[], Store | None],
        create_store: Callable[[], Store],
        extents: Extents,
        notify: Callable[[str], None],
    ) -> None:
        """Prepare; nothing is opened.

        ``create_store`` makes a store if there is none, or raises StoreError; predictions use ``extents``. ``notify``
        is called with a sentence if a stored list is damaged; it is then searched at the source.
        """
        self._source = source
        self._store = store
        self._create_store = create_store
        self._extents = extents
        self._notify = notify
        self._lists: dict[str, AnyList] = {}
        self._stored: dict[str, None] = {}
        """Crawls whose lists are stored, newest first."""
        self._predictors: dict[str, Predictor] = {}
        self._figures: dict[str, ListFigures] = {}
        self._versions: dict[str, dict[str, FileVersion]] = {}
        """Versions of the files with blocks, by crawl and path."""
        self._unsaved: set[str] = set()
        """Crawls with new versions."""
        self._state = ""

    @property
    def stored(self) -> list[str]:
        """Crawls with complete stored lists, newest first."""
        self._update()
        return [*self._stored]

    def _update(self) -> Store | None:
        store = self._store()
        state = store.state() if store else ""
        if state != self._state:
            self._state = state
            there = crawls_with_blocks(store) if store else []
            self._stored = dict.fromkeys(newest_first(there))
            self._predictors.clear()
            self._figures.clear()
            self._lists = {crawl: each for crawl, each in self._lists.items() if isinstance(each, ClusterSearch)}
        return store

    def get(self, crawl: str) -> AnyList | None:
        """Return the stored list of a crawl, or else its search; None if nothing is known of it."""
        store = self._update()
        known = self._lists.get(crawl)
        if store and crawl in self._stored and not isinstance(known, StoredList):
            try:
                known = open_list(store, crawl)
            except StoreDamaged as error:
                self._notify(f"{error}; until then, queries search the list at the source")
                del self._stored[crawl]
        elif known is None and store and (lines := stored_lines(store, self._source().url, crawl)):
            known = ClusterSearch(self._source(), crawl, known=lines, check_end=True)
        if known:
            self._lists[crawl] = known
        return known

    def predictor(self, crawl: str) -> Predictor:
        """Predict by row groups of the crawl, the stored list of another one, or usual shares."""
        self._update()
        if crawl not in self._predictors:
            self._predictors[crawl] = self._new_predictor(crawl)
        return self._predictors[crawl]

    def _new_predictor(self, crawl: str) -> Predictor:
        with suppress(StoreError):  # answers do not depend on it
            if extents := self._extents(crawl):
                return predict_from(chain(*extents.values()), extents)
            if isinstance(like := self._nearest(crawl, self._stored), StoredList):
                return predict_like(like)
        return USUAL

    def _nearest(self, crawl: str, others: Iterable[str]) -> AnyList | None:
        found = newest_first(other for other in others if other != crawl)
        around = newest_first([*found, crawl])
        return self.get(found[max(0, around.index(crawl) - 1)]) if found else None

    def figures(self, crawl: str) -> ListFigures:
        """Return what is expected of a list, by what is known of it or of that of another crawl."""
        store, known = self._update(), self._lists.get(crawl)
        if isinstance(known, ClusterSearch) and known.lines:
            return ListFigures(known.lines.version.size, known.lines.usual_block)
        if crawl not in self._figures:
            self._figures[crawl] = self._of_another(crawl, store) if store else ListFigures()
        return self._figures[crawl]

    def _of_another(self, crawl: str, store: Store) -> ListFigures:
        with suppress(StoreError):
            like = self._nearest(crawl, [*self._stored, *crawls_with_lines(store)])
            if isinstance(like, StoredList) and (version := list_version(store, like.crawl)):
                return ListFigures(version.size, like.usual_block)
            if isinstance(like, ClusterSearch) and like.lines:
                return ListFigures(like.lines.version.size, like.lines.usual_block)
        return ListFigures()

    def search(self, crawl: str) -> ClusterSearch:
        """Begin to search an unknown list; thread-safe."""
        search = self._lists[crawl] = ClusterSearch(self._source(), crawl, check_end=True)
        return search

    def save(self, crawls: Iterable[str]) -> None:
        """Store what the searches of crawls have read."""
        found = [self._lists.get(crawl) for crawl in crawls]
        known = [each.lines for each in found if isinstance(each, ClusterSearch) and each.lines]
        with suppress(StoreError):
            if known:
                save_lines(self._create_store(), self._source().url, known)

    def version(self, crawl: str, path: str) -> FileVersion | None:
        known = self._versions.setdefault(crawl, {})
        if path not in known and (store := self._store()):  # other threads and processes store versions too
            self._versions[crawl] = known = stored_versions(store, self._source().url, crawl) | known
        return known.get(path)

    def note_version(self, crawl: str, path: str, version: FileVersion) -> None:
        known = self.version(crawl, path)
        if known is None or (known.origin == version.origin and known != version) or known.size != version.size:
            self._versions[crawl][path] = version
            self._unsaved.add(crawl)

    def save_versions(self) -> None:
        versions = {crawl: self._versions[crawl] for crawl in self._unsaved if crawl in self._versions}
        self._unsaved.clear()
        with suppress(StoreError):
            if versions:
                save_versions(self._create_store(), self._source().url, versions)

    def drop(self, crawl: str) -> None:
        """Forget what is known of an index that may have been replaced; its stored list only if it was."""
        self._lists.pop(crawl, None)
        self._versions.pop(crawl, None)
        if store := self._update():
            forget_lines(store, crawl)
            if crawl in self._stored and self._is_outdated(store, crawl):
                again = f"run the query again, or first: catalogue harvest --crawl {crawl} --index cdx"
                self._notify(f"the source has another list of blocks of {crawl} than the stored one; {again}")
                del self._stored[crawl]
                with suppress(StoreError, OSError):
                    forget_list(store, crawl)

    def _is_outdated(self, store: Store, crawl: str) -> bool:
        """Return whether the source of a stored list has another version now, or no list any more."""
        version, source = list_version(store, crawl), self._source()
        if version is None or version.origin not in {host.url for host in source.hosts_of()}:
            return False
        try:
            source.get(list_path(crawl), ByteRange(version.size - 1, version.size), pin=version)
        except CatalogueError as error:
            return isinstance(error, FileChanged | NotFound)  # the error of the query is raised
        return False


class _IntervalRun(NamedTuple):
    start: int
    stop: int
    first_number: int
    last_number: int
    first: tuple[int, int]
    """Shard and offset."""
    end: tuple[int, int]
    """Shard and offset of the end."""

    @classmethod
    def of(cls, start: int, stop: int, found: BlockList, blocks: range) -> "_IntervalRun":
        first, last = blocks[0], blocks[-1]
        begin, end = found.extent(first).start, found.extent(last).end
        return cls(
            start, stop, found.number(first), found.number(last), (found.shard(first), begin), (found.shard(last), end)
        )

    def joined(self, after: "_IntervalRun", gap: int) -> "list[_IntervalRun]":
        """Join both runs if at most ``gap`` bytes of a shard are between them."""
        is_near = self.end[0] == after.first[0] and after.first[1] - self.end[1] <= gap
        if after.first_number > self.last_number + 1 and not is_near:
            return [self, after]
        last = max(self, after, key=attrgetter("last_number"))
        return [self._replace(stop=after.stop, last_number=last.last_number, end=last.end)]


def uncovered_columns(query: ResolvedQuery) -> list[str]:
    """Return the columns of a query that lines of the CDX index do not have."""
    read = [*query.read_columns, *query.of(untyped=True).read_columns]
    return [name for name in dict.fromkeys(read) if name not in COLUMNS]


class CdxIndex:
    """Plans queries from the list of blocks, and searches it where it is not stored."""

    def __init__(
        self,
        crawl: str,
        subsets: Sequence[str],
        lists: BlockLists,
        source: Callable[[], AnySource],
        cost: Cost,
        listed: Callable[[], Collection[str]],
    ) -> None:
        """Prepare; ``listed`` returns the list of crawls, or nothing if it cannot be fetched."""
        self.crawl = crawl
        self._subsets = tuple(subsets)
        self._lists = lists
        self._source = source
        self._cost = cost
        self._listed = listed
        self._failure: CatalogueError | None = None
        """An error of a search, which the next plan raises."""
        self._predict = USUAL

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
        search = self._needed(query.intervals)
        return self._planned(search, () if search else tuple(self._blocks(query)))

    def _planned(self, search: ListSearch | None, blocks: tuple[PlannedBlocks, ...]) -> CrawlPlan:
        source, requests = self._source(), []
        for read, pin in ((read, pin) for each in blocks for read, pin in zip(each.reads, each.pins, strict=True)):
            cached = (
                pin is not None and isinstance(source, CachedSource) and source.is_cached(read.path, pin, read.range)
            )
            requests.append(PlannedRequest(read.path, read.range, (), cached=cached))
        waves = (tuple(requests),) if requests else ()
        return CrawlPlan(self.crawl, CDX, self._cost, blocks=blocks, waves=waves, search=search)

    def divided(self, plan: CrawlPlan, most: int) -> CrawlPlan:
        """Return a plan with the same blocks in requests of at most ``most`` bytes, or of one block."""
        blocks = []
        for each in plan.blocks:
            if all(len(read.range) <= most for read in each.reads):
                blocks.append(each)
            else:
                places = range(each.reads[0].blocks.start, each.reads[-1].blocks.stop)
                reads = each.blocks.reads(places, max_length=min(most, MAX_READ))
                blocks.append(self._reads(each.blocks, reads, each.intervals))
        divided = self._planned(None, tuple(blocks))
        return replace(plan, blocks=divided.blocks, waves=divided.waves)

    def _needed(self, intervals: KeyIntervals) -> ListSearch | None:
        """Return the estimated search; None if the needed part of the list is known."""
        known = self._lists.get(self.crawl)
        if isinstance(known, StoredList):
            return None
        unknown = [each for each in intervals if known is None or not known.knows(each)]
        if not unknown:
            return None
        predictor = self._predict = self._lists.predictor(self.crawl)
        figures = self._lists.figures(self.crawl)
        return estimate_search(intervals, unknown, predictor, figures, is_begun=known is not None)

    def _blocks(self, query: ResolvedQuery) -> Iterator[PlannedBlocks]:
        search, intervals = self._lists.get(self.crawl), query.intervals
        if not len(intervals):
            return
        assert search is not None  # noqa: S101 - everything needed of it is known
        runs: list[_IntervalRun] = []
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
                gap = self._cost.max_gap if isinstance(search, StoredList) else 0
                run = _IntervalRun.of(at, after, found, blocks)
                runs += runs.pop().joined(run, gap) if runs else [run]
            at = after
        for run in runs:
            some = intervals.part(run.start, run.stop)
            hull = KeyInterval(some[0].start, some[-1].end)
            found = search.find(hull)
            yield self._reads(found, found.reads(found.blocks_for(hull)), some)

    def _reads(self, blocks: BlockList, reads: Sequence[BlockRead], intervals: KeyIntervals) -> PlannedBlocks:
        pins = tuple(self._lists.version(self.crawl, read.path) for read in reads)
        return PlannedBlocks(self.crawl, self._subsets, blocks, tuple(reads), intervals, pins)

    def search(self, query: ResolvedQuery) -> int:
        """Search the list for a planned query; return about the received bytes. Thread-safe.

        The next plan raises an error that concerns this list alone.

        Raises:
            SourceError: if the source cannot be read.
        """
        search, before = self._lists.get(self.crawl), 0
        try:
            if isinstance(search, ClusterSearch):
                before = search.bytes
            else:
                search = self._lists.search(self.crawl)
            search.predict = self._predict
            for interval in query.intervals:
                place = search.locate(interval)
                if place and len(place) > _MOST_LISTED:
                    raise self._too_many(query, f"{size(len(place))} of lines")
                search.find(interval)
        except (QueryError, *UNUSABLE) as error:
            self._failure = error
            if isinstance(error, FileChanged):
                self._lists.drop(self.crawl)  # the next query searches the new version
        return search.bytes - before if isinstance(search, ClusterSearch) else 0

    def no_index(self, query: ResolvedQuery, error: NotFound) -> QueryError:
        """Return the error that no index can answer."""
        crawl = self.crawl
        if not has_columnar_index(crawl):
            message = f"{no_columnar_index(crawl)}; the source has no CDX index of it: {error}"
            return NotHarvested(message, crawl=crawl)
        listed = self._listed()
        # A monthly crawl may be published before its CDX index, and before it is listed.
        if listed and crawl not in listed and not (crawl.startswith("CC-MAIN-") and may_be_unlisted(crawl, listed)):
            return UnknownCrawl(f"there is no crawl {crawl}; {suggest_crawl(crawl, listed)}")
        message = f"{crawl} is not harvested, and the source has no CDX index of it ({error})"
        if not listed:
            message += "; see: catalogue crawls"
        command = query.table.harvest_command(crawl)
        return NotHarvested(f"{message}; run: {command}", crawl=crawl, call=query.table.harvest_call(crawl))

    def _too_many(self, query: ResolvedQuery, what: str) -> NotHarvested:
        return NotHarvested(
            f"{list_path(self.crawl)} has {what} for {join_first(query.patterns)}, too many blocks to read; "
            f"run: catalogue harvest --crawl {self.crawl}",
            crawl=self.crawl,
            call=f"harvest({self.crawl!r})",
        )
