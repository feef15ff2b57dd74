"""Which crawls there are, and taking the footers of one when it is first asked for."""

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.crawls import closest_crawl, newest_first
from catalogue.commoncrawl.manifests import Crawl
from catalogue.errors import (
    Busy,
    CatalogueError,
    FormatError,
    Harvesting,
    NotHarvested,
    SourceError,
    SourceUnavailable,
    UnknownCrawl,
)
from catalogue.harvest.crawls import crawl_list
from catalogue.metadata_db.candidates import MARGIN
from catalogue.progress import Progress
from catalogue.reports import crawl_names

_LIST_AGE = 600.0
"""Seconds after which the list of crawls is looked up again, in the store or, once a day, at the source."""
_RECENT, _AN_HOUR = 5.0, 3600.0
_SOON = 10
"""Seconds after which to ask again for what is just beginning."""


class Listed:
    """The crawls there are: those that the source lists, and those of which something is held."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: tuple[float, list[Crawl]] | None = None
        self._told: tuple[float, dict[str, Crawl]] = (-math.inf, {})
        self.latest: str | None = None
        """The newest harvested crawl when ``get`` was called last, else the newest listed."""

    @property
    def recent(self) -> dict[str, Crawl] | None:
        """What ``get`` said last, unless that is some seconds ago: not every question has to ask for it anew."""
        at, crawls = self._told
        return crawls if self._clock() - at < _RECENT else None

    def get(self, catalogue: Catalogue) -> dict[str, Crawl]:
        """By name, newest first. If the source does not say, those that are held."""
        now = self._clock()
        if self._known is None or now - self._known[0] >= _LIST_AGE:
            listed: list[Crawl] = []
            with suppress(SourceError, FormatError):
                listed = crawl_list(catalogue.session).crawls
            self._known = now, listed
        held = crawl_names(catalogue.session)
        crawls = {crawl: Crawl(crawl) for crawl in held} | {each.id: each for each in self._known[1]}
        self.latest = next(iter(newest_first(held or crawls)), None)
        self._told = now, {crawl: crawls[crawl] for crawl in newest_first(crawls)}
        return self._told[1]

    def find(self, catalogue: Catalogue, name: str) -> Crawl:
        """The crawl of a name.

        Raises:
            UnknownCrawl: if there is none.
        """
        return crawl_named(self.get(catalogue), name)


def crawl_named(crawls: Mapping[str, Crawl], name: str) -> Crawl:
    """The crawl of a name, of those there are.

    Raises:
        UnknownCrawl: if it is none of them.
    """
    if name not in crawls:
        like = closest_crawl(name, crawls)
        hint = f"did you mean {like}? " if like in {*crawls, "latest"} - {name} else ""
        message = f"there is no crawl {name[:100]}; {hint}see /collinfo.json"
        raise UnknownCrawl(message)
    return crawls[name]


def elsewhen(crawl: Crawl, from_ms: int | None, to_ms: int | None) -> bool:
    """Whether a crawl was fetched at other times than between two, as the list of crawls says, and a month to spare.

    Args:
        crawl: as it is listed.
        from_ms: in milliseconds since 1970; None for any.
        to_ms: the same, exclusive.
    """
    if not crawl.first_fetch or not crawl.last_fetch:
        return False
    first, last = (int(time.timestamp()) * 1000 for time in (crawl.first_fetch, crawl.last_fetch))
    return (from_ms is not None and last + MARGIN < from_ms) or (to_ms is not None and first - MARGIN >= to_ms)


@dataclass(frozen=True, slots=True)
class _Failure:
    """A harvest that failed."""

    why: str
    until: float
    """When it is tried again, by the clock."""
    may_go_better: bool
    """Whether the source was to blame."""


class Harvests:
    """Takes the footers of crawls that are asked for and not held, one after the other."""

    def __init__(
        self,
        opened: Callable[[], Catalogue],
        notify: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wait for the first.

        Args:
            opened: a catalogue for a thread of its own.
            notify: told what begins and ends.
            clock: seconds; what failed is tried again after an hour.
        """
        self._opened = opened
        self._clock = clock
        self._notify = notify
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="harvest")
        self._lock = Lock()
        self._under_way: dict[str, Progress | None] = {}
        self._reports: dict[str, Progress] = {}
        self._failed: dict[str, _Failure] = {}
        self._taken: set[str] = set()
        self._harvesting: Catalogue | None = None
        self._closed = False

    def want(self, crawl: str) -> None:
        """See to it that a crawl is harvested, all subsets of it; once it was this does nothing.

        Raises:
            Harvesting: as long as that takes.
            Busy: for an hour if the source failed.
            NotHarvested: for an hour if it failed otherwise.
        """
        with self._lock:
            failure = self._failed.get(crawl)
            left = failure.until - self._clock() if failure else 0.0
            if failure and left > 0:
                raise Busy(failure.why, retry_after=left) if failure.may_go_better else NotHarvested(failure.why)
            if crawl in self._taken:
                return
            if crawl not in self._under_way:
                self._under_way[crawl] = None
                self._executor.submit(self._harvest, crawl)
            at = self._under_way[crawl]
        if at is None or not at.listed:
            message = f"{crawl} is about to be harvested; ask again"
            raise Harvesting(message, crawl, retry_after=_SOON)
        rest = (at.listed - at.done) * at.seconds / max(1, at.done)
        message = f"{crawl} is being harvested, {at.done} of {at.listed} files so far; ask again"
        raise Harvesting(message, crawl, at.done + at.failed, at.listed, retry_after=min(max(rest, 1.0), 600.0))

    @property
    def spent(self) -> tuple[int, int]:
        """Requests made of the source so far and bytes received."""
        with self._lock:
            return sum(at.requests for at in self._reports.values()), sum(at.bytes for at in self._reports.values())

    def close(self) -> None:
        """Begin no more, break off what is under way, and wait until it has ended; what was committed is kept."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed, harvesting = True, self._harvesting
        if harvesting:
            harvesting.session.abort()
        self._executor.shutdown()

    def _harvest(self, crawl: str) -> None:
        self._notify(f"{crawl} was asked for; harvesting it")
        failure: _Failure | None = None
        until = self._clock() + _AN_HOUR
        try:
            with self._opened() as catalogue:
                with self._lock:
                    self._harvesting = catalogue
                    if self._closed:
                        catalogue.session.abort()
                outcomes = catalogue.harvest(crawl, subsets="all", report=lambda at: self._report(crawl, at))
            for outcome in outcomes:
                at = outcome.progress
                self._notify(f"{crawl}: {at.done} of {at.listed} files are held, {at.failed} failed")
        except CatalogueError as error:
            failure = _Failure(f"{crawl} could not be harvested: {error}", until, isinstance(error, SourceError))
            self._notify(failure.why)
        except Exception as error:  # noqa: BLE001 - nobody else would hear of it, and the crawl be under way for ever
            failure = _Failure(f"{crawl} could not be harvested: something failed here", until, may_go_better=False)
            self._notify(f"{failure.why}: {type(error).__name__}: {error}")
        with self._lock:
            self._harvesting = None
            del self._under_way[crawl]
            if failure:
                self._failed[crawl] = failure
            else:
                self._taken.add(crawl)

    def _report(self, crawl: str, at: Progress) -> None:
        with self._lock:
            self._under_way[crawl] = self._reports[crawl] = at
            if self._closed:
                message = "the server was stopped"
                raise SourceUnavailable(message)
