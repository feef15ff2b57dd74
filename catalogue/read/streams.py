"""Streams of rows."""

import atexit
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from threading import Event, RLock
from typing import Any, TypeVar

from catalogue.errors import CatalogueError, SourceError
from catalogue.source.byte_ranges import FileVersion

T = TypeVar("T")

BATCH_ROWS = 1 << 16
"""Maximum rows of a batch."""
BATCH_BYTES = 64 << 20
"""Uncompressed bytes of a batch, about."""

_LAST_WAIT = 10.0
"""Seconds that the end of the process waits for a stream."""
_LAST_ITEM = 0.05
"""Seconds in which a thread that reads ahead asks for another item, and ends because there is none."""


_open: dict[Generator[Any, None, None], RLock] = {}
_ending = Event()


def in_turns(items: Generator[T, None, None], turns: RLock) -> Generator[T, None, None]:
    """Yield the items of a generator, one stream with the same ``turns`` at a time, in whichever thread takes them."""
    _open[items] = turns
    try:
        while True:
            with turns:
                if _ending.is_set():
                    raise SourceError("the process ends while a result is read")
                item = next(items, None)
            if item is None:
                return
            yield item
    finally:
        with turns:
            items.close()
        del _open[items]


@atexit.register
def _end() -> None:
    """Wait for threads of polars and DuckDB that read ahead: one that returns to Python during shutdown blocks it."""
    _ending.set()
    for turns in list(_open.values()):
        if turns.acquire(timeout=_LAST_WAIT):
            turns.release()
        time.sleep(_LAST_ITEM)


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Callbacks of reading."""

    notify: Callable[[str], None] = lambda _: None
    """Called with a sentence about an invalid index."""
    uncount: Callable[[str, int], None] = lambda _crawl, _rows: None
    """Called with a crawl and rows that were wrongly counted by an invalid index; they are read instead."""
    done: Callable[[], None] = lambda: None
    """Called after each row group, and after each request for blocks."""
    note_version: Callable[[str, str, FileVersion], None] = lambda _crawl, _path, _version: None
    """Called with crawl, path and version of each file with blocks."""
    note_failure: Callable[[str, str, CatalogueError], None] = lambda _crawl, _index, _error: None
    """Called with a crawl, the index and the error, before it is raised, if the index cannot be used; by any thread."""
