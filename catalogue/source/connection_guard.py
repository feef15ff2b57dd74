"""Connections that are closed as soon as they receive something that was not requested.

A server or proxy that sends one answer too many on a kept connection gives every later request on it the answer to the
request before. aiohttp would take a surplus answer for the answer to the next request.
"""

from contextvars import ContextVar
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from catalogue.source.checks import Exchange

EXCHANGE: ContextVar[Exchange] = ContextVar("exchange")
"""The exchange that the current task is making."""


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
    """Make the connections of a new session such."""
    connector: Any = session.connector
    connector._factory = partial(_Connection, loop=connector._loop)  # noqa: SLF001 - aiohttp has no argument for it
    return session
