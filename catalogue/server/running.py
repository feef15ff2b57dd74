"""The application on a socket."""

import os
import socket
from collections.abc import Callable

import uvicorn

from catalogue.errors import QueryError
from catalogue.server.app import application
from catalogue.serving import Service

_HEAD = 64 << 10
"""Bytes that the head of a request may have; the longest filters in use have some five thousand."""
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
        server_of(service, log=log).run(sockets=[listening])


def server_of(service: Service, *, log: bool = False) -> uvicorn.Server:
    """The server of a service, to be run on sockets."""
    return uvicorn.Server(
        uvicorn.Config(
            application(service),
            log_level="info" if log else "error",
            access_log=log,
            lifespan="off",
            ws="none",
            http="h11",  # which bounds the head of a request
            h11_max_incomplete_event_size=_HEAD,
            server_header=False,
            timeout_graceful_shutdown=_GOODBYE,
        )
    )
