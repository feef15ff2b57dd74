"""The rate limit of a host, shared by all processes of a user.

What is known of Common Crawl's limits: "We can handle a few thousand requests per second, not millions" for all
clients together (status.commoncrawl.org); 12 requests per second from one address were blocked after minutes, 7 were
not in hours; a blocked client gets 403 for everything for some minutes; 503 asks for a pause of at least 10 seconds.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock
from typing import Protocol

from catalogue.errors import Blocked, SourceUnavailable, Throttled
from catalogue.source.rate_limit_state import State, StateFile

_PROBE_PATIENCE = 120.0
"""Seconds after which an unfinished probe counts as failed."""
_LOOK_AGAIN = 1.0
"""Seconds between checks whether another process's probe is done."""
_FLOOR = 0.5
"""Requests per second; the rate is not halved below."""
_CLEAN = 10.0
"""Seconds without a complaint after which the rate grows by 1 per second."""


class Clock(Protocol):
    """The time, passed in so that tests need not wait."""

    def now(self) -> float:
        """Return seconds that never go backwards and are the same in all processes of the machine."""

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            SourceUnavailable: if the wait was interrupted by ``stop``.
        """

    def stop(self) -> None:
        """Interrupt this wait and every later one."""


class SystemClock:
    """Seconds since the machine started."""

    def __init__(self) -> None:
        self._stopped = Event()

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if self._stopped.wait(max(0.0, seconds)):
            message = "the wait was broken off, for the source was closed"
            raise SourceUnavailable(message)

    def stop(self) -> None:
        self._stopped.set()


@dataclass(frozen=True, slots=True)
class Policy:
    """How politely a host is treated."""

    rate: float | None = None
    """Requests per second in the long run; None for no limit."""
    burst: int = 10
    """Requests that may be sent at once after a pause."""
    connections: int = 16
    slow_down: float = 1.0
    """Shortest pause in seconds after a request to slow down; doubled each time."""
    pauses: tuple[float, ...] = (300.0, 900.0)
    """Seconds of pause after the first block, the second and so on; after the last the host is given up."""
    refused: int = 5
    """Attempts when connections are refused, so that a server may restart."""
    never_honoured: int = 2
    """Attempts for a range when the complete file is sent and no range was ever honoured."""


# Of many machines that answer in their name one may be gone, or ignore a range, while others do as they should.
COMMON_CRAWL = Policy(rate=5.0, connections=4, slow_down=10.0, refused=12, never_honoured=4)
S3_COMMON_CRAWL = Policy(rate=100.0, burst=100, connections=32, slow_down=2.0, refused=12, never_honoured=4)


class Limiter:
    """Grant permission for requests to one host."""

    def __init__(self, policy: Policy, *, clock: Clock, file: Path | None = None) -> None:
        """Start with the shared state.

        Args:
            policy: of the host.
            clock: for waits.
            file: shared with the user's other processes; None to share nothing.
        """
        self.policy = policy
        self.clock = clock
        self._file = StateFile(file, max(policy.pauses)) if file else None
        self._lock = Lock()
        self._memory = State()

    @property
    def rate(self) -> float | None:
        """Return the current requests per second; None for no limit."""
        return self._rate(self.state)

    @property
    def state(self) -> State:
        return self._update(lambda state: state)

    def acquire(self, patience: float = math.inf) -> float:
        """Wait for permission to make one request.

        Args:
            patience: longest wait in seconds; permission without a wait is always granted.

        Returns:
            When permission was granted, for ``succeeded`` and ``blocked``.

        Raises:
            Blocked: if the host has blocked us too often in a row.
            Throttled: at once, if the wait would be longer; no slot is taken then.
        """
        until = self.clock.now() + patience
        while True:
            now = self.clock.now()
            before = State()

            def take(state: State, now: float = now) -> State:
                nonlocal before
                before = state
                return self._slot_taken(state, now, until)

            after = self._update(take)
            if before.blocks > len(self.policy.pauses) and now < before.paused_until:
                raise Blocked(self._come_back(before.paused_until - now))
            if now < before.paused_until:
                self._sleep(now, before.paused_until, until, "the host blocks this address for now")
            elif before.blocks and after == before:
                why = "another request is finding out whether the host still blocks this address"
                self._sleep(now, now + _LOOK_AGAIN, until, why)
            elif before.blocks or (rate := self._rate(before)) is None:
                return now
            else:
                slot = self._slot(before, now, rate)
                if slot > now:
                    why = f"the host gets {rate:g} requests per second, and other processes were first"
                    self._sleep(now, slot, until, why)
                    if self.state.blocks:
                        continue
                return self.clock.now()

    def _sleep(self, now: float, end: float, until: float, why: str) -> None:
        if end > until:
            raise impatient(why, end - now)
        self.clock.sleep(end - now)

    def _slot(self, state: State, now: float, rate: float) -> float:
        """Return when the next request may be sent."""
        return max(state.next_slot, now - (self.policy.burst - 1) / rate)

    def _slot_taken(self, state: State, now: float, until: float) -> State:
        """Return the state after taking a slot, or the probe, if one is free by ``until``."""
        if now < state.paused_until:
            return state
        if state.blocks:
            free = state.probed is None or now - state.probed >= _PROBE_PATIENCE
            return replace(state, probed=now) if free else state
        rate = self._rate(state)
        if rate is None:
            return state
        slot = self._slot(state, now, rate)
        return state if slot > max(now, until) else replace(state, next_slot=slot + 1 / rate)

    def succeeded(self, acquired_at: float) -> None:
        """Note that the host answered a request."""
        if not self._memory.blocks and self._memory.rate is None:  # the usual case, in which nothing changes
            return
        now = self.clock.now()

        def change(state: State) -> State:
            if state.blocks:
                over = state.probed is not None and acquired_at >= state.probed
                if not over:
                    return state
                slower = replace(self._halved(state, now), next_slot=max(state.next_slot, now))  # without a burst
                return replace(slower, blocks=0, probed=None, paused_until=0.0)
            ours = self.policy.rate
            if state.rate and ours and state.rate < ours and now - state.changed > _CLEAN:
                return replace(state, rate=state.rate + 1 if state.rate + 1 < ours else None, changed=now)
            return state

        self._update(change)

    def slow_down(self) -> None:
        """Note that the host asked to slow down: halve the rate."""
        now = self.clock.now()
        self._update(lambda state: self._halved(state, now))

    def blocked(self, acquired_at: float) -> float:
        """Note that the host refuses everything.

        Args:
            acquired_at: when permission for the refused request was granted; of several refused at once one counts.

        Returns:
            Seconds of pause that follow.

        Raises:
            Blocked: if this happened too often in a row.
        """
        now = self.clock.now()

        def change(state: State) -> State:
            if state.blocks and (state.probed is None or acquired_at < state.probed):
                return state
            pause = self.policy.pauses[min(state.blocks, len(self.policy.pauses) - 1)]
            return replace(state, blocks=state.blocks + 1, probed=None, paused_until=now + pause)

        after = self._update(change)
        pause = max(0.0, after.paused_until - now)
        if after.blocks > len(self.policy.pauses):
            raise Blocked(self._come_back(pause))
        return pause

    def note_suffixes(self, *, ignored: bool) -> None:
        """Share how the host answers suffix ranges."""
        self._update(lambda state: replace(state, ignores_suffixes=ignored))

    def _rate(self, state: State) -> float | None:
        # Another process may have been allowed more.
        return min(state.rate, self.policy.rate) if state.rate and self.policy.rate else self.policy.rate

    def _halved(self, state: State, now: float) -> State:
        rate = self._rate(state)
        if rate is None or now - state.changed < 1:  # several answers to requests made together are one complaint
            return state
        return replace(state, rate=max(min(_FLOOR, rate), rate / 2), changed=now)

    def _come_back(self, seconds: float) -> str:
        at = time.strftime("%H:%M", time.localtime(time.time() + seconds))
        return (
            f"the host blocks this address for now; everything taken so far is kept. "
            f"Run the same command again after {at}, or with a lower --rate"
        )

    def _update(self, change: Callable[[State], State]) -> State:
        """Change the state and return the new one; without a usable file, that of this process alone."""
        with self._lock:
            if self._file is not None:
                try:
                    self._memory = self._file.change(change, self.clock.now())
                except TimeoutError:  # the process with the lock may be suspended: try again with the next request
                    pass
                except OSError:
                    self._file = None
                else:
                    return self._memory
            self._memory = change(self._memory)
            return self._memory


def impatient(why: str, seconds: float) -> Throttled:
    """Return the error for a wait that is too long."""
    return Throttled(f"{why}; ask again in {math.ceil(seconds)} s", retry_after=seconds)
