"""Run a plan: read its requests, decode, and apply the residual filter."""

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from catalogue.commoncrawl.datasets import Dataset
from catalogue.commoncrawl.manifests import IndexFile
from catalogue.errors import BadPageIndex, UnplannedRead
from catalogue.parquet.arrow_arrays import fractions, positions
from catalogue.parquet.page_headers import check_pages, walk
from catalogue.parquet.stored_indexes import Indexes
from catalogue.plan.plan import ColumnRead, ReadPlan
from catalogue.plan.planner import plan_second_wave
from catalogue.plan.requests import PlannedRequest, plan_requests
from catalogue.query.random_order import DrawnRows
from catalogue.query.resolved_query import DRAWN_ORDER, ResolvedQuery
from catalogue.read.decode import BATCH_ROWS, Numbered, aligned, decode, requested
from catalogue.read.learn import Observed, own_indexes, within
from catalogue.read.prefetch import IN_FLIGHT, LoadedRowGroup, Prefetcher
from catalogue.read.residual import Residual
from catalogue.source.checks import Response, Source

if TYPE_CHECKING:
    import duckdb

_MOST_DECIDED = 1 << 30
"""Maximum decoded bytes of a row group that wait for other columns; repeated values are small in a file."""


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Callbacks for what reading finds."""

    learn: Callable[[IndexFile, int, Indexes], None] = lambda _file, _ordinal, _indexes: None
    """Called with the page index that reading a row group taught."""
    would_learn: Callable[[IndexFile, int, Collection[str]], bool] = lambda _file, _ordinal, _columns: True
    """Returns whether reading these columns of a row group teaches something."""
    notify: Callable[[str], None] = lambda _: None
    """Called with a sentence about an invalid index."""
    uncount: Callable[[str, int], None] = lambda _crawl, _rows: None
    """Called with the rows of a crawl that the plan counted by an invalid index; they are read instead."""
    done: Callable[[], None] = lambda: None
    """Called after each row group."""


def read(
    plan: ReadPlan, source: Source, executor: Executor, events: ReadEvents | None = None
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of a plan in batches, with its schema, in the order of the plan.

    Where pages differ from their index, the row group is read whole.

    Args:
        plan: the plan; its page indexes have been fetched.
        source: the source.
        executor: threads that make requests while rows are decoded.
        events: callbacks.

    Raises:
        SourceError: if a request fails; rows that were returned before are valid.
        QueryError: if ``where`` fails on a row.
    """
    if plan.indexes:
        message = "the page indexes of the plan must be fetched first"
        raise UnplannedRead(message)
    left = plan.query.limit
    if left == 0:
        return
    with ExitStack() as stack:
        connection = None
        if plan.query.where:
            from catalogue.query.where import connect

            connection = stack.enter_context(connect())
        reading = _Reading(plan, Prefetcher(plan, source, executor), connection, events or ReadEvents())
        tables = reading.tables()
        stack.callback(tables.close)
        for rows in _ordered(plan, tables):
            limited = rows if left is None else rows.slice(0, left)
            if limited.num_rows:
                yield from limited.select(plan.schema.names).combine_chunks().to_batches(BATCH_ROWS)
            if left is not None:
                left -= limited.num_rows
                if left <= 0:
                    return


def _ordered(plan: ReadPlan, tables: Iterable[pa.Table]) -> Iterable[pa.Table]:
    if not plan.query.ordered:
        return tables
    return in_order(plan.query.table, plan.row_schema, tables)


