"""The columnar index of a crawl: plan a query from stored footers."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from operator import attrgetter

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import FileChanged, NotFound, StoreError
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import Indexes, cut_indexes, has_damage, page_bounds
from catalogue.plan.crawl_plan import CrawlPlan
from catalogue.plan.dictionaries import cut_dictionaries, missing_dictionaries, rule_out, tested_alone
from catalogue.plan.planner import plan_files
from catalogue.plan.prune import key_indexes
from catalogue.plan.requests import Cost, PlannedRequest, Purpose
from catalogue.query.random_order import DrawnRows, RowGroupId
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.source.cache import AnySource, CachedSource, drop_cached
from catalogue.source.checks import Response, requests_for
from catalogue.source.parallel import run_ahead
from catalogue.store.database import Store, encode_indexes
from catalogue.store.layout import StoredFile
from catalogue.tables.column_values import CrawlValues
from catalogue.tables.crawl_table import FileMetadata

_FILES_AT_ONCE = 32
"""Files whose page indexes are stored in one transaction."""
_INDEXES = 256
"""Cached row groups, of some 20 kB each; one file may have more."""


@dataclass(eq=False, slots=True)
class PageIndexes:
    """A cache of stored page indexes: queries of one site need the same ones."""

    store: Store
    dataset: Dataset = COMMON_CRAWL
    _indexes: dict[tuple[object, ...], dict[int, Indexes | None]] = field(default_factory=dict, init=False)
    """Indexes by row group, for each path, version of the file and states of the store."""

    def of(
        self, path: str, version: StoredFile, ordinals: Iterable[int], states: tuple[str, str]
    ) -> dict[int, Indexes | None]:
        key = path, version.version, states
        known = self._indexes.setdefault(key, {})
        if missing := {*ordinals}.difference(known):
            if sum(map(len, self._indexes.values())) + len(missing) > _INDEXES:
                self._indexes.clear()
                missing, known = {*ordinals}, self._indexes.setdefault(key, {})
            known |= dict.fromkeys(missing) | self.store.indexes(path, sorted(missing), version)
        return known


@dataclass(eq=False)
class ColumnarIndex:
    """Plans queries of a crawl, and fetches and stores missing page indexes."""

    crawl: str
    find: Callable[[], Iterable[FileMetadata]]
    """It returns the files that may contain matching rows, for ``candidates``."""
    considered: int
    """Row groups of the requested subsets."""
    page_indexes: PageIndexes
    source: Callable[[], AnySource]
    cost: Cost
    missing: tuple[str, ...] = ()
    """A sentence for each incompletely stored subset."""
    drawn: Mapping[RowGroupId, DrawnRows] = field(default_factory=dict)
    """The drawn rows of a sample."""
    values: Callable[[Container[str]], CrawlValues | None] = lambda _: None
    """It returns the stored values of some columns."""
    by_footers: Callable[[], Sequence[FileMetadata]] = tuple
    """It returns files that may match by their footers alone, so that samples are drawn from the same row groups."""
    must_store: bool = False
    """Whether it is an error that fetched indexes cannot be stored."""
    _files: dict[str, FileMetadata] = field(default_factory=dict, init=False)
    """Files of the last plan, by path."""
    _fetched: dict[str, dict[int, Indexes]] = field(default_factory=dict, init=False)
    """Indexes by path and row group, in case they cannot be stored."""
    _unsaved: set[str] = field(default_factory=set, init=False)
    """Paths of files whose fetched indexes are not stored yet."""

    @cached_property
    def candidates(self) -> tuple[FileMetadata, ...]:
        """The files that may contain matching rows; finding them takes longer than planning blocks."""
        return tuple(self.find())

    def among(self, drawn: Mapping[RowGroupId, DrawnRows]) -> "ColumnarIndex":
        paths = {path for path, _ in drawn}
        found = (each for each in self.find() if each.path in paths)
        chosen = (each.among({n for n in each.ordinals if (each.path, n) in drawn}) for each in found)
        files = sorted(chosen, key=attrgetter("path"))
        return replace(self, find=lambda: files, missing=(), drawn=drawn)

    def plan(self, query: ResolvedQuery) -> CrawlPlan:
        files = self._files_with_indexes()
        if query.where is None:
            return replace(plan_files(query, self.crawl, files, self.cost, self.considered, 1.0), missing=self.missing)
        ruled_out = rule_out(query, files, self._values(query), self.cost)
        rest = ruled_out.rest(files)
        plan = plan_files(query, self.crawl, rest, self.cost, self.considered, ruled_out.matching)
        return replace(
            plan,
            missing=self.missing,
            indexes=ruled_out.requests or plan.indexes,
            ruled_out=sum(len(file.ordinals) for file in files) - sum(len(file.ordinals) for file in rest),
            values_advice=ruled_out.advice(self.crawl, query.table),
        )

    def possible(self, query: ResolvedQuery) -> set[RowGroupId]:
        """Return the row groups that may match by their keys and stored values."""
        found = {(file.path, ordinal) for file in self.candidates for ordinal in file.ordinals}
        return found - self._values(query).ruled_out(query)

    def _values(self, query: ResolvedQuery) -> CrawlValues:
        tested = {*tested_alone(query), *tested_alone(replace(query, where=query.where_declared))}
        return (self.values(tested) if tested else None) or CrawlValues((), {})

    def _files_with_indexes(self) -> list[FileMetadata]:
        source, store = self.source(), self.page_indexes.store
        states = store.states()
        files = {}
        for each in self.candidates:
            files[each.path] = self._file(each, source, states)
        self._files = files  # at once, for threads that fetch
        return [*files.values()]

    def _file(self, candidate: FileMetadata, source: AnySource, states: tuple[str, str]) -> FileMetadata:
        path, stored = candidate.path, candidate.stored
        of_file = cache(partial(self.page_indexes.of, path, stored, candidate.ordinals, states))

        def indexes(ordinal: int) -> Indexes | None:
            fetched, known = self._fetched.get(path, {}).get(ordinal), of_file().get(ordinal)
            return known.joined(fetched) if known and fetched else known or fetched

        cached = tuple(source.cached_ranges(path, stored.version)) if isinstance(source, CachedSource) else ()
        return replace(candidate, indexes=indexes, cached=cached, drawn=self.drawn)

    def key_indexes(self) -> tuple[PlannedRequest, ...]:
        key = self.page_indexes.dataset.key
        return tuple(fetch for file in self._files_with_indexes() for fetch in key_indexes(file, key, self.cost))

    def key_bounds(self) -> list[list[tuple[Bounds, int]]]:
        """Return bounds and number of rows of all pages, by row group.

        Missing page indexes are fetched. Where a file has no valid one, the result has the row group.

        Raises:
            SourceError: if page indexes cannot be fetched.
        """
        key = self.page_indexes.dataset.key
        self.fetch_key_indexes()
        found = []
        for file in self._files_with_indexes():
            for group in file.footer.row_groups:
                chunk, indexes = group.chunks[key], file.indexes(group.ordinal)
                bounds = page_bounds(indexes, chunk, group.num_rows) if indexes else []
                found.append(bounds or ([(chunk.bounds, group.num_rows)] if chunk.bounds else []))
        return found

    def missing_dictionaries(self, columns: Sequence[str]) -> tuple[PlannedRequest, ...]:
        return tuple(missing_dictionaries(self._files_with_indexes(), columns, self.cost))

    def dictionary_pages(self, columns: Sequence[str]) -> int:
        return sum(len(request.parts) for request in missing_dictionaries(self.candidates, columns, self.cost))

    def fetch_key_indexes(self) -> None:
        """Fetch and store the missing page indexes of the key column.

        Raises:
            SourceError: if a request fails.
            StoreError: if they cannot be stored, and ``must_store`` is true.
        """
        if not (requests := self.key_indexes()):
            return
        try:
            with closing(run_ahead(self.source().connections, self.fetch, requests)) as calls:
                for request, call in calls:
                    self.take(request, call.result())
        finally:
            self.save()

    def fetch(self, request: PlannedRequest) -> Response:
        """Request page indexes or dictionary pages; thread-safe."""
        reads_values = any(part.purpose is Purpose.DICTIONARY for part in request.parts)
        source, path, pin = self.source(), request.path, self._files[request.path].stored.version
        dataset, footer = self.page_indexes.dataset, self._files[path].footer
        with requests_for(request.reason if reads_values else "page index"):
            try:
                answer = source.get(path, request.range, pin=pin)
            except (FileChanged, NotFound) as error:
                raise type(error)(f"{error}; run: {dataset.refresh_command(self._files[path].file)}") from error
            if has_damage(self._cut(request, answer), footer, dataset.key):  # also if the file has it, which is stored
                drop_cached(source, path, pin, [request.range])
                answer = source.get(path, request.range, pin=pin)
        return answer

    def _cut(self, request: PlannedRequest, answer: Response) -> dict[int, Indexes]:
        footer = self._files[request.path].footer
        return cut_dictionaries(request, answer.body) or cut_indexes(
            footer, self.page_indexes.dataset.key, answer.body, request.range.start
        )

    def take(self, request: PlannedRequest, answer: Response) -> None:
        """Keep the page indexes or dictionary pages of a response, and store those of some files at once."""
        fetched = self._fetched.setdefault(request.path, {})
        for ordinal, indexes in self._cut(request, answer).items():
            fetched[ordinal] = fetched.get(ordinal, Indexes()).joined(indexes)
        self._unsaved.add(request.path)
        if len(self._unsaved) > _FILES_AT_ONCE:
            self.save()

    def save(self) -> None:
        """Store what was fetched, in one transaction; see ``must_store``."""
        files = [self._files[path] for path in sorted(self._unsaved)]
        self._unsaved.clear()
        added = [(each.path, encode_indexes(self._fetched[each.path], each.stored), each.stored) for each in files]
        with nullcontext() if self.must_store else suppress(StoreError):
            self.page_indexes.store.add_all_indexes(added)
