"""How often a host may be asked, by all processes of a user together.

Common Crawl's limits, as far as they are known: "We can handle a few thousand requests per second, not millions" for
everybody together (status.commoncrawl.org); 12 requests a second from one address were blocked after minutes, 7 were
not in hours; who is blocked gets 403 for everything for some minutes; 503 asks for at least 10 seconds of patience.
"""

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event, Lock
from typing import Protocol

from filelock import FileLock, Timeout

from catalogue.atomic_files import create
from catalogue.errors import Blocked, SourceUnavailable, Throttled

_PROBE_PATIENCE = 120.0
"""Seconds after which a probe that never reported back is taken for dead."""
_LOOK_AGAIN = 1.0
"""Seconds after which whoever waits for somebody else's probe looks whether it is over."""
_FLOOR = 0.5
"""Requests a second below which the rate is not halved."""
_LEAST = 0.001
"""Requests a second below which a noted rate is no rate."""
_CLEAN = 10.0
"""Seconds without a complaint after which the rate grows by 1 a second."""
_LOCK_SECONDS = 2.0
"""For which the lock of the state is waited for, which others have for a millisecond."""
_HORIZON = 3600.0
"""Seconds beyond which no state that makes sense looks ahead, unless a pause is longer."""


class Clock(Protocol):
    """Time, handed in so that a test need not wait."""

    def now(self) -> float:
        """Seconds; never goes backwards and is the same for all processes of the machine."""

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            SourceUnavailable: if the wait was broken off.
        """

    def stop(self) -> None:
        """Break off this wait and every later one."""


class SystemClock:
    """The machine's time since it started."""

    def __init__(self) -> None:
        self._stopped = Event()

    def now(self) -> float:
        """See ``Clock.now``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See ``Clock.sleep``."""
        if self._stopped.wait(max(0.0, seconds)):
            message = "the wait was broken off, for the source was closed"
            raise SourceUnavailable(message)

    def stop(self) -> None:
        """See ``Clock.stop``."""
        self._stopped.set()


@dataclass(frozen=True, slots=True)
class Policy:
    """What politeness means towards a host."""

    rate: float | None = None
    """Requests a second in the long run; None for as many as come."""
    burst: int = 10
    """Requests that may go out at once after a rest."""
    connections: int = 16
    slow_down: float = 1.0
    """Seconds to wait at least when asked to slow down; doubled each time."""
    pauses: tuple[float, ...] = (300.0, 900.0)
    """Seconds of silence after the first block, the second, …; then it is given up for now."""
    refused: int = 5
    """Requests for one thing where nobody listens: whoever restarts a server of their own has some seconds for it."""
    never_honoured: int = 2
    """Requests for one range where the whole file comes, if no range was ever honoured."""


# Of many machines that answer in their name one may be gone, or ignore a range, while others do as they should.
COMMON_CRAWL = Policy(rate=5.0, connections=4, slow_down=10.0, refused=12, never_honoured=4)
S3_COMMON_CRAWL = Policy(rate=100.0, burst=100, connections=32, slow_down=2.0, refused=12, never_honoured=4)


@dataclass(frozen=True, slots=True)
class State:
    """What all processes know of a host; times are the clock's."""

    next_slot: float = 0.0
    rate: float | None = None
    """The rate after halving; None while it is the policy's."""
    changed: float = 0.0
    blocks: int = 0
    """Blocks in a row."""
    paused_until: float = 0.0
    probed: float | None = None
    """When the one request went out that finds out whether a block is over."""
    ignores_suffixes: bool = False
    """Whether the host answers a suffix range with the whole file."""
    noted: float = 0.0
    """When all this was written down."""


