"""A few catalogues, each used for one question at a time."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, TypeVar

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.crawls import has_columnar_index
from catalogue.errors import Busy, NotHarvested, TooExpensive
from catalogue.records.document import Documents
from catalogue.server.crawl_harvest import Harvests, Listed
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.source.rate_limit import Clock, SystemClock

T = TypeVar("T")

_SECONDS = 5.0
"""That looking into one document may take: meanwhile a question of somebody else waits."""


class Service:
    """Answers questions side by side, as many as it has catalogues; more wait, and too many are sent away."""

    def __init__(  # noqa: PLR0913 - each is named
        self,
        data: Path,
        settings: Settings,
        *,
        at_once: int = 4,
        waiting: int = 512,
        patience: float = 20.0,
        on_demand: bool = False,
        strict: bool = False,
        notify: Callable[[str], None] = lambda _: None,
        clock: Callable[[], Clock] = SystemClock,
    ) -> None:
        """Open a folder.

        Args:
            data: of the catalogue.
            settings: of its source.
            at_once: questions that are answered side by side.
            waiting: questions that may wait for their turn.
            patience: seconds that a request to the source may have to wait for, as whoever asks us would.
            on_demand: whether crawls are harvested when they are asked for.
            strict: whether a question is refused if what is held may not answer it in full.
            notify: told in a sentence what the keeper of the server would want to know.
            clock: makes what a source waits by.
        """
        self.strict = strict
        self.listed = Listed()
        self._first = Catalogue(Session(data, settings, notify=notify, max_wait=patience, clock=clock))
        # So that what is said of a crawl that is not held depends on nothing but the crawl.
        self._first.session.create_store(to_write=on_demand)
        self._free: SimpleQueue[Catalogue] = SimpleQueue()
        self._all = [self._first, *(Catalogue(self._first.session.share()) for _ in range(at_once - 1))]
        for each in self._all:
            self._free.put(each)

        def opened() -> Catalogue:
            return Catalogue(Session(data, settings, notify=notify, clock=clock))

        self.harvests = Harvests(opened, notify) if on_demand else None
        """None unless crawls are harvested when they are asked for."""
        self.notify = notify
        self._executor = ThreadPoolExecutor(at_once, thread_name_prefix="question")
        self._most = at_once + waiting
        self._asked = 0
        self._under_way: dict[Hashable, Future[Any]] = {}
        self._waiting: dict[Future[Any], int] = {}
        """How many wait for an answer."""
        self._documents: Documents | None = None
        self._lock = Lock()

    @property
    def asked(self) -> int:
        """Questions that are being answered or wait for their turn."""
        return self._asked

    def ask(self, question: Callable[[Catalogue], T], *, key: Hashable = None) -> "Future[T]":
        """Answer a question when its turn comes, in a thread of its own; a crawl that is not held is seen to.

        Args:
            question: is handed a catalogue that nobody else uses meanwhile.
            key: what tells it from others: who asks the same while it is being answered gets the same answer.

        Raises:
            Busy: at once, if too many wait already.
        """
        with self._lock:
            if key is not None and key in self._under_way:
                answer = self._under_way[key]
                self._waiting[answer] += 1
                return answer
            if self._asked >= self._most:
                message = "too many questions wait already; ask again in a few seconds"
                raise Busy(message, retry_after=5)
            self._asked += 1
            answer = self._executor.submit(self._answer, question)
            self._waiting[answer] = 1
            if key is not None:
                self._under_way[key] = answer
        answer.add_done_callback(lambda done: self._answered(key, done))
        return answer

    def leave(self, answer: "Future[Any]") -> None:
        """Wait no more for an answer that ``ask`` returned; if nobody does, the question is not begun any more."""
        with self._lock:
            if answer not in self._waiting:
                return
            self._waiting[answer] -= 1
            if self._waiting[answer]:
                return
            self._under_way = {key: each for key, each in self._under_way.items() if each is not answer}
        answer.cancel()

    def _answer(self, question: Callable[[Catalogue], T]) -> T:
        catalogue = self._free.get()
        try:
            return question(catalogue)
        except NotHarvested as error:
            if error.crawl is not None:
                self._lacks(catalogue, error.crawl, error)
            raise
        finally:
            self._free.put(catalogue)

    def _lacks(self, catalogue: Catalogue, crawl: str, error: NotHarvested) -> None:
        self.listed.find(catalogue, crawl)  # so that no name that somebody made up is asked for at the source
        if has_columnar_index(crawl):
            self.settle([crawl], [str(error)])

    def settle(self, crawls: Iterable[str], missing: Sequence[str]) -> None:
        """See to what an answer may lack, as whoever started the server wants it.

        Args:
            crawls: that were asked for by their names, which are harvested on demand.
            missing: what of what was asked is not held, a sentence each.

        Raises:
            Busy: as long as it is being harvested.
            NotHarvested: if that failed.
            TooExpensive: if answers that may lack something are refused.
        """
        if missing and self.harvests:
            for crawl in crawls:
                self.harvests.want(crawl)
        if missing and self.strict:
            raise TooExpensive("; ".join(missing))

    def _answered(self, key: Hashable, answer: "Future[Any]") -> None:
        with self._lock:
            self._asked -= 1
            del self._waiting[answer]
            if self._under_way.get(key) is answer:
                del self._under_way[key]

    def documents(self) -> Documents:
        """What looks into archived pages, for all questions.

        Raises:
            QueryError: if the libraries for it are not installed.
        """
        with self._lock:
            self._documents = self._documents or Documents(seconds=_SECONDS)
            return self._documents

    @property
    def at_once(self) -> int:
        """Questions that are answered side by side."""
        return len(self._all)

    @property
    def spent(self) -> tuple[int, int]:
        """Requests made of the source so far and bytes received."""
        requests, size = self.harvests.spent if self.harvests else (0, 0)
        return self._first.requests + requests, self._first.bytes + size

    def close(self) -> None:
        """Break off what is under way, and wait until it has ended."""
        if self.harvests:
            self.harvests.close()
        self._first.session.abort()
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._documents:
            self._documents.close()
        self._executor.shutdown()
        for each in reversed(self._all):
            each.close()
