"""Split a plan into parts that can be read independently, with the same requests."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from catalogue.plan.crawl_plan import CrawlPlan, PlannedBlocks, PlannedFile, PlannedRowGroup
from catalogue.plan.plan import ReadPlan
from catalogue.plan.requests import PlannedRequest
from catalogue.query.key_intervals import KeyIntervals
from catalogue.surt import END


def sliced(plan: ReadPlan, size: int) -> Iterator[ReadPlan]:
    """Divide a plan whose page indexes have been fetched into parts of about ``size`` bytes, in its order.

    Row groups that share a request stay together.
    """
    for each in plan.crawls:
        crawl = replace(each, counted=0, missing=(), defects=(), other=None)
        for part, intervals in _parts(crawl, plan.query.intervals, size):
            yield replace(plan, query=replace(plan.query, intervals=intervals), crawls=(part,), unlisted=())


def _parts(crawl: CrawlPlan, intervals: KeyIntervals, size: int) -> Iterator[tuple[CrawlPlan, KeyIntervals]]:
    by_path: dict[str, list[list[PlannedRequest]]] = {}
    for number, wave in enumerate(crawl.waves):
        for fetch in wave:
            waves = by_path.setdefault(fetch.path, [[] for _ in crawl.waves])
            waves[number].append(fetch)
    for file in crawl.files:
        waves = by_path.get(file.file.path, [])
        for groups in _together(file, waves, size):
            ordinals = {group.ordinal for group in groups}
            mine = (tuple(fetch for fetch in wave if fetch.parts[0].row_group in ordinals) for wave in waves)
            part = replace(crawl, files=(replace(file, row_groups=tuple(groups)),), blocks=())
            yield replace(part, waves=tuple(wave for wave in mine if wave)), _intervals(intervals, groups)
    for planned in crawl.blocks:
        for of_blocks in _of_blocks(planned, size):
            requests = tuple(PlannedRequest(read.path, read.range, ()) for read in of_blocks.reads)
            yield replace(crawl, files=(), blocks=(of_blocks,), waves=(requests,)), of_blocks.intervals


def _intervals(every: KeyIntervals, groups: Sequence[PlannedRowGroup]) -> KeyIntervals:
    """Return the intervals that row groups may contain."""
    starts, stops = zip(*(every.span(group.columns[0].chunk.bounds) for group in groups), strict=True)
    return every.part(min(starts), max(stops))


def _of_blocks(planned: PlannedBlocks, size: int) -> Iterator[PlannedBlocks]:
    start, received = 0, 0
    for number, read in enumerate(planned.reads, 1):
        received += len(read.range)
        if received >= size or number == len(planned.reads):
            reads = planned.reads[start:number]
            first, stop = reads[0].blocks.start, reads[-1].blocks.stop
            blocks = planned.blocks.part(first, stop)
            end = blocks.key(stop - first) if stop - first < len(blocks) else END
            yield replace(
                planned,
                blocks=blocks,
                reads=tuple(
                    each._replace(blocks=range(each.blocks.start - first, each.blocks.stop - first)) for each in reads
                ),
                intervals=planned.intervals.between(blocks.key(0), end),
                pins=planned.pins[start:number],
            )
            start, received = number, 0


def _together(file: PlannedFile, waves: list[list[PlannedRequest]], size: int) -> Iterator[list[PlannedRowGroup]]:
    """Yield runs of row groups of a file that share no request."""
    sizes: dict[int, int] = {}
    goes_on: set[int] = set()
    for fetch in (fetch for wave in waves for fetch in wave):
        ordinals = sorted({part.row_group for part in fetch.parts})
        sizes[ordinals[0]] = sizes.get(ordinals[0], 0) + len(fetch.range)
        # Of a request for several, each but the last goes on into the next that is read.
        goes_on.update(group.ordinal for group in file.row_groups if ordinals[0] <= group.ordinal < ordinals[-1])
    run: list[PlannedRowGroup] = []
    size_so_far = 0
    for group in file.row_groups:
        run.append(group)
        size_so_far += sizes.get(group.ordinal, 0)
        if size_so_far >= size and group.ordinal not in goes_on:
            yield run
            run, size_so_far = [], 0
    if run:
        yield run
