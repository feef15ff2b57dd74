"""Plans read by workers: slices of them are handed to an executor, whose processes may be on other machines."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import pyarrow as pa

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.errors import Blocked, FormatError, SourceError, SourceUnavailable, WorkersLost
from catalogue.parquet.stored_indexes import Indexes
from catalogue.plan.plan import ReadPlan
from catalogue.plan.split import sliced
from catalogue.read.decode import BATCH_ROWS
from catalogue.read.reader import ReadEvents, in_order, read
from catalogue.settings import Settings, load_settings
from catalogue.source.open import open_source
from catalogue.source.retry import PoliteSource

SLICE = 64 << 20
"""Bytes of a slice, about: some seconds of work, and a table that fits into anything."""


class _Result(Protocol):
    """What comes of any task."""

    @property
    def said(self) -> tuple[str, ...]:
        """What a person would want to know."""

    @property
    def requests(self) -> int:
        """Made for it."""

    @property
    def bytes(self) -> int:
        """Received for it."""


_Asked = TypeVar("_Asked")
_Came = TypeVar("_Came", bound=_Result)


@dataclass(frozen=True, slots=True)
class Task:
    """A slice of a plan, and all it takes to read it anywhere."""

    plan: ReadPlan
    settings: Settings
    rows: bool = True
    """Whether its rows are wanted, or only what reading them teaches."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a task."""

    rows: pa.Table
    learned: tuple[tuple[IndexFile, int, Indexes], ...]
    """By file and row group."""
    said: tuple[str, ...]
    """What a person would want to know."""
    uncounted: tuple[tuple[str, int], ...]
    """See ``Told.uncount``."""
    row_groups: int
    """That were read."""
    requests: int
    bytes: int


@dataclass(slots=True)
class Lesson:
    """What reading a plan taught."""

    left: int = 0
    """Tasks of it that are not done."""
    learned: list[tuple[IndexFile, int, Indexes]] = field(default_factory=list)
    failure: SourceError | FormatError | None = None
    """Why some of it could not be read."""

    def take(self, result: Done | SourceError | FormatError) -> None:
        """Take what came of a task."""
        self.left -= 1
        if isinstance(result, Done):
            self.learned += result.learned
        else:
            self.failure = result


def run(task: Task) -> Done:
    """Read a slice, in any process of any machine where this package is.

    Raises:
        SourceError: if it cannot be read.
        QueryError: if its ``where`` fails on a row.
    """
    settings = at_home(task.settings)
    learned: list[tuple[IndexFile, int, Indexes]] = []
    said: list[str] = []
    uncounted: list[tuple[str, int]] = []
    told = ReadEvents(
        lambda *each: learned.append(each), notify=said.append, uncount=lambda *each: uncounted.append(each)
    )
    with closing(open_source(settings.source, settings, notify=said.append)) as source:
        executor = ThreadPoolExecutor(source.connections, thread_name_prefix="task")
        try:
            with closing(read(task.plan, source, executor, told)) as batches:
                kept = [batch for batch in batches if task.rows]
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
        rows = pa.Table.from_batches(kept, task.plan.schema)
        groups = task.plan.row_groups
        return Done(rows, tuple(learned), tuple(said), tuple(uncounted), groups, source.requests, source.bytes)


def at_home(settings: Settings) -> Settings:
    """Settings as they are on the machine of a worker, whose processes share what they know in a folder of theirs."""
    return settings if settings.cache.exists() else replace(settings, cache=load_settings().cache)


def tasks(plan: ReadPlan, settings: Settings, *, rows: bool = True, size: int = SLICE) -> Iterator[Task]:
    """The tasks of a plan, in its order.

    Args:
        plan: whose indexes have been fetched.
        settings: of each worker.
        rows: whether they are wanted.
        size: bytes of a task, about.
    """
    return (Task(each, settings, rows) for each in sliced(plan, size))


