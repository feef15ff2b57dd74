"""Holding a request until somebody else is done, so that which comes first is no matter of luck."""

import threading
from collections.abc import Callable

from tests.support.fault_kinds import Request

_PATIENCE = 60.0
"""Seconds until a test that went wrong ends."""


class Gate:
    """Holds the first request that it is closed for, and those that follow by the same connection; no other."""

    def __init__(self, closed: Callable[[Request], bool]) -> None:
        """Close it.

        Args:
            closed: whether it holds a request; asked in the server's thread, of each request until one is held.
        """
        self._closed = closed
        self._come = threading.Event()
        self._open = threading.Event()

    def wait(self) -> None:
        """Wait until a request is held."""
        assert self._come.wait(_PATIENCE), "no request came to the gate"

    def open(self) -> None:
        """Let it through."""
        self._open.set()

    def pass_through(self, request: Request) -> None:
        """Return when a request may go on."""
        if not (self._come.is_set() or self._open.is_set()) and self._closed(request):
            self._come.set()
            self._open.wait(_PATIENCE)


def nth(number: int, part: str = "") -> Callable[[Request], bool]:
    """Whether a request is the n-th, from 0, of those whose path has a part."""
    left = number

    def closed(request: Request) -> bool:
        nonlocal left
        left -= part in request.path
        return left < 0 and part in request.path

    return closed
