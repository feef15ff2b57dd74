"""Hold a request until a test opens the gate, so that the order of events is certain."""

import threading
from collections.abc import Callable

from tests.support.fault_kinds import Request

_TIMEOUT = 60.0
"""Seconds until a failed test ends."""


class Gate:
    """Holds the first request for which it is closed; other connections pass."""

    def __init__(self, closed: Callable[[Request], bool]) -> None:
        self._closed = closed
        self._holding = threading.Event()
        self._open = threading.Event()

    def wait(self) -> None:
        assert self._holding.wait(_TIMEOUT), "the gate holds no request"

    def open(self) -> None:
        self._open.set()

    def pass_through(self, request: Request) -> None:
        if not (self._holding.is_set() or self._open.is_set()) and self._closed(request):
            self._holding.set()
            self._open.wait(_TIMEOUT)


def nth(number: int, part: str = "") -> Callable[[Request], bool]:
    """Return a condition for the n-th request, from 0, with a part in its path."""
    left = number

    def closed(request: Request) -> bool:
        nonlocal left
        left -= part in request.path
        return left < 0 and part in request.path

    return closed
