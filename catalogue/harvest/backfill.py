"""Find the keys of row groups whose footers lack useful bounds, by reading once.

The cheapest certain source is used: the page index if only bounds are missing, else the complete key chunk. A hundred
requests for page headers would cost more than the chunk, and the first and last keys are no bounds in zipped files.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from catalogue.errors import Blocked, FormatError, SourceError, SourceUnavailable
from catalogue.formatting import ReprMixin, plural
from catalogue.metadata_db.candidates import Candidate
from catalogue.metadata_db.gaps import Gaps
from catalogue.metadata_db.gaps import gaps as find_gaps
from catalogue.plan.context import PlanContext, Scope
from catalogue.plan.plan import ReadPlan
from catalogue.progress import Progress
from catalogue.query.key_intervals import ALL_KEYS
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.read.workers import Learned, LocalReader
from catalogue.selection import select_stored, several
from catalogue.session import Session


def prepare_backfill(
    session: Session, crawls: str | Iterable[str] = "all", *, only_gaps: bool = False, files: str | Iterable[str] = ()
) -> "Backfill":
    """Find row groups whose footers lack bounds; see ``Catalogue.backfill``."""
    with session.database() as connection:
        words = select_stored(session, crawls, session.metadata().crawls)
        files_of = session.metadata().files
        return Backfill(session, find_gaps(connection, files_of, words, several(files), overlapping=not only_gaps))


@dataclass(frozen=True, slots=True)
class Estimate:
    """The approximate cost."""

    files: int
    row_groups: int
    requests: int
    bytes: int
    seconds: float
    """At the rate of the source."""


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


class Backfill(ReprMixin):
    """Gaps to be filled; nothing is read before ``run``."""

    def __init__(self, session: Session, gaps: Sequence[Gaps]) -> None:
        self.session = session
        self.gaps = gaps

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
        return Estimate(len(self.gaps), sum(map(_row_groups, self.gaps)), requests, size, seconds)

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
        readers = self.session.workers or LocalReader(lambda: self.session.source)
        with self.session.bars("files") as bar:

            def show_bar(at: Filled) -> None:
                bar(Progress("backfill", len(self.gaps), at.done, failed=len(at.failures), bytes=at.bytes))

            filling = _Filling(self, budget, report or show_bar)
            for learned in readers.learn(filling.plans()):
                filling.store(learned)
        return filling.progress

    def cost(self, gaps: Gaps) -> tuple[int, int]:
        """Return the requests and bytes of one file, if its page indexes are valid."""
        indexes = self._context(gaps.missing).key_indexes() if gaps.missing else ()
        indexed = {part.row_group for request in indexes for part in request.parts}
        plan = self._context(_to_read(gaps, lambda ordinal: ordinal not in indexed)).plan()
        return len(indexes) + plan.requests, sum(len(request.range) for request in indexes) + plan.bytes

    def prepare(self, gaps: Gaps) -> tuple[PlanContext, ReadPlan]:
        """Return what to read of a file, after fetching its page indexes if they are sufficient."""
        without_index: set[int] = set()
        if gaps.missing:
            context = self._context(gaps.missing)
            plan = context.plan()
            if indexes := context.key_indexes():
                context.fetch_indexes(indexes)
                plan = context.plan()
            planned = (group for file in plan.files for group in file.row_groups)
            without_index = {group.ordinal for group in planned if group.key_index is None}
        context = self._context(_to_read(gaps, without_index.__contains__))
        return context, context.plan()

    def _context(self, candidate: Candidate) -> PlanContext:
        session, table = self.session, self.session.dataset
        everything = ResolvedQuery(ALL_KEYS, ("*",), columns=(table.key,), any_order=True, table=table)
        scope = Scope((candidate,), len(candidate.row_groups), ())
        return PlanContext(
            everything, scope, session.page_indexes, lambda: session.source, session.cost(), must_learn=True
        )


class _Filling:
    """A running backfill."""

    def __init__(self, backfill: Backfill, budget: int | None, report: Callable[[Filled], None]) -> None:
        self.progress = Filled()
        self._backfill = backfill
        self._budget = budget
        self._report = report
        self._before, self._started = backfill.session.spent, time.monotonic()
        self._planned: deque[tuple[Gaps, PlanContext, int]] = deque()
        """Files that are being read, and their bytes."""

    def plans(self) -> Iterator[ReadPlan]:
        """Yield what to read, within the budget."""
        self._report(self.progress)
        for gaps in self._backfill.gaps:
            size = 0
            if self._budget is not None:
                _, size = self._backfill.cost(gaps)
                if self.progress.bytes + sum(planned for _, _, planned in self._planned) + size > self._budget:
                    return
            try:
                context, plan = self._backfill.prepare(gaps)
            except (Blocked, SourceUnavailable):
                raise
            except (SourceError, FormatError) as error:
                self._note(gaps, error)
                continue
            self._planned.append((gaps, context, size))
            yield plan

    def store(self, learned: Learned) -> None:
        """Store what was learned from the next file."""
        gaps, context, _ = self._planned.popleft()
        for each in learned.learned:
            context.learn(*each)
        context.finish()
        self._note(gaps, learned.failure)

    def _note(self, gaps: Gaps, failure: Exception | None) -> None:
        progress = self.progress
        if failure:
            progress.failures[gaps.path] = str(failure)
        else:
            progress.done += 1
            progress.row_groups += _row_groups(gaps)
        requests, size = self._backfill.session.spent
        progress.requests, progress.bytes = requests - self._before[0], size - self._before[1]
        progress.seconds = time.monotonic() - self._started
        self._report(progress)


def _row_groups(gaps: Gaps) -> int:
    return sum(len(each.row_groups) for each in (gaps.missing, gaps.overlapping) if each)


def _to_read(gaps: Gaps, condition: Callable[[int], bool]) -> Candidate:
    """Return the overlapping row groups, and those without bounds that meet a condition."""
    like = gaps.missing or gaps.overlapping
    assert like  # noqa: S101 - a file without gaps is not among them
    unread = {*gaps.overlapping.row_groups} if gaps.overlapping else set()
    if gaps.missing:
        unread |= {*filter(condition, gaps.missing.row_groups)}
    return replace(like, row_groups=tuple(sorted(unread)))
