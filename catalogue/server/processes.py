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
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, Pipe, wait
from threading import Thread
from typing import Any, TypeAlias

import uvicorn

from catalogue.errors import CatalogueError, QueryError
from catalogue.server.connections import listen
from catalogue.server.monitoring import Figures

OpenServer: TypeAlias = Callable[[Figures], AbstractContextManager[uvicorn.Server]]
_Serve: TypeAlias = Callable[[Figures], None]
_Address: TypeAlias = tuple[int, Any]
_SHORT_LIFE = 10.0
"""Seconds; a process that fails sooner is not started again."""
_LAST_SECONDS = 10.0
"""Time in which a process must end; then it is killed."""
_GC_OBJECTS = 100_000


def run(
    open_server: OpenServer,
    host: str,
    port: int,
    workers: int,
    *,
    say: Callable[[str], None],
    ready: Callable[[str], None],
) -> None:
    """Serve until a signal stops it; port 0 is any free one.

    ``open_server`` and ``say`` are sent to each process; ``ready`` is called with the address once the server listens.
    """
    # If a signal comes before the event loop runs.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    figures = Figures(workers)
    with open_server(figures) as server, _listen(host, port, workers) as listening:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{listening.getsockname()[1]}")
        serve = partial(_serve, open_server, (listening.family, listening.getsockname()), say)
        with _other_processes(serve, figures, say):
            server.run(sockets=[listening])


def _listen(host: str, port: int, workers: int) -> socket.socket:
    if workers > 1 and sys.platform != "linux":
        raise QueryError("this system cannot divide connections among processes; leave out --workers")
    with listen(host, port) as first:
        address = first.family, first.getsockname()  # of no other server: sockets that share a port are not refused
    return _shared(address)


def _shared(address: _Address) -> socket.socket:
    listening = socket.create_server(address[1], family=address[0], reuse_port=True)
    # asyncio sets it only on sockets made with IPPROTO_TCP. Without it each answer takes 40 ms more.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@contextmanager
def _other_processes(serve: _Serve, figures: Figures, say: Callable[[str], None]) -> Iterator[None]:
    if figures.processes > 1:
        resource_tracker.ensure_running()  # which a start would do otherwise, and unblock the signal
    stop, stopping = Pipe()
    others = [
        Thread(target=_keep_running, args=(stopping, serve, figures.of_process(number), say))
        for number in range(1, figures.processes)
    ]
    for other in others:
        other.start()
    try:
        yield
    finally:
        stop.close()
        for other in others:
            other.join()


def _keep_running(stopping: Connection, serve: _Serve, figures: Figures, say: Callable[[str], None]) -> None:
    """Run a process, and replace it when it fails, until the other end of ``stopping`` is closed."""
    # A terminal sends these to all processes; the first one stops the others, which inherit what is blocked here.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    again = True
    while again:
        process = get_context("spawn").Process(target=serve, args=(figures,))
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
        say(f"a process of the server ended with status {process.exitcode}; {then}")


def _serve(open_server: OpenServer, address: _Address, say: Callable[[str], None], figures: Figures) -> None:
    gc.set_threshold(_GC_OBJECTS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Thread(target=_stop_with_first, daemon=True).start()
    try:
        with open_server(figures) as server, _shared(address) as listening:
            server.run(sockets=[listening])
    except CatalogueError as error:
        say(str(error))
        sys.exit(1)


def _stop_with_first() -> None:
    if first := parent_process():
        wait([first.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