def in_order(table: Dataset, schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows sorted by key, time and crawl; all of them are in memory."""
    # Columns of more than 2 GiB of text need a type with 64-bit offsets.
    roomy = pa.schema([f.with_type(pa.large_string()) if f.type == pa.string() else f for f in schema])
    everything = pa.concat_tables([pa.Table.from_batches([], roomy), *(each.cast(roomy) for each in tables)])
    order = [name for name in (table.key, table.time, "crawl") if name in roomy.names]
    inorder = everything.sort_by([(name, "ascending") for name in order])
    for start in range(0, inorder.num_rows, BATCH_ROWS):
        yield inorder.slice(start, BATCH_ROWS).cast(schema)


@dataclass(slots=True)
class _Waiting:
    """A row group whose rows are chosen; bytes of other columns may still be requested."""

    group: LoadedRowGroup
    rows: np.ndarray
    decided: pa.Table
    """Columns of the first wave."""
    later: tuple[tuple[PlannedRequest, Future[Response]], ...]
    seen: Observed | None

    @property
    def size(self) -> int:
        """Bytes in memory or requested."""
        size: int = self.group.size + self.decided.nbytes + self.rows.nbytes
        return size + sum(len(fetch.range) for fetch, _ in self.later)

    @property
    def awaited(self) -> bool:
        return not all(future.done() for _, future in self.later)


class _Reading:
    def __init__(
        self, plan: ReadPlan, arrivals: Prefetcher, connection: "duckdb.DuckDBPyConnection | None", events: ReadEvents
    ) -> None:
        self._plan = plan
        self._arrivals = arrivals
        self._events = events
        self._residuals = {untyped: Residual(plan.query.of(untyped=untyped), connection) for untyped in (False, True)}
        self._key, self._path_columns = plan.query.table.key, plan.query.table.path_columns

    def tables(self) -> Generator[pa.Table, None, None]:
        waiting: deque[_Waiting | LoadedRowGroup] = deque()
        size = 0
        try:
            for group in self._arrivals.groups():
                if group.read.whole:
                    names = [read.chunk.column.name for read in group.read.columns]
                    group.teaches = self._events.would_learn(group.file.file, group.read.ordinal, names)
                each = self._choose(group)
                waiting.append(each)
                size += each.size
                # While a row group waits for bytes, start the next ones, unless a limit may end the read early.
                while waiting and (size > IN_FLIGHT or self._plan.stops_early or not _is_awaited(waiting[0])):
                    size -= waiting[0].size
                    yield from self._rows(waiting.popleft())
            while waiting:
                yield from self._rows(waiting.popleft())
        finally:
            for left in waiting:
                if isinstance(left, _Waiting):
                    for _, future in left.later:
                        future.cancel()

    def _choose(self, group: LoadedRowGroup) -> _Waiting | LoadedRowGroup:
        """Choose the rows to decode and request their other columns; return a group unchanged if it is read whole."""
        if group.read.key_index is None and not group.read.later:
            return group
        try:
            for read in group.read.columns:
                if not read.later:
                    _check(group, read)
            return self._decide(group)
        except BadPageIndex as error:
            return self._whole(group, error)

    def _query(self, group: LoadedRowGroup) -> ResolvedQuery:
        return self._plan.query.of(untyped=group.read.untyped)

    def _residual(self, group: LoadedRowGroup) -> Residual:
        return self._residuals[group.read.untyped]

    def _decide(self, group: LoadedRowGroup) -> _Waiting:
        query, residual = self._query(group), self._residual(group)
        first = [r for r in group.read.columns if not r.later and r.chunk.column.name in query.deciding_columns]
        candidates = np.concatenate([np.arange(run.start, run.stop) for run in group.read.rows])
        columns = {}
        seen: Observed | None = None
        for read in first:
            data = group.data(read)
            numbered = self._decoded(group, read, data)
            if read.chunk.column.name == self._key:
                seen = _observer(group, read, data)
                numbered = seen.see(numbered) if seen else within(numbered, read.chunk, group.where)
            columns[read.chunk.column.name] = requested(numbered, candidates)
        names = [name for name in self._plan.row_schema.names if name in columns or name in self._path_columns]
        schema = pa.schema([self._plan.row_schema.field(name) for name in names])
        numbers, tables, start, size = [], [pa.Table.from_batches([], schema)], 0, 0
        for table in aligned(columns, len(candidates), schema, group, self._path_columns):
            matching, where = residual.keep(table, group.read.intervals)
            numbers.append(candidates[start + where])
            tables.append(matching)
            start += table.num_rows
            size += matching.nbytes
            if size > _MOST_DECIDED:
                message = f"what decides about its rows takes more than {_MOST_DECIDED:,} bytes"
                raise BadPageIndex(message)
        rows = np.concatenate([np.arange(0), *numbers])
        decided = pa.concat_tables(tables)
        if group.read.drawn:
            decided = decided.append_column(*_order_column(group.read.drawn, rows))
        if seen:
            seen.check()
        later = [_narrow(read, rows) for read in group.read.columns if read.later] if len(rows) else []
        requests = plan_second_wave(group.file, group.read.ordinal, later, self._plan.cost)
        under_way = tuple((fetch, self._arrivals.submit(fetch)) for fetch in requests)
        by_name = {read.chunk.column.name: read for read in later}
        known = tuple(by_name.get(read.chunk.column.name, read) for read in group.read.columns)
        return _Waiting(
            replace(group, read=replace(group.read, columns=known)),
            rows,
            decided,
            under_way,
            seen,
        )

    # ---- their values ----

    def _rows(self, each: _Waiting | LoadedRowGroup) -> Iterator[pa.Table]:
        if isinstance(each, _Waiting):
            for fetch, future in each.later:
                each.group.take(fetch, future.result().body)
            try:
                for read in each.group.read.columns:
                    if read.later and len(each.rows):
                        _check(each.group, read)
            except BadPageIndex as error:
                each = self._whole(each.group, error)
        yield from self._chosen(each) if isinstance(each, _Waiting) else self._streamed(each)
        self._events.done()

    def _chosen(self, each: _Waiting) -> Iterator[pa.Table]:
        """Yield the chosen rows of a row group after its bytes have arrived."""
        group, decided = each.group, each.decided.combine_chunks()
        columns = {
            name: iter(decided.column(name).chunks) for name in decided.column_names if name not in self._path_columns
        }
        for read in group.read.columns if len(each.rows) else ():
            if read.chunk.column.name not in columns:
                narrow = _narrow(read, each.rows)
                columns[read.chunk.column.name] = requested(self._decoded(group, narrow, group.data(narrow)), each.rows)
        for table in aligned(columns, len(each.rows), self._plan.row_schema, group, self._path_columns):
            rows, _ = self._residual(group).keep(table, group.read.intervals, decided=decided.column_names)
            if rows.num_rows:
                yield rows
        self._teach(group, each.seen)

    def _streamed(self, group: LoadedRowGroup) -> Iterator[pa.Table]:
        """Yield the rows of a row group that is read whole."""
        columns = {}
        seen: Observed | None = None
        for read in group.read.columns:
            data = group.data(read)
            numbered = self._decoded(group, read, data)
            if read.chunk.column.name == self._key:
                seen = _observer(group, read, data)
                numbered = seen.see(numbered) if seen else within(numbered, read.chunk, group.where)
            columns[read.chunk.column.name] = (values for _, values in numbered)
        start, drawn = 0, group.read.drawn
        for table in aligned(columns, group.read.num_rows, self._plan.row_schema, group, self._path_columns):
            rows, start = table, start + table.num_rows
            if drawn:
                among = drawn.rows[slice(*np.searchsorted(drawn.rows, (start - table.num_rows, start)))]
                rows = table.drop_columns([DRAWN_ORDER]).take(positions(among - (start - table.num_rows)))
                rows = rows.append_column(*_order_column(drawn, among))
            matching, _ = self._residual(group).keep(rows, group.read.intervals)
            if matching.num_rows:
                yield matching
        self._teach(group, seen)

    def _decoded(self, group: LoadedRowGroup, read: ColumnRead, data: bytes) -> Iterator[Numbered]:
        return decode(group, read, data, self._plan.row_schema.field(read.chunk.column.name).type)

    def _whole(self, group: LoadedRowGroup, why: BadPageIndex) -> LoadedRowGroup:
        """Read a row group again, without its page index."""
        self._events.notify(f"{group.where}: {why}; it is read without its page index")
        self._events.uncount(group.file.file.crawl, group.read.counted)
        columns = tuple(ColumnRead(read.chunk) for read in group.read.columns)
        read = replace(group.read, columns=columns, rows=(range(group.read.num_rows),), key_index=None)
        whole = LoadedRowGroup(group.file, read)
        parts = [part for column in columns for part in column.parts(read.ordinal)]
        requests = plan_requests(group.file.file.path, parts, max_gap=self._plan.cost.max_gap, cached=group.file.cached)
        for fetch, future in [(fetch, self._arrivals.submit(fetch)) for fetch in requests]:
            whole.take(fetch, future.result().body)
        return whole

    def _teach(self, group: LoadedRowGroup, seen: Observed | None) -> None:
        if not group.teaches:
            return
        whole = (each for each in group.read.columns if each.index is None and each.chunk.column.name in group.pieces)
        learned = own_indexes(seen, self._key, [(each.chunk, group.data(each)) for each in whole])
        claimed = group.read.key_index
        if seen and claimed and claimed.overlapping:
            located = learned.offset_indexes
            learned = Indexes(offset_indexes=located, clusters=seen.clusters(), own=bool(located))
        if learned.offset_indexes or learned.clusters:
            self._events.learn(group.file.file, group.read.ordinal, learned)


def _is_awaited(each: _Waiting | LoadedRowGroup) -> bool:
    return isinstance(each, _Waiting) and each.awaited


def _observer(group: LoadedRowGroup, read: ColumnRead, data: bytes) -> Observed | None:
    if not group.teaches:
        return None
    try:
        index = read.index or walk(data, read.chunk)
    except BadPageIndex:
        return None
    return Observed(index, read.chunk, group.where, group.read.key_index)


def _order_column(drawn: DrawnRows, rows: np.ndarray) -> tuple[pa.Field, pa.Array]:
    return pa.field(DRAWN_ORDER, pa.float64()), fractions(drawn.order[np.searchsorted(drawn.rows, rows)])


def _check(group: LoadedRowGroup, read: ColumnRead) -> None:
    """Check fetched pages against their index.

    Raises:
        BadPageIndex: if they differ.
    """
    if read.index is None:
        return
    headers = group.headers.setdefault(read.chunk.column.name, {})
    for run in read.pages:
        data = group.cut(read.chunk.column.name, read.index.extent(run))
        found = check_pages(data, read.index, run, dictionary=read.dictionary is not None)
        headers.update(zip(run, found, strict=True))


def _narrow(read: ColumnRead, rows: np.ndarray) -> ColumnRead:
    """Return the read with only the pages that contain these rows; without an index it stays whole."""
    if read.index is None:
        return read
    of_rows = np.searchsorted(np.array(read.index.first_rows), rows, side="right") - 1
    pages = np.flatnonzero(np.bincount(of_rows))  # not np.unique, which imports numpy.ma
    runs: list[range] = []
    for page in pages.tolist():
        if runs and runs[-1].stop == page:
            runs[-1] = range(runs[-1].start, page + 1)
        else:
            runs.append(range(page, page + 1))
    return replace(read, pages=tuple(runs))
