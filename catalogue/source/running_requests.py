"""The running requests of a source: a limited number, each ended at its deadline or when the source is closed.

A socket has a timeout for silence, which a server avoids by a byte a second. So a thread shuts down the sockets of late
requests, which makes them fail in their own threads.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Condition, Event, Lock, Thread, get_ident

from catalogue.errors import SourceUnavailable


@dataclass(slots=True)
class _RunningRequest:
    deadline: float
    """Seconds of ``time.monotonic``."""
    connected: socket.socket | None = None
    is_late: bool = False

    def end(self) -> None:
        if self.connected:
            with suppress(OSError):
                self.connected.shutdown(socket.SHUT_RDWR)


class RunningRequests:
    """The running requests of a source, each in its thread."""

    def __init__(self, url: str, most: int, *, check_seconds: float) -> None:
        """Allow ``most`` requests at a time; deadlines are checked every ``check_seconds``."""
        self._url = url
        self._check_seconds = check_seconds
        self._process = os.getpid()
        self._lock = Lock()
        self._freed = Condition(self._lock)
        self._free = most
        self._running: dict[int, _RunningRequest] = {}
        self._watch: Thread | None = None
        self._closed = Event()

    @contextmanager
    def request(self, seconds: float) -> Iterator[None]:
        """Run one request in a block; wait until it may start.

        Raises:
            SourceUnavailable: if the source is closed, before or during the request, or belongs to another process.
            TimeoutError: if the block takes longer than ``seconds``.
        """
        if self._process != os.getpid():  # lock and sockets belong to the parent process
            message = f"{self._url} was opened by another process; open it again in this one"
            raise SourceUnavailable(message)
        run = self._start(seconds)
        try:
            yield
        except Exception as error:
            if self._closed.is_set():
                message = f"{self._url} was closed during a request"
                raise SourceUnavailable(message) from error
            if run.is_late:
                message = "the response took too long"
                raise TimeoutError(message) from error
            raise
        finally:
            with self._lock:
                del self._running[get_ident()]
                self._free += 1
                self._freed.notify()

    def _start(self, seconds: float) -> _RunningRequest:
        with self._lock:
            while not self._free and not self._closed.is_set():
                self._freed.wait()
            if self._closed.is_set():
                message = f"{self._url} was closed"
                raise SourceUnavailable(message)
            self._free -= 1
            if self._watch is None:
                self._watch = Thread(target=self._end_late, name=f"deadlines of {self._url}", daemon=True)
                self._watch.start()
            run = self._running[get_ident()] = _RunningRequest(time.monotonic() + seconds)
            return run

    def use(self, connected: socket.socket) -> None:
        """Record the socket of this thread's request."""
        with self._lock:
            run = self._running[get_ident()]
            run.connected = getattr(connected, "socket", connected)  # urllib3's object for TLS within TLS has it
            if self._closed.is_set():
                run.end()

    def _end_late(self) -> None:
        while not self._closed.wait(self._check_seconds):
            with self._lock:
                now = time.monotonic()
                for run in self._running.values():
                    if run.deadline <= now:
                        run.is_late = True
                        run.end()

    def close(self) -> None:
        """End the running requests; later ones fail."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed.set()
            for run in self._running.values():
                run.end()
            self._freed.notify_all()
