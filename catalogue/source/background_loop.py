"""An event loop in a separate thread, for notebooks, whose own event loop is already running."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar

from catalogue.errors import SourceUnavailable

_T = TypeVar("_T")


class Background:
    """Run coroutines for callers in any thread, until it is closed."""

    def __init__(self, name: str) -> None:
        """Start the thread; ``name`` appears in messages."""
        self._name = name
        self._process = os.getpid()
        self._lock = Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result.

        Raises:
            SourceUnavailable: if the loop was closed, or this process was forked from the one that started it.
        """
        if self._process != os.getpid():  # a fork has no such thread, and its lock may stay locked
            work.close()
            message = f"{self._name} was opened by another process; open it again in this one"
            raise SourceUnavailable(message)
        # The lock ensures that the loop still runs what it is passed.
        with self._lock:
            if self._closed:
                work.close()
                message = f"{self._name} was closed"
                raise SourceUnavailable(message)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError as error:
            message = f"{self._name} was closed during a request"
            raise SourceUnavailable(message) from error

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Cancel running coroutines, run ``last``, and stop the thread."""
        if self._process != os.getpid():
            return
        with self._lock:
            if self._closed or not self._thread.is_alive():
                return
            self._closed = True
        ending = asyncio.run_coroutine_threadsafe(self._end(last), self._loop)
        if current_thread() is self._thread:  # called by the garbage collector: waiting would deadlock
            ending.add_done_callback(lambda _: self._loop.stop())
            return
        ending.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self, last: Callable[[], Awaitable[None]]) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await last()
