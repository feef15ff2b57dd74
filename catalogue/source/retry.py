"""A source that respects the rate limit and retries."""

import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from threading import Lock

from catalogue.errors import (
    Blocked,
    CatalogueError,
    ConnectionRefused,
    NameNotResolved,
    RangeIgnored,
    SourceError,
    SourceUnavailable,
    Throttled,
    Unreachable,
    WrongLength,
    WrongRange,
)
from catalogue.source.byte_ranges import FileVersion, SuffixRange
from catalogue.source.checks import RequestedRange, Response, Source
from catalogue.source.rate_limit import Limiter, impatient

ATTEMPTS = 12
"""Requests for one range before it fails."""
_IGNORED_ATTEMPTS = 4
"""The same when the complete file is sent instead of a range, since a server may send much of it."""
_UNRESOLVED_ATTEMPTS, _UNRESOLVED_PAUSE = 2, 2.0
"""Requests to a host whose name was never resolved, and seconds between them."""
_LONGEST_BACKOFF = 20.0
_LONGEST_RETRY_AFTER = 300.0
_WORTH_A_WORD = 10.0
"""Seconds of waiting that the user is told about."""
_THROTTLED_SHARE, _THROTTLED_ALLOWANCE = 0.1, 500
_RECENT, _RECENT_FAILURES = 200, 180
_DEAF = 3
"""Files without any range, before any success, after which a host counts as not supporting ranges."""
_AN_HOUR = 3600.0
"""Seconds for which a host that was given up gets no requests."""


