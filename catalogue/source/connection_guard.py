"""Close a connection that receives bytes that were not requested.

If a server sends one response too many on a kept connection, every later request gets the response to the one before:
aiohttp would take the surplus response for the next one.
"""

from contextvars import ContextVar
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from catalogue.source.checks import Exchange

EXCHANGE: ContextVar[Exchange] = ContextVar("exchange")
"""The exchange of the current task."""


class _Connection(ResponseHandler):
    _requests = 0
    _head_awaited = False
    _exchange: Exchange | None = None

    def set_response_params(self, **params: Any) -> None:  # noqa: ANN401 - aiohttp's own, which calls this for a request
        self._requests += 1
        self._head_awaited = True
        self._exchange = EXCHANGE.get(None)
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        idle = self._requests and not self._head_awaited and (self._payload is None or self._payload.is_eof())
        if idle and data:
            self._refuse()
        else:
            super().data_received(data)

    def feed_data(self, data: Any, size: int = 0) -> None:  # noqa: ANN401 - a head and the stream of its body
        if not self._head_awaited:
            self._refuse()
            return
        self._head_awaited = 100 <= data[0].code < 200  # noqa: PLR2004 - what precedes the answer
        super().feed_data(data, size)

    def _refuse(self) -> None:
        # The first answer on a connection can be to no other request.
        if self._exchange and self._requests > 1:
            self._exchange.doubtful = True
        self.force_close()
        if self.transport is not None:
            self.transport.close()


def guard(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """Make a session use such connections."""
    connector: Any = session.connector
    connector._factory = partial(_Connection, loop=connector._loop)  # noqa: SLF001 - aiohttp has no argument for it
    return session
