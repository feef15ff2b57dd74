"""Read the blocks of a plan and convert their lines to rows."""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.cdx.blocks import Block, inflate_blocks
from catalogue.cdx.cluster import BlockRead
from catalogue.cdx.rows import captures_of
from catalogue.plan.plan import PlannedBlocks, ReadPlan
from catalogue.read.prefetch import IN_FLIGHT
from catalogue.read.residual import Residual
from catalogue.source.checks import Response, Source
from catalogue.source.parallel import map_in_order

if TYPE_CHECKING:
    import duckdb

_ALL_TYPED = "CC-MAIN-2018-39"
"""The first crawl with languages, which are newer than detected media types: a later block has none only by chance."""

_Job = tuple[PlannedBlocks, BlockRead]


def block_tables(
    plan: ReadPlan,
    source: Source,
    executor: Executor,
    connection: "duckdb.DuckDBPyConnection | None",
    done: Callable[[], None],
) -> Generator[pa.Table, None, None]:
    """Yield the rows of a plan's blocks by subset, newest crawl first, by key.

    Blocks have the lines of all subsets, so the rows of later subsets wait in memory for the first one.

    Args:
        plan: the plan, whose searches are done.
        source: of the blocks.
        executor: threads that make requests.
        connection: for ``where``.
        done: called after each request.

    Raises:
        BadCdx: if a block or line is invalid.
        SourceError: if a request fails.
    """
    residuals = {untyped: Residual(plan.query.of(untyped=untyped), connection) for untyped in (False, True)}
    waiting: dict[str, list[pa.Table]] = {subset: [] for subset in plan.subsets}
    jobs = [(planned, read) for planned in plan.blocks for read in planned.reads]

    def fetch(job: _Job) -> tuple[_Job, Response]:
        return job, source.get(job[1].path, job[1].range)

    in_flight = 1 if plan.stops_early else IN_FLIGHT
    fetched = map_in_order(executor, fetch, jobs, limit=in_flight, weight=lambda job: len(job[1].range))
    first = plan.subsets[0]
    try:
        for (planned, read), response in fetched:
            for block in inflate_blocks(planned.blocks, read, response.body, response.total_size):
                for rows in _matching(planned, block, residuals):
                    for subset, tables in waiting.items():
                        tables.append(rows.filter(pc.equal(rows.column("subset"), subset)))
            yield from _selected(plan, waiting[first])
            waiting[first] = []
            done()
    finally:
        fetched.close()
    for subset in plan.subsets[1:]:
        yield from _selected(plan, waiting.pop(subset))


def _matching(planned: PlannedBlocks, block: Block, residuals: dict[bool, Residual]) -> Iterator[pa.Table]:
    """Yield the rows of a block that match, if there are any."""
    found = list(block.find(planned.intervals))
    if found:
        rows = pa.Table.from_batches([captures_of(planned.crawl, found)])
        typed = planned.crawl >= _ALL_TYPED or block.has_detected_types
        matching, _ = residuals[not typed].keep(rows, planned.intervals)
        if matching.num_rows:
            yield matching


def _selected(plan: ReadPlan, tables: list[pa.Table]) -> Iterator[pa.Table]:
    return (table.select(plan.row_schema.names) for table in tables if table.num_rows)
