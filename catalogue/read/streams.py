"""Streams of rows that other threads consume."""

import atexit
from collections.abc import Generator
from threading import RLock
from typing import TypeVar
from weakref import WeakSet

from catalogue.errors import SourceError

T = TypeVar("T")

_LAST_WAIT = 10.0
"""Seconds that the end of the process waits for a stream."""


class Turns:
    """Lets one stream of a session read at a time, in whichever thread takes its next item."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.ended = False


_used: WeakSet[Turns] = WeakSet()


def in_turns(items: Generator[T, None, None], turns: Turns) -> Generator[T, None, None]:
    """Yield the items of a generator, one stream with the same ``turns`` at a time."""
    _used.add(turns)
    try:
        while True:
            with turns.lock:
                if turns.ended:
                    message = "the process ends while a result is read"
                    raise SourceError(message)
                item = next(items, None)
            if item is None:
                return
            yield item
    finally:
        with turns.lock:
            items.close()


@atexit.register
def _end() -> None:
    """Wait for polars' threads that read ahead: one that returns to Python during shutdown aborts the process."""
    for turns in list(_used):
        turns.ended = True
        if turns.lock.acquire(timeout=_LAST_WAIT):
            turns.lock.release()