class Limiter:
    """Gives leave to make requests of one host."""

    def __init__(self, policy: Policy, *, clock: Clock, file: Path | None = None) -> None:
        """Start with what is known.

        Args:
            policy: the host's.
            clock: to wait by.
            file: shared with the user's other processes; None to share with nobody.
        """
        self.policy = policy
        self.clock = clock
        self._file = file
        self._lock = Lock()
        self._memory = State()

    @property
    def rate(self) -> float | None:
        """Requests a second at present; None for as many as come."""
        return self._rate(self.state)

    @property
    def state(self) -> State:
        """What is known at present."""
        return self._update(lambda state: state)

    def acquire(self, patience: float = math.inf) -> float:
        """Wait for leave to make one request.

        Args:
            patience: seconds to wait at most; leave that needs no wait is given however little that is.

        Returns:
            When leave was given; ``succeeded`` and ``blocked`` want it back.

        Raises:
            Blocked: if the host has blocked us too often in a row.
            Throttled: at once, if it would take longer than there is patience; no turn is taken then.
        """
        until = self.clock.now() + patience
        while True:
            now = self.clock.now()
            before = State()

            def take(state: State, now: float = now) -> State:
                nonlocal before
                before = state
                return self._taken(state, now, until)

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
                    why = f"the host is asked {rate:g} times a second, and others were first"
                    self._sleep(now, slot, until, why)
                    if self.state.blocks:
                        continue
                return self.clock.now()

    def _sleep(self, now: float, end: float, until: float, why: str) -> None:
        if end > until:
            raise impatient(why, end - now)
        self.clock.sleep(end - now)

    def _slot(self, state: State, now: float, rate: float) -> float:
        """When the next request may go out."""
        return max(state.next_slot, now - (self.policy.burst - 1) / rate)

    def _taken(self, state: State, now: float, until: float) -> State:
        """The state after a slot, or the right to probe, was taken if there was one to take in time."""
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

    def succeeded(self, asked: float) -> None:
        """Note that the host answered a request as it should."""
        now = self.clock.now()

        def change(state: State) -> State:
            if state.blocks:
                over = state.probed is not None and asked >= state.probed
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
        """Note that the host asked to be asked more slowly: halve the rate."""
        now = self.clock.now()
        self._update(lambda state: self._halved(state, now))

    def blocked(self, asked: float) -> float:
        """Note that the host refuses everything.

        Args:
            asked: when leave for the refused request was given; of several refused at the same time one counts.

        Returns:
            Seconds of silence that follow.

        Raises:
            Blocked: if this happened too often in a row.
        """
        now = self.clock.now()

        def change(state: State) -> State:
            if state.blocks and (state.probed is None or asked < state.probed):
                return state
            pause = self.policy.pauses[min(state.blocks, len(self.policy.pauses) - 1)]
            return replace(state, blocks=state.blocks + 1, probed=None, paused_until=now + pause)

        after = self._update(change)
        pause = max(0.0, after.paused_until - now)
        if after.blocks > len(self.policy.pauses):
            raise Blocked(self._come_back(pause))
        return pause

    def note_suffixes(self, *, ignored: bool) -> None:
        """Remember how the host answers suffix ranges."""
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
        """Change the state, alone; returns what it is then."""
        with self._lock:
            if self._file is not None:
                try:
                    self._memory = self._update_file(self._file, change)
                except Timeout:  # who has the lock may be asleep: this time without, and the next time with it
                    pass
                except (OSError, NotImplementedError):  # a home that cannot be written is no reason not to work, alone
                    self._file = None
                else:
                    return self._memory
            self._memory = change(self._memory)
            return self._memory

    def _update_file(self, file: Path, change: Callable[[State], State]) -> State:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock", timeout=_LOCK_SECONDS):
            before = self._read(file)
            after = change(before)
            if after != before:
                beside = file.with_suffix(f".{os.getpid()}")
                noted = replace(after, noted=self.clock.now())
                with create(beside) as opened:
                    opened.write(json.dumps(asdict(noted)).encode())
                beside.replace(file)
            return after

    def _read(self, file: Path) -> State:
        """What the file says, if that can be."""
        now = self.clock.now()
        with suppress(OSError, ValueError, TypeError, RecursionError):
            state = State(**json.loads(file.read_text(encoding="ascii")))
            ahead = now + max(_HORIZON, *self.policy.pauses)
            times = (state.next_slot, state.changed, state.paused_until, state.probed or 0.0)
            sound = all(0 <= at <= ahead for at in times) and isinstance(state.blocks, int) and state.blocks >= 0
            # The clock starts anew with the machine, so what was noted later than now is of an earlier time.
            if sound and 0 <= state.noted <= now and (state.rate is None or state.rate >= _LEAST):
                return state
        return State()


def impatient(why: str, seconds: float) -> Throttled:
    """What is raised instead of a wait of so many seconds, if somebody has less patience."""
    return Throttled(f"{why}; ask again in {math.ceil(seconds)} s", retry_after=seconds)