class PoliteSource:
    """A source that waits for permission, retries temporary failures, and gives up in time."""

    def __init__(
        self,
        inner: Source,
        limiter: Limiter,
        *,
        notify: Callable[[str], None] = lambda _: None,
        jitter: Callable[[], float] = random.random,
        attempts: int = ATTEMPTS,
        patience: float = math.inf,
        another: Callable[[], Source] | None = None,
    ) -> None:
        """Wrap a source.

        Args:
            inner: makes the requests.
            limiter: of the source's host.
            notify: called with a sentence before a long wait.
            jitter: returns a number in [0, 1), so that clients do not retry at the same moment.
            attempts: requests for one range before it fails.
            patience: longest wait in seconds for one range.
            another: opens the same source with new connections.
        """
        self.inner = inner
        self.limiter = limiter
        self.notify = notify
        self._jitter = jitter
        self._attempts = attempts
        self._patience = patience
        self._another = another
        self._lock = Lock()
        self.requests = 0
        """Requests made so far."""
        self.bytes = 0
        """Bytes of bodies received so far."""
        self.honoured_suffixes = False
        """Whether a suffix range was ever answered with one."""
        self._honoured_ranges = False
        self._answered = False
        """Whether the host ever answered."""
        self._deaf: set[str] = set()
        """Files for which no range was honoured."""
        self._rest_until = 0.0
        """Until when requests wait, after a caller did not wait as long as the host asked."""
        self._throttled = 0
        self._uncounted = 0
        """Requests made before the host was given up; their results no longer count."""
        self._given_up: tuple[str, float] | None = None
        """Why the host was given up, and until when."""
        self._recent: deque[bool] = deque(maxlen=_RECENT)

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def connections(self) -> int:
        return self.inner.connections

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        """See ``Source.get``; retries as often as needed.

        Raises:
            SourceUnavailable: if so many requests fail that more would be useless.
            Throttled: if the wait would be too long; the message says how long.
        """
        last: SourceError = SourceUnavailable(f"{self.url}{path} was not requested")
        complaints = 0
        clock = self.limiter.clock
        until = clock.now() + self._patience
        for attempt in range(self._attempts):
            self._go_on()
            self._rest(until)
            acquired_at = self.limiter.acquire(until - clock.now())
            self._go_on()  # other threads have been at it meanwhile
            wait = 0.0
            try:
                response = self.inner.get(path, requested, pin=pin)
            except Blocked as error:
                self._count(failed=True)
                pause = self.limiter.blocked(acquired_at)
                self._bear(pause, error, until)
                self.notify(f"{error}; waiting {pause:.0f} s before one more try")
                last = error
            except Throttled as error:
                self._count(failed=True, throttled=True)
                self.limiter.slow_down()
                wait = self._backoff(error, complaints, until)
                complaints += 1
                last = error
            except (Unreachable, WrongRange, WrongLength, RangeIgnored) as error:
                self._count(failed=True)
                self._check_attempts(error, path, requested, attempt + 1)
                wait = min(_LONGEST_BACKOFF, 0.5 * 2**attempt) * self._jitter() if attempt else 0.0
                if isinstance(error, NameNotResolved):
                    wait = max(wait, _UNRESOLVED_PAUSE)
                last = error
            except SourceUnavailable:
                raise
            except CatalogueError:
                # It is what the host has to say of this file, so the host is well.
                self._count(failed=False)
                self.limiter.succeeded(acquired_at)
                raise
            else:
                self.honoured_suffixes |= isinstance(requested, SuffixRange)
                self._honoured_ranges |= requested is not None
                self.limiter.succeeded(acquired_at)
                self._count(failed=False, received=len(response.body))
                return response
            if attempt + 1 < self._attempts:
                self._wait(wait, last, until)
        raise last

    @contextmanager
    def apart(self) -> Iterator["PoliteSource"]:
        """Yield this source with a connection that carried no other request."""
        own = copy(self)
        if self._another:
            own.inner = self._another()
        requests, received = own.requests, own.bytes
        try:
            yield own
        finally:
            if self._another:
                own.inner.close()
            with self._lock:
                self.requests += own.requests - requests
                self.bytes += own.bytes - received

    def close(self) -> None:
        """See ``Source.close``; also interrupts waits."""
        self.limiter.clock.stop()
        self.inner.close()

    def _check_attempts(self, error: SourceError, path: str, requested: RequestedRange, attempts: int) -> None:
        """Raise an error that rarely passes, once it occurred often enough."""
        policy = self.limiter.policy
        if isinstance(error, ConnectionRefused) and min(policy.refused, self._attempts) <= attempts < ATTEMPTS:
            message = f"{error}; is the server running?"
            raise ConnectionRefused(message) from error
        if isinstance(error, NameNotResolved) and not self._answered and attempts >= _UNRESOLVED_ATTEMPTS:
            message = f"{error}, or run: catalogue doctor"
            raise SourceUnavailable(message) from error
        if isinstance(error, RangeIgnored):
            if isinstance(requested, SuffixRange):
                raise error
            if attempts >= (_IGNORED_ATTEMPTS if self._honoured_ranges else policy.never_honoured):
                self._note_deaf(path)
                raise error

    def _note_deaf(self, path: str) -> None:
        with self._lock:
            self._deaf.add(path)
            if self._honoured_ranges or len(self._deaf) < _DEAF:
                return
            message = (
                f"{self.url} sends complete files instead of ranges (python -m http.server does so); "
                "use a server that honours ranges, or name the folder itself as the source"
            )
            self._given_up = message, self.limiter.clock.now() + _AN_HOUR
        raise SourceUnavailable(message)

    def _backoff(self, error: Throttled, complaints: int, until: float) -> float:
        least = self.limiter.policy.slow_down * (1 << complaints) * (1 + 0.25 * self._jitter())
        most = max(_LONGEST_RETRY_AFTER, self.limiter.policy.slow_down)
        wait = min(most, max(least, error.retry_after or 0.0))
        end = self.limiter.clock.now() + wait
        if end > until:
            with self._lock:
                self._rest_until = max(self._rest_until, end)
        return wait

    def _rest(self, until: float) -> None:
        seconds = self._rest_until - self.limiter.clock.now()
        if seconds > 0:
            self._wait(seconds, Throttled(f"{self.url} asked to slow down"), until)

    def _wait(self, seconds: float, why: SourceError, until: float) -> None:
        self._bear(seconds, why, until)
        if seconds >= _WORTH_A_WORD:
            self.notify(f"{why}; waiting {seconds:.0f} s")
        if seconds > 0:
            self.limiter.clock.sleep(seconds)

    def _bear(self, seconds: float, why: SourceError, until: float) -> None:
        if self.limiter.clock.now() + seconds > until:
            if not seconds:
                raise why
            raise impatient(str(why), seconds) from why

    def _go_on(self) -> None:
        with self._lock:
            if self._given_up:
                message, until = self._given_up
                if self.limiter.clock.now() < until:
                    raise SourceUnavailable(message)
                self._given_up = None
                self._uncounted, self._throttled = self.requests, 0
                self._recent.clear()

    def _count(self, *, failed: bool, throttled: bool = False, received: int = 0) -> None:
        with self._lock:
            self.requests += 1
            self.bytes += received
            self._throttled += throttled
            self._recent.append(failed)
            self._answered |= not failed
            hopeless = len(self._recent) == _RECENT and sum(self._recent) > _RECENT_FAILURES
            counted = self.requests - self._uncounted
            unwelcome = self._throttled > _THROTTLED_SHARE * counted + _THROTTLED_ALLOWANCE
        if hopeless or unwelcome:
            reason = "keeps asking to slow down" if unwelcome else "answers hardly anything any more"
            message = f"{self.url} {reason}; everything taken so far is kept. Run the same command again in an hour"
            self._given_up = message, self.limiter.clock.now() + _AN_HOUR
            raise SourceUnavailable(message)
