"""What is stored of each crawl, in one state of the store."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalogue.commoncrawl.crawls import SUBSETS
from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import StoreChanged
from catalogue.parquet.model import SIGNED, UNSIGNED, wider
from catalogue.store.database import Store
from catalogue.tables.table_file import (
    CrawlState,
    TableDamaged,
    TableFile,
    column_kinds,
    fresh_state,
    read_state,
    table_path,
    values_path,
)

if TYPE_CHECKING:
    from catalogue.query.resolved_query import ResolvedQuery
    from catalogue.tables.column_values import CrawlValues
    from catalogue.tables.crawl_table import CrawlTable, FileMetadata, StoredFooters


class StoredCrawls:
    """The stored crawls, by their tables, which are opened when they are needed.

    No subsets mean those that were harvested.
    """

    def __init__(
        self,
        folder: Path,
        store: Store,
        dataset: Dataset,
        *,
        indexes: bool = False,
        notify: Callable[[str], None] = lambda _: None,
        writable: Callable[[], Path] | None = None,
    ) -> None:
        """Open the tables, updated if the store has changed; see ``update_tables``.

        ``writable`` returns the folder where damaged tables can be made again, if it is another one.
        """
        state = fresh_state(folder, store, dataset.key, indexes=indexes)
        if state is None:
            from catalogue.tables.update_tables import update_tables

            state = update_tables(folder, store, dataset, indexes=indexes, notify=notify)
        self.tables = state
        self.crawls = tuple(sorted(crawl for crawl, each in state.crawls.items() if each.files))
        self.crawl_rows: list[dict[str, Any]] | None = None
        """The rows of the view ``crawls``, if they were read."""
        self._folder, self._store, self._dataset = folder, store, dataset
        self._writable = writable or (lambda: folder)
        self._footers: StoredFooters | None = None
        self._opened: dict[str, CrawlTable | None] = {}

    def table(self, crawl: str) -> "CrawlTable | None":
        """Return the table of a crawl, if it has one; make it again if it is damaged."""
        if crawl not in self._opened:
            from catalogue.tables.crawl_table import CrawlTable, StoredFooters

            state = self.tables.crawls.get(crawl)
            found = None
            if state and state.checksum:
                table = self._undamaged(crawl)
                if table.checksum != state.checksum and table.checksum != self._current_state(crawl).checksum:
                    table = self._repaired(crawl)
                self._footers = self._footers or StoredFooters(self._store)
                found = CrawlTable(table, self._footers)
            self._opened[crawl] = found
        return self._opened[crawl]

    def checked_path(self, crawl: str) -> Path:
        """Return the path of a table after a complete check, for readers that check nothing; see ``table``."""
        self._undamaged(crawl)
        return table_path(self._folder, crawl)

    def _undamaged(self, crawl: str) -> TableFile:
        try:
            return TableFile(table_path(self._folder, crawl))
        except TableDamaged:
            return self._repaired(crawl)

    def has_values(self, crawl: str) -> bool:
        """Return whether values are stored, after making a missing file again, for readers that check nothing."""
        if self._state(crawl).values and not values_path(self._folder, crawl).exists():
            self._repaired(crawl)
        return bool(self._state(crawl).values)

    def values_size(self, crawl: str) -> int:
        return values_path(self._folder, crawl).stat().st_size if self._state(crawl).values else 0

    def values(self, crawl: str, names: Container[str] | None = None) -> "CrawlValues | None":
        """Return the stored values of some columns or of all; make damaged ones again."""
        from catalogue.tables.column_values import read_values

        checksum = self._state(crawl).values
        if not checksum:
            return None
        if found := read_values(values_path(self._folder, crawl), checksum, names):
            return found
        current = self._current_state(crawl).values
        if current == checksum:
            self._repaired(crawl)
        return read_values(values_path(self._folder, crawl), current, names)  # another process may have added some

    def _current_state(self, crawl: str) -> CrawlState:
        """Return the state that another process may have written since these were opened, of the same stored files."""
        now = read_state(self._folder)
        return (now and now.store == self.tables.store and now.crawls.get(crawl)) or CrawlState()

    def _repaired(self, crawl: str) -> TableFile:
        from catalogue.tables.update_tables import remake_tables

        self._check_state(crawl)
        self._folder = self._writable()
        remake_tables(self._folder, self._store, self._dataset, [crawl])
        self._check_state(crawl)
        return TableFile(table_path(self._folder, crawl))

    def _check_state(self, crawl: str) -> None:
        if self._store.state() != self.tables.store:
            raise StoreChanged(crawl)

    @cached_property
    def requested_crawls(self) -> tuple[str, ...]:
        """The crawls of which files are stored, or a harvest was interrupted before the first file."""
        return tuple(sorted(crawl for crawl in self.tables.crawls if self.subsets(crawl)))

    def columns(self, crawls: Iterable[str] | None = None) -> dict[str, str]:
        """Return the columns of the stored files of crawls, or of all, and their types."""
        state, found = self.tables, dict[str, str]()
        chosen = sorted(state.crawls.keys() if crawls is None else state.crawls.keys() & {*crawls})
        schemas: dict[str, None] = {}
        for crawl in chosen:
            schemas |= dict.fromkeys(state.crawls[crawl].schemas)
        for digest in schemas:
            for name, kind in column_kinds(state.schemas[digest]).items():
                found[name] = wider(found[name], kind) if name in found else kind
        return found

    def _state(self, crawl: str) -> CrawlState:
        return self.tables.crawls.get(crawl) or CrawlState()

    def undecodable(self, crawl: str) -> list[str]:
        """Return the paths of stored footers that are damaged, or have no keys."""
        return [*self._state(crawl).undecodable]

    def subsets(self, crawl: str, among: Sequence[str] = ()) -> list[str]:
        """Return the harvested subsets.

        Of subsets ``among`` which to choose, return those that may have files: harvested and listed ones, or all if
        there is no manifest.
        """
        state = self._state(crawl)
        found = {*state.files, *state.failures, *(state.listed.keys() & state.requested)}
        if among:
            found = (found | (state.listed.keys() or {*among})) & {*among}
        return sorted(found)

    def subsets_not_requested(self, crawl: str) -> set[str]:
        """Return the subsets that may have files, but of which no harvest requested any."""
        return (self._state(crawl).listed.keys() or {*SUBSETS}) - {*self.subsets(crawl)}

    def has_files(self, crawl: str, subsets: Sequence[str] = ()) -> bool:
        files = self._state(crawl).files
        return not files.keys().isdisjoint(subsets or files)

    def answers(self, crawl: str, subsets: Sequence[str]) -> bool:
        """Return whether files of one of the subsets are stored, or the manifest has none."""
        if self.has_files(crawl, subsets):
            return True
        return bool(subsets and self._state(crawl).listed) and not self.subsets(crawl, subsets)

    def row_groups(self, crawl: str, subsets: Sequence[str]) -> int:
        return sum(self._state(crawl).row_groups.get(subset, 0) for subset in self.subsets(crawl, subsets))

    def missing(self, crawl: str, subsets: Sequence[str] = ()) -> tuple[str, ...]:
        """Return a sentence for each incomplete subset."""
        state, found = self._state(crawl), []
        for subset in self.subsets(crawl, subsets):
            stored = state.files.get(subset, 0)
            total = max(state.listed.get(subset, 0), stored + state.failures.get(subset, 0))
            what = f"{total - stored} of the {total} files of {crawl}, {subset}, are not harvested"
            if not total:
                what = f"{subset} of {crawl} is not harvested"
            elif not state.listed:  # an interrupted forget or a repair has deleted the list
                what = f"files of {crawl}, {subset}, may be missing, because the list of its files is not stored"
            if stored < total or not (total and state.listed):
                found.append(f"{what}; run: {self._dataset.harvest_command(crawl, [subset])}")
        return tuple(found)

    def files(
        self,
        crawl: str,
        subsets: Sequence[str] = (),
        query: "ResolvedQuery | None" = None,
        *,
        by_footers: bool = False,
    ) -> "list[FileMetadata]":
        """Return files with row groups that may match, by path; all without a query; see ``CrawlTable.files``."""
        from catalogue.query.key_intervals import ALL_KEYS

        if (table := self.table(crawl)) is None:
            return []
        intervals = query.intervals if query else ALL_KEYS
        earliest = -inf if query is None or query.from_ms is None else query.from_ms
        latest = inf if query is None or query.to_ms is None else query.to_ms
        return table.files(self.subsets(crawl, subsets), intervals, earliest, latest, by_footers=by_footers)

    def gaps(self, crawl: str) -> "list[FileMetadata]":
        """Return files with their row groups without bounds, by path."""
        from catalogue.query.key_intervals import Intervals
        from catalogue.query.resolved_query import ResolvedQuery

        return self.files(crawl, query=ResolvedQuery(Intervals(), ())) if self._state(crawl).gaps else []

    def state_of(self, crawl: str, subsets: Sequence[str]) -> str:
        """Return a digest of the stored files of some subsets of a crawl, and of how many it has."""
        table, known = self.table(crawl), self._state(crawl)
        if table is None or not self.has_files(crawl, subsets):
            return ""
        state = blake2b(digest_size=16)
        for subset, count in sorted(known.listed.items()):
            state.update(f"{subset} {count} ".encode())
        for subset, count in sorted(known.files.items()):
            if not subsets or subset in subsets:
                columns = table.table.columns(subset, ("path", "version"))
                paths, versions = (column.to_pylist() for column in columns.columns)
                files = {*zip(map(str.encode, paths), versions, strict=True)}
                state.update(f"{subset} {count} {sorted(files)}".encode())
        return state.hexdigest()

    def bounds_of(self, crawl: str, subset: str) -> tuple[list[tuple[bytes, bytes]], int, int]:
        """Return least and greatest key of each row group of a subset that has bounds.

        Returns:
            The keys, the number of row groups without bounds, and of those with bounds in signed order.
        """
        groups = [*self._bounds(crawl, subset, "bounds_from")]
        known = [(least.encode(), greatest.encode()) for least, greatest, *_ in groups if least is not None]
        return known, len(groups) - len(known), sum(origin == SIGNED for *_, origin in groups)

    def first_keys(self, crawl: str) -> Iterator[tuple[bytes, int]]:
        """Yield least key and number of rows of each row group whose footer has bounds."""
        for subset in self._state(crawl).files:
            for least, _, rows, origin in self._bounds(crawl, subset, "bounds_from"):
                if least is not None and origin in {UNSIGNED, SIGNED}:
                    yield least.encode(), rows

    def extents(self, crawl: str) -> dict[str, list[tuple[bytes, bytes, int]]]:
        """Return least key, greatest key and number of rows of each row group that has bounds, by subset."""
        groups = {
            subset: sorted(
                (least.encode(), greatest.encode(), rows)
                for least, greatest, rows in self._bounds(crawl, subset)
                if least is not None
            )
            for subset in self._state(crawl).files
        }
        return {subset: each for subset, each in groups.items() if each}

    def _bounds(self, crawl: str, subset: str, *others: str) -> Iterator[tuple[Any, ...]]:
        table = self.table(crawl)
        columns = table.table.columns(subset, ("min_key", "max_key", "num_rows", *others)).columns if table else ()
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return (row for row in rows if row[2] is not None)  # a file without row groups has a row, too
