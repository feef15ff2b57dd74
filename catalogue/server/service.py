"""A pool of sessions with a queue."""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, TypeVar

from catalogue.commoncrawl.crawls import has_columnar_index, parse_crawl_words, plain_names
from catalogue.errors import Busy, CatalogueError, NotHarvested, TooExpensive
from catalogue.records.document import Documents
from catalogue.server.crawl_harvest import KnownCrawls, OnDemandHarvester
from catalogue.server.memory import MEMORY, Memory
from catalogue.server.monitoring import Figures, Totals
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.source.rate_limit import Clock

T = TypeVar("T")

_DOCUMENT_SECONDS = 5.0


class Service:
    """Answer queries in parallel, one in each session of the pool; queue more, up to a limit.

    ``state``, ``problem`` and ``publish`` are for the thread of the event loop.
    """

    def __init__(  # noqa: PLR0913 - options of the server
        self,
        data: Path,
        settings: Settings,
        *,
        at_once: int = 2,
        max_queued: int = 512,
        patience: float = 20.0,
        on_demand: bool = False,
        values: Sequence[str] = (),
        strict: bool = False,
        proxied: bool = False,
        memory: int = MEMORY,
        figures: Figures | None = None,
        notify: Callable[[str], None] = lambda _: None,
        clock: Callable[[], Clock] = Clock,
    ) -> None:
        """Open a data folder.

        ``at_once`` queries run in parallel and ``max_queued`` may wait; a request to the source waits at most
        ``patience`` seconds. With ``on_demand``, crawls are harvested when they are requested, with the values of
        some columns; with ``strict``, queries are refused that stored files may not answer completely. ``proxied``
        says that a proxy sets the headers of forwarded requests. ``memory`` is in bytes.
        """
        self.strict, self.proxied = strict, proxied
        self.crawls = KnownCrawls()
        self._first = Session(data, settings, notify=notify, max_wait=patience, clock=clock)
        self.memory = Memory(memory)
        self.figures = figures or Figures()
        self._first.create_store(to_write=on_demand)  # so that a missing crawl is always the same error
        if values:
            from catalogue.harvest.harvest_values import value_columns  # noqa: PLC0415 - a server of pages needs none

            value_columns(self._first, values)  # an unknown column is an error before the first request
        self._store = self._first.open_store(create=False)
        self._source = self._first.source
        self._free: SimpleQueue[Session] = SimpleQueue()
        others = [self._first.share() for _ in range(at_once - 1)]
        self._sessions = [self._first, *others]
        for each in self._sessions:
            each.create_store(to_write=False)  # opened later, a new store would replace one that was moved
            self._free.put(each)

        opened = partial(Session, data, settings, notify=notify, clock=clock)
        self.harvester = OnDemandHarvester(opened, notify, values) if on_demand else None
        self.notify = notify
        self.documents = Documents(seconds=_DOCUMENT_SECONDS)
        self._executor = ThreadPoolExecutor(at_once, thread_name_prefix="query")
        self._capacity = at_once + max_queued
        self._submitted = 0
        self._running: dict[Hashable, Future[Any]] = {}
        self._clients: dict[Future[Any], int] = {}
        self._lock = Lock()

    def state(self) -> str:
        return self._store.state()

    def problem(self) -> str | None:
        """Return why this process cannot answer queries; None if it can."""
        try:
            self._store.state()
        except CatalogueError as error:
            return str(error)
        return None

    def publish(self) -> None:
        """Show the present state of this process to the others."""
        requests, received = self.harvester.spent if self.harvester else (0, 0)
        spent, pending = self._first.spent, len(self._clients)
        running = min(pending, len(self._sessions))
        state = (running, pending - running, self.memory.size, self._source.unavailable_until, 1)
        self.figures.publish((spent[0] + requests, spent[1] + received), state)

    async def totals(self) -> Totals:
        """Return the figures of all processes with the limit of the source.

        ``pause`` is in seconds, ``blocks`` are times in a row, and ``rate`` is missing without a limit.
        """
        self.publish()
        totals, limiter = self.figures.totals(), self._source.limiter
        state = await asyncio.to_thread(lambda: limiter.state)  # it waits for the lock of a file
        pause = max(0.0, max(state.paused_until, totals["paused_until"]) - limiter.clock.now())
        rate = limiter.rate_of(state)
        return totals | {"blocks": state.blocks, "pause": pause} | ({} if rate is None else {"rate": rate})

    def meter(self) -> Callable[[], tuple[int, int] | None]:
        """Return a function that returns the requests to the source and bytes since this call.

        It returns None if other queries than the next one have run: they share the source.
        """
        pending, submitted, spent = len(self._clients), self._submitted, self._first.spending()

        def read() -> tuple[int, int] | None:
            return None if pending or self._submitted > submitted + 1 else spent()

        return read

    def submit(self, query: Callable[[Session], T], *, key: Hashable = None) -> "Future[T]":
        """Run a query in a thread of the pool, with a session of its own; pending queries of one key share a future.

        Raises:
            Busy: at once, if the queue is full.
        """
        with self._lock:
            self._submitted += 1
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

    def check_complete(self, words: Iterable[str], missing: Sequence[str]) -> None:
        """Harvest, refuse or accept missing files, as configured; ``words`` are those for crawls in the query.

        Raises:
            Busy: while a crawl is being harvested.
            NotHarvested: if that failed.
            TooExpensive: if incomplete answers are refused.
        """
        if missing and self.harvester:
            for crawl in plain_names(parse_crawl_words(words)):
                self.harvester.request(crawl)
        if missing and self.strict:
            raise TooExpensive("; ".join(missing))

    def close(self) -> None:
        """Cancel queries and wait for running ones: DuckDB crashes if it is closed under a thread."""
        if self.harvester:
            self.harvester.close()
        self._first.abort()
        self._executor.shutdown(cancel_futures=True)
        self.documents.close()
        for each in reversed(self._sessions):
            each.close()

    def _run(self, query: Callable[[Session], T]) -> T:
        session = self._free.get()
        try:
            return query(session)
        except NotHarvested as error:
            if error.crawl is not None:
                self.crawls.find(session, error.crawl)  # raises UnknownCrawl for invented names
                if has_columnar_index(error.crawl):
                    self.check_complete([error.crawl], [str(error)])
            raise
        finally:
            self._free.put(session)

    def _finished(self, key: Hashable, answer: "Future[Any]") -> None:
        with self._lock:
            del self._clients[answer]
            if self._running.get(key) is answer:
                del self._running[key]
