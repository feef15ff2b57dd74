"""A source that respects the rate limit and retries."""

import math
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock

from catalogue.errors import (
    Blocked,
    CatalogueError,
    ConnectionRefused,
    FileChanged,
    NameNotResolved,
    ProxyRefused,
    RangeIgnored,
    SourceError,
    SourceUnavailable,
    Throttled,
    UnexpectedHtml,
    Unreachable,
    WithoutTls,
    WrongLength,
    WrongRange,
)
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import RequestedRange, Response, Source
from catalogue.source.observe import Observer, RequestLimit, observed
from catalogue.source.rate_limit import Limiter, Policy, long_wait_error

ATTEMPTS = 12
"""Requests for one range before it fails."""
_IGNORED_ATTEMPTS = 4
"""The same if the complete file is sent, since a server may send much of it."""
_SAME_ATTEMPTS, _SAME_PAGES = 3, 6
"""The same if each response is wrong in the same way, such as by its headers; the second if it is a web page, and the
host has sent usable responses."""
_UNRESOLVED_ATTEMPTS, _UNRESOLVED_PAUSE = 2, 2.0
"""Requests to a host whose name was never resolved, and seconds between them."""
LONGEST_WAIT = 5.0
"""Seconds for which a request waits for one host before another one is tried."""
_LONGEST_BACKOFF = 20.0
_LONGEST_RETRY_AFTER = 300.0
_NOTIFY_SECONDS = 10.0
"""Longer waits are reported to the user."""
_THROTTLED_SHARE, _THROTTLED_ALLOWANCE = 0.1, 500
"""Share and number of throttled requests above which a host is given up."""
_RECENT, _RECENT_FAILURES = 200, 180
"""Latest requests, and failures among them above which a host is given up."""
_RANGELESS_FILES = 3
"""Files without any honoured range after which a host is given up."""
_USE_ANOTHER = "use a server that honours ranges, or name the folder itself as the source"
_UNAVAILABLE_SECONDS = 3600.0
"""Time without requests after a host was given up."""


