"""A few catalogues, each used for one question at a time."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import TypeVar

from catalogue.catalogue import Catalogue
from catalogue.document import Documents
from catalogue.errors import Busy
from catalogue.settings import Settings

T = TypeVar("T")

_SECONDS = 5.0
"""That looking into one document may take: meanwhile a question of somebody else waits."""


class Service:
    """Answers questions side by side, as many as it has catalogues; more wait, and too many are sent away."""

    def __init__(
        self,
        data: Path,
        settings: Settings,
        *,
        at_once: int = 8,
        waiting: int = 512,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open a folder.

        Args:
            data: of the catalogue.
            settings: of its source.
            at_once: questions that are answered side by side.
            waiting: questions that may wait for their turn.
            notify: told in a sentence what the keeper of the server would want to know.
        """
        self.settings = settings
        self._first = Catalogue(data, settings, notify=notify)
        self._free: SimpleQueue[Catalogue] = SimpleQueue()
        self._all = [self._first, *(Catalogue(data, settings, notify=notify) for _ in range(at_once - 1))]
        for each in self._all:
            self._free.put(each)
        self._executor = ThreadPoolExecutor(at_once, thread_name_prefix="question")
        self._most = at_once + waiting
        self._asked = 0
        self._documents: Documents | None = None
        self._lock = Lock()

    def ask(self, question: Callable[[Catalogue], T]) -> "Future[T]":
        """Answer a question when its turn comes, in a thread of its own.

        Raises:
            Busy: at once, if too many wait already.
        """
        with self._lock:
            if self._asked >= self._most:
                message = "too many questions wait already; ask again in a few seconds"
                raise Busy(message, retry_after=5)
            self._asked += 1
        answer = self._executor.submit(self._answer, question)
        answer.add_done_callback(self._answered)
        return answer

    def _answer(self, question: Callable[[Catalogue], T]) -> T:
        catalogue = self._free.get()
        try:
            return question(catalogue)
        finally:
            self._free.put(catalogue)

    def _answered(self, _: object) -> None:
        with self._lock:
            self._asked -= 1

    def documents(self) -> Documents:
        """What looks into archived pages, for all questions.

        Raises:
            QueryError: if the libraries for it are not installed.
        """
        with self._lock:
            self._documents = self._documents or Documents(seconds=_SECONDS)
            return self._documents

    @property
    def asked(self) -> int:
        """Questions that are being answered, or wait."""
        return self._asked

    @property
    def at_once(self) -> int:
        """Questions that are answered side by side."""
        return len(self._all)

    @property
    def spent(self) -> tuple[int, int]:
        """Requests made of the source so far and bytes received."""
        return sum(each.requests for each in self._all), sum(each.bytes for each in self._all)

    def close(self) -> None:
        """Break off what is under way."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._documents:
            self._documents.close()
        for each in self._all:
            each.close()
