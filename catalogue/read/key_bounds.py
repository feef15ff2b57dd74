"""Read key columns, and find the bounds of the keys of each row group."""

from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from catalogue.parquet.arrow_arrays import least_and_greatest
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import cut_bounds
from catalogue.plan.plan import ReadPlan
from catalogue.read.bundle import Bundle
from catalogue.read.decode import decode, valid
from catalogue.read.prefetch import LoadedRowGroup, Prefetcher
from catalogue.read.workers import on_worker
from catalogue.settings import Settings
from catalogue.source.checks import Source
from catalogue.source.open import open_source


@dataclass(frozen=True, slots=True)
class BoundsTask:
    """A plan that reads key columns, with the settings to read it anywhere."""

    plan: ReadPlan
    settings: Settings


@dataclass(frozen=True, slots=True)
class BoundsResult:
    """The result of a task."""

    bounds: dict[int, Bounds]
    messages: tuple[str, ...]
    requests: int
    bytes: int


def run(task: BoundsTask) -> BoundsResult:
    """Run a task on any machine that has this package.

    Raises:
        SourceError: if the keys cannot be read.
        BadFooter: see ``read_bounds``.
    """
    settings = on_worker(task.settings)
    messages: list[str] = []
    with closing(open_source(settings.source, settings, notify=messages.append)) as source:
        executor = ThreadPoolExecutor(source.connections, thread_name_prefix="task")
        try:
            bounds = read_bounds(task.plan, source, executor)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
        return BoundsResult(bounds, tuple(messages), source.requests, source.bytes)


def read_bounds(plan: ReadPlan, source: Source, executor: Executor) -> dict[int, Bounds]:
    """Return the bounds of the keys of each row group that has keys.

    The plan reads the complete key columns of row groups of one file.

    Raises:
        SourceError: if a request fails.
        BadFooter: if the bytes are not those of a column of texts.
    """
    found: dict[int, Bounds] = {}
    with closing(Prefetcher(plan, source, executor).groups()) as groups:
        for group in groups:
            if bounds := _bounds(group):
                found[group.read.ordinal] = bounds
    return found


def _bounds(group: LoadedRowGroup) -> Bounds | None:
    bundle, key = Bundle([group]), group.read.columns[0]
    ends: list[bytes] = []
    for _, values in decode(bundle, [key], pa.string()):
        keys = valid(pa.table({key.chunk.column.name: values}), bundle).column(0).chunk(0)
        ends += least_and_greatest(keys.cast(pa.binary())) or ()
    return cut_bounds(min(ends), max(ends)) if ends else None
