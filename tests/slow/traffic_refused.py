"""Answers that asking again does not change: what is said of them, and that it goes on once they are over.

Each is given to every request for one file, or to every request. Whoever asks is told by the right error which file it
is, after few requests; what does not need that file is done; and when it is over the same is done in full.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from shutil import rmtree
from typing import TypeAlias

from catalogue.errors import Blocked, CatalogueError, FileChanged
from tests.slow.traffic_steps import Fetches, Harvests, Place, Serves
from tests.slow.traffic_truth import Asked, Truth
from tests.support.faults import BLOCKING, PERMANENT, Kind, always, only
from tests.support.serving import get
from tests.support.sources import BOUNDED, SUFFIX, expected

_PINNED = frozenset({Kind.CHANGED_ETAG, Kind.OTHER_OBJECT})
"""What is noticed by whoever has seen the file before."""
_DAMAGED = frozenset({Kind.FLIPPED_BIT, Kind.OTHER_OBJECT})
"""What is noticed by whoever knows what is in it."""
_PROBES = 2
"""Requests that find out whether a block is over, before it is given up."""
_AN_HOUR = 3600.0


@contextmanager
def _refusing(at: Place, kind: Kind, path: str | None = None) -> Iterator[Counter[tuple[str, str | None]]]:
    """Nothing but refusals, of one file or of all, until the end of the block; then what was refused how often."""
    refused: Counter[tuple[str, str | None]] = Counter()
    at.server.settle()
    before = len(at.server.log)
    with at.scripted(always(kind) if path is None else only(path, kind)):
        yield refused
        refused.update((each.path, each.range_header) for each in at.server.settle()[before:] if each.fault)


@dataclass(frozen=True)
class RefusedHarvest:
    """One footer, or all, cannot be had."""

    kind: Kind
    step: Harvests
    path: str

    def __call__(self, at: Place) -> None:
        at.connections = 1 if self.kind in BLOCKING else at.connections
        if self.kind in BLOCKING:
            with _refusing(at, self.kind) as refused, at.open() as cat:
                error = _raised(lambda: cat.harvest(self.step.crawl, subsets="all"))
            assert isinstance(error, Blocked), error
            assert "Run the same command again" in str(error)
            assert refused.total() <= 1 + 1 + _PROBES, refused  # the list of crawls, and the crawl's own
        else:
            with _refusing(at, self.kind, self.path) as refused, at.open() as cat:
                (outcome,) = cat.harvest(self.step.crawl, subsets="all")
                assert outcome.failures.keys() == {self.path}
                assert self.path in outcome.failures[self.path]
                (reason,) = cat.failures().reason
                kind = expected(self.kind, SUFFIX) or CatalogueError
                assert reason.startswith(kind.__name__), reason
            assert refused.total() == 1, refused
        self.step(at)


@dataclass(frozen=True)
class RefusedQuestion:
    """Pages of one file, or all, cannot be had."""

    kind: Kind
    asked: Asked
    path: str

    def __call__(self, at: Place) -> None:
        at.connections = 1 if self.kind in BLOCKING else at.connections
        data = at.copy()
        path = None if self.kind in BLOCKING else self.path
        kind = FileChanged if self.kind in _PINNED else expected(self.kind, BOUNDED) or CatalogueError
        with _refusing(at, self.kind, path) as refused, at.open(data) as cat:
            error = _raised(lambda: self.asked.check(cat))
        if refused:  # there may be no other object with such bytes
            assert isinstance(error, kind), error
            assert (path or "blocks this address") in str(error)
        else:
            assert error is None
        if path is None:
            assert refused.total() <= 1 + _PROBES, refused
        else:  # what was under way before the first was refused
            assert set(refused.values()) <= {1}, refused
        with at.open(data) as cat:
            self.asked.check(cat)


@dataclass(frozen=True)
class RefusedFetch:
    """Records of one archive, or all, cannot be had, or are damaged."""

    kind: Kind
    step: Fetches
    path: str

    def __call__(self, at: Place) -> None:
        at.connections = 1 if self.kind in BLOCKING else at.connections
        output = self.step.output(at)
        if self.kind in BLOCKING:
            with _refusing(at, self.kind) as refused, at.open() as cat:
                error = _raised(lambda: cat.fetch(self.step.rows, output, form=self.step.form))
            assert isinstance(error, Blocked), error
            assert refused.total() <= 1 + _PROBES, refused
        else:
            with _refusing(at, self.kind, self.path), at.open() as cat:
                done = cat.fetch(self.step.rows, output, form=self.step.form)
            mine = {each.place for each in self.step.archived if each.place[0] == self.path}
            # A flipped bit may be one of the few of a gzip member's head that change nothing of what is in it.
            assert done.failed.keys() == mine or (self.kind in _DAMAGED and done.failed.keys() <= mine)
            assert all(self.path in reason for reason in done.failed.values())
            if done.records:
                self.step.check(at, [each for each in self.step.archived if each.place not in done.failed])
            if self.kind in _DAMAGED | {Kind.NOT_FOUND}:  # what an output believes of records
                rmtree(output) if output.is_dir() else output.unlink(missing_ok=True)
                for ledger in at.folder.glob(f"*{output.name}*"):
                    ledger.unlink()
        self.step(at)


@dataclass(frozen=True)
class RefusedAnswer:
    """A server's own source says nothing else."""

    kind: Kind
    step: Serves

    def __call__(self, at: Place) -> None:
        at.connections = 1 if self.kind in BLOCKING else at.connections
        with at.serving() as address:
            with _refusing(at, self.kind) as refused:
                answers = [get(address, self.step.target(asked)) for asked in self.step.questions]
            if refused:
                assert {each.status for each in answers} <= {200, 503 if self.kind in BLOCKING else 409}, answers
                assert {each.status for each in answers} != {200}
                assert all("retry-after" in each.headers for each in answers if each.status == 503)
            if self.kind in BLOCKING:
                assert refused.total() <= 1 + _PROBES, refused
                for clock in at.clocks:
                    clock.advance(_AN_HOUR)
            for asked in self.step.questions:
                self.step.ask(address, asked)


def _raised(work: Callable[[], object]) -> CatalogueError | None:
    try:
        work()
    except CatalogueError as error:
        return error
    return None


Refused: TypeAlias = RefusedHarvest | RefusedQuestion | RefusedFetch | RefusedAnswer


_WORST = sorted(BLOCKING, key=str) + sorted(PERMANENT, key=str)
_KINDS = (
    sorted(_PINNED, key=str) + _WORST,
    sorted(_DAMAGED, key=str) + _WORST,
    _WORST,
    _WORST,
)
"""Of questions, of fetches, of harvests and of answers, in the order in which they come."""


def refusals(truth: Truth, chance: random.Random, numbers: range) -> list[Refused]:
    """Some of those there are, which come in turn."""
    made: list[Refused] = []
    for number in numbers:
        of, turn = number % len(_KINDS), number // len(_KINDS)
        kind = _KINDS[of][turn % len(_KINDS[of])]
        crawl = chance.choice(truth.crawls)
        path = chance.choice(sorted(truth.files(crawl)))
        match of:
            case 0:
                made.append(RefusedQuestion(kind, truth.whole(crawl), path))
            case 1:
                fetches = Fetches("warc", truth.archived(30, chance))
                made.append(RefusedFetch(kind, fetches, chance.choice(fetches.archived).place[0]))
            case 2:
                made.append(RefusedHarvest(kind, Harvests(crawl, truth.footers(crawl)), path))
            case _:
                made.append(RefusedAnswer(kind, Serves(crawl, truth.urls(crawl, 2, chance))))
    return made
