"""The rate limit of a host, shared by all processes of a user.

Common Crawl serves "a few thousand requests per second, not millions" for all clients together
(status.commoncrawl.org). 12 requests per second from one address were blocked after minutes, 7 were not in hours. A
blocked client gets 403 for every file for some minutes; 503 demands a pause of at least 10 seconds.

The state is in a small file that is changed in place under a lock, twice for each request.
"""

import json
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import NamedTuple, TypeAlias

from catalogue.errors import Blocked, SourceUnavailable, Throttled
from catalogue.settings import HOSTS

if sys.platform != "win32":
    import fcntl

    _OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK

_SIZE = 512
"""Bytes of the file: JSON, padded with spaces, so that one write replaces it."""
_LOCK_SECONDS = 2.0
"""Longest wait for the lock, which processes hold for microseconds."""
_LOCK_POLL_SECONDS = 0.001
_LOWEST_VALID_RATE = 0.001
"""Requests per second; a lower stored rate is invalid."""
_HORIZON = 3600.0
"""Seconds; a time further in the future is invalid, unless a pause is longer."""
_PROBE_TIMEOUT = 120.0
"""Seconds after which an unfinished probe counts as failed."""
_PROBE_POLL_SECONDS = 1.0
_LOWEST_RATE = 0.5
"""Requests per second; the rate is not halved below this."""
_BLOCKS = "the host blocks this address for now"
_SHARE_OF_QUOTA = 0.95
_RECOVERY_SECONDS = 10.0
"""Seconds without throttling after which the rate grows by 1 per second."""


class RateLimitState(NamedTuple):
    """The state of a host; times are those of ``Clock.now``."""

    next_slot: float = 0.0
    rate: float | None = None
    """The rate after halving; None if it is the policy's."""
    changed: float = 0.0
    blocks: int = 0
    paused_until: float = 0.0
    probed: float | None = None
    """Time of the request that checks whether a block is over."""
    ignores_suffixes: bool = False
    """Whether the host sends complete files for suffix ranges."""
    noted: float = 0.0

    def is_valid(self, now: float, longest_pause: float) -> bool:
        """Check what a damaged file or a reboot may have made invalid."""
        times = (self.next_slot, self.changed, self.paused_until, self.probed or 0.0)
        ahead = now + max(_HORIZON, longest_pause)
        return (
            all(0 <= at <= ahead for at in times)
            and isinstance(self.blocks, int)
            and self.blocks >= 0
            and 0 <= self.noted <= now  # the clock restarts with the machine
            and (self.rate is None or self.rate >= _LOWEST_VALID_RATE)
        )


_Change: TypeAlias = Callable[[RateLimitState], RateLimitState]


class StateFile:
    """The state of one host in a file."""

    def __init__(self, path: Path, longest_pause: float) -> None:
        self._path = os.fspath(path)
        self._longest_pause = longest_pause
        self._known = b"", RateLimitState()
        """The last valid content of the file, and its state: parsing takes a tenth of the time of a request."""

    def change(self, change: _Change, clock: Callable[[], float]) -> tuple[RateLimitState, RateLimitState]:
        """Change the state; return the one before and the new one.

        ``clock`` is read under the lock, so that no time is in the future.

        Raises:
            TimeoutError: if another process holds the lock for too long; it may be suspended.
            OSError: if the file cannot be used.
        """
        with self._locked() as file:
            now = clock()
            before = self._read(file, now)
            after = change(before)
            if after != before:
                after = after._replace(noted=now)
                content = json.dumps(after._asdict()).encode().ljust(_SIZE)
                os.pwrite(file, content, 0)
                self._known = content, after
            return before, after

    @contextmanager
    def _locked(self) -> Iterator[int]:
        if sys.platform == "win32":
            raise OSError("processes do not share rate limits on Windows")
        try:
            file = os.open(self._path, _OPEN_FLAGS, 0o600)
        except FileNotFoundError:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, _OPEN_FLAGS, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(f"{self._path} is not a file")
            _lock(file)
            try:
                yield file
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # a process that was forked since then has the file open, too
        finally:
            os.close(file)

    def _read(self, file: int, now: float) -> RateLimitState:
        content = os.pread(file, _SIZE, 0)
        if content == self._known[0]:
            return self._known[1]
        with suppress(ValueError, TypeError, RecursionError):
            state = RateLimitState(**json.loads(content))
            if state.is_valid(now, self._longest_pause):
                self._known = content, state
                return state
        return RateLimitState()


def _lock(file: int) -> None:
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise TimeoutError from error
            time.sleep(_LOCK_POLL_SECONDS)
        else:
            return


