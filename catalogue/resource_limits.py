"""Limits of child processes that handle what strangers wrote, and of memory."""

from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


def limit_resources(*, memory: int, open_files: int | None = None, written: int | None = None) -> None:
    """Limit this process for the rest of its life, and prevent a core dump, where the system can.

    ``memory`` is bytes of address space, in addition to those it has now; ``open_files`` includes those that are open
    now; ``written`` is bytes of any file.
    """
    with suppress(ImportError, OSError, ValueError):  # not every system has these limits
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
        if written is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (written, written))
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class RecentValues(Generic[_Value]):
    """Values of a limited size in all, for any thread; the least recently used ones are dropped."""

    def __init__(self, limit: int) -> None:
        """Keep values up to this size; a value larger than a quarter of it is not kept."""
        self._limit = limit
        self._values: OrderedDict[Hashable, tuple[_Value, int]] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def get(self, key: Hashable) -> _Value | None:
        with self._lock:
            if found := self._values.get(key):
                self._values.move_to_end(key)
                return found[0]
        return None

    def put(self, key: Hashable, value: _Value, size: int = 1) -> None:
        if size > self._limit // 4:
            return
        with self._lock:
            self.size += size - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, size
            while self.size > self._limit:
                self.size -= self._values.popitem(last=False)[1][1]
