"""Runs a plan: fetches what it announced and nothing else, decodes, and lets the residual decide about each row."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalogue.crawl import KEY_COLUMN
from catalogue.errors import BadFooter, Changed, Missing, UnplannedRead
from catalogue.footer import ColumnChunk
from catalogue.plan import Fetch, FileRead, ReadPlan, RowGroupRead
from catalogue.ranges import Pin
from catalogue.source import PoliteSource, Response
from catalogue.splice import splice
from catalogue.surt import KeyInterval, covers
from catalogue.where import apply_where, connect

BATCH_ROWS = 1 << 16
"""Rows that are decoded at once at most."""
BATCH_BYTES = 64 << 20
"""Bytes, uncompressed, that are decoded at once, about."""
IN_FLIGHT = 256 << 20
"""Bytes that are asked for or waiting to be decoded at most; a larger single fetch goes alone."""

_FEW = 64
"""Intervals up to which a comparison of whole columns for each is faster than a search for each key."""


def read(plan: ReadPlan, source: PoliteSource, executor: Executor) -> Generator[pa.RecordBatch, None, None]:
    """The rows that a plan finds, in batches, with the schema of the plan.

    Rows come file by file and row group by row group as planned, so the same plan gives the same order each time.

    Args:
        plan: announces every request.
        source: answers them.
        executor: makes requests while rows are decoded; threads, as many as the source has connections.

    Raises:
        SourceError: if a range cannot be had; rows that were handed out before are right, but not all.
        QueryError: if the ``where`` fails on a row.
    """
    left = plan.query.limit
    if left == 0:
        return
    groups = _row_groups(plan, source, executor)
    with ExitStack() as stack:
        stack.callback(groups.close)
        connection = stack.enter_context(connect()) if plan.query.where else None
        for rows in _ordered(plan, (rows for group in groups for rows in _matching(plan, group, connection))):
            kept = rows if left is None else rows.slice(0, left)
            if kept.num_rows:
                yield from kept.select(plan.schema.names).combine_chunks().to_batches(BATCH_ROWS)
            if left is not None:
                left -= kept.num_rows
                if left <= 0:
                    return


def _ordered(plan: ReadPlan, tables: Iterable[pa.Table]) -> Iterable[pa.Table]:
    if not plan.query.ordered:
        return tables
    # Texts of more than 2 GiB in one column are sorted by way of a type that has room for them.
    roomy = pa.schema([f.with_type(pa.large_string()) if f.type == pa.string() else f for f in plan.row_schema])
    everything = pa.concat_tables([roomy.empty_table(), *(table.cast(roomy) for table in tables)])
    order = [(KEY_COLUMN, "ascending"), ("fetch_time", "ascending"), ("crawl", "ascending")]
    inorder = everything.sort_by(order)
    return (inorder.slice(start, BATCH_ROWS).cast(plan.row_schema) for start in range(0, inorder.num_rows, BATCH_ROWS))


@dataclass(slots=True)
class _Group:
    """A row group whose bytes are arriving."""

    file: FileRead
    read: RowGroupRead
    pages: dict[str, bytes] = field(default_factory=dict)
    """By column."""

    @property
    def complete(self) -> bool:
        return len(self.pages) == len(self.read.chunks)


def _row_groups(plan: ReadPlan, source: PoliteSource, executor: Executor) -> Generator[_Group, None, None]:
    """Row groups with all their bytes, each as soon as they are there."""
    for wave in plan.waves:
        yield from _wave(plan, wave, source, executor)


def _wave(plan: ReadPlan, wave: tuple[Fetch, ...], source: PoliteSource, executor: Executor) -> Iterator[_Group]:
    groups = {(file.file.path, group.ordinal): _Group(file, group) for file in plan.files for group in file.row_groups}
    pins = {file.file.path: file.pin for file in plan.files}
    under_way: deque[tuple[Fetch, Future[Response]]] = deque()
    waiting = deque(wave)
    in_flight = 0
    # With a limit nobody knows how much is wanted: one request is ahead of what is being decoded, no more.
    ahead = len(wave) if plan.exact else 2
    try:
        while waiting or under_way:
            while (
                waiting and len(under_way) < ahead and (not under_way or in_flight + len(waiting[0].range) <= IN_FLIGHT)
            ):
                fetch = waiting.popleft()
                in_flight += len(fetch.range)
                under_way.append((fetch, executor.submit(_fetch, source, fetch, pins[fetch.path])))
            fetch, future = under_way.popleft()
            body = memoryview(future.result().body)
            for part in fetch.parts:
                group = groups.get((fetch.path, part.row_group))
                if group is None:
                    message = f"{fetch.path}: row group {part.row_group} was fetched but not planned"
                    raise UnplannedRead(message)
                start = part.range.start - fetch.range.start
                group.pages[part.column] = bytes(body[start : start + len(part.range)])
                if group.complete:
                    yield groups.pop((fetch.path, part.row_group))
            in_flight -= len(fetch.range)
    finally:
        for _, future in under_way:
            future.cancel()


def _fetch(source: PoliteSource, fetch: Fetch, pin: Pin) -> Response:
    try:
        return source.get(fetch.path, fetch.range, pin=pin)
    except (Changed, Missing) as error:
        crawl = fetch.path.partition("crawl=")[2].partition("/")[0]
        message = f"{error}; run: catalogue harvest --refresh --crawl {crawl}"
        raise type(error)(message) from error


def _matching(plan: ReadPlan, group: _Group, connection: duckdb.DuckDBPyConnection | None) -> Iterator[pa.Table]:
    """The rows of a row group that the query keeps."""
    query = plan.query
    for table in _decoded(plan, group):
        mask = _key_mask(table.column(KEY_COLUMN), group.read.intervals)
        if query.from_ms is not None:
            mask = pc.and_(mask, pc.greater_equal(table.column("fetch_time"), _time(query.from_ms)))
        if query.to_ms is not None:
            mask = pc.and_(mask, pc.less(table.column("fetch_time"), _time(query.to_ms)))
        if query.urls:
            mask = pc.and_(mask, pc.is_in(table.column("url"), value_set=pa.array(query.urls, pa.string())))
        rows = table.filter(mask)
        if query.where and connection and rows.num_rows:
            rows = apply_where(query.where, rows, connection).cast(rows.schema)
        if rows.num_rows:
            yield rows


def _decoded(plan: ReadPlan, group: _Group) -> Iterator[pa.Table]:
    """A row group's rows, some thousands at a time, under the one schema."""
    schema = plan.row_schema
    chunks = {chunk.column.name: chunk for chunk in group.read.chunks}
    size = sum(chunk.total_uncompressed_size for chunk in chunks.values()) // max(1, group.read.num_rows)
    most = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, size)))
    columns = {
        name: _column(group, chunk, group.pages.pop(name), schema.field(name).type, most)
        for name, chunk in chunks.items()
    }
    fixed = {"crawl": group.file.file.crawl, "subset": group.file.file.subset}
    for length, arrays in _aligned(columns, group):
        every = [
            arrays[name]
            if name in arrays
            else pa.repeat(pa.scalar(fixed[name], kind), length)
            if name in fixed
            else pa.nulls(length, kind)
            for name, kind in zip(schema.names, schema.types, strict=True)
        ]
        yield pa.Table.from_arrays(every, schema=schema)


