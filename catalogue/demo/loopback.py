"""An HTTP server for a folder on the loopback interface, with a log of requests.

It has what this package needs of https://data.commoncrawl.org/: files, single ranges, strong ETags and ``If-Match``.
"""

import re
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from os import stat_result
from pathlib import Path
from socketserver import TCPServer
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import unquote

from catalogue.source.byte_ranges import ByteRange, content_range

_BLOCK = 1 << 16
_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))", re.IGNORECASE)


@dataclass(slots=True)
class Exchange:
    """A request and its answer."""

    method: str
    path: str
    """Decoded, without query and leading slash."""
    status: int
    range: str | None
    """The request's ``Range`` header."""
    sent_bytes: int
    """Bytes of the body."""


class LoopbackServer:
    """Serve a folder in a thread; a context manager that may be entered again. Port 0 is any free one."""

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.folder = folder
        self.log: list[Exchange] = []
        """Every request, logged before the first byte of its answer is sent."""
        self._port = port
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError("the loopback server does not run; use it in a with statement")
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        server = self._server = _Server(("127.0.0.1", self._port), self.folder.resolve(strict=True), self.log)
        # The interval is how long shutdown() waits.
        threading.Thread(target=server.serve_forever, args=(0.02,), name="loopback", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    """Closes its connections when it stops, because clients keep them open."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], root: Path, log: list[Exchange]) -> None:
        self.root = root
        self.log = log
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without a DNS query for the name of 127.0.0.1, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        request, address = super().get_request()
        self._open.add(request)
        return request, address

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        self._open -= {request}
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        for request in list(self._open):
            with suppress(OSError):  # the client was faster
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print errors, except those of clients that close the connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "loopback"
    sys_version = ""
    disable_nagle_algorithm = True  # headers and body are written separately
    timeout: ClassVar[float] = 60.0
    server: _Server

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0]).lstrip("/")
        file = self._find(path)
        if file is None:
            self._send(path, 404, {})
            return
        found = file.stat()
        headers = _describe(found)
        if not {"*", headers["ETag"]} & {tag.strip() for tag in self.headers.get("If-Match", "*").split(",")}:
            self._send(path, 412, {"ETag": headers["ETag"]})
            return
        requested = self._range(found.st_size)
        if requested is None:
            self._send(path, 200, headers, file, (0, found.st_size))
        elif requested[0] >= requested[1]:
            self._send(path, 416, {"Content-Range": f"bytes */{found.st_size}"})
        else:
            headers["Content-Range"] = content_range(ByteRange(*requested), found.st_size)
            self._send(path, 206, headers, file, requested)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        ...

    def _find(self, path: str) -> Path | None:
        try:
            target = (self.server.root / path).resolve()
            found = target.is_relative_to(self.server.root) and target.is_file() and not path.endswith("/")
        except (OSError, ValueError):  # a NUL, or a name that is too long
            return None
        return target if found else None

    def _range(self, size: int) -> tuple[int, int] | None:
        """Return the half-open range of a request; None for all of the file. Other forms of ranges are ignored."""
        requested = _RANGE.fullmatch(self.headers.get("Range", "").strip())
        if requested is None or self.command == "HEAD" or "If-Range" in self.headers:
            return None
        first, last, suffix = requested.groups()
        if first and last and int(last) < int(first):
            return None
        start = int(first) if first else max(0, size - int(suffix or 0))
        return start, min(int(last) + 1, size) if last else size

    def _send(
        self, path: str, status: int, headers: dict[str, str], file: Path | None = None, part: tuple[int, int] = (0, 0)
    ) -> None:
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # its body is not read, and would be taken for the next request
        message = b"" if file else f"{status} {HTTPStatus(status).phrase}\n".encode()
        if not file:
            headers, part = headers | {"Content-Type": "text/plain"}, (0, len(message))
        left = 0 if self.command == "HEAD" else part[1] - part[0]
        exchange = Exchange(self.command, path, status, self.headers.get("Range"), left)
        self.server.log.append(exchange)
        self.send_response(status)
        length = {"Content-Length": str(part[1] - part[0])}
        for name, value in (headers | length | ({"Connection": "close"} if self.close_connection else {})).items():
            self.send_header(name, value)
        self.end_headers()
        if not left:
            return
        with file.open("rb") if file else BytesIO(message) as opened:
            opened.seek(part[0])
            try:
                while left and (block := opened.read(min(left, _BLOCK))):
                    self.wfile.write(block)
                    left -= len(block)
            finally:
                if left:  # the client closed the connection, or the file has shrunk
                    self.close_connection = True
                    exchange.sent_bytes -= left


def _describe(found: stat_result) -> dict[str, str]:
    return {
        "Content-Type": "application/octet-stream",
        "Accept-Ranges": "bytes",
        "ETag": f'"{found.st_size:x}-{found.st_mtime_ns:x}"',
        "Last-Modified": formatdate(found.st_mtime, usegmt=True),
    }
