"""A clock for tests: waits take no time and are recorded."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from catalogue.errors import SourceUnavailable
from catalogue.source.rate_limit import Clock

T = TypeVar("T")
START = 1000.0
"""Time of a new clock, in seconds."""


class FakeClock(Clock):
    """Time that passes only during ``sleep``.

    ``sleep`` sets the time to the end of the wait and returns. In threads of ``run``, time passes only when all of
    them sleep; then the thread whose wait ends first continues.
    """

    def __init__(self, start: float = START) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._now = start
        self._workers = 0
        self._asleep: dict[object, float] = {}
        self._ended = False
        self.waits: list[float] = []
        """Arguments of ``sleep``."""

    def now(self) -> float:
        with self._changed:
            return self._now

    def sleep(self, seconds: float) -> None:
        with self._changed:
            self.waits.append(seconds)
            sleeper = object()
            self._asleep[sleeper] = self._now + max(0.0, seconds)
            self._pass()
            self._changed.wait_for(lambda: self._ended or sleeper not in self._asleep)
            self._asleep.pop(sleeper, None)
            if self._ended:
                message = "stopped"
                raise SourceUnavailable(message)

    def stop(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def advance(self, seconds: float) -> None:
        with self._changed:
            self._now += seconds

    def run(self, *functions: Callable[[], T]) -> "list[T | Exception]":
        """Run each function in a thread; return results and exceptions."""
        with self._changed:
            self._workers += len(functions)
        with ThreadPoolExecutor(max(1, len(functions))) as executor:
            return list(executor.map(self._worker, functions))

    def _worker(self, function: Callable[[], T]) -> "T | Exception":
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - returned
            return error
        finally:
            with self._changed:
                self._workers -= 1
                self._pass()

    def _pass(self) -> None:
        """Set the time to the end of the first wait, unless a worker is awake."""
        if self._asleep and len(self._asleep) >= self._workers:
            self._now = max(self._now, min(self._asleep.values()))
            for sleeper in [sleeper for sleeper, end in self._asleep.items() if end <= self._now]:
                del self._asleep[sleeper]
            self._changed.notify_all()
