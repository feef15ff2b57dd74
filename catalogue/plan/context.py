"""A question and what is held that may answer it → its plan; and what fetching teaches, kept for the next question."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.commoncrawl.manifests import IndexFile
from catalogue.errors import StoreError, StoreLocked
from catalogue.metadata_db.candidates import Candidate
from catalogue.parquet.footer import decode_footer, decode_row_groups
from catalogue.parquet.model import Bounds, Footer, RowGroup
from catalogue.parquet.page_index import page_bounds
from catalogue.parquet.stored_indexes import Indexes, cut_indexes
from catalogue.plan.cost import Cost
from catalogue.plan.plan import ReadPlan
from catalogue.plan.planner import plan_reads
from catalogue.plan.prune import HeldFile, key_indexes
from catalogue.plan.requests import PlannedRequest
from catalogue.query.random_order import Drawn
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.cache import CachedSource
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile

_DECODED = 300
"""Footers kept decoded, of some 30 kB a row group."""

_AnySource: TypeAlias = PoliteSource | CachedSource


@dataclass(frozen=True, slots=True)
class KnownFile:
    """An index file and its footer."""

    file: IndexFile
    version: StoredFile
    """As it is held, without the footer's bytes."""
    footer: Footer
    least: str
    """See ``Candidate``."""


@dataclass(slots=True)
class _Decoded:
    """What is decoded of a footer."""

    known: KnownFile
    """Without row groups."""
    row_groups: dict[int, RowGroup]
    """Those that questions were about, by ordinal."""
    version: bytes
    """See ``Candidate``."""
    state: str
    """Of the store when it was last looked up there."""