def _aligned(columns: dict[str, Iterator[pa.Array]], group: _Group) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """Pieces of the columns that belong to the same rows; pyarrow makes shorter ones where texts are long."""
    pending: dict[str, pa.Array] = {}
    left = group.read.num_rows
    while left:
        for name, pieces in columns.items():
            if not len(pending.get(name, ())):
                pending[name] = next(pieces, ())
        length = min(len(piece) for piece in pending.values())
        if not length:
            ended = next(name for name, piece in pending.items() if not len(piece))
            message = f"{group.file.file.path}: column {ended} ends early in row group {group.read.ordinal}"
            raise BadFooter(message)
        yield length, {name: piece.slice(0, length) for name, piece in pending.items()}
        pending = {name: piece.slice(length) for name, piece in pending.items()}
        left -= length


def _column(group: _Group, chunk: ColumnChunk, pages: bytes, kind: pa.DataType, most: int) -> Iterator[pa.Array]:
    """A column chunk's values under the type they have in answers, at most ``most`` at a time."""
    try:
        file = pq.ParquetFile(
            pa.BufferReader(splice(chunk, pages, num_rows=group.read.num_rows, created_by=group.file.created_by)),
            coerce_int96_timestamp_unit="ms",
            page_checksum_verification=True,
            pre_buffer=False,
        )
        for batch in file.iter_batches(most, use_threads=False):
            batch.validate(full=True)
            values = batch.column(0)
            # Times finer than the index's own seconds would be of no use to anybody; anything else must fit.
            yield values if values.type == kind else values.cast(kind, safe=not pa.types.is_timestamp(kind))
    except (pa.ArrowException, OSError, ValueError) as error:
        where = f"{group.file.file.path}, row group {group.read.ordinal}, column {chunk.column.name}"
        message = f"{where}: {error}"
        raise BadFooter(message) from error


def _time(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds, pa.timestamp("ms", "UTC"))


def _key_mask(keys: pa.ChunkedArray, intervals: tuple[KeyInterval, ...]) -> pa.ChunkedArray:
    """For each key whether it lies in one of the intervals, compared byte by byte."""
    binary = keys.cast(pa.binary())
    single = [interval.start for interval in intervals if interval.end == interval.start + b"\0"]
    wide = [interval for interval in intervals if interval.end != interval.start + b"\0"]
    mask = pc.is_in(binary, value_set=pa.array(single, pa.binary()))
    if len(wide) > _FEW:
        inside = [key is not None and covers(wide, key) for key in binary.to_pylist()]
        return pc.or_(mask, pa.chunked_array([pa.array(inside, pa.bool_())]))
    for interval in wide:
        low, high = (pa.scalar(end, pa.binary()) for end in (interval.start, interval.end))
        mask = pc.or_(mask, pc.and_(pc.greater_equal(binary, low), pc.less(binary, high)))
    return mask
