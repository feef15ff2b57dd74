"""The socket of a server, limits of its HTTP/1.1 connections and of heads of requests, and their end.

Uvicorn closes connections only when they are idle after an answer.
"""

import asyncio
import errno
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from http import HTTPStatus
from socket import SOCK_STREAM, create_server, gaierror, getaddrinfo, socket
from typing import Any
from urllib.parse import quote

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from catalogue.errors import QueryError
from catalogue.server.signals import deferred_signals

_MAX_HEAD_BYTES = 64 << 10
"""The longest filters in use have about 5,000."""
_ORIGIN = re.compile(rb"^https?://[^/?]*/?", re.IGNORECASE)
_QUEUE = 1024
"""Connections that the system queues until they are accepted."""
_ANSWER = (
    "HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json; charset=utf-8\r\n"
    "Content-Length: {size}\r\nConnection: close\r\n\r\n"
)


def listen(host: str, port: int) -> socket:
    """Listen at an address; port 0 is any free one.

    Raises:
        QueryError: if that is not possible, with the option to change.
    """
    try:
        family = getaddrinfo(host, port, type=SOCK_STREAM)[0][0]
        return create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:  # the latter: IDNA does not allow the name
        number = None if isinstance(error, gaierror) else getattr(error, "errno", None)
        # Python's own text repeats the address; unknown names have no number.
        why = os.strerror(number) if number else getattr(error, "strerror", "not the name of a host")
        option = "--port" if number not in {None, errno.EADDRNOTAVAIL} else "--host"
        raise QueryError(f"cannot listen at {host}, port {port} ({why}); choose another {option}") from error


class StoppingServer(uvicorn.Server):
    """A server that stops even if clients do not read their answers.

    Uvicorn cancels the task of such an answer, which then waits for the client again to send an error.
    """

    def __init__(self, config: uvicorn.Config, seconds: int = 3, state: ServerState | None = None) -> None:
        """Make a server that sends answers for at most ``seconds`` after a signal stops it."""
        super().__init__(config)
        self.server_state = state or self.server_state
        self._seconds = seconds
        config.timeout_graceful_shutdown = seconds + 1  # then it cancels tasks that wait for a query

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override] # of SIGHUP, too
        return deferred_signals(lambda number: self.handle_exit(number, None))

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_QUEUE)  # asyncio accepts a backlog at a time, so that its own has to be small

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        if isinstance(self.server_state, Connections):
            self.server_state.most = 0  # uvicorn would wait for connections that were being accepted
        asyncio.get_running_loop().call_later(self._seconds, self._close_unread)
        await super().shutdown(sockets)

    def _close_unread(self) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what follows is no failure
        for connection in [*self.server_state.connections]:
            if connection.transport and connection.transport.get_write_buffer_size():
                connection.transport.abort()


class Connections(ServerState):
    """The connections of a server, of which those that wait for a request can be closed."""

    def __init__(self, most: int, head_seconds: float, refused: Callable[[int, tuple[str, int] | None], None]) -> None:
        """Limit connections to a number, and each to a time in which it must send the head of a request.

        ``refused`` is called with the status and the client of a request that is not valid HTTP.
        """
        super().__init__()
        self.most = most
        self.refused = refused
        self.waiting: dict[Connection, float] = {}
        """The times at which they began to wait; the first one waits longest."""
        self._head_seconds = head_seconds

    def close_late(self) -> None:
        late = time.monotonic() - self._head_seconds
        while self.waiting and next(iter(self.waiting.values())) < late:
            self.close_first()

    def close_first(self) -> None:
        first = next(iter(self.waiting))
        del self.waiting[first]
        first.transport.close()


class _RequestParser(h11.Connection):
    """Reject what h11 accepts, two lengths of a body and a large head in one piece.

    Accept other bytes than ASCII, and complete addresses as targets, which clients of a proxy send.
    """

    def receive_data(self, data: bytes) -> None:
        if self.their_state is h11.IDLE and not data.isascii():  # curl sends the path of a URL as it is typed
            line, end, rest = data.partition(b"\n")
            data = quote(line, safe=bytes(range(128))).encode() + end + rest
        super().receive_data(data)

    def next_event(self) -> Any:  # noqa: ANN401 - h11's events and sentinels
        event = super().next_event()
        if isinstance(event, h11.Request):
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding exclude each other")
            if len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers) > _MAX_HEAD_BYTES:
                raise h11.RemoteProtocolError("the head is too long", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            if not event.target.startswith(b"/"):
                event = replace(event, target=_ORIGIN.sub(b"/", event.target))
        return event


class Connection(H11Protocol):
    """A connection that is closed if no head arrives in time, or if it waits longest of too many."""

    server_state: Connections

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as uvicorn passes them
        super().__init__(*args, **named)
        self.conn = _RequestParser(h11.SERVER, _MAX_HEAD_BYTES)
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        self.server_state.waiting[self] = time.monotonic()
        if len(self.connections) > self.server_state.most:
            self.server_state.close_first()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_state.waiting.pop(self, None)
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self._answering:
            self.server_state.waiting.pop(self, None)
        else:
            self.server_state.waiting.setdefault(self, time.monotonic())

    def send_400_response(self, msg: str) -> None:
        """Answer with the status of the parser's error, then read until the client closes or its time is over.

        Closing with unread data resets the connection, and the client may lose the answer.
        """
        self._refused = True
        if self._answering:  # the body of the request is invalid: its answer is the last one
            self.cycle.keep_alive = False
            return
        error = sys.exception()
        status = HTTPStatus(getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST))
        body = json.dumps({"message": str(error or msg)}).encode()
        self.transport.write(_ANSWER.format(status=status, size=len(body)).encode() + body)
        self.transport.write_eof()
        self.server_state.refused(status, self.client)
        self.conn = h11.Connection(h11.SERVER)  # uvicorn can close it in any state of the old one
