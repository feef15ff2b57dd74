"""Read the blocks of a plan and convert their lines to rows."""

from collections.abc import Generator, Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.cdx.blocks import inflate_blocks
from catalogue.cdx.cluster import BlockRead
from catalogue.cdx.rows import captures_of
from catalogue.errors import FileChanged
from catalogue.parquet.arrow_arrays import text
from catalogue.plan.plan import PlannedBlocks, ReadPlan
from catalogue.read.prefetch import IN_FLIGHT
from catalogue.read.residual import Residual
from catalogue.read.result_order import Place, ResultOrder
from catalogue.read.waiting_rows import WaitingRows
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.checks import Response, Source
from catalogue.source.parallel import map_in_order

if TYPE_CHECKING:
    import duckdb

    from catalogue.read.reader import ReadEvents


_ALL_TYPED = "CC-MAIN-2018-39"
"""The first crawl with languages, which are newer than detected media types: a later block has none only by chance."""


class _Job(NamedTuple):
    planned: PlannedBlocks
    read: BlockRead
    pin: FileVersion | None


def block_tables(
    plan: ReadPlan,
    source: Source,
    executor: Executor,
    connection: "duckdb.DuckDBPyConnection | None",
    events: "ReadEvents",
) -> Generator[tuple[Place, pa.Table], None, None]:
    """Yield the rows of a plan's blocks, with their places: by subset, newest crawl first, by key.

    Blocks have the lines of all subsets, so the rows of later subsets wait for the first one.

    Args:
        plan: the plan, whose searches are done.
        source: of the blocks.
        executor: threads that make requests.
        connection: for ``where``.
        events: callbacks.

    Raises:
        BadCdx: if a block or line is invalid.
        SourceError: if a request fails.
    """
    residuals = {untyped: Residual(plan.query.of(untyped=untyped), connection) for untyped in (False, True)}
    jobs = [
        _Job(planned, read, pin)
        for planned in plan.blocks
        for read, pin in zip(planned.reads, planned.pins, strict=True)
    ]
    order = ResultOrder(plan)
    waiting = WaitingRows(plan.row_schema)

    def fetch(job: _Job) -> tuple[_Job, Response]:
        return job, source.get(job.read.path, job.read.range, pin=job.pin)

    in_flight = 1 if plan.stops_early else IN_FLIGHT
    fetched = map_in_order(executor, fetch, jobs, limit=in_flight, weight=lambda job: len(job.read.range))
    first = min(order.place(each.crawl, subset).subset for each in plan.blocks for subset in each.subsets)
    try:
        for job, response in _noting(fetched, jobs, events):
            for rows in _matching(job, response, residuals):
                for subset in job.planned.subsets:
                    some = rows.select(plan.row_schema.names).filter(pc.equal(rows.column("subset"), text(subset)))
                    place = order.place(job.planned.crawl, subset)
                    if some.num_rows and place.subset == first:
                        yield place, some
                    elif some.num_rows:
                        waiting.add(place, some)
            events.done()
        yield from waiting.inorder()
    finally:
        fetched.close()
        waiting.close()


def _noting(
    fetched: Iterator[tuple[_Job, Response]], jobs: list[_Job], events: "ReadEvents"
) -> Iterator[tuple[_Job, Response]]:
    """Yield responses, and note the versions of their files."""
    left = iter(jobs)
    try:
        for job, response in fetched:
            next(left)
            if response.etag:
                version = FileVersion(response.total_size, response.etag)
                events.note_version(job.planned.crawl, job.read.path, version)
            yield job, response
    except FileChanged:
        job = next(left)
        events.note_version(job.planned.crawl, job.read.path, None)
        raise


def _matching(job: _Job, response: Response, residuals: dict[bool, Residual]) -> Iterator[pa.Table]:
    """Yield the rows of blocks that match."""
    planned = job.planned
    for block in inflate_blocks(planned.blocks, job.read, response.body, response.total_size, planned.intervals):
        found = list(block.find(planned.intervals))
        if found:
            rows = pa.Table.from_batches([captures_of(planned.crawl, found)])
            typed = planned.crawl >= _ALL_TYPED or block.has_detected_types
            matching, _ = residuals[not typed].keep(rows, planned.intervals)
            if matching.num_rows:
                yield matching
