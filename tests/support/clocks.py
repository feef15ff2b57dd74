"""A clock for tests: waits take no time, but are remembered."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from catalogue.errors import SourceUnavailable

T = TypeVar("T")

START = 1000.0
"""Seconds since a machine started that has been up for a while."""


class FakeClock:
    """Time that passes only where somebody waits for it.

    By itself, whoever sleeps wakes up at once, that much later. Where it matters what several threads do at the same
    time they are started by ``run``, and then time stands still while one of them is awake: a wait ends when all of
    them wait and no other wait ends earlier.
    """

    def __init__(self, start: float = START) -> None:
        self._changed = threading.Condition()
        self._now = start
        self._workers = 0
        self._asleep: dict[object, float] = {}
        self._stopped = False
        self.waits: list[float] = []
        """What was asked of ``sleep``, in that order."""

    def now(self) -> float:
        with self._changed:
            return self._now

    def sleep(self, seconds: float) -> None:
        with self._changed:
            self.waits.append(seconds)
            me = object()
            self._asleep[me] = self._now + max(0.0, seconds)
            self._pass()
            self._changed.wait_for(lambda: self._stopped or me not in self._asleep)
            self._asleep.pop(me, None)
            if self._stopped:
                message = "stopped"
                raise SourceUnavailable(message)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def advance(self, seconds: float) -> None:
        """Let time pass in which nobody did anything."""
        with self._changed:
            self._now += seconds

    def run(self, *works: Callable[[], T]) -> "list[T | Exception]":
        """Run each in a thread of its own as a worker; their results, or what they raised."""
        with self._changed:
            self._workers += len(works)
        with ThreadPoolExecutor(max(1, len(works))) as executor:
            return list(executor.map(self._worker, works))

    def _worker(self, work: Callable[[], T]) -> "T | Exception":
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - for the test to look at
            return error
        finally:
            with self._changed:
                self._workers -= 1
                self._pass()

    def _pass(self) -> None:
        """Go on to the first moment at which a wait ends, if nobody is awake who could do something before."""
        if self._asleep and len(self._asleep) >= self._workers:
            self._now = max(self._now, min(self._asleep.values()))
            for sleeper in [one for one, end in self._asleep.items() if end <= self._now]:
                del self._asleep[sleeper]
            self._changed.notify_all()