class FooterCache:
    """Stored footers, decoded. The last ones are remembered: questions about one site meet the same files."""

    def __init__(self, store: Store, table: Dataset = COMMON_CRAWL) -> None:
        """Look into the store of a table."""
        self.store = store
        self._table = table
        self._decoded: dict[str, _Decoded] = {}
        """By path, that which was used last at the end."""

    def get(self, candidates: Iterable[Candidate]) -> list[KnownFile]:
        """Files as they are held now, with those of their row groups that might match."""
        state = self.store.state()
        return [self._known(candidate, state) for candidate in candidates]

    def _known(self, candidate: Candidate, state: str) -> KnownFile:
        decoded = self._decoded.pop(candidate.path, None)
        if decoded and decoded.version != candidate.version:
            decoded = None
        there = decoded.row_groups if decoded else {}
        lacking = {ordinal: offset for ordinal, offset in candidate.row_groups if ordinal not in there}
        if not decoded or lacking or decoded.state != state:
            known = self._looked_up(candidate, lacking)
            there |= {group.ordinal: group for group in known.footer.row_groups}
            decoded = _Decoded(
                replace(known, footer=replace(known.footer, row_groups=())), there, candidate.version, state
            )
        self._decoded[candidate.path] = decoded
        if len(self._decoded) > _DECODED:
            del self._decoded[next(iter(self._decoded))]
        groups = tuple(there[ordinal] for ordinal, _ in candidate.row_groups if ordinal in there)
        known = decoded.known
        return replace(known, footer=replace(known.footer, row_groups=groups), least=candidate.least)

    def _looked_up(self, candidate: Candidate, row_groups: dict[int, int]) -> KnownFile:
        """A file as it is held now, with some of its row groups, given by ordinal and place in the footer."""
        held, file = self.store.get("files", candidate.path), self._table.file(candidate.path)
        if held is None or file is None or self.store.version(candidate.path) != candidate.version:
            message = f"{candidate.path} was harvested anew or forgotten meanwhile by another process; ask again"
            raise StoreLocked(message)
        rest = candidate.footer_rest
        footer = (
            decode_footer(held.data, held.size)
            if rest is None
            else decode_row_groups(held.data, held.size, row_groups, rest)
        )
        return KnownFile(file, replace(held, data=b""), footer, candidate.least)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a question looks."""

    candidates: tuple[Candidate, ...]
    """Files that might hold matching rows."""
    considered: int
    """Row groups there are in all that was asked about."""
    missing: tuple[str, ...]
    """What of that is not held, a sentence each."""
    drawn: Mapping[str, Mapping[int, Drawn]] | None = None
    """By path and row group, the rows that may be in the answer; None for all."""


class PlanContext:
    """Plans a query, fetches the page indexes that it lacks, and keeps them and what reading taught."""

    def __init__(
        self,
        query: ResolvedQuery,
        scope: Scope,
        footers: FooterCache,
        source: Callable[[], _AnySource],
        cost: Cost,
        *,
        teaches: bool = False,
    ) -> None:
        """Ask about the files in scope.

        Args:
            query: what is asked.
            scope: where.
            footers: that are held.
            source: called when something is to be fetched or looked up.
            cost: of the source.
            teaches: whether it is asked for the sake of what is learned, so that it fails if that cannot be kept;
                otherwise that is a short cut, and a store that cannot be written to spoils no answer.
        """
        self.query = query
        self.source = source
        self.scope = scope
        self._footers = footers
        self._cost = cost
        self._suppressed: tuple[type[Exception], ...] = () if teaches else (StoreError,)
        self._files: dict[str, KnownFile] = {}
        """As they were when the query was planned."""
        self._fetched: dict[tuple[str, int], Indexes] = {}
        self._learned: tuple[KnownFile | None, dict[int, Indexes]] = (None, {})

    def limited(self, limit: int) -> "PlanContext":
        """The same question with no more rows than this."""
        query = replace(self.query, limit=limit if self.query.limit is None else min(limit, self.query.limit))
        return PlanContext(query, self.scope, self._footers, self.source, self._cost)

    def plan(self, *, counts: bool = False) -> ReadPlan:
        """Plan the query, or one that counts what it finds, by what is held now."""
        source = self.source()
        self._files = {known.file.path: known for known in self._footers.get(self.scope.candidates)}
        return plan_reads(
            self._counting if counts else self.query,
            [self._held(known, source) for known in self._files.values()],
            cost=self._cost,
            considered=self.scope.considered,
            missing=self.scope.missing,
        )

    @property
    def _counting(self) -> ResolvedQuery:
        """The query that counts; rows of no column at all would be none."""
        table = self.query.table
        return replace(self.query, columns=() if table.path_columns else (table.key,), ordered=False, counts=True)

    def _held(self, known: KnownFile, source: _AnySource) -> HeldFile:
        path, version = known.file.path, known.version
        # An ETag means nothing to another source.
        pin = FileVersion(version.size, version.etag if version.source == source.url else None)

        def indexes(ordinal: int) -> Indexes | None:
            fetched = self._fetched.get((path, ordinal))
            held = self._footers.store.indexes(path, [ordinal], version).get(ordinal)
            return held.joined(fetched) if held and fetched else held or fetched

        cached = tuple(source.held(path, pin)) if isinstance(source, CachedSource) else ()
        drawn = self.scope.drawn[path] if self.scope.drawn else None
        return HeldFile(known.file, pin, known.footer, indexes, cached, drawn, known.least)

    def key_indexes(self) -> tuple[PlannedRequest, ...]:
        """The requests for what is not held of the page indexes of the keys, of all files in scope."""
        source = self.source()
        held = (self._held(known, source) for known in self._footers.get(self.scope.candidates))
        return tuple(fetch for file in held for fetch in key_indexes(file, self.query.table.key, self._cost.max_gap))

    def key_bounds(self, *, pages: bool = True) -> list[list[tuple[Bounds, int]]]:
        """What the files themselves say of the keys between which they lie, and of how many rows there.

        For each row group that might match the bounds and rows of its pages, in their order; page indexes that are not
        held are fetched for that. Where a file has no such index, or a wrong one, those of the row group as a whole.
        What reading taught has no part in it, so that it is the same at any time.

        Args:
            pages: whether it is to be that close; else only footers are asked.

        Raises:
            SourceError: if page indexes cannot be had.
        """
        key = self.query.table.key
        source = self.source()
        self._files = {known.file.path: known for known in self._footers.get(self.scope.candidates)}
        if pages:
            self.fetch_indexes(self.key_indexes())
        found = []
        for known in self._files.values():
            held = self._held(known, source)
            written = self._written(known, held, source) if pages else {}
            for group in known.footer.row_groups:
                if chunk := group.chunks.get(key):
                    indexes = written.get(group.ordinal) or (held.indexes(group.ordinal) if pages else None)
                    told = page_bounds(indexes, chunk, group.num_rows) if indexes and not indexes.own else []
                    found.append(told or ([(chunk.bounds, group.num_rows)] if chunk.bounds else []))
        return found

    def _written(self, known: KnownFile, held: HeldFile, source: _AnySource) -> dict[int, Indexes]:
        """The key's page indexes as the file has them, of the row groups for which others are held."""
        key, footer = self.query.table.key, known.footer
        taught = tuple(g for g in footer.row_groups if (there := held.indexes(g.ordinal)) and there.own)
        unheld = replace(held, footer=replace(footer, row_groups=taught), indexes=lambda _: None)
        found: dict[int, Indexes] = {}
        for fetch in key_indexes(unheld, key, self._cost.max_gap):
            answer = source.get(fetch.path, fetch.range, pin=held.pin)
            for ordinal, indexes in cut_indexes(unheld.footer, key, answer.body, fetch.range.start).items():
                found[ordinal] = found[ordinal].joined(indexes) if ordinal in found else indexes
        return found

    def fetch_indexes(
        self, fetches: Sequence[PlannedRequest], report: Callable[[PlannedRequest], None] = lambda _: None
    ) -> None:
        """Fetch page indexes, such as a plan lacks, and keep them; ``report`` is told of each fetch that is done.

        Raises:
            SourceError: if they cannot be had.
        """
        source = self.source()
        pins = {path: self._held(self._files[path], source).pin for path in {fetch.path for fetch in fetches}}
        executor = ThreadPoolExecutor(source.connections, thread_name_prefix="indexes")
        try:
            answers = executor.map(lambda fetch: source.get(fetch.path, fetch.range, pin=pins[fetch.path]), fetches)
            for fetch, answer in zip(fetches, answers, strict=True):
                each = self._files[fetch.path]
                found = cut_indexes(each.footer, self.query.table.key, answer.body, fetch.range.start)
                for ordinal, indexes in found.items():
                    before = self._fetched.get((fetch.path, ordinal), Indexes())
                    self._fetched[fetch.path, ordinal] = before.joined(indexes)
                self._keep(each, found)
                report(fetch)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def lacks(self, file: IndexFile, row_group: int, columns: Collection[str]) -> bool:
        """Whether reading some columns of a row group whole, the key's among them, would teach what is not held."""
        held = self._footers.store.indexes(file.path, [row_group], self._files[file.path].version).get(row_group)
        return not (held and held.column_index and held.offset_indexes.keys() >= {*columns})

    def learn(self, file: IndexFile, row_group: int, indexes: Indexes) -> None:
        """Take what reading a row group taught; it is kept when the next file's turn comes, or by ``finish``."""
        known, learned = self._learned
        if known is None or known.file != file:
            self.finish()
            known, learned = self._files[file.path], {}
        learned[row_group] = indexes
        self._learned = known, learned

    def finish(self) -> None:
        """Keep what was learned last."""
        known, learned = self._learned
        self._learned = (None, {})
        if known and learned:
            self._keep(known, learned)

    def _keep(self, known: KnownFile, indexes: dict[int, Indexes]) -> None:
        with suppress(*self._suppressed):
            self._footers.store.add_indexes(known.file.path, indexes, known.version)
