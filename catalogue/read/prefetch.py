"""Make the requests of a plan ahead of decoding."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, starmap
from operator import attrgetter
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from catalogue.commoncrawl.crawls import COLUMNAR
from catalogue.errors import UNUSABLE, FileChanged, NotFound
from catalogue.parquet.arrow_arrays import positions, texts
from catalogue.parquet.page_headers import PageHeader, check_pages
from catalogue.parquet.page_index import OffsetIndex
from catalogue.plan.crawl_plan import ColumnRead, PlannedFile, PlannedRowGroup, requests_of
from catalogue.plan.plan import ReadPlan
from catalogue.plan.requests import Part, PlannedRequest
from catalogue.read.streams import ReadEvents
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.cache import drop_cached
from catalogue.source.checks import Response, Source, requests_for
from catalogue.source.parallel import run_ahead

IN_FLIGHT = 256 << 20
"""Maximum bytes requested or waiting to be decoded; a larger request goes alone."""


def in_flight(plan: ReadPlan) -> int:
    """Return the maximum bytes in flight of each index of a plan."""
    return IN_FLIGHT // 2 if plan.files and plan.blocks else IN_FLIGHT


@dataclass(slots=True)
class LoadedRowGroup:
    """A row group and its bytes."""

    file: PlannedFile
    read: PlannedRowGroup
    pieces: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """Bytes by column and offset in the file."""
    headers: dict[str, dict[int, PageHeader]] = field(default_factory=dict)
    """Headers of checked pages, by column and number of the page."""
    size: int = 0
    """Bytes in memory."""

    def take(self, part: Part, fetch: PlannedRequest, body: bytes) -> None:
        start = part.range.start - fetch.range.start
        piece = body if len(part.range) == len(body) else body[start : start + len(part.range)]
        self.pieces.setdefault(part.column, {})[part.range.start] = piece
        self.size += len(piece)

    def cut(self, column: str, range_: ByteRange) -> bytes:
        pieces = self.pieces[column]
        whole = pieces.get(range_.start)
        if whole is not None and len(whole) == len(range_):
            return whole
        ends = sorted((start, start + len(piece)) for start, piece in pieces.items())
        inside = [start for start, end in ends if start < range_.end and end > range_.start]
        return b"".join(pieces[start][max(0, range_.start - start) : range_.end - start] for start in inside)

    def narrowed(self, rows: np.ndarray) -> "LoadedRowGroup":
        """Keep the pages that contain rows, given as ascending numbers."""
        columns = tuple(
            replace(read, pages=_pages_of(read, read.index, rows)) if read.index else read for read in self.read.columns
        )
        around = (range(int(rows[0]), int(rows[-1]) + 1),) if len(rows) else ()
        return replace(self, read=replace(self.read, rows=around, columns=columns))

    def check(self, *, later: bool) -> None:
        """Check the fetched pages of a wave against their indexes.

        Raises:
            BadPageIndex: if they differ.
        """
        for read in self.read.columns:
            if read.index is None or read.later != later:
                continue
            headers = self.headers.setdefault(read.chunk.column.name, {})
            for run in read.pages:
                data = self.cut(read.chunk.column.name, read.index.extent(run))
                found = check_pages(data, read.index, run, dictionary=read.dictionary is not None)
                headers.update(zip(run, found, strict=True))

    @property
    def where(self) -> str:
        return f"{self.file.file.path}, row group {self.read.ordinal}"


def _bytes_of(fetch: PlannedRequest) -> int:
    return len(fetch.range)


def _pages_of(read: ColumnRead, index: OffsetIndex, rows: np.ndarray) -> tuple[range, ...]:
    pages = np.flatnonzero(np.diff(np.searchsorted(rows, index.first_rows))).tolist()
    runs = (index.rows(range(page, page + 1)) for page in pages)
    return index.covering(runs, ends=read.later and read.with_ends)


Requested: TypeAlias = tuple[LoadedRowGroup, PlannedRequest, Future[Response]]
"""A request for columns of a row group."""


class Prefetcher:
    """Makes the requests of one plan."""

    def __init__(self, plan: ReadPlan, source: Source, executor: Executor, events: ReadEvents) -> None:
        self._plan = plan
        self._events = events
        self._source = source
        self._executor = executor
        self._files: dict[str, PlannedFile] = {}

    def groups(self) -> Generator[LoadedRowGroup, None, None]:
        """Yield the row groups in the order of the plan, with the bytes of the first wave.

        Raises:
            AssertionError: if the plan's requests are not those of its row groups.
        """
        # A row group that was yielded is not kept here, so that its bytes can be freed.
        left: dict[tuple[str, int], LoadedRowGroup] = {}
        sizes: dict[tuple[str, int], int] = {}
        for file in self._plan.files:
            self._files[file.file.path] = file
            for group in file.row_groups:
                key = file.file.path, group.ordinal
                left[key] = LoadedRowGroup(file, group)
                sizes[key] = 0
                for read in group.columns:
                    for part in () if read.later else read.parts(group.ordinal):
                        sizes[key] += len(part.range)
        first = (fetch for each in self._plan.crawls if each.files and each.waves for fetch in each.waves[0])
        for fetch, body in self.bodies(first):
            for part in fetch.parts:
                left[fetch.path, part.row_group].take(part, fetch, body)
            # Later ones may be complete earlier, from the cache.
            while left and left[key := next(iter(left))].size == sizes[key]:
                yield left.pop(key)
        if left:  # its rows would be missing
            raise AssertionError(f"{next(iter(left.values())).where} was planned but not fetched whole")

    def bodies(self, requests: Iterable[PlannedRequest]) -> Iterator[tuple[PlannedRequest, bytes]]:
        """Make requests ahead of decoding; with a limit, one of them."""

        # Cached ranges are read in turn, which takes less time than by threads, and less memory.
        def submit(get: Callable[[PlannedRequest], Response], fetch: PlannedRequest) -> Future[Response]:
            return Future() if fetch.cached else self._executor.submit(get, fetch)

        limit, weight = (2, None) if self._plan.query.stops_early else (in_flight(self._plan), _bytes_of)
        with closing(run_ahead(submit, self._get, requests, limit=limit, weight=weight)) as calls:
            for fetch, call in calls:
                yield fetch, (self._get(fetch) if fetch.cached else call.result()).body

    def drop_cached(self, group: LoadedRowGroup) -> bool:
        """Delete what is cached of a row group; return whether the source has a cache."""
        damaged = (read.chunk.range for read in group.read.columns)
        return drop_cached(self._source, group.file.file.path, group.file.pin, damaged)

    def request(self, group: LoadedRowGroup, columns: Iterable[ColumnRead]) -> list[Requested]:
        path, cached = group.file.file.path, group.file.cached
        requests = requests_of(path, group.read.ordinal, columns, self._plan.cost, cached)
        return [(group, fetch, self._executor.submit(self._get, fetch)) for fetch in requests]

    def _get(self, fetch: PlannedRequest) -> Response:
        try:
            with requests_for(fetch.reason):
                return self._source.get(fetch.path, fetch.range, pin=self._files[fetch.path].pin)
        except UNUSABLE as error:
            file = self._files[fetch.path].file
            message = f"{error}; run: {self._plan.query.table.refresh_command(file)}"
            named = type(error)(message) if isinstance(error, FileChanged | NotFound) else error
            self._events.note_failure(file.crawl, COLUMNAR, named)
            raise named from error


MOST_ROW_GROUPS = 64
"""Bundles grow from one row group, at most twofold, so that the first rows come early."""
MOST_ROWS = 1 << 16
"""Rows of a bundle that may match; a larger row group is a separate bundle."""
MOST_BYTES = 2 << 20
"""Uncompressed bytes of these rows."""


@dataclass(eq=False, slots=True)
class Bundle:
    """Row groups of a crawl with the same columns and writer, and consecutive numbers of rows."""

    groups: Sequence[LoadedRowGroup]
    decided: pa.Table | None = None
    """Columns of the first wave of the chosen rows; None if all rows are read at once."""
    rows: np.ndarray = field(default_factory=partial(np.arange, 0))
    """Numbers of the chosen rows."""
    later: Sequence[Requested] = ()
    """Requests for other columns, or for a second reading."""
    is_read_again: bool = False
    """A row group could not be decoded before."""
    is_fresh: bool = False
    """Its bytes are certainly not from the cache."""
    starts: np.ndarray = field(init=False)
    """First rows of row groups, and the number of rows."""

    def __post_init__(self) -> None:
        self.starts = np.cumsum([0, *map(attrgetter("read.num_rows"), self.groups)])

    @property
    def crawl(self) -> str:
        return self.groups[0].file.file.crawl

    @property
    def columns(self) -> list[tuple[ColumnRead, ...]]:
        """The reads of each column, by row group; the key first."""
        return list(zip(*(group.read.columns for group in self.groups), strict=True))

    @property
    def candidates(self) -> np.ndarray:
        """The ascending numbers of the rows that may match."""
        runs = self.runs(group.read.rows for group in self.groups)
        return first_rows(runs, sum(map(len, runs)))

    @property
    def size(self) -> int:
        """Bytes in memory or requested."""
        size: int = self.rows.nbytes + (self.decided.nbytes if self.decided is not None else 0)
        for group in self.groups:
            size += group.size
        for _, fetch, _ in self.later:
            size += len(fetch.range)
        return size

    @property
    def is_awaited(self) -> bool:
        return not all(future.done() for _, _, future in self.later)

    def complete(self) -> None:
        """Wait for the requested bytes."""
        try:
            for group, fetch, future in self.later:
                for part in fetch.parts:
                    group.take(part, fetch, future.result().body)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        for _, _, future in self.later:
            future.cancel()

    def split(self) -> "Iterator[Bundle]":
        """Yield the row groups, whose bytes have all arrived, one by one."""
        assert self.decided is not None  # noqa: S101 - several row groups are chosen from
        for n, part in enumerate(self.parts(self.rows)):
            rows = self.rows[part] - self.starts[n]
            yield Bundle([self.groups[n]], self.decided.slice(part.start, len(rows)), rows)

    @property
    def where(self) -> str:
        more = len(self.groups) - 1
        return f"{self.groups[0].where} and {more} more" if more else self.groups[0].where

    def runs(self, of_groups: Iterable[Iterable[range]]) -> deque[range]:
        """Return runs of rows, given by row group, with the numbers of the bundle."""
        starts = self.starts.tolist()
        every = zip(starts, of_groups, strict=False)
        return deque(range(start + run.start, start + run.stop) for start, runs in every for run in runs)

    def parts(self, rows: np.ndarray) -> list[slice]:
        """Divide ascending numbers of rows by row group."""
        return [*starmap(slice, pairwise(np.searchsorted(rows, self.starts).tolist()))]

    def path_column(self, name: str, rows: np.ndarray | range) -> pa.StringArray:
        is_field = name in {"crawl", "subset"}
        files = map(attrgetter("file.file"), self.groups)
        values = texts([getattr(each, name) if is_field else each.folder_value(name) for each in files])
        if len(self.groups) == 1:
            return pa.repeat(values[0], len(rows))
        return values.take(positions(np.searchsorted(self.starts, rows, side="right") - 1))


def first_rows(runs: deque[range], count: int) -> np.ndarray:
    """Remove the first rows from ascending runs, and return their numbers."""
    found = []
    while count > 0:
        run = runs.popleft()
        if len(run) > count:
            runs.appendleft(run[count:])
        found.append(np.arange(run.start, min(run.stop, run.start + count)))
        count -= len(run)
    return found[0] if len(found) == 1 else np.concatenate([np.arange(0), *found])


def bundle_sizes(plan: ReadPlan) -> Iterator[int]:
    """Yield the number of row groups of each bundle, in the order of the plan."""
    most = 1
    count = rows = 0
    size = 0.0
    shape: tuple[object, ...] = ()
    for file in plan.files:
        # Rows of a subset are returned before those of the next.
        section = file.file.crawl, file.file.subset if plan.query.is_inorder else None
        for group in file.row_groups:
            columns: list[tuple[object, ...]] = []
            row_size = 0.0
            for read in group.columns:
                chunk, column = read.chunk, read.chunk.column
                columns.append((column.name, column.element, read.later))
                row_size += chunk.total_uncompressed_size / max(1, chunk.num_values)
            its_shape = section, file.created_by, columns
            its_rows = sum(map(len, group.rows))
            its_size = its_rows * row_size
            full = count >= most or rows + its_rows > MOST_ROWS or size + its_size > MOST_BYTES
            if count and (full or plan.query.stops_early or its_shape != shape):
                yield count
                most = min(2 * most, MOST_ROW_GROUPS)
                count = rows = 0
                size = 0.0
            shape, count, rows, size = its_shape, count + 1, rows + its_rows, size + its_size
    if count:
        yield count
