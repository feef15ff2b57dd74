"""Sources with responses given by a test, and a source of a file in memory."""

import threading
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path
from typing import Any

from catalogue.errors import CatalogueError
from catalogue.source.byte_ranges import FileVersion, SuffixRange
from catalogue.source.checks import RequestedRange, Response
from catalogue.source.rate_limit import Limiter, Policy
from catalogue.source.retry import PoliteSource
from catalogue.store.layout import StoredFile
from tests.support.clocks import START, FakeClock

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


class Memory:
    """A source of one file, and the ranges and versions that were requested."""

    connections = 3

    def __init__(self, data: bytes, etag: str | None = '"1"', url: str = "memory:///") -> None:
        self.data, self.etag, self.url = data, etag, url
        self.stored = StoredFile(b"", len(data), etag, None, url, "")
        self.log: list[Any] = []
        self.pins: list[FileVersion | None] = []

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        start, end = 0, len(self.data)
        if isinstance(requested, SuffixRange):
            start = max(0, end - requested.length)
        elif requested:
            start, end = requested.start, requested.end
        assert end <= len(self.data), f"{path}: a range ends after the end of the file"
        self.log.append(requested)
        self.pins.append(pin)
        return Response(self.data[start:end], start, len(self.data), self.etag, "yesterday")

    def close(self) -> None:
        pass


class TimedHost:
    """A host whose answers depend on the seconds since the start and on the path, and the times of its requests."""

    def __init__(self, answer: Callable[[float, str], Answer]) -> None:
        self.clock = FakeClock()
        self.times: list[float] = []
        self._answer = answer

    def _answered(self, path: str) -> Answer:
        self.times.append(self.clock.now() - START)
        return self._answer(self.times[-1], path)

    def open(
        self,
        policy: Policy = Policy(rate=5.0, connections=4, slow_down=10.0),  # noqa: B008 - frozen
        *,
        file: Path | None = None,
        max_wait: float = inf,
        jitter: float = 0.5,
        notify: Callable[[str], None] = lambda _: None,
    ) -> PoliteSource:
        limiter = Limiter(policy, clock=self.clock, file=file)
        return PoliteSource(Answers(self._answered), limiter, jitter=lambda: jitter, max_wait=max_wait, notify=notify)
