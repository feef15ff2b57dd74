"""Read plans with an executor, whose processes may be on other machines."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Generic, TypeAlias, TypeVar

import pyarrow as pa

from catalogue.errors import OF_ONE_FILE, UNUSABLE, CatalogueError, WorkersLost
from catalogue.parquet.arrow_arrays import least_and_greatest
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import cut_bounds
from catalogue.plan.crawl_plan import CrawlPlan, PlannedBlocks, PlannedFile, PlannedRowGroup
from catalogue.plan.plan import ReadPlan, sections
from catalogue.plan.planner import waves_of
from catalogue.plan.requests import PlannedRequest
from catalogue.query.key_intervals import KeyIntervals
from catalogue.read.decode import decode, valid
from catalogue.read.key_order import Piece, leasts_after, result_of
from catalogue.read.prefetch import Bundle, Prefetcher
from catalogue.read.reader import read
from catalogue.read.streams import ReadEvents
from catalogue.settings import Settings, load_settings
from catalogue.source.checks import Source
from catalogue.source.open import open_source
from catalogue.source.parallel import RequestThreads, run_ahead
from catalogue.source.retry import PoliteSource
from catalogue.surt.interval import END

SLICE = 64 << 20
"""Bytes of a task: some seconds of work, and a table of modest size."""


_Task = TypeVar("_Task")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Done(Generic[_T_co]):
    """The result of a task, and what it took."""

    value: _T_co
    messages: tuple[str, ...]
    """Sentences for the user."""
    requests: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a plan, with the settings to read it anywhere."""

    plan: ReadPlan
    settings: Settings


TaskRows: TypeAlias = tuple[pa.Table, list[tuple[str, int]]]
"""The rows of a part of a plan, and arguments of ``ReadEvents.uncount``."""


def on_worker(settings: Settings, work: Callable[[PoliteSource, Executor, Callable[[str], None]], _T]) -> Done[_T]:
    """Run a function with a source, threads for requests, and a function that takes messages.

    If the cache folder of the settings does not exist on this machine, its own is used.
    """
    messages: list[str] = []
    settings = settings if settings.cache.exists() else replace(settings, cache=load_settings().cache)
    with closing(open_source(settings.source, settings, notify=messages.append)) as source:
        with closing(RequestThreads(source.connections)) as threads:
            value = work(source, threads, messages.append)
        return Done(value, tuple(messages), source.requests, source.bytes)


def run(task: Task) -> Done[TaskRows]:
    """Read a part of a plan, in any process where this package is installed.

    Raises:
        SourceError: if it cannot be read.
        QueryError: if ``where`` fails on a row.
    """

    def read_rows(source: PoliteSource, executor: Executor, notify: Callable[[str], None]) -> TaskRows:
        uncounted: list[tuple[str, int]] = []
        events = ReadEvents(notify, lambda *each: uncounted.append(each))
        with closing(read(task.plan, source, executor, events)) as batches:
            table = pa.Table.from_batches(batches, task.plan.schema)
        return table, uncounted

    return on_worker(task.settings, read_rows)


def tasks(plan: ReadPlan, settings: Settings, *, size: int = SLICE) -> Iterator[Task]:
    """Divide a plan whose page indexes have been fetched into tasks of about ``size`` bytes, in its order.

    Row groups that share a request stay together.
    """
    for each in plan.crawls:
        crawl = replace(each, counted=0, missing=(), defects=(), other=None)
        for part, intervals in _parts(crawl, plan.query.intervals, size):
            query = replace(plan.query, intervals=intervals)
            yield Task(replace(plan, query=query, crawls=(part,), unlisted=()), settings)


