"""A pool of catalogues that answers queries in threads, and its queue."""

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
from catalogue.server.crawl_harvest import CrawlList, OnDemandHarvester
from catalogue.server.memory import MEMORY, Memory
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.source.rate_limit import Clock, SystemClock

T = TypeVar("T")

_DOCUMENT_SECONDS = 5.0


class Service:
    """Answer queries in parallel, one in each catalogue of the pool; queue more, up to a limit."""

    def __init__(  # noqa: PLR0913 - options of the server
        self,
        data: Path,
        settings: Settings,
        *,
        at_once: int = 2,
        max_queued: int = 512,
        patience: float = 20.0,
        on_demand: bool = False,
        strict: bool = False,
        memory: int = MEMORY,
        notify: Callable[[str], None] = lambda _: None,
        clock: Callable[[], Clock] = SystemClock,
    ) -> None:
        """Open a data folder.

        Args:
            data: the folder.
            settings: of its source.
            at_once: queries answered in parallel.
            max_queued: queries that may wait.
            patience: seconds that a request to the source may wait.
            on_demand: harvest crawls when they are requested.
            strict: refuse queries that stored files may not answer completely.
            memory: bytes that the CDX API keeps in memory.
            notify: called with messages.
            clock: of the rate limit.
        """
        self.strict = strict
        self.crawls = CrawlList()
        self._first = Catalogue(Session(data, settings, notify=notify, max_wait=patience, clock=clock))
        self.memory = Memory(memory)
        self._first.session.create_store(to_write=on_demand)  # so that a missing crawl is always the same error
        self._store = self._first.session.open_store(create=False)
        self._free: SimpleQueue[Catalogue] = SimpleQueue()
        others = [Catalogue(self._first.session.share()) for _ in range(at_once - 1)]
        self._catalogues = [self._first, *others]
        for each in self._catalogues:
            self._free.put(each)

        def opened() -> Catalogue:
            return Catalogue(Session(data, settings, notify=notify, clock=clock))

        self.harvester = OnDemandHarvester(opened, notify) if on_demand else None
        self.notify = notify
        self._executor = ThreadPoolExecutor(at_once, thread_name_prefix="query")
        self._capacity = at_once + max_queued
        self._running: dict[Hashable, Future[Any]] = {}
        self._clients: dict[Future[Any], int] = {}
        """Clients of each pending query."""
        self._documents: Documents | None = None
        self._lock = Lock()

    def state(self) -> str:
        """Return the state of the store, see ``Store.state``; for the thread of the event loop."""
        return self._store.state()

    @property
    def at_once(self) -> int:
        return len(self._catalogues)

    @property
    def pending(self) -> int:
        """Number of running and queued queries."""
        return len(self._clients)

    @property
    def spent(self) -> tuple[int, int]:
        """Requests sent to the source, and bytes received."""
        requests, size = self.harvester.spent if self.harvester else (0, 0)
        return self._first.requests + requests, self._first.bytes + size

    def submit(self, query: Callable[[Catalogue], T], *, key: Hashable = None) -> "Future[T]":
        """Run a query in a thread of the pool, with a catalogue of its own; pending queries of one key share a future.

        Raises:
            Busy: at once, if the queue is full.
        """
        with self._lock:
            if key is not None and key in self._running:
                answer = self._running[key]
                self._clients[answer] += 1
                return answer
            if len(self._clients) >= self._capacity:
                raise Busy("too many queries are waiting; try again in a few seconds", retry_after=5)
            answer = self._executor.submit(self._run, query)
            self._clients[answer] = 1
            if key is not None:
                self._running[key] = answer
        answer.add_done_callback(lambda done: self._finished(key, done))
        return answer

    def abandon(self, answer: "Future[Any]") -> None:
        """Stop waiting for an answer; a queued query without clients is cancelled."""
        with self._lock:
            if answer not in self._clients:
                return
            self._clients[answer] -= 1
            if self._clients[answer]:
                return
            self._running = {key: each for key, each in self._running.items() if each is not answer}
        answer.cancel()

    def check_complete(self, crawls: Iterable[str], missing: Sequence[str]) -> None:
        """Harvest, refuse or accept missing files, as configured; ``crawls`` are those named in the query.

        Raises:
            Busy: while a crawl is being harvested.
            NotHarvested: if that failed.
            TooExpensive: if incomplete answers are refused.
        """
        if missing and self.harvester:
            for crawl in crawls:
                self.harvester.request(crawl)
        if missing and self.strict:
            raise TooExpensive("; ".join(missing))

    def documents(self) -> Documents:
        """Return the document parser, which all queries share."""
        with self._lock:
            self._documents = self._documents or Documents(seconds=_DOCUMENT_SECONDS)
            return self._documents

    def close(self) -> None:
        """Cancel queries and wait for running ones: DuckDB crashes if it is closed under a thread."""
        if self.harvester:
            self.harvester.close()
        self._first.session.abort()
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._documents:
            self._documents.close()
        self._executor.shutdown()
        for each in reversed(self._catalogues):
            each.close()

    def _run(self, query: Callable[[Catalogue], T]) -> T:
        catalogue = self._free.get()
        try:
            return query(catalogue)
        except NotHarvested as error:
            if error.crawl is not None:
                self.crawls.find(catalogue, error.crawl)  # raises UnknownCrawl for invented names
                if has_columnar_index(error.crawl):
                    self.check_complete([error.crawl], [str(error)])
            raise
        finally:
            self._free.put(catalogue)

    def _finished(self, key: Hashable, answer: "Future[Any]") -> None:
        with self._lock:
            del self._clients[answer]
            if self._running.get(key) is answer:
                del self._running[key]
