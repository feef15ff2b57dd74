"""What is stored of each crawl, in one state of the store: for planning, joins and reports."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from catalogue.commoncrawl.datasets import Dataset
from catalogue.parquet.column_types import kind_of, wider
from catalogue.parquet.key_column import SIGNED
from catalogue.surt import EVERYTHING, KeyInterval
from catalogue.tables.open_tables import Tables
from catalogue.tables.tables_state import CrawlState

if TYPE_CHECKING:
    import pyarrow as pa

    from catalogue.query.resolved_query import ResolvedQuery
    from catalogue.tables.file_metadata import FileMetadata

MARGIN = 31 * 24 * 60 * 60 * 1000
"""Milliseconds by which a crawl may have been fetched before or after the times in the list of crawls."""


class StoredCrawls:
    """The stored crawls. No subsets mean those that were harvested."""

    def __init__(self, tables: Tables, dataset: Dataset) -> None:
        """Use open tables."""
        self.state, self.indexes = tables.state.store, tables.state.indexes
        self.crawl_rows: list[dict[str, Any]] | None = None
        """The rows of the view ``crawls``, if they were read."""
        self._tables = tables
        self._states = tables.state.crawls
        self._dataset = dataset

    @cached_property
    def crawls(self) -> tuple[str, ...]:
        """The crawls with stored files."""
        return tuple(sorted(crawl for crawl, state in self._states.items() if state.files))

    @cached_property
    def requested_crawls(self) -> tuple[str, ...]:
        """The crawls of which files are stored, or a harvest was interrupted before the first file."""
        return tuple(sorted(crawl for crawl in self._states if self.subsets(crawl)))

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns of all stored files and their types, including columns that this version does not know.

        They do not depend on the query, so that each result has the same types.
        """
        from catalogue.tables.table_schema import decode_columns

        state, found = self._tables.state, dict[str, str]()
        for digest in dict.fromkeys(digest for _, crawl in sorted(state.crawls.items()) for digest in crawl.schemas):
            for name, column in decode_columns(state.schemas[digest]).items():
                kind = kind_of(column)
                found[name] = wider(found.get(name, kind), kind)
        return found

    def _state(self, crawl: str) -> CrawlState:
        return self._states.get(crawl) or CrawlState()

    def subsets(self, crawl: str) -> list[str]:
        """Return the subsets of a crawl of which files are stored, or were requested."""
        state = self._state(crawl)
        return sorted({*state.files, *state.failures, *(each for each in state.requested if each in state.listed)})

    def _chosen(self, crawl: str, subsets: Sequence[str]) -> list[str]:
        """Return the subsets that may have files.

        A subset that the manifest of a crawl does not have is complete without files. Without a manifest, each selected
        subset may have files.
        """
        found = {*self.subsets(crawl)}
        if subsets:
            found = (found | (self._state(crawl).listed.keys() or {*subsets})) & {*subsets}
        return sorted(found)

    def has_files(self, crawl: str, subsets: Sequence[str] = ()) -> bool:
        """Return whether files of one of the subsets are stored."""
        return any(not subsets or subset in subsets for subset in self._state(crawl).files)

    def answers(self, crawl: str, subsets: Sequence[str]) -> bool:
        """Return whether files of one of the subsets are stored, or the manifest has none."""
        is_empty = bool(subsets and self._state(crawl).listed) and not self._chosen(crawl, subsets)
        return is_empty or self.has_files(crawl, subsets)

    def row_groups(self, crawl: str, subsets: Sequence[str]) -> int:
        """Return the number of row groups of some subsets."""
        return sum(self._state(crawl).row_groups.get(subset, 0) for subset in self._chosen(crawl, subsets))

    def missing(self, crawl: str, subsets: Sequence[str] = ()) -> tuple[str, ...]:
        """Return a sentence for each subset of which files are missing."""
        return tuple(self._missing(crawl, subsets))

    def _missing(self, crawl: str, subsets: Sequence[str]) -> Iterator[str]:
        state = self._state(crawl)
        for subset in self._chosen(crawl, subsets):
            stored, failed, listed = (each.get(subset, 0) for each in (state.files, state.failures, state.listed))
            total = max(listed, stored + failed)  # the list may have been deleted
            run = f"run: {self._dataset.harvest_command(crawl, [subset])}"
            if not total:
                yield f"{subset} of {crawl} is not harvested; {run}"
            elif stored < total:
                yield f"{total - stored} of the {total} files of {crawl}, {subset}, are not harvested; {run}"

    def files(
        self, crawl: str, subsets: Sequence[str] = (), query: "ResolvedQuery | None" = None
    ) -> "list[FileMetadata]":
        """Return files with row groups that may match, or whose keys and times are unknown, by path.

        Args:
            crawl: its name.
            subsets: of the files.
            query: the query; None for all row groups.
        """
        if (table := self._tables.table(crawl)) is None:
            return []
        intervals: Sequence[KeyInterval] = query.intervals if query else [EVERYTHING]
        may_match = _may_match(query, self._tables.state.times.get(crawl))
        found = (table.files(subset, intervals, may_match) for subset in self._chosen(crawl, subsets))
        return sorted((file for files in found for file in files), key=lambda file: file.path)

    def gaps(self, crawl: str) -> "list[FileMetadata]":
        """Return files with their row groups without bounds, by path."""
        table = self._tables.table(crawl) if self._state(crawl).gaps else None
        found = (table.files(subset, ()) for subset in self.subsets(crawl)) if table else ()
        return sorted((file for files in found for file in files), key=lambda file: file.path)

    def state_of(self, crawl: str, subsets: Sequence[str]) -> str:
        """Return a digest of the stored files of some subsets of a crawl, and of how many it has; "" if it has none."""
        table, known = self._tables.table(crawl), self._state(crawl)
        if table is None or not self.has_files(crawl, subsets):
            return ""
        state = blake2b(digest_size=16)
        for subset, count in sorted(known.listed.items()):
            state.update(f"{subset} {count} ".encode())
        for subset, count in sorted(known.files.items()):
            if not subsets or subset in subsets:
                columns = table.columns(subset, ("path", "version"))
                paths, versions = (column.to_pylist() for column in columns.columns)
                files = {*zip(map(str.encode, paths), versions, strict=True)}
                state.update(f"{subset} {count} {sorted(files)}".encode())
        return state.hexdigest()

    def bounds(self, crawl: str, subset: str) -> "pa.Table | None":
        """Return the bounds of all row groups of a subset; see ``CrawlTable.bounds``."""
        table = self._tables.table(crawl)
        return table.bounds(subset) if table else None

    def bounds_of(self, crawl: str, subset: str) -> tuple[list[tuple[bytes, bytes]], int, int]:
        """Return least and greatest key of each row group of a subset that has bounds.

        Returns:
            The keys, the number of row groups without bounds, and of those with bounds in signed order.
        """
        if (bounds := self.bounds(crawl, subset)) is None:
            return [], 0, 0
        origins = bounds.column("bounds_from").to_pylist() if "bounds_from" in bounds.column_names else []
        known = [(least, greatest) for least, greatest, _ in _known(bounds)]
        return known, bounds.num_rows - len(known), origins.count(SIGNED)

    def extents(self, crawl: str) -> dict[str, list[tuple[bytes, bytes, int]]]:
        """Return least key, greatest key and number of rows of each stored row group that has bounds, by subset."""
        found = {subset: self.bounds(crawl, subset) for subset in self._state(crawl).files}
        groups = {subset: sorted(_known(bounds)) for subset, bounds in found.items() if bounds}
        return {subset: each for subset, each in groups.items() if each}


def _known(bounds: "pa.Table") -> Iterator[tuple[bytes, bytes, int]]:
    """Yield least key, greatest key and number of rows of the row groups that have bounds."""
    columns = (bounds.column(name).to_pylist() for name in ("min_key", "max_key", "num_rows"))
    for least, greatest, rows in zip(*columns, strict=True):
        if least is not None:
            yield least.encode(), greatest.encode(), rows


def _may_match(query: "ResolvedQuery | None", times: Sequence[int] | None) -> Callable[[dict[str, Any]], bool]:
    """Return whether a row group may match the times of a query, by its footer or the list of crawls."""
    if query is None or (query.from_ms is None and query.to_ms is None):
        return bool
    earliest, latest = query.from_ms, query.to_ms

    def may_match(values: dict[str, Any]) -> bool:
        first, last = values["first_fetch"], values["last_fetch"]
        if first is None or last is None:
            if times is None or times[0] > times[1]:
                return True
            first, last = times[0] - MARGIN, times[1] + MARGIN
        return (earliest is None or last >= earliest) and (latest is None or first < latest)

    return may_match
