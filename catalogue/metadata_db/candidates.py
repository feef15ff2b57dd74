"""Find the files and row groups that a query may have to read."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from catalogue.commoncrawl.datasets import Dataset
from catalogue.parquet.column_types import wider
from catalogue.parquet.model import Footer
from catalogue.store.stored_file import StoredFile
from catalogue.tables.open_tables import Tables

if TYPE_CHECKING:
    from catalogue.query.key_intervals import KeyIntervals
    from catalogue.query.resolved_query import ResolvedQuery
    from catalogue.tables.stored_rows import Place, StoredRows

MARGIN = 31 * 24 * 60 * 60 * 1000
"""Milliseconds by which a crawl may have been fetched before or after the times in the list of crawls."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file, and its row groups that may match."""

    path: str
    version: StoredFile
    """The stored file, without the footer's bytes."""
    row_groups: tuple[int, ...]
    """Ordinals, ascending."""
    decode: Callable[[Collection[int]], Footer] = field(compare=False, repr=False)
    """Returns the footer with some of these row groups."""
    least: str = ""
    """A lower bound of the keys in the file, from its footer."""
    num_rows: tuple[int, ...] = ()
    """Of each row group; empty where they are not needed."""
    columns: tuple[str, ...] = ()
    """Names of the columns of the file; empty where they are not needed."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """Numbers of stored files and row groups, listed files, and failures, by crawl and subset."""

    files: Mapping[tuple[str, str], int]
    row_groups: Mapping[tuple[str, str], int]
    listed: Mapping[tuple[str, str], int]
    failures: Mapping[tuple[str, str], int]
    requested: frozenset[tuple[str, str]]
    """Pairs that a harvest requested, or that failed."""


class _Missing(NamedTuple):
    """A subset of which not all files are stored."""

    crawl: str
    subset: str
    files: int
    """Number of files that are not stored."""
    total: int
    """Number of files; 0 if it is not known."""


class Candidates:
    """The files of some crawls and subsets that a query may have to read."""

    def __init__(
        self,
        tables: Tables,
        counts: _Counts,
        crawls: Sequence[str],
        subsets: Sequence[str],
        table: Dataset,
    ) -> None:
        """Select crawls and subsets; no subsets mean those that were harvested.

        A subset that the manifest of a crawl does not have is complete without files. Without a manifest, each selected
        subset may have files.
        """
        self._tables = tables
        self._table = table
        self._counts = counts
        harvested = counts.files.keys() | counts.requested
        listed = {crawl for crawl, _ in counts.listed}
        every = harvested | (counts.listed.keys() if subsets else set())
        every |= {(crawl, subset) for crawl in crawls if crawl not in listed for subset in subsets}
        self._pairs = sorted(
            (crawl, subset) for crawl, subset in every if crawl in crawls and (not subsets or subset in subsets)
        )
        stored = {crawl for crawl, subset in self._pairs if (crawl, subset) in counts.files}
        without = listed.difference(crawl for crawl, _ in self._pairs)
        self.crawls = tuple(crawl for crawl in crawls if crawl in stored or (subsets and crawl in without))
        """The crawls with stored files, or without files in their manifests, in their order."""

    def files(self, crawl: str, query: "ResolvedQuery") -> list[Candidate]:
        """Return files of a crawl with row groups that may match, or whose keys and times are unknown, by path."""
        pairs = (pair for pair in self._pairs if pair[0] == crawl)
        found = (each for pair in pairs for each in _candidates(self._tables, pair, query.intervals, query))
        return sorted(found, key=lambda each: each.path)

    def row_groups(self, crawl: str) -> int:
        """Return the number of row groups of a crawl."""
        return sum(self._counts.row_groups.get(pair, 0) for pair in self._pairs if pair[0] == crawl)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return a sentence for each subset of which files are missing."""
        return tuple(map(self._sentence, self._missing()))

    def missing_of(self, crawl: str) -> tuple[str, ...]:
        """Return the sentences about a crawl."""
        return tuple(self._sentence(each) for each in self._missing() if each.crawl == crawl)

    def _sentence(self, missing: _Missing) -> str:
        run = f"run: {self._table.harvest_command(missing.crawl, [missing.subset])}"
        if not missing.total:
            return f"{missing.subset} of {missing.crawl} is not harvested; {run}"
        files = f"{missing.files} of the {missing.total} files of {missing.crawl}, {missing.subset}"
        return f"{files}, are not harvested; {run}"

    def _missing(self) -> Iterator[_Missing]:
        for crawl, subset in self._pairs:
            counts = (self._counts.files, self._counts.failures, self._counts.listed)
            stored, failed, listed = (each.get((crawl, subset), 0) for each in counts)
            total = max(listed, stored + failed)  # the list may have been deleted
            if stored < total or not total:
                yield _Missing(crawl, subset, total - stored, total)


def _candidates(
    tables: Tables, pair: tuple[str, str], intervals: "KeyIntervals", query: "ResolvedQuery | None" = None
) -> Iterator[Candidate]:
    """Yield the files of a crawl and subset with row groups that may match intervals, and the times of a query."""
    rows = tables.rows(pair[0])
    if rows is None:
        return
    times = tables.crawl_times(pair[0])
    files: dict[str, dict[int, Place]] = {}
    for place in rows.matching(pair[1], intervals):
        if query is None or _may_be_fetched_in(query, place.values, times):
            files.setdefault(place.values["path"], {})[place.values["row_group"]] = place
    for groups in files.values():
        yield _candidate(rows, dict(sorted(groups.items())))


