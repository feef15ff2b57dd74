"""One HTTP/1.1 connection with deadlines, which detects surplus bytes.

``http.client`` sends requests and parses responses. A connection that received surplus bytes is not used again: if a
server or proxy sends one response too many, each later request would get the response to the one before.
"""

import io
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from threading import Lock
from typing import Any, BinaryIO, cast

from catalogue.errors import Unreachable
from catalogue.source.checks import Exchange, Request, Response

_FIRST_ADDRESS_SECONDS = 2.0
"""Connect timeout for each address of a host except the last; an IPv6 address may not be reachable."""
_MAX_INTERIM = 5
"""Interim responses (1xx) to one request."""


@dataclass(frozen=True, slots=True)
class Route:
    """Addresses and TLS settings for connections to a host."""

    host: tuple[str, int]
    """Host and port of the URL."""
    tls: ssl.SSLContext | None = None
    """For an https URL."""
    proxy: tuple[str, int] | None = None
    proxy_tls: ssl.SSLContext | None = None
    """For an https proxy; it is not used for tunnels."""
    tunnel_headers: Mapping[str, str] | None = None
    """Headers for a proxy that opens a tunnel to the host; None if requests are sent to the proxy."""


class _Received(io.RawIOBase):
    """A socket for ``http.client`` whose reads have a deadline."""

    def __init__(self, connected: socket.socket, silence_seconds: float) -> None:
        self._socket = connected
        self._silence_seconds = silence_seconds
        self._waits = True
        self._reader = _Reader(self)
        self.deadline = 0.0
        """Of the current request, in seconds of ``time.monotonic``."""
        self.ended = False
        """Whether the server has closed its side."""

    def sendall(self, data: bytes) -> None:
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> BinaryIO:
        """Return the same reader for all responses, since it may have read ahead."""
        return cast("BinaryIO", self._reader)

    def close(self) -> None:
        """Do nothing: ``http.client`` closes its socket before it reads the last response."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - as the base class has it
        if self._waits:
            left = self.deadline - time.monotonic()
            if left <= 0:
                message = "the response took too long"
                raise TimeoutError(message)
            self._socket.settimeout(min(self._silence_seconds, left))
        else:
            self._socket.settimeout(0)
        try:
            received = self._socket.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        self.ended = received == 0
        return received

    @contextmanager
    def without_waiting(self) -> Iterator[io.BufferedReader]:
        """Yield the reader; reads return only bytes that were already received."""
        self._waits = False
        try:
            yield self._reader
        finally:
            self._waits = True


class _Reader(io.BufferedReader):
    def close(self) -> None:
        """Do nothing: the next response needs the reader."""


class Connection:
    """A connection for one request at a time."""

    def __init__(self, route: Route, *, connect_seconds: float, silence_seconds: float) -> None:
        """Connect; ``silence_seconds`` is the longest time without a byte of a response.

        Raises:
            OSError: if that fails or times out.
            HTTPException: if the proxy's response is not HTTP.
        """
        self._socket = _connect(route, connect_seconds)
        self._received = _Received(self._socket, silence_seconds)
        self._http = HTTPConnection(*route.host)
        self._http.auto_open = 0  # a broken connection is an error, not another request
        self._http.default_port = 443 if route.tls else 80
        self._http.sock = self._received
        self._lock = Lock()
        self._requests = 0
        self._exchange = Exchange(self._look_for_surplus)
        self.reusable = True
        """Whether the last response allows another request."""

    def get(self, request: Request, target: str, headers: Mapping[str, str], seconds: float) -> Response:
        """Make one request and check its response.

        Args:
            request: checks the response.
            target: path or URL, quoted.
            headers: all but ``Host``.
            seconds: timeout.

        Raises:
            SourceError: if a check of the response fails.
            OSError: if the connection breaks or the timeout ends.
            HTTPException: if the response is not HTTP.
        """
        with self._lock:
            self._requests += 1
            self._exchange = exchange = Exchange(self._look_for_surplus)
            self.reusable = False
            self._received.deadline = time.monotonic() + seconds
            self._socket.settimeout(seconds)
            self._http.request("GET", target, headers=dict(headers))
            http_response = self._http.getresponse()
            for _ in range(_MAX_INTERIM):
                if http_response.status >= 200:  # noqa: PLR2004
                    break
                http_response = HTTPResponse(self._http.sock, method="GET")
                http_response.begin()
            response = request.read(http_response.status, _fields(http_response), partial(self._read, http_response))
            self.reusable = http_response.isclosed() and not http_response.will_close and self._is_quiet()
        if exchange.surplus:
            message = f"{request.where}: received surplus bytes; the response may belong to another request"
            raise Unreachable(message)
        return replace(response, exchange=exchange)

    def is_usable(self) -> bool:
        """Return whether another request can be sent: the connection is open, and no surplus was received."""
        with self._lock:
            return self.reusable and self._is_quiet()

    def abort(self) -> None:
        """Make a running request of another thread fail."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _read(self, http_response: HTTPResponse, size: int) -> bytes:
        body = http_response.read(size)
        if len(body) < size and http_response.length:  # bytes missing of its Content-Length
            message = "the connection was closed before the end of the response"
            raise ConnectionError(message)
        return body

    def _is_quiet(self) -> bool:
        """Return whether nothing was received since the last response, not even its end."""
        try:
            with self._received.without_waiting() as reader:
                surplus = reader.peek(1)
        except (OSError, ValueError):  # broken or closed
            return False
        if surplus and self._requests > 1:  # the first response cannot be to an earlier request
            self._exchange.surplus = True
        return not surplus and not self._received.ended

    def _look_for_surplus(self) -> None:
        """Look for bytes after the last response, unless another request is running."""
        if self._lock.acquire(blocking=False):
            try:
                self._is_quiet()
            finally:
                self._lock.release()


def _fields(http_response: HTTPResponse) -> dict[str, str]:
    """Return headers by lower-case name; repeated ones are joined (RFC 9110, section 5.3) and fail later checks."""
    fields: dict[str, str] = {}
    for name, value in http_response.headers.items():
        key = name.lower()
        fields[key] = f"{fields[key]}, {value}" if key in fields else value
    return fields


def _connect(route: Route, seconds: float) -> socket.socket:
    host = route.proxy or route.host
    connected = _connect_to(host, seconds)
    try:
        if route.proxy_tls:
            connected = route.proxy_tls.wrap_socket(connected, server_hostname=host[0])
        if route.tunnel_headers is not None:
            _open_tunnel(connected, route.host, route.tunnel_headers)
        if route.tls:
            connected = route.tls.wrap_socket(connected, server_hostname=route.host[0])
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connected.close()
        raise
    return connected


def _connect_to(host: tuple[str, int], seconds: float) -> socket.socket:
    addresses = [info[4] for info in socket.getaddrinfo(*host, type=socket.SOCK_STREAM)]
    for address in addresses[:-1]:
        with suppress(OSError):
            return socket.create_connection((str(address[0]), int(address[1])), min(seconds, _FIRST_ADDRESS_SECONDS))
    return socket.create_connection((str(addresses[-1][0]), int(addresses[-1][1])), seconds)


def _open_tunnel(connected: socket.socket, host: tuple[str, int], headers: Mapping[str, str]) -> None:
    place = f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}", *(f"{name}: {text}" for name, text in headers.items())]
    connected.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    with HTTPResponse(connected, method="CONNECT") as http_response:
        http_response.begin()
    if http_response.status != 200:  # noqa: PLR2004
        message = f"the proxy returned {http_response.status}"
        raise ConnectionError(message)
