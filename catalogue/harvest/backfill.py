"""Find the bounds of row groups whose footers have none, by reading once.

The cheapest certain source is used: the page index of the file if there is one, else the complete key chunk. A hundred
requests for page headers would cost more than the chunk, and the first and last keys are no bounds in zipped files.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TypeAlias

from catalogue.commoncrawl.crawls import CrawlWords
from catalogue.errors import OF_ONE_FILE, CatalogueError, StoreLocked
from catalogue.formatting import ReprMixin, plural
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import Indexes
from catalogue.plan.columnar_index import ColumnarIndex
from catalogue.plan.plan import ReadPlan
from catalogue.progress import Progress
from catalogue.query.arguments import several
from catalogue.query.key_intervals import ALL_KEYS
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.read.workers import Task, read_bounds, run_bounds
from catalogue.selection import select_stored
from catalogue.session import Session
from catalogue.tables.crawl_table import FileMetadata

_CHANGED = "another process has deleted or replaced its footer since the command began"


def prepare_backfill(session: Session, crawls: CrawlWords, files: str | Iterable[str] = ()) -> "Backfill":
    shown = session.metadata(indexes=True)
    patterns = several(files, "files")
    gaps = (each for crawl in sorted(select_stored(session, crawls, shown.crawls)) for each in shown.gaps(crawl))
    chosen = (each for each in gaps if not patterns or any(fnmatchcase(each.path, pattern) for pattern in patterns))
    return Backfill(session, [*chosen])


@dataclass(frozen=True, slots=True)
class Estimate:
    """The approximate cost."""

    files: int
    row_groups: int
    requests: int
    bytes: int
    seconds: float
    """The duration at the rate limit of the source."""


@dataclass(slots=True)
class Filled:
    """The result, or the progress, of a backfill."""

    done: int = 0
    """Number of completed files."""
    row_groups: int = 0
    requests: int = 0
    bytes: int = 0
    """Received."""
    seconds: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons, by path."""


_Result: TypeAlias = Mapping[int, Bounds] | CatalogueError
"""Bounds by row group, or why a file cannot be read."""


@dataclass(eq=False, repr=False)
class Backfill(ReprMixin):
    """Gaps to be filled; nothing is read before ``run``."""

    session: Session
    gaps: Sequence[FileMetadata]

    def _line(self) -> str:
        return f"of {plural(len(self.gaps), 'file')} whose footers lack key ranges"

    def _notes(self) -> Iterator[str]:
        yield "See the cost with estimate; read with run()."

    @cached_property
    def estimate(self) -> Estimate:
        """The cost."""
        costs = [self.cost(gaps) for gaps in self.gaps]
        requests, size = sum(requests for requests, _ in costs), sum(size for _, size in costs)
        seconds = self.session.cost().seconds(requests, size, 1) if self.gaps else 0.0
        return Estimate(len(self.gaps), sum(len(gaps.ordinals) for gaps in self.gaps), requests, size, seconds)

    def run(self, *, budget: int | None = None, report: Callable[[Filled], None] | None = None) -> Filled:
        """Fill gaps file by file, each stored at once, so that a later run continues.

        Args:
            budget: bytes that may be received; it ends before a file that would exceed them.
            report: called after each file, instead of a progress bar.

        Returns:
            What was filled; the rest failed or exceeds the budget.

        Raises:
            SourceUnavailable: if the source failed.
            WorkersLost: if the workers were lost.
            StoreError: if a result cannot be stored.
        """
        with self.session.bars("files") as bar:

            def show_bar(at: Filled) -> None:
                bar(Progress("backfill", len(self.gaps), at.done, failed=len(at.failures), bytes=at.bytes))

            filling = _Filling(self, budget, report or show_bar)
            with closing(self._read(filling.plans())) as results:
                for result in results:
                    filling.store(result)
        return filling.progress

    def _read(self, plans: Iterable[ReadPlan]) -> Generator[_Result, None, None]:
        if workers := self.session.workers:
            tasks = (Task(plan, workers.settings) for plan in plans)
            with closing(workers.results(tasks, do=run_bounds)) as results:
                yield from results
            return
        for plan in plans:
            yield read_bounds(plan, self.session.source, self.session.request_threads)

    def cost(self, gaps: FileMetadata) -> tuple[int, int]:
        """Return the requests and bytes of one file, if its page indexes are valid."""
        indexes = self._index(gaps).key_indexes()
        indexed = {part.row_group for request in indexes for part in request.parts}
        plan = self._plan(self._index(gaps.among({*gaps.ordinals} - indexed)))
        return len(indexes) + plan.requests, sum(len(request.range) for request in indexes) + plan.bytes

    def prepare(self, gaps: FileMetadata) -> ReadPlan:
        """Return what to read of a file, after fetching its page indexes."""
        index = self._index(gaps)
        index.fetch_key_indexes()
        planned = (group for file in self._plan(index).files for group in file.row_groups)
        return self._plan(self._index(gaps.among({each.ordinal for each in planned if each.key_index is None})))

    def _plan(self, index: ColumnarIndex) -> ReadPlan:
        dataset = self.session.dataset
        everything = ResolvedQuery(ALL_KEYS, ("*",), columns=(dataset.key,), any_order=True, table=dataset)
        return ReadPlan.of(everything, self.session.cost(), [index.plan(everything)])

    def _index(self, gaps: FileMetadata) -> ColumnarIndex:
        session = self.session
        crawl, count, source = gaps.file.crawl, len(gaps.ordinals), (lambda: session.source)
        return ColumnarIndex(
            crawl, lambda: [gaps], count, session.page_indexes, source, session.cost(), must_store=True
        )


class _Filling:
    def __init__(self, backfill: Backfill, budget: int | None, report: Callable[[Filled], None]) -> None:
        self.progress = Filled()
        self._backfill = backfill
        self._budget = budget
        self._report = report
        self._spent, self._started = backfill.session.spending(), time.monotonic()
        self._planned: deque[tuple[FileMetadata, int]] = deque()
        """Files that are being read, and their bytes."""

    def plans(self) -> Iterator[ReadPlan]:
        self._report(self.progress)
        for gaps in self._backfill.gaps:
            size = 0
            if self._budget is not None:
                _, size = self._backfill.cost(gaps)
                if self.progress.bytes + sum(planned for _, planned in self._planned) + size > self._budget:
                    return
            try:
                plan = self._backfill.prepare(gaps)
            except OF_ONE_FILE as error:
                self._note(gaps, error)
                continue
            self._planned.append((gaps, size))
            yield plan

    def store(self, result: _Result) -> None:
        """Store the bounds of the next file, unless it could not be read."""
        gaps, _ = self._planned.popleft()
        if isinstance(result, Exception):
            self._note(gaps, result)
            return
        indexes = {ordinal: Indexes(bounds=bounds) for ordinal, bounds in result.items()}
        store = self._backfill.session.store
        store.add_indexes(gaps.path, indexes, gaps.stored)
        current = store.get("files", gaps.path)
        is_stored = current is not None and current.version == gaps.stored.version
        self._note(gaps, None if is_stored else StoreLocked(_CHANGED))

    def _note(self, gaps: FileMetadata, failure: Exception | None) -> None:
        progress = self.progress
        if failure:
            progress.failures[gaps.path] = str(failure)
        else:
            progress.done += 1
            progress.row_groups += len(gaps.ordinals)
        progress.requests, progress.bytes = self._spent()
        progress.seconds = time.monotonic() - self._started
        self._report(progress)