class Clock:
    """Monotonic seconds, the same in all processes of the machine."""

    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._stopped = Event()

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            SourceUnavailable: if ``stop`` interrupts the wait.
        """
        if self._stopped.wait(max(0.0, seconds)):
            raise SourceUnavailable("the source was closed during a wait")

    def stop(self) -> None:
        """Interrupt current and later waits."""
        self._stopped.set()


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits for requests to a host."""

    rate: float | None = None
    """Requests per second on average; None for no limit."""
    burst: int = 10
    """Requests that may be sent at once after a pause."""
    connections: int = 32
    slow_down: float = 1.0
    """Shortest pause in seconds after a throttled request; doubled each time."""
    pauses: tuple[float, ...] = (300.0, 900.0)
    """Seconds of pause after each block in a row; one more block is an error."""
    refused: int = 5
    """Attempts if connections are refused; a server may be restarting."""
    never_honoured: int = 2
    """Attempts for a range while the host has sent only complete files."""
    elsewhere: str = field(default="", compare=False)
    """What a message about a block says of other hosts."""

    def within(self, count: int, seconds: float) -> "Policy":
        """Return a policy by which no window of ``seconds`` has more than ``count`` requests."""
        burst = max(1, min(self.burst, count // 4))
        # In no window are more requests than the burst and those of the rate; requests may arrive late.
        most = _SHARE_OF_QUOTA * max(1, count - burst) / seconds
        return replace(self, burst=burst, rate=min(self.rate or most, most))


# Many machines serve these hosts. One may refuse connections or ignore ranges while others work.
COMMON_CRAWL = Policy(rate=5.0, connections=4, slow_down=10.0, refused=12, never_honoured=4)
ELSEWHERE = f"; with --source {','.join(host.name for host in HOSTS)} a second host serves crawls of 2026 and later"
S3_COMMON_CRAWL = Policy(rate=100.0, burst=100, connections=32, slow_down=2.0, refused=12, never_honoured=4)


class Limiter:
    """Grants permission for requests to one host."""

    def __init__(self, policy: Policy, *, clock: Clock, file: Path | None = None) -> None:
        """Take the ``file`` with the state that processes share, None to share nothing."""
        self.policy = policy
        self.clock = clock
        self._file = StateFile(file, max(policy.pauses)) if file else None
        self._lock = Lock()
        self._memory = RateLimitState()
        self._reported = 0.0
        """End of the last pause that was reported."""

    @property
    def rate(self) -> float | None:
        return self.policy.rate and self.rate_of(self.state)

    @property
    def state(self) -> RateLimitState:
        return self._update(lambda state: state)[1] if self._file else self._memory

    def acquire(self, max_wait: float = math.inf, notify: Callable[[str], None] = lambda _: None) -> float:
        """Wait for permission to make one request; return its time, for ``succeeded`` and ``blocked``.

        Without a need to wait it is always granted. ``notify`` is called with a sentence before this process waits for
        the end of a block.

        Raises:
            Blocked: if the host has blocked this address too often in a row.
            Throttled: at once, if the wait would exceed ``max_wait``; no slot is used then.
        """
        if self.policy.rate is None and not (self._file or self._memory.blocks):
            return self.clock.now()
        until = self.clock.now() + max_wait
        while True:
            now = self.clock.now()
            before, after = self._update(partial(self._reserve_slot, now=now, until=until))
            if before.blocks > len(self.policy.pauses) and now < before.paused_until:
                raise Blocked(self._blocked_message(before.paused_until - now))
            if now < before.paused_until:
                self._sleep(now, before.paused_until, until, _BLOCKS, notify)
            elif before.blocks and after == before:
                reason = "another request is checking whether the host still blocks this address"
                self._sleep(now, now + _PROBE_POLL_SECONDS, until, reason)
            elif before.blocks or (rate := self.rate_of(before)) is None:
                return now
            else:
                slot = self._slot(before, now, rate)
                if slot > now:
                    reason = f"the limit of {rate:g} requests per second to this host is reached"
                    self._sleep(now, slot, until, reason)
                    if self.state.blocks:
                        continue
                return self.clock.now()

    def seconds_to_wait(self) -> float:
        """Return the seconds until ``acquire`` would grant a request."""
        now, state = self.clock.now(), self.state
        if state.blocks:
            is_free = self._reserve_slot(state, now, now) != state
            return 0.0 if is_free else max(state.paused_until - now, _PROBE_POLL_SECONDS)
        rate = self.rate_of(state)
        return 0.0 if rate is None else max(0.0, self._slot(state, now, rate) - now)

    def _sleep(
        self, now: float, end: float, until: float, reason: str, notify: Callable[[str], None] | None = None
    ) -> None:
        if end > until:
            raise long_wait_error(reason, end - now)
        if notify and self.reports_pause():
            notify(f"{reason}; waiting {math.ceil(end - now)} s")
        self.clock.sleep(end - now)

    def reports_pause(self) -> bool:
        """Return True once for each pause after a block, for the caller to report it."""
        with self._lock:
            before, self._reported = self._reported, self._memory.paused_until
            return self._reported > before

    def _slot(self, state: RateLimitState, now: float, rate: float) -> float:
        return max(state.next_slot, now - (self.policy.burst - 1) / rate)

    def _reserve_slot(self, state: RateLimitState, now: float, until: float) -> RateLimitState:
        if now < state.paused_until:
            return state
        if state.blocks:
            free = state.probed is None or now - state.probed >= _PROBE_TIMEOUT
            return state._replace(probed=now) if free else state
        rate = self.rate_of(state)
        if rate is None:
            return state
        slot = self._slot(state, now, rate)
        return state if slot > max(now, until) else state._replace(next_slot=slot + 1 / rate)

    def succeeded(self, acquired_at: float, pause: float = 0.0) -> None:
        """Note a response; for ``pause`` seconds no other request is granted, in all processes."""
        if pause:
            self._pause(pause)
        if not self._memory.blocks and self._memory.rate is None:  # the usual case: nothing changes
            return
        now = self.clock.now()

        def change(state: RateLimitState) -> RateLimitState:
            if state.blocks:
                is_over = state.probed is not None and acquired_at >= state.probed
                if not is_over:
                    return state
                slower = self._halved(state, now)._replace(next_slot=max(state.next_slot, now))  # without a burst
                return slower._replace(blocks=0, probed=None, paused_until=0.0)
            limit = self.policy.rate
            if state.rate and limit and state.rate < limit and now - state.changed > _RECOVERY_SECONDS:
                return state._replace(rate=state.rate + 1 if state.rate + 1 < limit else None, changed=now)
            return state

        self._update(change)

    def slow_down(self, pause: float = 0.0) -> None:
        """Halve the rate after a throttled request; see ``succeeded`` for ``pause``."""
        if pause:
            self._pause(pause)
        now = self.clock.now()
        self._update(lambda state: self._halved(state, now))

    def _pause(self, seconds: float) -> None:
        slot = self.clock.now() + seconds
        self._update(lambda state: state._replace(next_slot=max(state.next_slot, slot)))

    def blocked(self, acquired_at: float) -> float:
        """Record a block and return the seconds of pause; simultaneous blocks count once.

        Raises:
            Blocked: if there were too many blocks in a row.
        """
        now = self.clock.now()

        def change(state: RateLimitState) -> RateLimitState:
            if state.blocks and (state.probed is None or acquired_at < state.probed):
                return state
            pause = self.policy.pauses[min(state.blocks, len(self.policy.pauses) - 1)]
            return state._replace(blocks=state.blocks + 1, probed=None, paused_until=now + pause)

        _, after = self._update(change)
        pause = max(0.0, after.paused_until - now)
        if after.blocks > len(self.policy.pauses):
            raise Blocked(self._blocked_message(pause))
        return pause

    def note_suffixes(self, *, ignored: bool) -> None:
        """Record for all processes whether the host ignores suffix ranges."""
        self._update(lambda state: state._replace(ignores_suffixes=ignored))

    def rate_of(self, state: RateLimitState) -> float | None:
        # A process with another policy may have written a higher rate.
        return min(state.rate, self.policy.rate) if state.rate and self.policy.rate else self.policy.rate

    def _halved(self, state: RateLimitState, now: float) -> RateLimitState:
        rate = self.rate_of(state)
        if rate is None or now - state.changed < 1:  # simultaneous throttled requests count once
            return state
        return state._replace(rate=max(min(_LOWEST_RATE, rate), rate / 2), changed=now)

    def _blocked_message(self, seconds: float) -> str:
        at = time.strftime("%H:%M", time.localtime(time.time() + seconds))
        return (
            f"{_BLOCKS}; everything fetched so far is stored. "
            f"Run the same command again after {at}, or with a lower rate{self.policy.elsewhere}"
        )

    def _update(self, change: _Change) -> tuple[RateLimitState, RateLimitState]:
        """Change the state; return the one before and the new one. While the file is not usable, it is not shared."""
        with self._lock:
            if self._file is not None:
                with suppress(OSError):  # the process with the lock may be suspended; the next request tries again
                    before, self._memory = self._file.change(change, self.clock.now)
                    return before, self._memory
            before, self._memory = self._memory, change(self._memory)
            return before, self._memory


def long_wait_error(reason: str, seconds: float) -> Throttled:
    return Throttled(f"{reason}; try again in {math.ceil(seconds)} s", retry_after=seconds)
