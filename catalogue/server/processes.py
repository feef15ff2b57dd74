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
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, Pipe, wait
from threading import Thread
from types import FrameType
from typing import Any, NoReturn

from catalogue.errors import CatalogueError, QueryError
from catalogue.server.application import server_of
from catalogue.server.figures import Figures
from catalogue.server.listening import listen
from catalogue.server.monitoring import AccessLog
from catalogue.server.service import Service

_Address = tuple[int, Any]
"""The family of an address, and the address."""
_SHORT_LIFE = 10.0
"""Seconds; a process that fails sooner is not started again."""
_LAST_SECONDS = 10.0
"""Time in which a process must end; then it is killed."""
_GC_OBJECTS = 100_000


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of a server, the same for each of its processes."""

    open_service: Callable[..., Service]
    """Called with ``figures``; a function that processes can send to each other, and so are the other two."""
    open_access_log: Callable[[], AccessLog] | None
    say: Callable[[str], None]
    host: str
    port: int
    """0 for any free one."""
    workers: int
    log: bool
    """Whether requests are printed."""


def run(options: ServerOptions, *, ready: Callable[[str], None]) -> None:
    """Serve until a signal stops it; ``ready`` is called with the server's address once it listens."""
    # If a signal comes before the event loop runs.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    access_log = options.open_access_log and options.open_access_log()
    figures = Figures(options.workers)
    with closing(options.open_service(figures=figures)) as service, _listen(options) as listening:
        host = f"[{options.host}]" if ":" in options.host else options.host
        ready(f"http://{host}:{listening.getsockname()[1]}")
        with _other_processes(options, figures, (listening.family, listening.getsockname())):
            server_of(service, log=options.log, access_log=access_log).run(sockets=[listening])


def _listen(options: ServerOptions) -> socket.socket:
    if options.workers > 1 and sys.platform != "linux":
        raise QueryError("this system cannot divide connections among processes; leave out --workers")
    with listen(options.host, options.port) as first:
        address = first.family, first.getsockname()  # of no other server: sockets that share a port are not refused
    return _shared(address)


def _shared(address: _Address) -> socket.socket:
    listening = socket.create_server(address[1], family=address[0], reuse_port=True)
    # asyncio sets it only on sockets made with IPPROTO_TCP. Without it each answer takes 40 ms more.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@contextmanager
def _other_processes(options: ServerOptions, figures: Figures, address: _Address) -> Iterator[None]:
    if options.workers > 1:
        resource_tracker.ensure_running()  # which a start would do otherwise, and unblock the signal
    stop, stopping = Pipe()
    others = [
        Thread(target=_keep_running, args=(stopping, options, figures.of_process(number), address))
        for number in range(1, options.workers)
    ]
    for other in others:
        other.start()
    try:
        yield
    finally:
        stop.close()
        for other in others:
            other.join()


def _keep_running(stopping: Connection, options: ServerOptions, figures: Figures, address: _Address) -> None:
    """Run a process, and replace it when it fails, until ``stopping`` is closed at its other end."""
    # Ctrl-C reaches all processes of a terminal; the first one stops the others, which inherit what is blocked here.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    again = True
    while again:
        process = get_context("spawn").Process(target=_serve, args=(options, figures, address))
        start = time.monotonic()
        process.start()
        if stopping in wait([stopping, process.sentinel]):
            process.terminate()
            process.join(_LAST_SECONDS)
            process.kill()
            return
        process.join()
        figures.clear()
        if not process.exitcode:  # a signal to all processes has stopped it
            return
        again = time.monotonic() - start > _SHORT_LIFE
        then = "another one is started" if again else "it is not started again"
        options.say(f"a process of the server ended with status {process.exitcode}; {then}")


def _serve(options: ServerOptions, figures: Figures, address: _Address) -> None:
    gc.set_threshold(_GC_OBJECTS)
    signal.signal(signal.SIGTERM, _exit)
    Thread(target=_stop_with_first, daemon=True).start()
    try:
        access_log = options.open_access_log and options.open_access_log()
        with closing(options.open_service(figures=figures)) as service, _shared(address) as listening:
            server_of(service, log=options.log, access_log=access_log).run(sockets=[listening])
    except CatalogueError as error:
        options.say(str(error))
        sys.exit(1)


def _stop_with_first() -> None:
    if first := parent_process():
        wait([first.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def _exit(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
