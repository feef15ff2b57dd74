"""Plan a query from stored footers, and fetch and store missing page indexes."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.manifests import IndexFile, index_file
from catalogue.errors import StoreError
from catalogue.metadata_db.candidates import Candidate
from catalogue.parquet.model import Bounds, Footer
from catalogue.parquet.page_index import page_bounds
from catalogue.parquet.stored_indexes import Indexes, cut_indexes
from catalogue.plan.cost import Cost
from catalogue.plan.plan import ReadPlan
from catalogue.plan.planner import plan_reads
from catalogue.plan.prune import FileMetadata, key_indexes
from catalogue.plan.question import AnySource
from catalogue.plan.requests import PlannedRequest
from catalogue.query.random_order import DrawnRows
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.cache import CachedSource
from catalogue.source.checks import Response
from catalogue.source.observe import requests_for
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile

_INDEXES = 256
"""Row groups whose page indexes, of some 20 kB each, are in memory."""


@dataclass(frozen=True, slots=True)
class DecodedFile:
    """An index file and its footer."""

    file: IndexFile
    version: StoredFile
    """The stored file, without the footer's bytes."""
    footer: Footer
    least: str
    """See ``Candidate``."""
    states: tuple[str, str]
    """States of the store and of its page indexes when the query was planned."""


class PageIndexes:
    """Stored page indexes; queries of one site need the same ones repeatedly."""

    def __init__(self, store: Store, table: Dataset = COMMON_CRAWL) -> None:
        self.store = store
        self._table = table
        self._indexes: dict[tuple[object, ...], Indexes | None] = {}
        """By path, row group, version of the file and states of the store; None for those without."""

    def files(self, candidates: Iterable[Candidate]) -> list[DecodedFile]:
        """Return files with the row groups of the candidates."""
        states = self.store.state(), self.store.index_state()  # the first changes if a file is deleted
        return [
            DecodedFile(file, each.version, each.decode(each.row_groups), each.least, states)
            for each in candidates
            if (file := self._table.file(each.path))
        ]

    def indexes(self, decoded: DecodedFile) -> dict[int, Indexes]:
        """Return the stored page indexes of the row groups of a file, by ordinal."""
        path, version = decoded.file.path, decoded.version
        common = version.version, decoded.states
        keys = {group.ordinal: (path, group.ordinal, *common) for group in decoded.footer.row_groups}
        found: dict[int, Indexes | None] = {}
        for ordinal, key in keys.items():
            with suppress(KeyError):  # other threads add and delete some
                found[ordinal] = self._indexes[key]
        if missing := [ordinal for ordinal in keys if ordinal not in found]:
            stored = self.store.indexes(path, missing, version)
            found |= {ordinal: stored.get(ordinal) for ordinal in missing}
            self._indexes |= {keys[ordinal]: found[ordinal] for ordinal in missing[:_INDEXES]}
            for old in list(self._indexes)[:-_INDEXES]:
                self._indexes.pop(old, None)
        return {ordinal: indexes for ordinal, indexes in found.items() if indexes}


@dataclass(frozen=True, slots=True)
class Scope:
    """The row groups that a query may have to read."""

    candidates: tuple[Candidate, ...]
    """Files that may contain matching rows."""
    considered: int
    """Number of row groups of the requested crawls and subsets."""
    missing: tuple[str, ...]
    """A sentence for each subset that is not completely stored."""
    drawn: Mapping[str, Mapping[int, DrawnRows]] | None = None
    """By path and row group, the drawn rows of a sample; None for all."""