class Workers:
    """An executor, and how it is used."""

    def __init__(self, executor: Executor, settings: Settings, *, at_once: int) -> None:
        """Hand tasks to an executor, which stays the caller's to shut down.

        Args:
            executor: any; its workers must have this package.
            settings: of each worker, with its machine's share of the rate.
            at_once: tasks that are under way or waiting for a worker at most.
        """
        self.settings = settings
        self._executor = executor
        self._at_once = at_once
        self.requests = 0
        """Requests that they made so far."""
        self.bytes = 0
        """Bytes that they received."""

    def done(
        self, every: Iterable[_Asked], notify: Callable[[str], None] = lambda _: None, *, do: Callable[[_Asked], _Came]
    ) -> Generator[_Came | SourceError | FormatError, None, None]:
        """What comes of tasks, in their order, each once: also what kept one from being done.

        Args:
            every: the tasks.
            notify: told what workers say.
            do: what they do with each.

        Raises:
            WorkersLost: if workers died and nobody took over.
            SourceUnavailable: if the source failed as a whole.
            QueryError: if a ``where`` fails on a row.
        """
        waiting, under_way = iter(every), deque[Future[_Came]]()
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
                for sentence in done.said:
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

    def _submit(self, do: Callable[[_Asked], _Came], task: _Asked) -> Future[_Came]:
        try:
            return self._executor.submit(do, task)
        except RuntimeError as error:  # as of one that was shut down
            message = f"the executor takes no work ({error})"
            raise WorkersLost(message) from error

    def read(self, plan: ReadPlan, told: ReadEvents) -> Generator[pa.RecordBatch, None, None]:
        """The rows that a plan finds, as ``reader.read`` has them.

        Raises:
            SourceError: if something planned could not be read.
            WorkersLost: see ``done``.
        """
        query, names, left = plan.query, plan.schema.names, plan.query.limit
        if query.ordered:  # which is done here, by columns that need not be among those of the answer
            plan = replace(plan, query=replace(query, ordered=False, limit=None), schema=plan.row_schema)
        with closing(self.done(tasks(plan, self.settings), told.notify, do=run)) as slices:
            tables = _taught(slices, told)
            for table in in_order(query.table, plan.schema, tables) if query.ordered else tables:
                rows = table.select(names).slice(0, left)
                yield from rows.combine_chunks().to_batches(BATCH_ROWS)
                if left is not None:
                    left -= rows.num_rows
                    if left <= 0:
                        break

    def learn(self, plans: Iterable[ReadPlan]) -> Iterator[Lesson]:
        """What reading plans teaches, plan by plan in their order; a plan that reads nothing teaches nothing.

        Raises:
            WorkersLost: see ``done``.
            SourceUnavailable: likewise.
        """
        lessons: deque[Lesson] = deque()

        def every() -> Iterator[Task]:
            for plan in plans:
                mine = list(tasks(plan, self.settings, rows=False))
                lessons.append(Lesson(len(mine)))
                yield from mine

        with closing(self.done(every(), do=run)) as results:
            for result in results:
                while not lessons[0].left:
                    yield lessons.popleft()
                lessons[0].take(result)
        yield from lessons


def _taught(slices: Iterable[Done | SourceError | FormatError], told: ReadEvents) -> Iterator[pa.Table]:
    """The rows of slices; what else came of them is told."""
    for done in slices:
        if not isinstance(done, Done):
            raise done
        for lesson in done.learned:
            told.learn(*lesson)
        for uncounted in done.uncounted:
            told.uncount(*uncounted)
        for _ in range(done.row_groups):
            told.done()
        yield done.rows


class Here:
    """This process, as if it were a worker."""

    def __init__(self, source: Callable[[], PoliteSource]) -> None:
        """Read from a source."""
        self._source = source

    def learn(self, plans: Iterable[ReadPlan]) -> Iterator[Lesson]:
        """See ``Workers.learn``."""
        source = self._source()
        with ThreadPoolExecutor(source.connections, thread_name_prefix="here") as executor:
            for plan in plans:
                lesson = Lesson()
                told = ReadEvents(learn=lambda *each, lesson=lesson: lesson.learned.append(each))
                try:
                    with closing(read(plan, source, executor, told)) as batches:
                        for _ in batches:
                            pass
                except (Blocked, SourceUnavailable):
                    raise
                except (SourceError, FormatError) as error:
                    lesson.failure = error
                yield lesson