@dataclass(eq=False)
class Workers:
    """Runs tasks with an executor."""

    executor: Executor
    """Its workers must have this package; the caller shuts it down."""
    settings: Settings
    """Those of each worker, with its share of the rate."""
    at_once: int
    """Maximum tasks at a time."""
    requests: int = field(default=0, init=False)
    bytes: int = field(default=0, init=False)

    def results(
        self, every: Iterable[_Task], notify: Callable[[str], None] = lambda _: None, *, do: Callable[[_Task], Done[_T]]
    ) -> Generator[_T, None, None]:
        """Yield the results of tasks in their order; ``notify`` is called with the messages of workers.

        Raises:
            WorkersLost: if workers died.
            CatalogueError: the first error of a task.
        """
        try:
            with closing(run_ahead(self._submit, do, every, limit=self.at_once)) as calls:
                for _, call in calls:
                    done = call.result()
                    self.requests += done.requests
                    self.bytes += done.bytes
                    for sentence in done.messages:
                        notify(sentence)
                    yield done.value
        except Exception as error:
            # Dask has classes of its own for it, and is not to be imported to know them.
            if isinstance(error, BrokenExecutor | CancelledError) or type(error).__module__.startswith("distributed"):
                why = str(error) or type(error).__name__
                raise WorkersLost(f"workers were lost and their work with them ({why}); run it again") from error
            raise

    def _submit(self, do: Callable[[_Task], Done[_T]], task: _Task) -> Future[Done[_T]]:
        try:
            return self.executor.submit(do, task)
        except RuntimeError as error:  # as of one that was shut down
            raise WorkersLost(f"the executor takes no work ({error}); open the catalogue with a new one") from error

    def read(self, plan: ReadPlan, events: ReadEvents) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of a plan; see ``reader.read``."""
        query = plan.query
        if query.ordered:  # which is done here, by columns that need not be among those of the answer
            query = replace(query, ordered=False, limit=None, columns=query.row_columns)
        elif query.is_inorder:
            query = replace(query, columns=tuple(dict.fromkeys([*query.columns, query.table.key])))
        parts = list(tasks(replace(plan, query=query), self.settings))
        with closing(self.results(parts, events.notify, do=run)) as slices:
            pieces = _pieces(parts, slices, events)
            yield from result_of(plan, pieces, pieces)


def _place(part: ReadPlan) -> tuple[object, bytes]:
    (section,) = sections(part)
    leasts = [group.least for file in part.files for group in file.row_groups]
    return section, min(leasts + [each.intervals[0].start for each in part.blocks])


def _pieces(parts: Sequence[Task], slices: Iterator[TaskRows], events: ReadEvents) -> Iterator[Piece]:
    for part, least in zip(parts, leasts_after([_place(each.plan) for each in parts]), strict=True):
        try:
            rows, uncounted = next(slices)
        except UNUSABLE as error:
            (crawl,) = part.plan.crawls
            events.note_failure(crawl.crawl, crawl.index, error)
            raise
        for each in uncounted:
            events.uncount(*each)
        for _ in range(part.plan.row_groups):
            events.done()
        yield Piece(rows, least)


def _parts(crawl: CrawlPlan, intervals: KeyIntervals, size: int) -> Iterator[tuple[CrawlPlan, KeyIntervals]]:
    for file in crawl.files:
        for groups in _together(file, waves_of([file], crawl.cost), size):
            files = (replace(file, row_groups=tuple(groups)),)
            starts, stops = zip(*(intervals.span(group.key_bounds) for group in groups), strict=True)
            part = replace(crawl, files=files, blocks=(), waves=waves_of(files, crawl.cost))
            yield part, intervals.part(min(starts), max(stops))
    for planned in crawl.blocks:
        for of_blocks in _of_blocks(planned, size):
            requests = tuple(PlannedRequest(read.path, read.range, ()) for read in of_blocks.reads)
            yield replace(crawl, files=(), blocks=(of_blocks,), waves=(requests,)), of_blocks.intervals


def _of_blocks(planned: PlannedBlocks, size: int) -> Iterator[PlannedBlocks]:
    start, received = 0, 0
    for number, of_shard in enumerate(planned.reads, 1):
        received += len(of_shard.range)
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
            )
            start, received = number, 0


def _together(
    file: PlannedFile, waves: Iterable[Iterable[PlannedRequest]], size: int
) -> Iterator[list[PlannedRowGroup]]:
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


def run_bounds(task: Task) -> Done[dict[int, Bounds] | CatalogueError]:
    return on_worker(task.settings, lambda source, executor, _: read_bounds(task.plan, source, executor))


def read_bounds(plan: ReadPlan, source: Source, executor: Executor) -> dict[int, Bounds] | CatalogueError:
    """Return the bounds of the keys of each row group that has keys, or why the file cannot be read.

    The plan reads the complete key columns of row groups of one file.

    Raises:
        SourceError: if the source failed.
    """
    found: dict[int, Bounds] = {}
    try:
        with closing(Prefetcher(plan, source, executor, ReadEvents()).groups()) as groups:
            for group in groups:
                bundle, key = Bundle([group]), group.read.columns[0]
                ends: list[bytes] = []
                for _, values in decode(bundle, [key], pa.string()):
                    keys = valid(pa.table({key.chunk.column.name: values}), bundle, plan.query.table).column(0).chunk(0)
                    ends += least_and_greatest(keys.cast(pa.binary())) or ()
                if ends:
                    found[group.read.ordinal] = cut_bounds(min(ends), max(ends))
    except OF_ONE_FILE as error:
        return error
    return found
