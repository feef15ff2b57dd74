"""The processes of a server. All listen at one port, and the system divides connections among them.

They share the data folder, the cache on disk, the rate limit and the figures. Each has its own memory.
"""

import gc
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Pipe, wait
from multiprocessing.context import SpawnProcess
from threading import Thread
from types import FrameType, TracebackType
from typing import NoReturn, Self

from catalogue.errors import CatalogueError, QueryError
from catalogue.server.access_log import AccessLog
from catalogue.server.application import server_of
from catalogue.server.figures import Figures
from catalogue.server.memory import MEMORY
from catalogue.server.service import Service
from catalogue.settings import Settings

CAN_SHARE_PORT = sys.platform == "linux"
"""Whether the system divides the connections to a port among processes."""
_SHORT_LIFE = 10.0
"""Seconds; a process that fails sooner is not started again."""
_LAST_SECONDS = 10.0
"""Time in which a process must end; then it is killed."""
_GC_OBJECTS = 100_000
"""New objects between searches for cycles."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of a server, the same for each of its processes."""

    settings: Settings
    host: str
    port: int = 0
    """0 for any free one."""
    workers: int = 1
    """Processes."""
    at_once: int = 2
    memory: int = MEMORY
    on_demand: bool = False
    strict: bool = False
    """These four are those of ``Service``, for each process."""
    log: bool = False
    """Whether requests are printed."""
    access_log: str | None = None
    proxied: bool = False
    """These two are those of ``AccessLog``."""
    say: Callable[[str], None] = print
    """Prints a message; a function that processes can send to each other."""

    def service(self, figures: Figures) -> Service:
        return Service(
            self.settings.data,
            self.settings,
            at_once=self.at_once,
            on_demand=self.on_demand,
            strict=self.strict,
            memory=self.memory,
            figures=figures,
            notify=self.say,
        )

    def open_access_log(self) -> AccessLog | None:
        if self.access_log is None:
            return None
        return AccessLog(self.access_log, proxied=self.proxied, notify=self.say)


def run(options: ServerOptions, *, ready: Callable[[str], None]) -> None:
    """Serve until a signal stops it; ``ready`` is called with the server's address once it listens.

    Raises:
        QueryError: if it cannot listen there, or open the access log.
    """
    # If a signal comes before the event loop runs.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    access_log, figures = options.open_access_log(), Figures(options.workers)
    with closing(options.service(figures)) as service, _listen(options) as listening:
        address = listening.getsockname()
        ready(f"http://{f'[{options.host}]' if ':' in options.host else options.host}:{address[1]}")
        with _OtherProcesses(replace(options, port=address[1]), figures):
            server_of(service, log=options.log, access_log=access_log).run(sockets=[listening])


def _listen(options: ServerOptions) -> socket.socket:
    shared = options.workers > 1
    if shared and not CAN_SHARE_PORT:
        raise QueryError("this system cannot divide connections among processes; leave out --workers")
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        first = _bound(options, family, options.port)
        if not shared:
            return first
        port = first.getsockname()[1]  # of no other server: those that share a port are not refused
        first.close()
        return _bound(options, family, port, shared=True)
    except OSError as error:
        # Python's own text repeats the address; unknown names have no number.
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        message = f"cannot listen at {options.host}, port {options.port} ({why}); choose another --port"
        raise QueryError(message) from error


def _bound(options: ServerOptions, family: int, port: int, *, shared: bool = False) -> socket.socket:
    return socket.create_server((options.host, port), family=family, backlog=1024, reuse_port=shared)


class _OtherProcesses:
    """The processes beside this one; one that fails is replaced."""

    def __init__(self, options: ServerOptions, figures: Figures) -> None:
        self._options = options
        self._figures = figures
        self._processes: dict[SpawnProcess, tuple[int, float]] = {}
        """Numbers and start times of the processes."""
        self._stop, self._stopping = Pipe()
        self._watcher = Thread(target=self._watch, name="processes")

    def __enter__(self) -> Self:
        for number in range(1, self._options.workers):
            self._start(number)
        self._watcher.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._stop.close()
        self._watcher.join()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(_LAST_SECONDS)
            process.kill()

    def _start(self, number: int) -> None:
        arguments = self._options, self._figures.of_process(number)
        process = get_context("spawn").Process(target=_serve, args=arguments)
        # Ctrl-C reaches all processes of a terminal; this one stops the others. They inherit what is blocked here.
        resource_tracker.ensure_running()  # which start() would do otherwise, and unblock the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._processes[process] = number, time.monotonic()

    def _watch(self) -> None:
        while self._stopping not in wait([self._stopping, *(each.sentinel for each in self._processes)]):
            for process in [each for each in self._processes if each.exitcode is not None]:
                number, start = self._processes.pop(process)
                lived = time.monotonic() - start
                self._figures.clear(number)
                if not process.exitcode:  # a signal to all processes has stopped it
                    continue
                again = "another one is started" if lived > _SHORT_LIFE else "it is not started again"
                self._options.say(f"a process of the server ended with status {process.exitcode}; {again}")
                if lived > _SHORT_LIFE:
                    self._start(number)


def _serve(options: ServerOptions, figures: Figures) -> None:
    """Serve in a process beside the first one, until that ends or terminates this one."""
    gc.set_threshold(_GC_OBJECTS)
    signal.signal(signal.SIGTERM, _exit)
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        with (
            closing(options.service(figures)) as service,
            _bound(options, family, options.port, shared=True) as listening,
        ):
            server = server_of(service, log=options.log, access_log=options.open_access_log())

            def stop_with_first() -> None:
                first = parent_process()
                if first:
                    wait([first.sentinel])
                server.should_exit = True

            Thread(target=stop_with_first, daemon=True).start()
            server.run(sockets=[listening])
    except CatalogueError as error:
        options.say(str(error))
        sys.exit(1)


def _exit(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
