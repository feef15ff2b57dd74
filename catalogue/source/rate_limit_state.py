"""The state of a host that all processes of a user share, in a small file that is changed in place under a lock.

Each request changes it twice, so the file stays open: a change takes about 10 microseconds.
"""

import json
import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_SIZE = 512
"""Bytes of the file: the state as JSON, padded with spaces, so that one write replaces it."""
_LOCK_SECONDS = 2.0
"""Longest wait for the lock, which processes hold for microseconds."""
_LOCK_POLL_SECONDS = 0.001
_LOWEST_RATE = 0.001
"""Requests per second; a lower stored rate is invalid."""
_HORIZON = 3600.0
"""Seconds; a stored time further in the future is invalid, unless a pause is longer."""


@dataclass(frozen=True, slots=True)
class RateLimitState:
    """The state; times are those of ``Clock.now``."""

    next_slot: float = 0.0
    rate: float | None = None
    """The rate after halving; None if it is the policy's."""
    changed: float = 0.0
    blocks: int = 0
    """Consecutive blocks."""
    paused_until: float = 0.0
    probed: float | None = None
    """Time of the request that checks whether a block is over."""
    ignores_suffixes: bool = False
    """Whether the host sends complete files for suffix ranges."""
    noted: float = 0.0
    """Time of the last write."""

    def is_valid(self, now: float, longest_pause: float) -> bool:
        """Check types and times, which a damaged file or a reboot may have made invalid."""
        times = (self.next_slot, self.changed, self.paused_until, self.probed or 0.0)
        ahead = now + max(_HORIZON, longest_pause)
        return (
            all(0 <= at <= ahead for at in times)
            and isinstance(self.blocks, int)
            and self.blocks >= 0
            and 0 <= self.noted <= now  # the clock restarts with the machine
            and (self.rate is None or self.rate >= _LOWEST_RATE)
        )


_NAMES = tuple(field.name for field in fields(RateLimitState))


class StateFile:
    """The state of one host in a file, for one thread at a time."""

    def __init__(self, path: Path, longest_pause: float) -> None:
        """Prepare; the file is created at the first change."""
        self._path = path
        self._longest_pause = longest_pause
        self._file = -1
        self._process = os.getpid()
        self._written: tuple[bytes, RateLimitState] = (b"", RateLimitState())
        """The content of the file as this process wrote it last, to save parsing it."""

    def __del__(self) -> None:
        self._close()

    def change(self, change: Callable[[RateLimitState], RateLimitState], clock: Callable[[], float]) -> RateLimitState:
        """Change the state and return the new one.

        Args:
            change: returns the new state.
            clock: returns the time; it is read under the lock, as no other process can have written later then.

        Raises:
            TimeoutError: if another process holds the lock for too long; it may be suspended.
            OSError: if the file cannot be used.
        """
        self._open()
        self._lock()
        try:
            now = clock()
            before = self._read(now)
            after = change(before)
            if after != before:
                after = replace(after, noted=now)
                text = json.dumps({name: getattr(after, name) for name in _NAMES}).encode().ljust(_SIZE)
                os.pwrite(self._file, text, 0)
                self._written = text, after
            return after
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _open(self) -> None:
        if self._file >= 0 and self._process == os.getpid() and os.fstat(self._file).st_nlink:
            return
        self._close()
        if sys.platform == "win32":
            message = "processes do not share rate limits on Windows"
            raise OSError(message)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A lock belongs to the open file, so a forked process opens its own.
        self._process = os.getpid()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            message = f"{self._path} is not a file"
            raise OSError(message)

    def _close(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1

    def _lock(self) -> None:
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise TimeoutError from error
                time.sleep(_LOCK_POLL_SECONDS)
            else:
                return

    def _read(self, now: float) -> RateLimitState:
        text = os.pread(self._file, _SIZE, 0)
        written, state = self._written
        if text == written:
            return state if state.noted <= now else RateLimitState()
        with suppress(ValueError, TypeError, RecursionError):
            state = RateLimitState(**json.loads(text))
            if state.is_valid(now, self._longest_pause):
                return state
        return RateLimitState()
