"""Asking politely, and again: the same protocol around another source."""

import random
from collections import deque
from collections.abc import Callable
from threading import Lock

from catalogue.errors import (
    Blocked,
    CatalogueError,
    GivenUp,
    RangeIgnored,
    ShortBody,
    SlowDown,
    SourceError,
    Unreachable,
    WrongRange,
)
from catalogue.ranges import Pin, SuffixRange
from catalogue.source.limiter import Limiter
from catalogue.source.response import Response, Source, Wanted

ATTEMPTS = 12
"""Requests made for one thing before it is given up."""
_IGNORED_ATTEMPTS = 4
"""The same where the whole file comes each time: its body is not read, but the server may have sent some of it."""
_LONGEST_BACKOFF = 20.0
_LONGEST_RETRY_AFTER = 300.0
_WORTH_A_WORD = 10.0
"""Seconds of waiting that the user is told of."""
_THROTTLED_SHARE, _THROTTLED_ALLOWANCE = 0.1, 500
_RECENT, _RECENT_FAILURES = 200, 180


class PoliteSource:
    """A source that waits its turn, tries again what may go better, and knows when to stop."""

    def __init__(
        self,
        inner: Source,
        limiter: Limiter,
        *,
        notify: Callable[[str], None] = lambda _: None,
        jitter: Callable[[], float] = random.random,
        attempts: int = ATTEMPTS,
    ) -> None:
        """Wrap a source.

        Args:
            inner: makes the requests.
            limiter: of the source's host.
            notify: told in a sentence why there is a long wait.
            jitter: a number in [0, 1), so that many clients do not come back at the same moment.
            attempts: requests made for one thing before it is given up.
        """
        self.inner = inner
        self.limiter = limiter
        self.notify = notify
        self._jitter = jitter
        self._attempts = attempts
        self._lock = Lock()
        self.requests = 0
        """Requests made so far."""
        self.bytes = 0
        """Bytes of bodies received so far."""
        self.honoured_suffixes = False
        """Whether a suffix range was ever answered with one."""
        self._throttled = 0
        self._given_up: str | None = None
        self._recent: deque[bool] = deque(maxlen=_RECENT)

    @property
    def url(self) -> str:
        """See ``Source.url``."""
        return self.inner.url

    @property
    def connections(self) -> int:
        """See ``Source.connections``."""
        return self.inner.connections

    def get(self, path: str, wanted: Wanted = None, *, pin: Pin | None = None) -> Response:
        """See ``Source.get``; makes as many requests as it takes.

        Raises:
            GivenUp: if so much fails that going on would be rude or useless.
        """
        last: SourceError = GivenUp(f"{self.url}{path} was not asked for")
        complaints = 0
        for attempt in range(self._attempts):
            self._go_on()
            asked = self.limiter.acquire()
            self._go_on()  # other threads have been at it meanwhile
            wait = 0.0
            try:
                response = self.inner.get(path, wanted, pin=pin)
            except Blocked as error:
                self._count(failed=True)
                pause = self.limiter.blocked(asked)
                self.notify(f"{error}; waiting {pause:.0f} s before one more try")
                last = error
            except SlowDown as error:
                self._count(failed=True, throttled=True)
                self.limiter.slow_down()
                wait = self._patience(error, complaints)
                complaints += 1
                last = error
            except (Unreachable, WrongRange, ShortBody, RangeIgnored) as error:
                self._count(failed=True)
                if isinstance(error, RangeIgnored) and (
                    isinstance(wanted, SuffixRange) or attempt + 1 >= _IGNORED_ATTEMPTS
                ):
                    raise
                wait = min(_LONGEST_BACKOFF, 0.5 * 2**attempt) * self._jitter() if attempt else 0.0
                last = error
            except GivenUp:
                raise
            except CatalogueError:
                # It is what the host has to say of this file, so the host is well.
                self._count(failed=False)
                self.limiter.succeeded(asked)
                raise
            else:
                self.honoured_suffixes |= isinstance(wanted, SuffixRange)
                self.limiter.succeeded(asked)
                self._count(failed=False, received=len(response.body))
                return response
            if attempt + 1 < self._attempts:
                self._wait(wait, last)
        raise last

    def close(self) -> None:
        """See ``Source.close``; breaks off waits too."""
        self.limiter.clock.stop()
        self.inner.close()

    def _patience(self, error: SlowDown, complaints: int) -> float:
        least = self.limiter.policy.slow_down * (1 << complaints) * (1 + 0.25 * self._jitter())
        most = max(_LONGEST_RETRY_AFTER, self.limiter.policy.slow_down)
        return min(most, max(least, error.retry_after or 0.0))

    def _wait(self, seconds: float, why: SourceError) -> None:
        if seconds >= _WORTH_A_WORD:
            self.notify(f"{why}; waiting {seconds:.0f} s")
        if seconds > 0:
            self.limiter.clock.sleep(seconds)

    def _go_on(self) -> None:
        if self._given_up:
            raise GivenUp(self._given_up)

    def _count(self, *, failed: bool, throttled: bool = False, received: int = 0) -> None:
        with self._lock:
            self.requests += 1
            self.bytes += received
            self._throttled += throttled
            self._recent.append(failed)
            hopeless = len(self._recent) == _RECENT and sum(self._recent) > _RECENT_FAILURES
            unwelcome = self._throttled > _THROTTLED_SHARE * self.requests + _THROTTLED_ALLOWANCE
        if hopeless or unwelcome:
            reason = "keeps asking to slow down" if unwelcome else "answers hardly anything any more"
            message = f"{self.url} {reason}; everything taken so far is kept. Run the same command again in an hour"
            self._given_up = message
            raise GivenUp(message)