class PoliteSource:
    """A source that keeps to the rate limit, retries temporary failures, and gives up failing hosts."""

    def __init__(
        self,
        inner: Source,
        limiter: Limiter,
        *,
        notify: Callable[[str], None] = lambda _: None,
        jitter: Callable[[], float] = random.random,
        attempts: int = ATTEMPTS,
        max_wait: float = math.inf,
        observer: Observer | None = None,
        limit: RequestLimit | None = None,
    ) -> None:
        """Wrap a source; ``attempts`` and ``max_wait`` in seconds are those for one range.

        ``notify`` is called with a sentence before a long wait, and ``observer`` after each request. ``jitter`` returns
        a number in [0, 1), so that clients do not retry at the same moment.
        """
        self.inner = inner
        self.url = inner.url
        self.connections = inner.connections
        self.limiter = limiter
        self.notify = notify
        self._jitter = jitter
        self._attempts = attempts
        self._max_wait = max_wait
        self._observer = observer
        self._limit = limit
        self._lock = Lock()
        self._requests = 0
        self._bytes = 0
        self.honoured_suffixes = False
        self._honoured_ranges = False
        self._answered = False
        """Whether the host has sent a usable response."""
        self._rangeless: set[str] = set()
        self._throttled_until = 0.0
        """End of a pause that was longer than the ``max_wait`` of a caller; later requests wait."""
        self._throttled = 0
        self._uncounted = 0
        """Requests before the host was given up; they no longer count."""
        self._given_up: tuple[str, float] | None = None
        """Reason, and end of the time without requests."""
        self._recent: deque[bool] = deque(maxlen=_RECENT)

    @property
    def requests(self) -> int:
        return self._requests

    @property
    def bytes(self) -> int:
        return self._bytes

    def hosts_of(self, path: str = "") -> "list[PoliteSource]":  # noqa: ARG002 - one of several may lack files
        return [self]

    @property
    def unavailable_until(self) -> float:
        """Time of the clock until which no requests are sent, because the host throttles or fails."""
        given_up = self._given_up
        return max(self._throttled_until, given_up[1] if given_up else 0.0)

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        """See ``Source.get``; retries temporary failures.

        Raises:
            SourceUnavailable: if too many requests to the host failed.
            LimitReached: if the limit of requests is reached.
            Throttled: if the wait would exceed ``max_wait``; the message says how long it is.
        """
        return self._get(path, requested, pin, self._attempts, self.limiter.clock.now() + self._max_wait)

    def get_once(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        """Make one attempt, which waits at most ``LONGEST_WAIT`` for the rate limit."""
        return self._get(path, requested, pin, 1, self.limiter.clock.now() + min(LONGEST_WAIT, self._max_wait))

    def seconds_to_wait(self) -> float:
        """Return the seconds until a request can be sent."""
        return max(self.limiter.seconds_to_wait(), self.unavailable_until - self.limiter.clock.now())

    def _get(
        self, path: str, requested: RequestedRange, pin: FileVersion | None, attempts: int, until: float
    ) -> Response:
        # An ETag means nothing to another source.
        pin = FileVersion(pin.size, None) if pin and pin.origin not in {None, self.url} else pin
        get = partial(self.inner.get, path, requested, pin=pin)
        last: SourceError = SourceUnavailable(f"{self.url}{path} was not requested")
        throttled = same = 0
        for attempt in range(attempts):
            acquired_at = self._acquire(until)
            wait = 0.0
            try:
                response = observed(self._observer, self.url, path, requested, get) if self._observer else get()
            except Blocked as error:
                self._count(failed=True)
                pause = self.limiter.blocked(acquired_at)
                self._check_wait(pause, error, until)
                self._report_pause(error, pause)
                last = error
            except Throttled as error:
                self._count(failed=True, throttled=True)
                self.limiter.slow_down(error.pause)
                wait = self._backoff(error, throttled, until)
                throttled += 1
                last = error
            except (Unreachable, WrongRange, WrongLength, RangeIgnored) as error:
                self._count(failed=True)
                same = same + 1 if str(error) == str(last) else 1
                wait = self._wait_after(error, path, requested, attempt, same)
                last = error
            except SourceUnavailable:
                raise
            except CatalogueError as error:
                # The error is about this file; the host itself works.
                self._count(failed=False)
                self.limiter.succeeded(acquired_at)
                last = _once_more(error, last, pin)
            else:
                self._note_honoured(requested, response)
                self.limiter.succeeded(acquired_at, response.pause)
                self._count(failed=False, received=len(response.body))
                return response
            if attempt + 1 < attempts:
                self._wait(wait, last, until)
        raise last

    @property
    def ignores_suffixes(self) -> bool:
        """Whether the host is known to answer requests for the end of a file with all of it."""
        return self.limiter.state.ignores_suffixes

    def _note_honoured(self, requested: RequestedRange, response: Response) -> None:
        if len(response.body) < response.total_size:  # otherwise the complete file may have been sent
            self.honoured_suffixes |= isinstance(requested, SuffixRange)
            self._honoured_ranges |= requested is not None

    def _acquire(self, until: float) -> float:
        self._check_available()
        seconds = self._throttled_until - self.limiter.clock.now()
        if seconds > 0:
            self._wait(seconds, Throttled(f"{self.url} throttles requests"), until)
        acquired_at = self.limiter.acquire(
            until - self.limiter.clock.now(), lambda text: self.notify(f"{self.url}: {text}")
        )
        self._check_available()  # other threads may have given up the host during the wait
        if self._limit:
            self._limit.take()
        return acquired_at

    def close(self) -> None:
        """See ``Source.close``; also interrupts waits."""
        self.limiter.clock.stop()
        self.inner.close()

    def _wait_after(self, error: SourceError, path: str, requested: RequestedRange, attempt: int, same: int) -> float:
        policy, attempts = self.limiter.policy, attempt + 1
        if same == _SAME_ATTEMPTS and isinstance(error, WrongRange | WrongLength | WithoutTls):
            raise error
        if isinstance(error, UnexpectedHtml):
            if same == _SAME_ATTEMPTS and not self._answered:
                raise SourceUnavailable(str(error)) from error
            if same == _SAME_PAGES:
                raise error
        refused = Policy().refused if isinstance(error, ProxyRefused) else policy.refused
        if isinstance(error, ConnectionRefused) and min(refused, self._attempts) <= attempts < ATTEMPTS:
            raise type(error)(f"{error}; is the server running?") from error
        if isinstance(error, NameNotResolved) and not self._answered and attempts >= _UNRESOLVED_ATTEMPTS:
            raise SourceUnavailable(f"{error}, or run: catalogue doctor") from error
        if isinstance(error, RangeIgnored):
            if isinstance(requested, SuffixRange):
                raise error
            if attempts >= (_IGNORED_ATTEMPTS if self._honoured_ranges else policy.never_honoured):
                self._note_rangeless(path)
                raise error if self._honoured_ranges else RangeIgnored(f"{error}; {_USE_ANOTHER}") from error
        wait = min(_LONGEST_BACKOFF, 0.5 * 2**attempt) * self._jitter() if attempt else 0.0
        return max(wait, _UNRESOLVED_PAUSE) if isinstance(error, NameNotResolved) else wait

    def _note_rangeless(self, path: str) -> None:
        with self._lock:
            self._rangeless.add(path)
            if self._honoured_ranges or len(self._rangeless) < _RANGELESS_FILES:
                return
            message = (
                f"{self.url} sends complete files instead of ranges (python -m http.server does so); {_USE_ANOTHER}"
            )
            self._given_up = message, self.limiter.clock.now() + _UNAVAILABLE_SECONDS
        raise SourceUnavailable(message)

    def _backoff(self, error: Throttled, before: int, until: float) -> float:
        least = self.limiter.policy.slow_down * (1 << before) * (1 + 0.25 * self._jitter())
        most = max(_LONGEST_RETRY_AFTER, self.limiter.policy.slow_down)
        wait = min(most, max(least, error.retry_after or 0.0))
        end = self.limiter.clock.now() + wait
        if end > until:
            with self._lock:
                self._throttled_until = max(self._throttled_until, end)
        return wait

    def _wait(self, seconds: float, reason: SourceError, until: float) -> None:
        self._check_wait(seconds, reason, until)
        if seconds >= _NOTIFY_SECONDS:
            self.notify(f"{reason}; waiting {seconds:.0f} s")
        if seconds > 0:
            self.limiter.clock.sleep(seconds)

    def _report_pause(self, error: Blocked, seconds: float) -> None:
        if self.limiter.reports_pause():
            self.notify(f"{error}; waiting {seconds:.0f} s before one more try{self.limiter.policy.elsewhere}")

    def _check_wait(self, seconds: float, reason: SourceError, until: float) -> None:
        if self.limiter.clock.now() + seconds > until:
            if not seconds:
                raise reason
            raise long_wait_error(str(reason), seconds) from reason

    def _check_available(self) -> None:
        with self._lock:
            if self._given_up:
                message, until = self._given_up
                if self.limiter.clock.now() < until:
                    raise SourceUnavailable(message)
                self._given_up = None
                self._uncounted, self._throttled = self._requests, 0
                self._recent.clear()

    def _count(self, *, failed: bool, throttled: bool = False, received: int = 0) -> None:
        with self._lock:
            self._requests += 1
            self._bytes += received
            self._throttled += throttled
            self._recent.append(failed)
            self._answered |= not failed
            failing = len(self._recent) == _RECENT and sum(self._recent) > _RECENT_FAILURES
            counted = self._requests - self._uncounted
            throttling = self._throttled > _THROTTLED_SHARE * counted + _THROTTLED_ALLOWANCE
        if failing or throttling:
            reason = "throttles too many requests" if throttling else "fails nearly every request"
            message = f"{self.url} {reason}; everything fetched so far is stored. Run the same command again in an hour"
            self._given_up = message, self.limiter.clock.now() + _UNAVAILABLE_SECONDS
            raise SourceUnavailable(message)


def _once_more(error: CatalogueError, last: SourceError, pin: FileVersion | None) -> FileChanged:
    """Return an error after which the request is repeated once, since a response out of step looks like this."""
    if pin and isinstance(error, FileChanged) and not isinstance(last, FileChanged):
        return error
    raise error


def get_tail(source: PoliteSource, path: str, length: int) -> Response:
    """Return the last ``length`` bytes of a file, or all of a shorter one.

    CloudFront may answer a suffix range with the complete file, and others refuse it. For such hosts, a request for the
    first byte returns the file size, and a second one has an explicit range.
    """
    ignores_suffixes = source.ignores_suffixes
    file_size = None
    if not ignores_suffixes:
        try:
            return source.get(path, SuffixRange(length))
        except RangeIgnored as error:
            file_size = error.file_size
        except WrongRange:  # some servers compute suffixes wrongly, of all files or of shorter ones
            pass
    try:
        tail = explicit_tail(source, path, length, file_size)
    except FileChanged:  # between the two requests
        tail = explicit_tail(source, path, length)
    if file_size is not None and file_size < length:  # some hosts refuse suffixes of shorter files only
        return tail
    # A host may ignore ranges of single files. It counts as ignoring suffixes only if it has honoured none, and has
    # just honoured an explicit range of the same file.
    if not (ignores_suffixes or source.honoured_suffixes):
        source.limiter.note_suffixes(ignored=True)
    return tail


def explicit_tail(source: PoliteSource, path: str, length: int, file_size: int | None = None) -> Response:
    """Do as ``get_tail`` without a suffix range; a request for two bytes returns an unknown ``file_size``."""
    if file_size is None:
        first = source.get(path, ByteRange(0, 2))  # some servers take a range that ends at 0 for one without an end
        if not first.total_size:
            raise WrongRange(f"{source.url}{path}: the size of the file is unknown, as no response states it")
        pin = FileVersion(first.total_size, first.etag)
    else:
        pin = FileVersion(file_size, None)
    return source.get(path, ByteRange(max(0, pin.size - length), pin.size), pin=pin)
