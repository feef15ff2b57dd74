"""The application, and the processes that serve it.

All processes listen at one port, and the system divides connections among them. They share the data folder, the cache
on disk, the rate limit and the figures. Each has its own memory.
"""

import gc
import os
import re
import resource
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection as PipeEnd
from multiprocessing.connection import Pipe, wait
from threading import Thread
from typing import Any, TypeAlias

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from catalogue.errors import CatalogueError, QueryError
from catalogue.server import archived_pages, cdx_api, json_api, monitoring, web_pages
from catalogue.server.connections import Connection, Connections, StoppingServer, listen
from catalogue.server.monitoring import AccessLog, Figures
from catalogue.server.responses import on_error
from catalogue.server.service import Service
from catalogue.settings import package_version

_OpenServer: TypeAlias = Callable[[Figures], AbstractContextManager[uvicorn.Server]]
_Serve: TypeAlias = Callable[[Figures], None]
_Address: TypeAlias = tuple[int, Any]
_MAX_CONNECTIONS = 4096
"""A connection that has sent half a head takes up to 64 KiB."""
_HEAD_SECONDS = 20
_SHORT_LIFE = 10.0
"""Seconds; a process that fails sooner is not started again."""
_LAST_SECONDS = 10.0
"""Time in which a process must end; then it is killed."""
_GC_OBJECTS = 100_000
_REFUSES_GZIP = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)


_ROUTES = [*monitoring.ROUTES, *cdx_api.ROUTES, *web_pages.ROUTES, *archived_pages.ROUTES]
"""The last ones take any path."""


class _GZip(GZipMiddleware):
    """Compress answers for clients that accept gzip; Starlette ignores ``q=0``."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _REFUSES_GZIP.search(Headers(scope=scope).get("Accept-Encoding", "")):
            scope["headers"] = [header for header in scope["headers"] if header[0] != b"accept-encoding"]
        await super().__call__(scope, receive, send)


def application(service: Service | None = None) -> FastAPI:
    """Return the ASGI application; without a service, only its OpenAPI document works. The caller closes it."""
    app = FastAPI(
        title="Catalogue of Common Crawl's columnar index",
        version=package_version(),
        description="Captures, and the cost of finding them. Names are those of the index's columns; times are UTC.",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        openapi_url=json_api.OPENAPI_PATH,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=["*"],
                allow_methods=["GET", "HEAD"],
                allow_headers=["*"],
                expose_headers=["*"],
            ),
            Middleware(_GZip, compresslevel=5),
        ],
        exception_handlers={
            RequestValidationError: json_api.on_invalid_parameters,
            CatalogueError: on_error,
            HTTPException: on_error,
            Exception: on_error,
        },
    )
    app.include_router(json_api.ROUTER)
    app.add_route(json_api.OTHER_PATHS, json_api.no_such_path, include_in_schema=False)
    app.router.routes += _ROUTES
    app.state.service = service
    return app


def server_of(
    service: Service, *, log: bool = False, access_log: AccessLog | None = None, head_seconds: int = _HEAD_SECONDS
) -> uvicorn.Server:
    """Return a server whose connections each have ``head_seconds`` to send the head of a request."""
    monitor = monitoring.Monitor(application(service), _names_of_routes(), service.figures, access_log)
    most = _raise_file_limit() // 2
    connections = Connections(most, head_seconds, monitor.refuse)

    async def every_second() -> None:
        connections.close_late()
        service.publish()

    config = uvicorn.Config(
        monitor,
        log_level="info" if log else "error",
        access_log=log,
        lifespan="off",
        ws="none",
        http=Connection,
        proxy_headers=False,  # any client could send them
        backlog=max(1, most // 4),  # as many are accepted before the first can replace another
        server_header=False,
        timeout_keep_alive=head_seconds,
        callback_notify=every_second,
        timeout_notify=0,
    )
    return StoppingServer(config, state=connections)


def _names_of_routes() -> dict[object, str]:
    """Return names by path, and by endpoint for paths with parameters."""
    names: dict[object, str] = {path: path for path in monitoring.COUNTED}
    names[json_api.no_such_path] = json_api.OTHER_PATHS
    for route in _ROUTES:
        names.setdefault(route.app if isinstance(route, Mount) else route.endpoint, route.path)
    return names


def _raise_file_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * _MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * _MAX_CONNECTIONS)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    return min(needed, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def run(
    open_service: Callable[..., Service],
    open_log: Callable[[], AccessLog] | None,
    host: str,
    port: int,
    workers: int,
    *,
    log: bool,
    say: Callable[[str], None],
    ready: Callable[[str], None],
) -> None:
    """Serve until a signal stops it; port 0 is any free one; with ``log``, requests are printed.

    Each process calls ``open_service``, with its figures, and ``open_log``, and has ``say``. ``ready`` is called with
    the address once the server listens.
    """
    open_server = partial(_open_server, open_service, open_log, log=log)
    # If a signal comes before the event loop runs.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    figures = Figures(workers)
    with open_server(figures) as server, _listen(host, port, workers) as listening:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{listening.getsockname()[1]}")
        serve = partial(_serve, open_server, (listening.family, listening.getsockname()), say)
        with _other_processes(serve, figures, say):
            server.run(sockets=[listening])


@contextmanager
def _open_server(
    open_service: Callable[..., Service], open_log: Callable[[], AccessLog] | None, figures: Figures, *, log: bool
) -> Iterator[uvicorn.Server]:
    access_log = open_log and open_log()
    with closing(open_service(figures=figures)) as service:
        yield server_of(service, log=log, access_log=access_log)


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


def _keep_running(stopping: PipeEnd, serve: _Serve, figures: Figures, say: Callable[[str], None]) -> None:
    """Run a process, and replace it when it fails, until the other end of ``stopping`` is closed."""
    # Ctrl-C reaches all processes of a terminal; the first one stops the others, which inherit what is blocked here.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
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


def _serve(open_server: _OpenServer, address: _Address, say: Callable[[str], None], figures: Figures) -> None:
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
