"""Observe requests, limit their number, and keep credentials out of logs."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import TypeAlias, TypeVar

from catalogue.errors import CatalogueError, LimitReached
from catalogue.formatting import plural, size
from catalogue.source.byte_ranges import ByteRange, SuffixRange
from catalogue.source.checks import PURPOSE, RequestedRange, Response

_REASONS = (
    ("collinfo.json", "list of crawls"),
    ("paths.gz", "list of files"),
    ("cluster.idx", "list of blocks"),
    (".parquet", "footer"),
)
"""What a file is read for, by the end of its path."""
_FOLDERS = (("cc-index/collections/", "block"), ("cc-index/", "index file"))
"""The same by its start; other files are archives."""

_SECRET_LOGGERS = ("botocore.auth", "botocore.endpoint", "botocore.parsers", "urllib3.connectionpool")
"""Their debug messages contain keys, session tokens and targets of requests."""

_Answer = TypeVar("_Answer", bound=Response | None)


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """One request, or one range of the cache."""

    source: str
    path: str
    requested: RequestedRange
    reason: str
    """The purpose, such as ``footer`` or ``pages of url``."""
    seconds: float
    """Duration, without waits for the rate limit."""
    response: Response | None = None
    error: str = ""
    cached: bool = False

    @property
    def bytes(self) -> int:
        return len(self.response.body) if self.response else 0

    @property
    def range(self) -> str:
        """Return first and last byte, or ``last N``, or ``complete``."""
        if self.response and not self.response.redirected and self.requested is not None:
            start = self.response.start
            return f"{start:,} to {start + self.bytes - 1:,}"
        if isinstance(self.requested, ByteRange):
            return f"{self.requested.start:,} to {self.requested.end - 1:,}"
        return f"last {self.requested.length:,}" if isinstance(self.requested, SuffixRange) else "complete"

    def __str__(self) -> str:
        place = "cache" if self.cached else "request"
        received = "redirected" if self.response and self.response.redirected else size(self.bytes)
        result = f"failed: {self.error}" if self.error else received
        return f"{place}: {self.path}, {self.range}: {result}, {self.seconds * 1000:.0f} ms, {self.reason}"


Observer: TypeAlias = Callable[[RequestEvent], None]
"""It is called after each request, in the thread that made it."""


def observed(
    observer: Observer,
    source: str,
    path: str,
    requested: RequestedRange,
    get: Callable[[], _Answer],
    *,
    cached: bool = False,
) -> _Answer:
    """Call a function that makes one request, or reads the cache, and report the response or the error."""
    by_end = (reason for end, reason in _REASONS if path.endswith(end))
    by_start = (reason for start, reason in _FOLDERS if path.startswith(start))
    reason = PURPOSE.get() or next(by_end, None) or next(by_start, "record")
    start = perf_counter()
    try:
        response = get()
    except CatalogueError as error:
        observer(RequestEvent(source, path, requested, reason, perf_counter() - start, error=str(error)))
        raise
    if response is not None:
        observer(RequestEvent(source, path, requested, reason, perf_counter() - start, response, cached=cached))
    return response


class RequestLimit:
    """A number of requests that several sources and threads share."""

    def __init__(self, requests: int) -> None:
        self.most = requests
        self.used = 0
        self._lock = Lock()

    @contextmanager
    def within(self, requests: int) -> Iterator[None]:
        """Allow at most this many further requests in a block."""
        most = self.most
        self.most = min(most, self.used + requests)
        try:
            yield
        finally:
            self.most = most

    def take(self) -> None:
        """Count a request.

        Raises:
            LimitReached: if none is left.
        """
        with self._lock:
            if self.used >= self.most:
                raise LimitReached(f"the limit of {plural(self.most, 'request')} is reached")
            self.used += 1


def hide_credentials() -> None:
    """Keep credentials of the AWS SDK, and signed addresses, out of logs."""
    for name in _SECRET_LOGGERS:
        logging.getLogger(name).addFilter(_is_above_debug)


def _is_above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
