"""Limits of HTTP/1.1 connections: their number, and the time and size of a request's head.

Uvicorn closes connections only when they are idle after an answer.
"""

import asyncio
import errno
import json
import sys
from collections.abc import Callable
from http import HTTPStatus
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_MAX_HEAD_BYTES = 64 << 10
"""The longest filters in use have about 5,000."""
_BACKLOG = 1024
"""Connections that the system queues until they are accepted."""
_HEAD = (
    "HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json; charset=utf-8\r\n"
    "Content-Length: {size}\r\nConnection: close\r\n\r\n"
)
_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
_NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class _State(ServerState):
    def __init__(self, max_connections: int, refused: Callable[[int, tuple[str, int] | None], None]) -> None:
        super().__init__()
        self.max_connections = max_connections
        self.refused = refused
        self.waiting: dict[Connection, None] = {}
        """Connections by the start of their wait; some are being answered since then."""


class _RequestParser(h11.Connection):
    """Reject what h11 accepts: two lengths of a body, and a large head in one piece."""

    def next_event(self) -> Any:  # noqa: ANN401 - h11's events and sentinels
        event = super().next_event()
        if isinstance(event, h11.Request):
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding exclude each other")
            if len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers) > _MAX_HEAD_BYTES:
                raise h11.RemoteProtocolError("", _TOO_LARGE)
        return event


class Connection(H11Protocol):
    """Closed if no complete head arrives in time, or if it waits longest when there are too many."""

    server_state: _State

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as uvicorn passes them
        super().__init__(*args, **named)
        self.conn = _RequestParser(h11.SERVER, _MAX_HEAD_BYTES)
        self._refused = False

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.server_state.max_connections:
            waiting = self.server_state.waiting
            while (oldest := next(iter(waiting)))._answering:  # noqa: SLF001 - of this class
                del waiting[oldest]
            del waiting[oldest]
            oldest.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_state.waiting.pop(self, None)
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self.server_state.waiting.pop(self, None)
        self.server_state.waiting[self] = None

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless a request is being answered."""
        if not self._answering:
            super().timeout_keep_alive_handler()

    def data_received(self, data: bytes) -> None:
        """Parse data without stopping the clock, as uvicorn would."""
        if not self._refused:
            self.conn.receive_data(data)
            self.handle_events()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._answering and not self.transport.is_closing():
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Answer with the status of the parser's error, then read until the client closes or its time is over.

        Closing with unread data resets the connection, and the client may lose the answer.
        """
        if self._answering:  # the body of the request is invalid
            self.cycle.disconnected = self.cycle.response_complete = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        error = sys.exception()
        status = HTTPStatus(getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST))
        why = (
            f"the head of the request has more than {_MAX_HEAD_BYTES:,} bytes"
            if status == _TOO_LARGE
            else str(error or msg)
        )
        body = json.dumps({"message": why}).encode()
        self.transport.write(_HEAD.format(status=status, size=len(body)).encode() + body)
        self.transport.write_eof()
        self.server_state.refused(status, self.client)
        self._refused = True
        self.conn = h11.Connection(h11.SERVER)  # uvicorn can close it in any state of the old one
        self.flow.resume_reading()
        self._wait()


class Server(uvicorn.Server):
    """A server with a limited number of connections."""

    def __init__(
        self,
        config: uvicorn.Config,
        max_connections: int,
        notify: Callable[[str], None],
        *,
        tick: Callable[[], None],
        refused: Callable[[int, tuple[str, int] | None], None],
    ) -> None:
        """Create a server with ``Connection`` as its protocol.

        Args:
            config: settings of uvicorn.
            max_connections: see ``Connection``.
            notify: called once if it cannot accept a connection.
            tick: called ten times a second.
            refused: called with the status and the client of a request that is not valid HTTP.
        """
        super().__init__(config)
        self.server_state = _State(max_connections, refused)
        self._notify: Callable[[str], None] | None = notify
        self._tick = tick

    async def startup(self, sockets: list[socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_error)
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)  # asyncio accepts a backlog at a time, so that its own has to be small
            # asyncio sets it only on sockets made with IPPROTO_TCP. Without it each answer takes 40 ms more.
            listening.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)

    async def on_tick(self, counter: int) -> bool:
        self._tick()
        return await super().on_tick(counter)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if getattr(context.get("exception"), "errno", None) not in _NO_DESCRIPTOR:
            loop.default_exception_handler(context)
        elif self._notify:
            self._notify(f"a connection could not be accepted ({context['exception']}); raise the limit of open files")
            self._notify = None
