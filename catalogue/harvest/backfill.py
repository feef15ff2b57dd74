"""Find the keys of row groups whose footers lack useful bounds, by reading once.

The cheapest certain source is used: the page index if only bounds are missing, else the complete key chunk. A hundred
requests for page headers would cost more than the chunk, and the first and last keys are no bounds in zipped files.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from catalogue import metadata_db
from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import Blocked, FormatError, SourceError, SourceUnavailable
from catalogue.formatting import ReprMixin, plural
from catalogue.metadata_db.candidates import Candidate
from catalogue.metadata_db.gaps import Gaps
from catalogue.plan.context import PlanContext, Scope
from catalogue.plan.cost import Cost
from catalogue.plan.plan import ReadPlan
from catalogue.plan.requests import PlannedRequest
from catalogue.progress import Bars, Progress, no_bar
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.read.workers import Learned, LocalReader, Workers
from catalogue.session import Session
from catalogue.stored import select_stored, several
from catalogue.surt import EVERYTHING

Ask = Callable[[ResolvedQuery, Scope], PlanContext]
"""Plans a query for some candidates."""


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

    def __init__(
        self,
        gaps: Sequence[Gaps],
        table: Dataset,
        ask: Ask,
        readers: LocalReader | Workers,
        made: Callable[[], tuple[int, int]],
        *,
        bars: Bars = no_bar,
    ) -> None:
        """Prepare to fill gaps of a dataset.

        Args:
            gaps: by file.
            table: the dataset.
            ask: plans a query for them.
            readers: read the plans.
            made: returns requests and bytes so far.
            bars: show the progress.
        """
        self._everything = ResolvedQuery((EVERYTHING,), ("*",), columns=(table.key,), table=table)
        self.gaps = gaps
        self._ask = ask
        self._readers = readers
        self.made = made
        self._bars = bars

    def _line(self) -> str:
        return f"of {plural(len(self.gaps), 'file')} that say too little of their keys"

    def _notes(self) -> Iterator[str]:
        yield "estimate says what it takes, and run() does it."

    @cached_property
    def estimate(self) -> Estimate:
        """Return the cost."""
        takes = [self.takes(each) for each in self.gaps]
        requests, size = sum(each.requests for each in takes), sum(each.bytes for each in takes)
        row_groups = sum(len(_offsets(gaps.missing)) + len(_offsets(gaps.overlapping)) for gaps in self.gaps)
        seconds = takes[0].cost.seconds(requests, size, 1) if takes else 0.0
        return Estimate(len(self.gaps), row_groups, requests, size, seconds)

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
        with self._bars("files") as bar:

            def show_bar(at: Filled) -> None:
                bar(Progress("backfill", len(self.gaps), at.done, failed=len(at.failures), bytes=at.bytes))

            filling = _Filling(self, budget, report or show_bar)
            for lesson in self._readers.learn(filling.plans()):
                filling.take(lesson)
        return filling.progress

    def takes(self, gaps: Gaps) -> "_Takes":
        """Return the cost of one file, if its page indexes are valid."""
        indexes: tuple[PlannedRequest, ...] = ()
        unread = _offsets(gaps.overlapping)
        if gaps.missing:
            indexes = self._question(gaps.missing).key_indexes()
            indexed = {part.row_group for fetch in indexes for part in fetch.parts}
            unread |= {n: offset for n, offset in gaps.missing.row_groups if n not in indexed}
        plan = self._question(_some(gaps, unread)).plan()
        return _Takes(len(indexes) + plan.requests, sum(len(fetch.range) for fetch in indexes) + plan.bytes, plan.cost)

    def _question(self, candidate: Candidate) -> PlanContext:
        return self._ask(self._everything, Scope((candidate,), len(candidate.row_groups), ()))

    def prepared(self, gaps: Gaps) -> tuple[PlanContext, ReadPlan]:
        """Return what to read of a file, after fetching its page indexes if they are sufficient."""
        unread = _offsets(gaps.overlapping)
        if gaps.missing:
            question = self._question(gaps.missing)
            plan = question.plan()
            if indexes := question.key_indexes():
                question.fetch_indexes(indexes)
                plan = question.plan()
            # What has no page index, or a wrong one, is to be read.
            whole = {group.ordinal for file in plan.files for group in file.row_groups if group.key_index is None}
            unread |= {n: offset for n, offset in gaps.missing.row_groups if n in whole}
        question = self._question(_some(gaps, unread))
        return question, question.plan()


class _Filling:
    """A running backfill."""

    def __init__(self, backfill: Backfill, budget: int | None, report: Callable[[Filled], None]) -> None:
        self.progress = Filled()
        self._backfill = backfill
        self._budget = budget
        self._report = report
        self._made = backfill.made
        self._before, self._started = backfill.made(), time.monotonic()
        self._planned: deque[tuple[Gaps, PlanContext, int]] = deque()
        """Files that are being read, and their bytes."""

    def plans(self) -> Iterator[ReadPlan]:
        """Yield what to read, within the budget."""
        self._report(self.progress)
        for each in self._backfill.gaps:
            size = self._backfill.takes(each).bytes if self._budget is not None else 0
            promised = sum(size for _, _, size in self._planned)
            if self._budget is not None and self.progress.bytes + promised + size > self._budget:
                return
            try:
                question, plan = self._backfill.prepared(each)
            except (Blocked, SourceUnavailable):
                raise
            except (SourceError, FormatError) as error:
                self._note(each, error)
                continue
            self._planned.append((each, question, size))
            yield plan

    def take(self, lesson: Learned) -> None:
        """Store what was learned from the next file."""
        gaps, question, _ = self._planned.popleft()
        for each in lesson.learned:
            question.learn(*each)
        question.finish()
        self._note(gaps, lesson.failure)

    def _note(self, gaps: Gaps, failure: Exception | None) -> None:
        progress = self.progress
        if failure:
            progress.failures[gaps.path] = str(failure)
        else:
            progress.done += 1
            progress.row_groups += len(_offsets(gaps.missing)) + len(_offsets(gaps.overlapping))
        requests, size = self._made()
        progress.requests, progress.bytes = requests - self._before[0], size - self._before[1]
        progress.seconds = time.monotonic() - self._started
        self._report(progress)


@dataclass(frozen=True, slots=True)
class _Takes:
    requests: int
    bytes: int
    cost: Cost


def _offsets(candidate: Candidate | None) -> dict[int, int]:
    return dict(candidate.row_groups) if candidate else {}


def _some(gaps: Gaps, offsets: dict[int, int]) -> Candidate:
    like = gaps.missing or gaps.overlapping
    assert like  # noqa: S101 - a file without gaps is not among them
    return replace(like, row_groups=tuple(sorted(offsets.items())))


def prepare_backfill(
    session: Session, crawls: str | Iterable[str] = "all", *, only_gaps: bool = False, files: str | Iterable[str] = ()
) -> Backfill:
    """Find row groups whose footers lack bounds; see ``Catalogue.backfill``."""
    with session.database() as connection:
        words = select_stored(session, session.metadata().crawls, crawls)
        found = metadata_db.gaps(connection, words, several(files), overlapping=not only_gaps)
    return Backfill(
        found,
        session.dataset,
        lambda query, scope: PlanContext(
            query, scope, session.footers, lambda: session.source, session.cost(), must_learn=True
        ),
        session.workers or LocalReader(lambda: session.source),
        lambda: session.spent,
        bars=session.bars,
    )
