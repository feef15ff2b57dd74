"""Read the blocks of a plan and convert their lines to rows."""

from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import closing
from itertools import islice
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.cdx.blocks import Block, FoundLines, inflate_blocks
from catalogue.cdx.cluster import BlockRead
from catalogue.cdx.rows import captures_of
from catalogue.commoncrawl.crawls import CDX, SUBSETS
from catalogue.errors import UNUSABLE, CatalogueError, FileChanged
from catalogue.parquet.arrow_arrays import texts
from catalogue.plan.crawl_plan import PlannedBlocks
from catalogue.plan.plan import ReadPlan
from catalogue.query.key_intervals import ALL_KEYS, KeyIntervals
from catalogue.query.resolved_query import Matching, Residual
from catalogue.read.key_order import Piece, leasts_after
from catalogue.read.prefetch import in_flight
from catalogue.read.streams import ReadEvents
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.cache import drop_cached
from catalogue.source.checks import Response, Source, differ
from catalogue.source.parallel import run_ahead

_AT_ONCE = 256 << 10
"""Bytes of lines that are converted together; lines of a block of Common Crawl have more."""


def block_pieces(
    plan: ReadPlan,
    source: Source,
    executor: Executor,
    matching: Matching | None,
    events: ReadEvents,
) -> Generator[Piece, None, None]:
    """Yield the rows of all subsets, by section.

    Raises:
        BadCdx: if a block or line is invalid.
        SourceError: if a request fails.
    """
    leasts = [
        (planned.crawl, max(planned.intervals[0].start, planned.blocks.key(read.blocks.start)))
        for planned in plan.blocks
        for read in planned.reads
    ]
    with closing(fetch_blocks(plan, source, executor, events)) as fetched:
        for (planned, read, response), after in zip(fetched, leasts_after(leasts), strict=True):
            blocks = blocks_of(source, planned, read, response, events, planned.intervals)
            residual = Residual(plan.query.of(planned.crawl), matching)
            least = 1 if plan.query.stops_early else _AT_ONCE
            for rows, last in _matching(planned, blocks, residual, least):
                yield Piece(rows.select(plan.row_schema.names), last)
            yield Piece(None, after)
            events.done()


def fetch_blocks(
    plan: ReadPlan, source: Source, executor: Executor, events: ReadEvents
) -> Generator[tuple[PlannedBlocks, BlockRead, Response], None, None]:
    """Yield the reads of the blocks of a plan and their responses, in order.

    Raises:
        SourceError: if a request fails.
        FileChanged: if two responses are of different versions of a file.
    """
    reads = [(planned, read) for planned in plan.blocks for read in planned.reads]
    failures: dict[str, CatalogueError] = {}
    noting = Lock()

    def failed(crawl: str, error: CatalogueError) -> None:
        with noting:  # no thread raises another error of the crawl before the first one is noted
            if failures.setdefault(crawl, error) is error:
                events.note_failure(crawl, CDX, error)

    def fetch(each: tuple[PlannedBlocks, BlockRead]) -> Response:
        planned, read = each
        try:
            return source.get(read.path, read.range, pin=read.pin)
        except UNUSABLE as error:  # noted here, so that no crawl is requested again after that of another one
            failed(planned.crawl, error)
            raise

    limit = 1 if plan.query.stops_early else in_flight(plan)
    versions: dict[str, FileVersion] = {}
    with closing(
        run_ahead(executor.submit, fetch, reads, limit=limit, weight=lambda each: len(each[1].range))
    ) as calls:
        for (planned, read), call in calls:
            crawl, path, response = planned.crawl, read.path, call.result()
            version = response.version
            first = versions.setdefault(path, version)
            is_changed = first.origin == version.origin and differ(first.etag, version.etag)
            if is_changed or first.size != version.size:
                changed = FileChanged(f"{path} was replaced while it was read; run the query again")
                failed(crawl, changed)
                raise changed
            if response.etag:
                events.note_version(crawl, path, version)
            yield planned, read, response


def blocks_of(
    source: Source,
    planned: PlannedBlocks,
    read: BlockRead,
    response: Response,
    events: ReadEvents,
    intervals: KeyIntervals = ALL_KEYS,
) -> Iterator[Block]:
    """Inflate the blocks of a response; if one is damaged, request them again without what is cached of them.

    Raises:
        BadCdx: see ``inflate_blocks``; the next query searches the list again, which may be damaged, too.
        SourceError: if the request fails.
    """
    done = 0
    for is_last in (False, True):
        try:
            if is_last:
                response = source.get(read.path, read.range, pin=response.version)
            found = inflate_blocks(planned.blocks, read, response.body, response.total_size, intervals)
            for block in islice(found, done, None):
                yield block
                done += 1
        except UNUSABLE as error:
            if is_last or not drop_cached(source, read.path, response.version, [read.range]):
                events.note_failure(planned.crawl, CDX, error)
                raise
        else:
            return


def _matching(
    planned: PlannedBlocks, blocks: Iterable[Block], residual: Residual, least: int
) -> Iterator[tuple[pa.Table, bytes]]:
    subsets = texts(planned.subsets)
    for block, found in _found(blocks, planned.intervals, least):
        rows = pa.Table.from_batches([captures_of(planned.crawl, found)])
        matching, _ = residual.keep(rows)
        if {*SUBSETS}.difference(planned.subsets):
            matching = matching.filter(pc.is_in(matching.column("subset"), value_set=subsets))
        if matching.num_rows:
            yield matching, block.key(len(block) - 1)


def _found(blocks: Iterable[Block], intervals: KeyIntervals, least: int) -> Iterator[tuple[Block, list[FoundLines]]]:
    found: list[FoundLines] = []
    size = 0
    for block in blocks:
        for each in block.find(intervals):
            found.append(each)
            size += len(each.data)
        if size >= least:
            yield block, found
            found, size = [], 0
    if found:
        yield block, found
