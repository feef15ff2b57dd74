"""Row groups whose footers say too little → what their keys say, taken once and kept.

The cheapest source that is sure comes first: the page index, where the file has one and only bounds are lacking; else
the chunk of keys is read, once. Deprecated bounds, which other readers ignore, are used without any of this. Page
headers are not probed one by one, since a hundred requests cost more than the chunk; and first and last keys are not
taken for bounds, since a zipped file need not begin with its least key.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property

from catalogue.errors import FormatError, GivenUp, SourceError
from catalogue.plan import Cost, Fetch
from catalogue.query import Query
from catalogue.question import Question, Scope
from catalogue.reader import Told, read
from catalogue.source import PoliteSource
from catalogue.surt import EVERYTHING
from catalogue.table import Table
from catalogue.views import Candidate, Gaps

Ask = Callable[[Query, Scope], Question]
"""Makes a question about some candidates."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What filling takes, about."""

    files: int
    row_groups: int
    requests: int
    bytes: int
    seconds: float
    """At the rate that the source allows."""


@dataclass(slots=True)
class Progress:
    """How far it is."""

    done: int = 0
    """Files filled."""
    row_groups: int = 0
    requests: int = 0
    bytes: int = 0
    """Received."""
    seconds: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons, by path."""


class Backfill:
    """Gaps to be filled; nothing is read until ``run``."""

    def __init__(self, gaps: Sequence[Gaps], table: Table, ask: Ask, source: Callable[[], PoliteSource]) -> None:
        """Look at gaps of a table; ``source`` is called when something is to be fetched, and counts it."""
        self._everything = Query((EVERYTHING,), ("*",), columns=(table.key,), table=table)
        self._gaps = gaps
        self._ask = ask
        self._source = source

    @cached_property
    def estimate(self) -> Estimate:
        """What it takes."""
        takes = [self._takes(each) for each in self._gaps]
        requests, size = sum(each.requests for each in takes), sum(each.bytes for each in takes)
        row_groups = sum(len(_offsets(gaps.missing)) + len(_offsets(gaps.overlapping)) for gaps in self._gaps)
        seconds = takes[0].cost.seconds(requests, size, 1) if takes else 0.0
        return Estimate(len(self._gaps), row_groups, requests, size, seconds)

    def run(self, *, budget: int | None = None, report: Callable[[Progress], None] = lambda _: None) -> Progress:
        """Fill gaps file by file. Each is kept as soon as it is known: stopped at any time, it goes on from there.

        Args:
            budget: bytes that may be received; it ends before the file that would take more.
            report: told how far it is, after each file.

        Returns:
            How far it got; the rest is left by a budget, or failed.

        Raises:
            GivenUp: if the source failed as a whole.
            StoreError: if what was found cannot be kept.
        """
        source, progress = self._source(), Progress()
        before, started = (source.requests, source.bytes), time.monotonic()
        report(progress)
        with ThreadPoolExecutor(source.connections, thread_name_prefix="backfill") as executor:
            for each in self._gaps:
                if budget is not None and progress.bytes + self._takes(each).bytes > budget:
                    break
                try:
                    progress.row_groups += self._fill(each, source, executor)
                    progress.done += 1
                except GivenUp:
                    raise
                except (SourceError, FormatError) as error:
                    progress.failures[each.path] = str(error)
                progress.requests, progress.bytes = source.requests - before[0], source.bytes - before[1]
                progress.seconds = time.monotonic() - started
                report(progress)
        return progress

    def _takes(self, gaps: Gaps) -> "_Takes":
        """What one file takes, if its page indexes are right."""
        indexes: tuple[Fetch, ...] = ()
        unread = _offsets(gaps.overlapping)
        if gaps.missing:
            indexes = self._question(gaps.missing).key_indexes()
            indexed = {part.row_group for fetch in indexes for part in fetch.parts}
            unread |= {n: offset for n, offset in gaps.missing.row_groups if n not in indexed}
        plan = self._question(_some(gaps, unread)).plan()
        return _Takes(len(indexes) + plan.requests, sum(len(fetch.range) for fetch in indexes) + plan.bytes, plan.cost)

    def _question(self, candidate: Candidate) -> Question:
        return self._ask(self._everything, Scope((candidate,), len(candidate.row_groups), ()))

    def _fill(self, gaps: Gaps, source: PoliteSource, executor: ThreadPoolExecutor) -> int:
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
        with closing(read(question.plan(), source, executor, Told(learn=question.learn))) as batches:
            for _ in batches:
                pass
        question.finish()
        return len(_offsets(gaps.missing)) + len(_offsets(gaps.overlapping))


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
