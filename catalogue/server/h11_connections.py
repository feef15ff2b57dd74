"""HTTP/1.1 connections: how many there may be, how long one may send nothing, and which heads are refused.

Uvicorn closes a connection that is silent after an answer. Here one that is silent before its first request, or sends
no complete head, is closed after the same time, and earlier if there are too many connections.
"""

import asyncio
import errno
import json
import sys
from collections.abc import Callable
from http import HTTPStatus
from socket import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_MOST_HEAD = 64 << 10
"""Bytes of the head of a request; the longest filters in use have some five thousand."""
_MOST_PENDING = 1024
"""Connections that the system keeps until they are accepted."""
_HEAD = (
    "HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json; charset=utf-8\r\n"
    "Content-Length: {size}\r\nConnection: close\r\n\r\n"
)
_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
_NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class _State(ServerState):
    """What the connections of a server share."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        """Connections."""
        self.waiting: dict[Connection, None] = {}
        """Connections in the order in which they began to wait for a request; some may have one by now."""


class _Parser(h11.Connection):
    """Refuses what h11 accepts: a length given twice, and a large head that came in one piece."""

    def next_event(self) -> Any:  # noqa: ANN401 - h11's events and sentinels
        """Parse one event."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding exclude each other")
            if len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers) > _MOST_HEAD:
                raise h11.RemoteProtocolError("", _TOO_LARGE)
        return event


class Connection(H11Protocol):
    """A connection that is closed if it sends no complete head in time, or while others need its place."""

    server_state: _State

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as uvicorn passes them
        super().__init__(*args, **named)
        self.conn = _Parser(h11.SERVER, _MOST_HEAD)
        self._refused = False

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Close the connection that has waited longest for a request if there are too many."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.server_state.most:
            waiting = self.server_state.waiting
            while (oldest := next(iter(waiting)))._answering:  # noqa: SLF001 - of this class
                del waiting[oldest]
            del waiting[oldest]
            oldest.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.server_state.waiting.pop(self, None)
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Expect a head, from now on."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self.server_state.waiting.pop(self, None)
        self.server_state.waiting[self] = None

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless a request came in time."""
        if not self._answering:
            super().timeout_keep_alive_handler()

    def data_received(self, data: bytes) -> None:
        """Parse data; unlike in uvicorn this does not stop the clock."""
        if not self._refused:
            self.conn.receive_data(data)
            self.handle_events()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self._answering and not self.transport.is_closing():
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Answer with the status of the parser's error, and read on until the client closes or its time is over.

        Closing a connection with unread data resets it, and the client may lose the answer.
        """
        if self._answering:  # the request had a broken body
            self.cycle.disconnected = self.cycle.response_complete = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        error = sys.exception()
        status = HTTPStatus(getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST))
        why = f"the head of a request may have {_MOST_HEAD:,} bytes" if status == _TOO_LARGE else str(error or msg)
        body = json.dumps({"message": why}).encode()
        self.transport.write(_HEAD.format(status=status, size=len(body)).encode() + body)
        self.transport.write_eof()
        self._refused = True
        self.conn = h11.Connection(h11.SERVER)  # which uvicorn can close, whatever the state of the other was
        self.flow.resume_reading()
        self._wait()


class Server(uvicorn.Server):
    """A server of so many connections at most."""

    def __init__(self, config: uvicorn.Config, most: int, notify: Callable[[str], None]) -> None:
        """Serve.

        Args:
            config: its ``http`` is ``Connection``.
            most: connections; one more takes the place of the one that waits longest for a request.
            notify: called once if a connection cannot be accepted.
        """
        super().__init__(config)
        self.server_state = _State(most)
        self._notify: Callable[[str], None] | None = notify

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begin to accept connections."""
        asyncio.get_running_loop().set_exception_handler(self._on_error)
        await super().startup(sockets)
        for listening in sockets or ():  # asyncio accepts as many at once as it lets wait, which would be too few
            listening.listen(_MOST_PENDING)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if getattr(context.get("exception"), "errno", None) not in _NO_DESCRIPTOR:
            loop.default_exception_handler(context)
        elif self._notify:
            self._notify(f"a connection could not be accepted ({context['exception']}); raise the limit of open files")
            self._notify = None
