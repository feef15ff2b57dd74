"""Find the files and row groups that a query may have to read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from catalogue.commoncrawl.datasets import Dataset
from catalogue.metadata_db.bounds_file import BoundsFile, RowGroupPlace
from catalogue.parquet.column_types import wider

if TYPE_CHECKING:
    from catalogue.query.resolved_query import ResolvedQuery

MARGIN = 31 * 24 * 60 * 60 * 1000
"""Milliseconds by which a crawl may have been fetched before or after the times in the list of crawls."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file, and its row groups that may match."""

    path: str
    version: bytes
    """Digest of the file's value in the store."""
    footer_rest: int | None
    """See ``Footer.rest``."""
    row_groups: tuple[tuple[int, int], ...]
    """Ordinal of each row group, ascending, and its offset in the footer."""
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
        bounds: BoundsFile,
        counts: _Counts,
        crawls: Sequence[str],
        subsets: Sequence[str],
        table: Dataset,
    ) -> None:
        """Select crawls and subsets; no subsets mean those that were harvested.

        A subset that the manifest of a crawl does not have is complete without files. Without a manifest, each selected
        subset may have files.
        """
        self._bounds = bounds
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

    def files(self, query: "ResolvedQuery") -> list[Candidate]:
        """Return files with row groups that may match, or whose keys and times are unknown, by path."""
        columns = [tuple(names) for names, _ in self._bounds.columns]
        files: dict[str, dict[int, RowGroupPlace]] = {}
        for pair in self._pairs:
            if part := self._bounds.part(pair):
                times = self._bounds.crawl_times(pair[0])
                for place in part.places(part.matching(query.intervals)):
                    if _may_be_fetched_in(query, place, times):
                        files.setdefault(place.path, {})[place.row_group] = place
        return [_candidate([group for _, group in sorted(files[path].items())], columns) for path in sorted(files)]

    @property
    def row_groups(self) -> int:
        """Return the number of row groups."""
        return sum(self._counts.row_groups.get(pair, 0) for pair in self._pairs)

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


def _candidate(groups: Sequence[RowGroupPlace], columns: Sequence[tuple[str, ...]]) -> Candidate:
    first = groups[0]
    return Candidate(
        first.path,
        first.version,
        first.footer_rest,
        tuple((group.row_group, group.footer_offset) for group in groups),
        first.file_least,
        tuple(group.num_rows for group in groups),
        columns[first.columns],
    )


def _may_be_fetched_in(query: "ResolvedQuery", place: RowGroupPlace, crawl_times: tuple[int, int] | None) -> bool:
    """Return whether a row group may match the times of a query, by its footer or the list of crawls."""
    first, last = place.first_fetch, place.last_fetch
    if first is None or last is None:
        if crawl_times is None or crawl_times[0] > crawl_times[1]:
            return True
        first, last = crawl_times[0] - MARGIN, crawl_times[1] + MARGIN
    return (query.from_ms is None or last >= query.from_ms) and (query.to_ms is None or first < query.to_ms)


class MetadataSnapshot:
    """The metadata in one state of the store, for planning."""

    def __init__(self, bounds: BoundsFile, state: str, table: Dataset) -> None:
        """Use the bounds of a database in this state."""
        self.state = state
        self.crawl_rows: list[dict[str, Any]] | None = None
        """The rows of the view ``crawls``, if they were read."""
        self._bounds = bounds
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
        failures = self._bounds.counts("failures")
        return _Counts(
            self._bounds.counts("files"),
            self._bounds.counts("row_groups"),
            self._bounds.counts("listed"),
            failures,
            frozenset(failures | self._bounds.counts("requested")),
        )

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns of all stored files and their types, including columns that this version does not know.

        They do not depend on the query, so that each result has the same types.
        """
        found: dict[str, str] = {}
        for names, kinds in self._bounds.columns:
            for name, kind in zip(names, kinds, strict=True):
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
                part = self._bounds.part(pair)
                state.update(f"{pair[1]} {count} {sorted(part.versions) if part else []}".encode())
        return state.hexdigest()

    def bounds_of(self, crawl: str, subset: str) -> tuple[list[tuple[bytes, bytes]], int, int]:
        """Return least and greatest key of each row group of a subset that has bounds.

        Returns:
            The keys, the number of row groups without bounds, and of those with bounds in signed order.
        """
        part = self._bounds.part((crawl, subset))
        return (part.hulls(), part.unbounded, len(part.signed)) if part else ([], 0, 0)

    def extents(self, crawl: str) -> dict[str, list[tuple[bytes, bytes, int]]]:
        """Return least key, greatest key and number of rows of each stored row group that has bounds, by subset."""
        parts = {pair[1]: self._bounds.part(pair) for pair in self._counts.files if pair[0] == crawl}
        found = {subset: [*part.extents()] for subset, part in parts.items() if part}
        return {subset: groups for subset, groups in found.items() if groups}

    def candidates(self, crawls: Sequence[str], subsets: Sequence[str]) -> Candidates:
        """See ``Candidates``; the last ones are cached."""
        parameters, known = (tuple(crawls), tuple(subsets)), self._last
        candidates = known[1] if known[0] == parameters else None
        if candidates is None:
            candidates = Candidates(self._bounds, self._counts, crawls, subsets, self._table)
            self._last = (parameters, candidates)
        return candidates
