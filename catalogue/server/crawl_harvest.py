"""The list of crawls, and harvests on demand."""

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
from catalogue.harvest.harvest_crawls import crawl_list
from catalogue.metadata_db.candidates import MARGIN
from catalogue.progress import Progress
from catalogue.stored import crawl_names

_LIST_SECONDS, _RECENT_SECONDS = 600.0, 5.0
"""Seconds for which the list of crawls, and the stored ones among them, are used without looking again."""
_RETRY_HARVEST_SECONDS = 3600.0
_STARTING_SECONDS, _MAX_WAIT_SECONDS = 10, 600.0
"""``Retry-After`` while a harvest starts, and at most."""


class CrawlList:
    """Crawls that are listed by the source or stored."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._listed: tuple[float, list[Crawl]] | None = None
        self._found: tuple[float, dict[str, Crawl]] = (-math.inf, {})
        self.latest: str | None = None
        """The newest stored crawl at the last ``get``, else the newest listed one."""

    @property
    def recent(self) -> dict[str, Crawl] | None:
        """The last result of ``get``, if it is a few seconds old at most."""
        at, crawls = self._found
        return crawls if self._clock() - at < _RECENT_SECONDS else None

    def get(self, catalogue: Catalogue) -> dict[str, Crawl]:
        """Return crawls by name, newest first; only stored ones if the source does not answer."""
        now = self._clock()
        if self._listed is None or now - self._listed[0] >= _LIST_SECONDS:
            listed: list[Crawl] = []
            with suppress(SourceError, FormatError):
                listed = crawl_list(catalogue.session).crawls
            self._listed = now, listed
        stored = crawl_names(catalogue.session)
        crawls = {crawl: Crawl(crawl) for crawl in stored} | {each.id: each for each in self._listed[1]}
        self.latest = next(iter(newest_first(stored or crawls)), None)
        self._found = now, {crawl: crawls[crawl] for crawl in newest_first(crawls)}
        return self._found[1]

    def find(self, catalogue: Catalogue, name: str) -> Crawl:
        return find_crawl(self.get(catalogue), name)


def find_crawl(crawls: Mapping[str, Crawl], name: str) -> Crawl:
    """Return a crawl of a list.

    Raises:
        UnknownCrawl: if it is not in the list.
    """
    if name not in crawls:
        like = closest_crawl(name, crawls)
        hint = f"did you mean {like}? " if like in {*crawls, "latest"} - {name} else ""
        raise UnknownCrawl(f"there is no crawl {name[:100]}; {hint}see /collinfo.json")
    return crawls[name]


def is_outside(crawl: Crawl, from_ms: int | None, to_ms: int | None) -> bool:
    """Check, with a margin, whether a crawl has no captures in a time range: milliseconds since 1970, end exclusive."""
    if not crawl.first_fetch or not crawl.last_fetch:
        return False
    first, last = (int(time.timestamp()) * 1000 for time in (crawl.first_fetch, crawl.last_fetch))
    return (from_ms is not None and last + MARGIN < from_ms) or (to_ms is not None and first - MARGIN >= to_ms)


class OnDemandHarvester:
    """Harvest requested crawls in a thread, one after the other."""

    def __init__(
        self,
        opened: Callable[[], Catalogue],
        notify: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without a harvest; ``opened`` opens a catalogue for the thread, ``clock`` returns seconds."""
        self._opened = opened
        self._clock = clock
        self._notify = notify
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="harvest")
        self._lock = Lock()
        self._pending: dict[str, Progress | None] = {}
        self._reports: dict[str, Progress] = {}
        self._failures: dict[str, tuple[float, str, bool]] = {}
        """Time of the next attempt, message, and whether the source failed."""
        self._harvested: set[str] = set()
        self._harvesting: Catalogue | None = None
        self._closed = False

    def request(self, crawl: str) -> None:
        """Harvest all subsets of a crawl, unless that was done.

        Raises:
            Harvesting: until it is done.
            Busy: for an hour if the source failed.
            NotHarvested: for an hour if it failed for another reason.
        """
        with self._lock:
            until, message, temporary = self._failures.get(crawl, (-math.inf, "", False))
            left = until - self._clock()
            if left > 0:
                raise Busy(message, retry_after=left) if temporary else NotHarvested(message)
            if crawl in self._harvested:
                return
            if crawl not in self._pending:
                self._pending[crawl] = None
                self._executor.submit(self._harvest, crawl)
            at = self._pending[crawl]
        if at is None or not at.listed:
            raise Harvesting(f"the harvest of {crawl} is starting; try again", crawl, retry_after=_STARTING_SECONDS)
        left = (at.listed - at.done) * at.seconds / max(1, at.done)
        message = f"{crawl} is being harvested, {at.done} of {at.listed} files so far; try again"
        wait = min(max(left, 1.0), _MAX_WAIT_SECONDS)
        raise Harvesting(message, crawl, at.done + at.failed, at.listed, retry_after=wait)

    @property
    def spent(self) -> tuple[int, int]:
        """Return the number of requests, and bytes received."""
        with self._lock:
            return sum(at.requests for at in self._reports.values()), sum(at.bytes for at in self._reports.values())

    def close(self) -> None:
        """Cancel harvests and wait for the running one; committed files remain stored."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed, harvesting = True, self._harvesting
        if harvesting:
            harvesting.session.abort()
        self._executor.shutdown()

    def _harvest(self, crawl: str) -> None:
        self._notify(f"{crawl} was requested; harvesting it")
        failure, temporary = "", False
        until = self._clock() + _RETRY_HARVEST_SECONDS
        try:
            with self._opened() as catalogue:
                with self._lock:
                    self._harvesting = catalogue
                    if self._closed:
                        catalogue.session.abort()
                outcomes = catalogue.harvest(crawl, subsets="all", report=lambda at: self._report(crawl, at))
            for outcome in outcomes:
                at = outcome.progress
                self._notify(f"{crawl}: {at.done} of {at.listed} files are stored, {at.failed} failed")
        except CatalogueError as error:
            failure, temporary = f"{crawl} could not be harvested: {error}", isinstance(error, SourceError)
            self._notify(failure)
        except Exception as error:  # noqa: BLE001 - the crawl must not stay pending
            failure = f"{crawl} could not be harvested: internal error"
            self._notify(f"{failure}: {type(error).__name__}: {error}")
        with self._lock:
            self._harvesting = None
            del self._pending[crawl]
            if failure:
                self._failures[crawl] = until, failure, temporary
            else:
                self._harvested.add(crawl)

    def _report(self, crawl: str, at: Progress) -> None:
        with self._lock:
            self._pending[crawl] = self._reports[crawl] = at
            if self._closed:
                raise SourceUnavailable("the server was stopped")
