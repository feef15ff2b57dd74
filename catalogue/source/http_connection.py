"""One HTTP/1.1 connection with deadlines, which detects surplus bytes.

``http.client`` reads bodies. Heads are parsed here, since its parser of mail takes longer than everything else. A
connection that received surplus bytes is not used again: if a server or proxy sends one response too many, each later
request would get the response to the one before.
"""

import io
import re
import select
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.client import BadStatusLine, HTTPException, HTTPResponse, LineTooLong, RemoteDisconnected
from threading import Lock
from typing import Any, BinaryIO, cast

from catalogue.errors import Unreachable
from catalogue.source.checks import Request, Response

_FIRST_ADDRESS_SECONDS = 2.0
"""Connect timeout for each address of a host except the last; an IPv6 address may not be reachable."""
_MAX_INTERIM = 5
"""Interim responses (1xx) to one request."""
_MAX_LINES, _MAX_LINE = 100, 1 << 16
"""Header lines of a response, and bytes of a line."""
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) +([1-9][0-9]{2})(?: .*)?\r?\n")
_FOLD = re.compile(r"\r?\n[ \t]+")
_LENGTH = re.compile("[0-9]{1,18}")


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
        self._timeout = -1.0
        """Of the socket, which a system call sets; -1 until it is known."""
        self._reader = _Reader(self)
        self._poll = None
        if sys.platform != "win32":
            self._poll = select.poll()
            self._poll.register(connected, select.POLLIN)
        self.deadline = 0.0
        """Of the current request, in seconds of ``time.monotonic``."""
        self.ended = False
        """Whether the server has closed its side."""

    def sendall(self, data: bytes) -> None:
        self._set_timeout()
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> BinaryIO:
        """Return the same reader for all responses, since it may have read ahead."""
        return cast("BinaryIO", self._reader)

    def close(self) -> None:
        """Do nothing: ``http.client`` closes its socket before it reads the last response."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - as the base class has it
        if not self._waits and self._poll and not self._poll.poll(0):
            return None
        self._set_timeout()
        try:
            received = self._socket.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        self.ended = received == 0
        return received

    def _set_timeout(self) -> None:
        timeout = 0.0
        if self._waits:
            left = self.deadline - time.monotonic()
            if left <= 0:
                message = "the response took too long"
                raise TimeoutError(message)
            timeout = min(self._silence_seconds, left)
        if timeout != self._timeout:
            self._socket.settimeout(timeout)
            self._timeout = timeout

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
        self._host = _host_header(route)
        self._lock = Lock()
        self._requests = 0
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
            self.reusable = False
            self._received.deadline = time.monotonic() + seconds
            self._received.sendall(_request_head(target, {"Host": self._host, **headers}))
            for _ in range(_MAX_INTERIM + 1):
                http_response = _HttpResponse(cast("socket.socket", self._received), method="GET")
                http_response.begin()
                if http_response.status >= 200:  # noqa: PLR2004
                    break
            response = request.read(http_response.status, http_response.fields, partial(self._read, http_response))
            has_surplus = self._has_surplus()
            self.reusable = http_response.isclosed() and not http_response.will_close and has_surplus is False
        if has_surplus and self._requests > 1:  # the first response cannot be to an earlier request
            message = f"{request.where}: received surplus bytes; the response may belong to another request"
            raise Unreachable(message)
        return response

    def is_usable(self) -> bool:
        """Return whether another request can be sent: the connection is open, and no surplus was received."""
        with self._lock:
            return self.reusable and self._has_surplus() is False

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

    def _has_surplus(self) -> bool | None:
        """Return whether bytes were received since the last response; None if the connection has ended or is broken."""
        try:
            with self._received.without_waiting() as reader:
                return True if reader.peek(1) else None if self._received.ended else False
        except (OSError, ValueError):  # broken or closed
            return None


class _HttpResponse(HTTPResponse):
    """A response with its headers by lower-case name; repeated ones are joined (RFC 9110, section 5.3)."""

    fields: dict[str, str]

    def begin(self) -> None:
        """Read the head.

        Raises:
            HTTPException: if it is not that of an HTTP/1 response, or too long.
            ConnectionError: if it is incomplete.
        """
        status_line = _line(self.fp)
        matched = _STATUS_LINE.fullmatch(status_line)
        if not matched:
            raise BadStatusLine(repr(status_line[:100]))
        self.fields = fields = _fields(self.fp)
        self.code = self.status = int(matched[2])
        self.version = 11 if matched[1] != b"0" else 10
        self.chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length = fields.get("content-length", "").partition(",")[0]
        self.length = int(length) if _LENGTH.fullmatch(length) and not self.chunked else None
        if self.status in {204, 304} or self.status < 200:  # noqa: PLR2004
            self.length = 0
        connection = fields.get("connection", "").lower()
        keeps = "close" not in connection if self.version > 10 else "keep-alive" in connection  # noqa: PLR2004
        self.will_close = not keeps or (self.length is None and not self.chunked)


def _fields(lines: BinaryIO) -> dict[str, str]:
    head = []
    while (line := _line(lines)) not in {b"\r\n", b"\n"}:
        head.append(line)
        if len(head) > _MAX_LINES:
            message = f"got more than {_MAX_LINES} headers"
            raise HTTPException(message)
    fields: dict[str, str] = {}
    for field in _FOLD.sub(" ", b"".join(head).decode("latin-1")).split("\n")[:-1]:
        name, _, value = field.partition(":")
        key, value = name.lower(), value.strip(" \t\r")
        fields[key] = f"{fields[key]}, {value}" if key in fields else value
    return fields


def _line(lines: BinaryIO) -> bytes:
    line = lines.readline(_MAX_LINE + 1)
    if not line.endswith(b"\n"):
        if len(line) > _MAX_LINE:
            what = "head"
            raise LineTooLong(what)
        message = "the connection was closed before the end of a head"
        raise RemoteDisconnected(message)
    return line


def _request_head(target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if not "".join(lines).isprintable():
        message = "a header has a line end or another control character"
        raise ValueError(message)
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _host_header(route: Route) -> str:
    host, port = route.host
    host = f"[{host}]" if ":" in host else host
    return host if port == (443 if route.tls else 80) else f"{host}:{port}"


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
