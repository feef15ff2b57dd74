"""The socket of a server, and the end of its connections."""

import asyncio
import errno
import logging
import os
import socket

import uvicorn

from catalogue.errors import QueryError


def listen(host: str, port: int) -> socket.socket:
    """Listen at an address; port 0 is any free one.

    Raises:
        QueryError: if that is not possible, with the option to change.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        is_name = isinstance(error, socket.gaierror)
        # Python's own text repeats the address; unknown names have no number.
        why = error.strerror if is_name else os.strerror(error.errno or 0)
        option = "--host" if is_name or error.errno == errno.EADDRNOTAVAIL else "--port"
        raise QueryError(f"cannot listen at {host}, port {port} ({why}); choose another {option}") from error


class StoppingServer(uvicorn.Server):
    """A server that stops even if clients do not read their answers.

    Uvicorn cancels the task of such an answer, which then waits for the client again to send an error.
    """

    def __init__(self, config: uvicorn.Config, seconds: int = 3) -> None:
        """Make a server that sends answers for at most ``seconds`` after a signal stops it."""
        super().__init__(config)
        self._seconds = seconds
        config.timeout_graceful_shutdown = seconds + 1  # then it cancels tasks that wait for a query

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(self._seconds, self._close_unread)
        await super().shutdown(sockets)

    def _close_unread(self) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what follows is no failure
        for connection in [*self.server_state.connections]:
            if connection.transport and connection.transport.get_write_buffer_size():
                connection.transport.abort()
