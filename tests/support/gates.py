"""Hold a request until a test opens the gate, so that the order of events is certain."""

import threading
from collections.abc import Callable

from tests.support.fault_kinds import Request

_PATIENCE = 60.0
"""Seconds until a failed test ends."""


class Gate:
    """Holds the first request for which it is closed, and no other connection."""

    def __init__(self, closed: Callable[[Request], bool]) -> None:
        self._closed = closed
        self._come = threading.Event()
        self._open = threading.Event()

    def wait(self) -> None:
        """Wait until a request is held."""
        assert self._come.wait(_PATIENCE), "no request came to the gate"

    def open(self) -> None:
        """Let the request pass."""
        self._open.set()

    def pass_through(self, request: Request) -> None:
        """Return when a request may be answered."""
        if not (self._come.is_set() or self._open.is_set()) and self._closed(request):
            self._come.set()
            self._open.wait(_PATIENCE)


def nth(number: int, part: str = "") -> Callable[[Request], bool]:
    """Close a gate for the n-th request, from 0, whose path contains a part."""
    left = number

    def closed(request: Request) -> bool:
        nonlocal left
        left -= part in request.path
        return left < 0 and part in request.path

    return closed
