"""A source with responses given by a test."""

import threading
from collections.abc import Callable, Iterable

from catalogue.errors import CatalogueError
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.checks import RequestedRange, Response

Answer = Response | CatalogueError
GOOD = Response(b"12345", 0, 10, '"a"', None)


class Answers:
    """A source without a network; its answers come from a list, or depend on the path."""

    url = "test:/"
    connections = 4

    def __init__(self, answers: Iterable[Answer] | Callable[[str], Answer]) -> None:
        remaining = iter(()) if callable(answers) else iter(answers)
        self._answer = answers if callable(answers) else lambda _: next(remaining)
        self._lock = threading.Lock()
        self.requests = 0
        self.closed = False

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:  # noqa: ARG002 - the same for all ranges
        with self._lock:
            self.requests += 1
            answer = self._answer(path)
        if isinstance(answer, CatalogueError):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True
