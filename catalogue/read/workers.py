"""Read plans with an executor, whose processes may be on other machines."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Protocol, TypeVar

import pyarrow as pa

from catalogue.errors import Blocked, FormatError, SourceError, SourceUnavailable, WorkersLost
from catalogue.plan.plan import ReadPlan, sections
from catalogue.plan.split import sliced
from catalogue.read.decode import batches_of
from catalogue.read.events import ReadEvents
from catalogue.read.key_order import Piece, in_key_order, in_time_order
from catalogue.read.reader import read
from catalogue.settings import Settings, load_settings
from catalogue.source.open import open_source
from catalogue.surt import END

SLICE = 64 << 20
"""Bytes of a task: some seconds of work, and a table of modest size."""


class _Result(Protocol):
    """The result of any task."""

    @property
    def messages(self) -> tuple[str, ...]:
        """Sentences for the user."""

    @property
    def requests(self) -> int: ...

    @property
    def bytes(self) -> int: ...


_Task = TypeVar("_Task")
_R = TypeVar("_R", bound=_Result)


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a plan, with the settings to read it anywhere."""

    plan: ReadPlan
    settings: Settings


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task."""

    rows: pa.Table
    messages: tuple[str, ...]
    uncounted: tuple[tuple[str, int], ...]
    """See ``ReadEvents.uncount``."""
    row_groups: int
    requests: int
    bytes: int


def run(task: Task) -> TaskResult:
    """Read a part of a plan, in any process where this package is installed.

    Raises:
        SourceError: if it cannot be read.
        QueryError: if ``where`` fails on a row.
    """
    settings = on_worker(task.settings)
    messages: list[str] = []
    uncounted: list[tuple[str, int]] = []
    events = ReadEvents(messages.append, lambda *each: uncounted.append(each))
    with closing(open_source(settings.source, settings, notify=messages.append)) as source:
        executor = ThreadPoolExecutor(source.connections, thread_name_prefix="task")
        try:
            with closing(read(task.plan, source, executor, events)) as batches:
                rows = [*batches]
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
        table = pa.Table.from_batches(rows, task.plan.schema)
        groups = task.plan.row_groups
        return TaskResult(table, tuple(messages), tuple(uncounted), groups, source.requests, source.bytes)


def on_worker(settings: Settings) -> Settings:
    """Use the cache folder of this machine, if the caller's does not exist here."""
    return settings if settings.cache.exists() else replace(settings, cache=load_settings().cache)


def tasks(plan: ReadPlan, settings: Settings, *, size: int = SLICE) -> Iterator[Task]:
    """Divide a plan into tasks of about ``size`` bytes; its page indexes have been fetched."""
    return (Task(each, settings) for each in sliced(plan, size))


class Workers:
    """Runs tasks with an executor."""

    def __init__(self, executor: Executor, settings: Settings, *, at_once: int) -> None:
        """Use an executor, which the caller shuts down.

        Args:
            executor: its workers must have this package.
            settings: settings of each worker, with its share of the rate.
            at_once: maximum concurrent tasks.
        """
        self.settings = settings
        self._executor = executor
        self._at_once = at_once
        self.requests = 0
        self.bytes = 0

    def results(
        self, every: Iterable[_Task], notify: Callable[[str], None] = lambda _: None, *, do: Callable[[_Task], _R]
    ) -> Generator[_R | SourceError | FormatError, None, None]:
        """Yield the results of tasks in their order; an error that concerns one task is its result.

        ``notify`` is called with the messages of workers, and ``do`` runs a task.

        Raises:
            WorkersLost: if workers died.
            SourceUnavailable: if the source failed as a whole.
            QueryError: if ``where`` fails on a row.
        """
        waiting, under_way = iter(every), deque[Future[_R]]()
        try:
            while True:
                while len(under_way) < self._at_once and (task := next(waiting, None)):
                    under_way.append(self._submit(do, task))
                if not under_way:
                    return
                try:
                    done = under_way.popleft().result()
                except (Blocked, SourceUnavailable):
                    raise
                except (SourceError, FormatError) as error:
                    yield error
                    continue
                self.requests += done.requests
                self.bytes += done.bytes
                for sentence in done.messages:
                    notify(sentence)
                yield done
        except Exception as error:
            # Dask has classes of its own for it, and is not to be imported to know them.
            if isinstance(error, BrokenExecutor | CancelledError) or type(error).__module__.startswith("distributed"):
                why = str(error) or type(error).__name__
                message = f"workers were lost and their work with them ({why}); run it again"
                raise WorkersLost(message) from error
            raise
        finally:
            for future in under_way:
                future.cancel()

    def _submit(self, do: Callable[[_Task], _R], task: _Task) -> Future[_R]:
        try:
            return self._executor.submit(do, task)
        except RuntimeError as error:  # as of one that was shut down
            message = f"the executor takes no work ({error})"
            raise WorkersLost(message) from error

    def read(self, plan: ReadPlan, events: ReadEvents) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of a plan; see ``reader.read``."""
        query, names, left = plan.query, plan.schema.names, plan.query.limit
        part = plan
        if query.ordered:  # which is done here, by columns that need not be among those of the answer
            part = replace(plan, query=replace(query, ordered=False, limit=None), schema=plan.row_schema)
        elif query.is_inorder and query.table.key not in names:
            key = plan.row_schema.field(query.table.key)
            part = replace(plan, schema=plan.schema.append(key))
        parts = list(tasks(part, self.settings))
        with closing(self.results(parts, events.notify, do=run)) as slices:
            tables: Iterable[pa.Table] = _rows_of(slices, events)
            if query.ordered:
                tables = in_time_order(plan, part.schema, tables)
            elif query.is_inorder:
                pieces = map(Piece, tables, _leasts_after([each.plan for each in parts]))
                tables = in_key_order(plan, repeat(pieces, len(sections(plan))))
            for table in tables:
                rows = table.select(names).slice(0, left)
                yield from batches_of(rows)
                if left is not None:
                    left -= rows.num_rows
                    if left <= 0:
                        break


def _leasts_after(parts: Sequence[ReadPlan]) -> Iterator[bytes]:
    """Yield for each part of a plan a lower bound of the later keys in its section."""
    found: list[bytes] = []
    following, least = None, END
    for part in reversed(parts):
        (section,) = sections(part)
        place = section.crawl, section.subsets
        least = least if place == following else END
        found.append(least)
        leasts = [group.least for file in section.files for group in file.row_groups]
        following, least = place, min(least, *leasts, *(each.intervals[0].start for each in section.blocks))
    return reversed(found)


def _rows_of(slices: Iterable[TaskResult | SourceError | FormatError], events: ReadEvents) -> Iterator[pa.Table]:
    for done in slices:
        if not isinstance(done, TaskResult):
            raise done
        for uncounted in done.uncounted:
            events.uncount(*uncounted)
        for _ in range(done.row_groups):
            events.done()
        yield done.rows