class PlanContext:
    """Plans a query, and fetches and stores missing page indexes."""

    def __init__(
        self,
        query: ResolvedQuery,
        scope: Scope,
        indexes: PageIndexes,
        source: Callable[[], AnySource],
        cost: Cost,
    ) -> None:
        self.query = query
        self.source = source
        self.scope = scope
        self._indexes = indexes
        self._cost = cost
        self._files: dict[str, DecodedFile] = {}
        """The files of the last plan."""
        self._fetched: dict[tuple[str, int], Indexes] = {}

    @property
    def candidate_row_groups(self) -> int:
        """The number of row groups that may match."""
        return sum(len(each.row_groups) for each in self.scope.candidates)

    def candidate_files(self) -> Counter[str]:
        """Return how many files of each crawl may match."""
        files = (index_file(each.path) for each in self.scope.candidates)
        return Counter(file.crawl for file in files if file)

    def limited(self, limit: int) -> "PlanContext":
        query = replace(self.query, limit=limit if self.query.limit is None else min(limit, self.query.limit))
        return PlanContext(query, self.scope, self._indexes, self.source, self._cost)

    def plan(self, *, counts: bool = False, explain: bool = False) -> ReadPlan:  # noqa: ARG002 - of a Question
        """Plan the query, or one that counts its captures."""
        source = self.source()
        self._files = {decoded.file.path: decoded for decoded in self._indexes.files(self.scope.candidates)}
        return plan_reads(
            self._counting if counts else self.query,
            [self._metadata(decoded, source) for decoded in self._files.values()],
            cost=self._cost,
            considered=self.scope.considered,
            missing=self.scope.missing,
        )

    @property
    def _counting(self) -> ResolvedQuery:
        """Return the counting query; it needs at least one column."""
        table = self.query.table
        return replace(self.query, columns=() if table.path_columns else (table.key,), ordered=False, counts=True)

    def _metadata(self, decoded: DecodedFile, source: AnySource) -> FileMetadata:
        path, version = decoded.file.path, decoded.version
        # An ETag means nothing to another source.
        pin = FileVersion(version.size, version.etag if version.source == source.url else None)

        of_file: dict[int, Indexes] | None = None

        def indexes(ordinal: int) -> Indexes | None:
            nonlocal of_file
            if of_file is None:
                of_file = self._indexes.indexes(decoded)
            fetched, stored = self._fetched.get((path, ordinal)), of_file.get(ordinal)
            return stored.joined(fetched) if stored and fetched else stored or fetched

        cached = tuple(source.cached_ranges(path, pin)) if isinstance(source, CachedSource) else ()
        drawn = self.scope.drawn[path] if self.scope.drawn else None
        return FileMetadata(decoded.file, pin, decoded.footer, indexes, cached, drawn, decoded.least)

    def key_indexes(self) -> tuple[PlannedRequest, ...]:
        """Return the requests for missing page indexes of the key column."""
        source = self.source()
        files = (self._metadata(decoded, source) for decoded in self._indexes.files(self.scope.candidates))
        return tuple(fetch for file in files for fetch in key_indexes(file, self.query.table.key, self._cost.max_gap))

    def key_bounds(self, *, pages: bool = True) -> list[list[tuple[Bounds, int]]]:
        """Return bounds and number of rows of the pages of each row group, or of row groups, as the files state them.

        Missing page indexes are fetched. Where a file has none, or a wrong one, the result has the complete row group.

        Raises:
            SourceError: if page indexes cannot be fetched.
        """
        key = self.query.table.key
        source = self.source()
        self._files = {decoded.file.path: decoded for decoded in self._indexes.files(self.scope.candidates)}
        if pages:
            self.fetch_indexes(self.key_indexes())
        found = []
        for decoded in self._files.values():
            stored = self._metadata(decoded, source)
            for group in decoded.footer.row_groups:
                if chunk := group.chunks.get(key):
                    indexes = stored.indexes(group.ordinal) if pages else None
                    bounds = page_bounds(indexes, chunk, group.num_rows) if indexes else []
                    found.append(bounds or ([(chunk.bounds, group.num_rows)] if chunk.bounds else []))
        return found

    def fetch_indexes(
        self,
        fetches: Sequence[PlannedRequest],
        report: Callable[[PlannedRequest], None] = lambda _: None,
        *,
        must_store: bool = False,
    ) -> None:
        """Fetch and store page indexes.

        Args:
            fetches: the requests.
            report: called after each request.
            must_store: raise an error if they cannot be stored, which is ignored otherwise.

        Raises:
            SourceError: if they cannot be fetched.
        """
        ignored: tuple[type[Exception], ...] = () if must_store else (StoreError,)
        source = self.source()
        pins = {path: self._metadata(self._files[path], source).pin for path in {fetch.path for fetch in fetches}}
        executor = ThreadPoolExecutor(source.connections, thread_name_prefix="indexes")

        def get(fetch: PlannedRequest) -> Response:
            with requests_for("page index"):
                return source.get(fetch.path, fetch.range, pin=pins[fetch.path])

        try:
            answers = executor.map(get, fetches)
            for fetch, answer in zip(fetches, answers, strict=True):
                each = self._files[fetch.path]
                found = cut_indexes(each.footer, self.query.table.key, answer.body, fetch.range.start)
                for ordinal, indexes in found.items():
                    before = self._fetched.get((fetch.path, ordinal), Indexes())
                    self._fetched[fetch.path, ordinal] = before.joined(indexes)
                with suppress(*ignored):
                    self._indexes.store.add_indexes(fetch.path, found, each.version)
                report(fetch)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def prepare(self, plan: ReadPlan, report: Callable[[int], None] = lambda _: None) -> None:
        """Fetch the page indexes that a plan needs; ``report`` is called with the bytes of each request."""
        self.fetch_indexes(plan.indexes, lambda fetch: report(len(fetch.range)))

    def with_missing(self, missing: tuple[str, ...]) -> "PlanContext":
        """Return this query with other sentences about what is not stored."""
        scope = replace(self.scope, missing=missing)
        return PlanContext(self.query, scope, self._indexes, self.source, self._cost)

    def columnar_only(self) -> "PlanContext":
        """Return this query."""
        return self

    def note_version(self, *_: object) -> None:
        """Do nothing: the footers of all files name their versions."""

    def finish(self) -> None:
        """Do nothing: fetched page indexes are stored already."""
