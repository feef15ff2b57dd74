"""The list of crawls, and harvests on demand."""

import math
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from threading import Lock, RLock

from catalogue.commoncrawl.crawls import CRAWL_NAME, Crawl, closest_crawl, has_columnar_index, newest_first
from catalogue.errors import (
    Busy,
    CatalogueError,
    FormatError,
    Harvesting,
    NotHarvested,
    SourceError,
    StoreLocked,
    UnknownCrawl,
)
from catalogue.harvest.harvest_crawls import HarvestOptions, harvest_crawls
from catalogue.progress import Progress
from catalogue.selection import crawl_list, known_crawls
from catalogue.session import Session

_LIST_SECONDS = 600.0
"""Time for which the list of the source, or its failure, is remembered."""
_RETRY_HARVEST_SECONDS = 3600.0
_STARTING_SECONDS, _MAX_WAIT_SECONDS = 10, 600.0
"""``Retry-After`` while a harvest starts, and at most."""


class KnownCrawls:
    """Crawls that are listed by the source or stored."""

    def __init__(self) -> None:
        self._listed: dict[str, Crawl] = {}
        self.missing: tuple[str, ...] = ()
        """Sentences about crawls that the list may lack."""
        self._valid_until = -math.inf
        self._lock = Lock()

    def get(self, session: Session) -> dict[str, Crawl]:
        """Return crawls by name, newest first; only stored ones if the source does not answer."""
        with self._lock:
            if time.monotonic() >= self._valid_until:
                try:
                    found = crawl_list(session)
                    self._listed, self.missing = found.crawls, found.missing
                except (SourceError, FormatError) as error:
                    self._listed, self.missing = {}, (f"cannot fetch the list of crawls ({error}); name a crawl",)
                self._valid_until = time.monotonic() + _LIST_SECONDS
        return self._known(session)

    def _known(self, session: Session) -> dict[str, Crawl]:
        listed = self._listed or known_crawls(session)
        crawls = {name: Crawl(name) for name in session.stored_crawls()} | listed
        return {name: crawls[name] for name in newest_first(crawls)}

    def find(self, session: Session, name: str, *, may_be_unlisted: bool = False) -> Crawl:
        """Return a crawl; ``latest`` is the newest listed one. The list is not fetched for crawls that are known.

        With ``may_be_unlisted``, any valid name is accepted, and the source decides.
        """
        if name in (crawls := self._known(session)):
            return crawls[name]
        crawls = self.get(session)
        if name == "latest":
            if not self._listed:
                raise SourceError("; ".join(self.missing))
            name = next(filter(has_columnar_index, self._listed), name)
        if name not in crawls and not (may_be_unlisted and re.fullmatch(CRAWL_NAME, name)):
            like = closest_crawl(name, crawls)
            hint = f"did you mean {like}? " if like in {*crawls, "latest"} - {name} else ""
            raise UnknownCrawl(f"there is no crawl {name[:100]}; {hint}see /collinfo.json")
        return crawls.get(name) or Crawl(name)


@dataclass(slots=True)
class _Harvest:
    progress: Progress
    done: bool = False
    failure: str = ""
    source_failed: bool = False
    next_attempt: float = math.inf


class OnDemandHarvester:
    """Harvest requested crawls in a thread, one after the other."""

    def __init__(
        self, opened: Callable[[], Session], notify: Callable[[str], None], values: Sequence[str] = ()
    ) -> None:
        """Start without a harvest; ``opened`` opens a session for the thread, ``values`` are columns."""
        self._opened = opened
        self._notify = notify
        self._values = values
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="harvest")
        self._lock = RLock()
        self._harvests: dict[str, _Harvest] = {}
        self._spent = (0, 0)
        """Requests and bytes of harvests that have ended."""
        self._running: Session | None = None
        self._closed = False

    def request(self, crawl: str) -> None:
        """Harvest all subsets of a crawl, unless that was done.

        Raises:
            Harvesting: until it is done.
            Busy: for an hour if the source failed.
            NotHarvested: for an hour if it failed for another reason.
        """
        with self._lock:
            harvest = self._harvests.get(crawl)
            if harvest is None or time.monotonic() >= harvest.next_attempt:
                harvest = self._harvests[crawl] = _Harvest(Progress(crawl, 0, 0))
                self._executor.submit(self._harvest, harvest)
            if harvest.source_failed:
                raise Busy(harvest.failure, retry_after=harvest.next_attempt - time.monotonic())
            if harvest.failure:
                raise NotHarvested(harvest.failure)
            if harvest.done:
                return
            at = harvest.progress
        if not at.listed:
            raise Harvesting(f"the harvest of {crawl} is starting; try again", crawl, retry_after=_STARTING_SECONDS)
        left = (at.listed - at.done) * at.seconds / max(1, at.done)
        message = f"{crawl} is being harvested, {at.done} of {at.listed} files so far; try again"
        wait = min(max(left, 1.0), _MAX_WAIT_SECONDS)
        raise Harvesting(message, crawl, at.done + at.failed, at.listed, retry_after=wait)

    @property
    def spent(self) -> tuple[int, int]:
        """Requests and bytes."""
        with self._lock:
            requests, received = self._running.spent if self._running else (0, 0)
            return self._spent[0] + requests, self._spent[1] + received

    def close(self) -> None:
        """Cancel harvests and wait for the running one; committed files remain stored."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed, running = True, self._running
        if running:
            running.abort()
        self._executor.shutdown()

    def _harvest(self, harvest: _Harvest) -> None:
        crawl = harvest.progress.name

        def report(at: Progress) -> None:
            if not harvest.progress.listed:
                self._notify(f"{crawl} was requested; harvesting it")
            harvest.progress = at

        try:
            with closing(self._opened()) as session:
                with self._lock:
                    self._running = session
                    if self._closed:
                        session.abort()
                try:
                    outcomes = harvest_crawls(session, crawl, HarvestOptions("all", values=self._values), report)
                finally:
                    with self._lock:
                        self._spent, self._running = self.spent, None
            messages = [outcome.summary for outcome in outcomes]
            if any(each.fetched for each in outcomes) and not any(each.failures for each in outcomes):
                with self._lock:  # if files are missing later, another process has deleted them
                    del self._harvests[crawl]
        except StoreLocked:  # another process of the server harvests it
            with self._lock:
                del self._harvests[crawl]
            return
        except Exception as error:  # noqa: BLE001 - the crawl must not stay pending
            internal = not isinstance(error, CatalogueError)
            failure = f"{crawl} could not be harvested: {'internal error' if internal else error}"
            messages = [f"{failure}: {type(error).__name__}: {error}" if internal else failure]
            with self._lock:
                harvest.failure, harvest.source_failed = failure, isinstance(error, SourceError)
                harvest.next_attempt = time.monotonic() + _RETRY_HARVEST_SECONDS
        harvest.done = True
        for message in messages:
            self._notify(message)
