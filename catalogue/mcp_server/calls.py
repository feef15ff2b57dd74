"""Calls of tools, which share a session and a number of requests."""

import asyncio
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Self, TypeVar

import anyio

from catalogue.catalogue import Catalogue
from catalogue.errors import IncompleteAnswer, LimitReached, OverBudget, TooExpensive
from catalogue.formatting import Priced, format_cost, plural
from catalogue.mcp_server.tool_models import CallCost, PageAnswer
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.source.observe import Observer, RequestLimit

MAX_BYTES = 1_000_000_000
_MAX_WAIT = 60.0
"""Seconds for a request; clients wait little longer."""
_RESTART = "or ask the user to restart catalogue mcp with a larger --max-requests"

T = TypeVar("T")


class Calls:
    """Runs calls of tools one after the other, in a thread; ``async with`` closes what they opened.

    All clients together make no more than ``max_requests`` requests, which includes those for the list of crawls and
    repeated ones.
    """

    def __init__(
        self,
        settings: Settings,
        max_requests: int,
        *,
        notify: Callable[[str], None] = lambda _: None,
        observer: Observer | None = None,
    ) -> None:
        """Prepare; nothing is opened yet. ``notify`` is called with sentences that answers have, too."""
        self.limit = RequestLimit(max_requests)
        self.notes: list[str] = []
        self.texts: dict[str, tuple[PageAnswer, str]] = {}
        """Pages and their complete texts by arguments, for calls that continue."""
        self._budget = max_requests
        self._settings = settings
        self._notify = notify
        self._observer = observer
        self._session: Session | None = None
        self._before = (0, 0)
        """Requests and bytes before the present call."""
        self._aborted = False
        self._stops: list[Callable[[], None]] = []
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="call")
        self._turn = anyio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await asyncio.wrap_future(self._executor.submit(self._close))
        self._executor.shutdown(wait=False)

    async def run(self, tool: Callable[["Calls"], T]) -> T:
        """Run a tool in the thread; if it is cancelled, return when its thread has ended."""
        async with self._turn:
            self._before, self._aborted = (self.limit.used, self._session.bytes if self._session else 0), False
            session = self.session
            self.notes.clear()
            self._stops.clear()
            running = asyncio.wrap_future(self._executor.submit(self._run, tool))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                self._aborted = True
                session.abort()
                for stop in [*self._stops]:
                    stop()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([running])
                running.exception()  # so that it is not logged
                raise

    @property
    def session(self) -> Session:
        if self._session is None:
            given, observer, limit = self._settings, self._observer, self.limit
            self._session = Session(
                given.data, given, notify=self._note, max_wait=_MAX_WAIT, observer=observer, limit=limit
            )
        return self._session

    @property
    def catalogue(self) -> Catalogue:
        return Catalogue(self.session)

    @property
    def requests(self) -> int:
        return self.limit.used - self._before[0]

    @property
    def left(self) -> int:
        return self._budget - self.limit.used

    @property
    def cost(self) -> CallCost:
        received = self._session.bytes - self._before[1] if self._session else 0
        return CallCost(requests=self.requests, bytes=max(0, received), requests_left=self.left)

    def check(self, planned: Priced, most: int) -> None:
        """Raise TooExpensive if a plan exceeds ``most`` of this call, or what is left."""
        self.check_cost(planned.requests, planned.bytes, f"this takes {format_cost(planned)}", most)

    def check_cost(self, requests: int, received: int, sentence: str, most: int) -> None:
        if requests > self.left:
            raise OverBudget(f"{sentence}; {self.remaining()}; name fewer URLs or crawls, {_RESTART}")
        if self.requests + requests > most:
            needed = self.requests + requests
            message = f"{sentence}, and max_requests of this call is {most}; name fewer URLs or crawls, or allow"
            raise TooExpensive(f"{message} max_requests={needed}: {self.remaining()}")
        if received > MAX_BYTES:
            raise TooExpensive(f"{sentence}; a call may receive 1 GB at most; name fewer URLs or crawls")

    def remaining(self) -> str:
        return f"{self.left:,} of the {plural(self._budget, 'request')} of this server are left"

    @contextmanager
    def within(self, most: int) -> Iterator[None]:
        """Make at most ``most`` requests in a block.

        Raises:
            TooExpensive: if more are needed.
        """
        with self.limit.within(most):
            try:
                yield
            except LimitReached as error:
                spent = f"this call made {plural(self.requests, 'request')} and did not finish"
                if self.left <= 0:
                    raise OverBudget(f"{spent}; {self.remaining()}; {_RESTART.removeprefix('or ')}") from error
                again = "call it again with more: what it read is cached, as far as it can be"
                raise TooExpensive(f"{spent}, since its max_requests is {most}; {again}") from error

    def on_abort(self, stop: Callable[[], None]) -> None:
        """Call a function, from any thread, when the present call is cancelled."""
        self._stops.append(stop)
        if self._aborted:
            stop()

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._notify(text)

    def _run(self, tool: Callable[["Calls"], T]) -> T:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IncompleteAnswer)  # answers have what is missing
                return tool(self)
        finally:
            if self._aborted:  # an aborted session makes no requests
                self._close()

    def _close(self) -> None:
        if self._session:
            self._session.close()
            self._session = None