def _candidate(rows: "StoredRows", groups: "Mapping[int, Place]") -> Candidate:
    first = next(iter(groups.values()))
    of = first.values
    return Candidate(
        path=of["path"],
        version=StoredFile(b"", of["file_size"], of["etag"], of["last_modified"], of["source"], of["taken"]),
        row_groups=tuple(groups),
        decode=lambda ordinals: rows.footer([groups[ordinal] for ordinal in ordinals], first),
        least=of["file_min_key"],
        num_rows=tuple(group.values["num_rows"] for group in groups.values()),
        columns=rows.column_names(first),
    )


def _may_be_fetched_in(query: "ResolvedQuery", values: Mapping[str, Any], crawl_times: tuple[int, int] | None) -> bool:
    """Return whether a row group may match the times of a query, by its footer or the list of crawls."""
    first, last = values["first_fetch"], values["last_fetch"]
    if first is None or last is None:
        if crawl_times is None or crawl_times[0] > crawl_times[1]:
            return True
        first, last = crawl_times[0] - MARGIN, crawl_times[1] + MARGIN
    return (query.from_ms is None or last >= query.from_ms) and (query.to_ms is None or first < query.to_ms)


class MetadataSnapshot:
    """The metadata in one state of the store, for planning."""

    def __init__(self, tables: Tables, table: Dataset) -> None:
        """Use open tables."""
        self.state = tables.state.store
        self.crawl_rows: list[dict[str, Any]] | None = None
        """The rows of the view ``crawls``, if they were read."""
        self._tables = tables
        self._table = table
        self._last: tuple[object, Candidates | None] = (None, None)

    @cached_property
    def crawls(self) -> tuple[str, ...]:
        """The crawls with stored files."""
        return tuple(sorted({crawl for crawl, _ in self._counts.files}))

    @cached_property
    def requested_crawls(self) -> tuple[str, ...]:
        """The crawls of which files are stored, or a harvest was interrupted before the first file."""
        return tuple(sorted({crawl for crawl, _ in self._counts.files.keys() | self._counts.requested}))

    @cached_property
    def _counts(self) -> _Counts:
        files, row_groups, listed, failures = map(self._tables.counts, ("files", "row_groups", "listed", "failures"))
        return _Counts(files, row_groups, listed, failures, frozenset(failures.keys() | self._tables.requested))

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns of all stored files and their types, including columns that this version does not know.

        They do not depend on the query, so that each result has the same types.
        """
        found: dict[str, str] = {}
        for kinds in self._tables.columns:
            for name, kind in kinds.items():
                found[name] = wider(found.get(name, kind), kind)
        return found

    def subsets(self, crawl: str) -> list[str]:
        """Return the subsets of a crawl of which files are stored, or were requested."""
        return sorted(subset for each, subset in self._counts.files.keys() | self._counts.requested if each == crawl)

    def has_files(self, crawls: Sequence[str], subsets: Sequence[str]) -> bool:
        """Return whether files of one of the crawls and subsets are stored; no subsets mean any."""
        return any(crawl in crawls and (not subsets or subset in subsets) for crawl, subset in self._counts.files)

    def state_of(self, crawl: str, subsets: Sequence[str]) -> str:
        """Return a digest of the stored files of some subsets of a crawl, and of how many it has; "" if it has none."""
        if not self.has_files([crawl], subsets):
            return ""
        state = blake2b(digest_size=16)
        for pair, count in sorted(self._counts.listed.items()):
            if pair[0] == crawl:
                state.update(f"{pair[1]} {count} ".encode())
        for pair, count in sorted(self._counts.files.items()):
            if pair[0] == crawl and (not subsets or pair[1] in subsets):
                paths, versions = self._tables.values(pair, ("path", "version"))
                files = {*zip(map(str.encode, paths), versions, strict=True)}
                state.update(f"{pair[1]} {count} {sorted(files)}".encode())
        return state.hexdigest()

    def bounds_of(self, crawl: str, subset: str) -> tuple[list[tuple[bytes, bytes]], int, int]:
        """Return least and greatest key of each row group of a subset that has bounds.

        Returns:
            The keys, the number of row groups without bounds, and of those with bounds in signed order.
        """
        bounds = [*self._tables.bounds((crawl, subset))]
        known = [keys for keys, _, _ in bounds if keys]
        return known, len(bounds) - len(known), sum(signed for *_, signed in bounds)

    def extents(self, crawl: str) -> dict[str, list[tuple[bytes, bytes, int]]]:
        """Return least key, greatest key and number of rows of each stored row group that has bounds, by subset."""
        found = {}
        for pair in self._counts.files:
            if pair[0] == crawl:
                found[pair[1]] = sorted((*keys, rows) for keys, rows, _ in self._tables.bounds(pair) if keys)
        return {subset: groups for subset, groups in found.items() if groups}

    def files(self, crawl: str) -> dict[str, Candidate]:
        """Return all files of a crawl that have row groups, by path."""
        from catalogue.query.key_intervals import ALL_KEYS  # noqa: PLC0415 - it imports pyarrow

        pairs = [pair for pair in self._counts.files if pair[0] == crawl]
        return {each.path: each for pair in pairs for each in _candidates(self._tables, pair, ALL_KEYS)}

    def candidates(self, crawls: Sequence[str], subsets: Sequence[str]) -> Candidates:
        """See ``Candidates``; the last ones are cached."""
        parameters, known = (tuple(crawls), tuple(subsets)), self._last
        candidates = known[1] if known[0] == parameters else None
        if candidates is None:
            candidates = Candidates(self._tables, self._counts, crawls, subsets, self._table)
            self._last = (parameters, candidates)
        return candidates
