"""The application on a socket."""

import os
import resource
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from catalogue.errors import QueryError
from catalogue.server.app import application
from catalogue.server.h11_connections import Connection, Server
from catalogue.server.service import Service

_MOST = 4096
"""Connections; each that sends half a head takes up to 64 KiB."""
_SILENCE = 20
"""Seconds that a connection may take to send a head."""
_GOODBYE = 3
"""Seconds that answers under way are given when the server is stopped."""


def run(service: Service, host: str, port: int, *, ready: Callable[[str], None], log: bool = False) -> None:
    """Serve until a signal says to stop.

    Args:
        service: that answers.
        host: the address, or name, of this machine to listen at.
        port: 0 for any that is free.
        ready: told the server's address once it listens.
        log: whether each request is written to standard error.

    Raises:
        QueryError: if nobody can listen there.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        # Python's own text repeats the address; names that are none have no number.
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        message = f"nobody can listen at {host}, port {port} ({why}); choose another --port"
        raise QueryError(message) from error
    with listening:
        name = f"[{host}]" if ":" in host else host
        ready(f"http://{name}:{listening.getsockname()[1]}")
        server_of(service, log=log, most=_most_connections()).run(sockets=[listening])


def server_of(service: Service, *, log: bool = False, most: int = _MOST, silence: int = _SILENCE) -> uvicorn.Server:
    """The server of a service, to be run on sockets.

    Args:
        service: answers.
        log: log each request to standard error.
        most: connections at once.
        silence: seconds that a connection may take to send a head.
    """
    config = uvicorn.Config(
        application(service),
        log_level="info" if log else "error",
        access_log=log,
        lifespan="off",
        ws="none",
        http=Connection,
        backlog=max(1, most // 4),  # so many are accepted at a time, before the first can take another's place
        server_header=False,
        timeout_keep_alive=silence,
        timeout_graceful_shutdown=_GOODBYE,
    )
    return Server(config, most, service.notify)


def _most_connections() -> int:
    """Raise the soft limit of open files as far as needed and allowed; half of it is for connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * _MOST if hard == resource.RLIM_INFINITY else min(hard, 2 * _MOST)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    return min(needed, resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // 2
