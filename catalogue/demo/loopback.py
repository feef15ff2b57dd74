"""A folder served over HTTP on the loopback interface, by the book (RFC 9110), with a log of what was asked.

It does what this package needs of https://data.commoncrawl.org/ and nothing else: files, single ranges, strong ETags,
``If-Match``; no listings. It is for one's own machine: there is no limit on what a client may cost it.
"""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import fstat
from pathlib import Path
from socketserver import TCPServer
from sys import exc_info
from types import TracebackType
from typing import IO, ClassVar, Self
from urllib.parse import unquote

from catalogue.source.byte_ranges import ByteRange, content_range

_BLOCK = 1 << 16
"""Bytes sent at a time."""

_CLOSING = 5.0
"""Seconds that the connections have to end in when the server stops; each is told to at once."""

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what became of it."""

    method: str
    path: str
    """Without percent-escapes, query and leading slash: as manifests write it."""
    status: int
    range: str | None
    """The request's ``Range`` header."""
    sent_bytes: int
    """Bytes of the body; fewer than announced if the client hung up, counting what the system still held for it."""


class LoopbackServer:
    """A context manager that serves a folder from a thread of its own.

    Args:
        folder: what to serve; symbolic links that lead out of it are not followed.
        port: where; 0 is any free one.

    It may be entered again after it was left, and then serves from another port if ``port`` is 0.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.folder = folder
        self.log: list[Exchange] = []
        """Every GET and HEAD so far; an exchange is here before the first byte of its answer is sent."""
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where the folder is, with a slash at the end.

        Raises:
            RuntimeError: if the server does not run.
        """
        if self._server is None:
            message = "the loopback server does not run; use it in a with statement"
            raise RuntimeError(message)
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", self._port), self.folder.resolve(strict=True), self.log)
        # The interval is how long shutdown() waits at worst.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="loopback", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = self._thread = None


class _Server(ThreadingHTTPServer):
    """Knows its open connections, so that stopping need not wait for clients that keep them alive."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], root: Path, log: list[Exchange]) -> None:
        self.root = root
        self.log = log
        self.lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = threading.Condition()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking the name service who 127.0.0.1 is, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        request, address = super().get_request()
        with self._closed:
            self._open.add(request)
        return request, address

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        super().shutdown_request(request)
        with self._closed:
            self._open.discard(request)
            self._closed.notify_all()

    def server_close(self) -> None:
        """Stop listening and end every connection."""
        super().server_close()
        with self._closed:
            for request in self._open:
                with suppress(OSError):  # the client was faster
                    request.shutdown(socket.SHUT_RDWR)
            self._closed.wait_for(lambda: not self._open, _CLOSING)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing about clients that hang up; anything else is a bug and is printed."""
        if not isinstance(exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Answer:
    """A status, its own headers, and the bytes of a file that follow: half-open, empty for none."""

    status: HTTPStatus
    headers: dict[str, str]
    start: int = 0
    end: int = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "loopback"
    sys_version = ""
    disable_nagle_algorithm = True  # headers and body are written apart
    timeout: ClassVar[float] = 60.0
    server: _Server

    def do_GET(self) -> None:
        """Answer with a file, a part of it, or why not."""
        path = unquote(self.path.partition("?")[0]).lstrip("/")
        with self._opened(path) as file:
            answer = self._decide(file)
            if file is None or answer.status >= HTTPStatus.BAD_REQUEST:
                self._refuse(path, answer)
            else:
                self._send(path, answer, file)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep stderr quiet."""

    @contextmanager
    def _opened(self, path: str) -> Iterator[IO[bytes] | None]:
        """The file at a path below the root; None for what is not there, no file, or elsewhere."""
        try:
            target = (self.server.root / path).resolve()
            servable = target.is_relative_to(self.server.root) and target.is_file() and not path.endswith("/")
            file = target.open("rb") if servable else None
        except (OSError, ValueError):  # not ours to read; a NUL; a name longer than the system allows
            file = None
        try:
            yield file
        finally:
            if file is not None:
                file.close()

    def _decide(self, file: IO[bytes] | None) -> _Answer:
        """What to answer, by the preconditions first and the range after (RFC 9110, 13.2.2)."""
        if file is None:
            return _Answer(HTTPStatus.NOT_FOUND, {})
        state = fstat(file.fileno())
        size, tag = state.st_size, f'"{state.st_size:x}-{state.st_mtime_ns:x}"'
        described = {
            "Content-Type": "application/octet-stream",
            "Accept-Ranges": "bytes",
            "ETag": tag,
            "Last-Modified": formatdate(state.st_mtime, usegmt=True),
        }
        expected = self.headers.get("If-Match")
        if expected is not None and not {"*", tag} & {part.strip() for part in expected.split(",")}:
            return _Answer(HTTPStatus.PRECONDITION_FAILED, {"ETag": tag})
        # Several ranges and malformed ones may be ignored; ranges of a HEAD, or of another version, must be.
        wanted = _RANGE.fullmatch(self.headers.get("Range", "").strip())
        first, last, suffix = wanted.groups() if wanted else (None, None, None)
        if (first and last and int(last) < int(first)) or self.headers.get("If-Range", tag) != tag:
            wanted = None
        if wanted is None or self.command == "HEAD":
            return _Answer(HTTPStatus.OK, described, 0, size)
        start = int(first) if first else max(0, size - int(suffix or 0))
        end = min(int(last) + 1, size) if last else size
        if start >= end:
            return _Answer(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{size}"})
        described["Content-Range"] = content_range(ByteRange(start, end), size)
        return _Answer(HTTPStatus.PARTIAL_CONTENT, described, start, end)

    def _head(self, path: str, answer: _Answer, length: int) -> Exchange:
        """Log and send everything before the body, which will have ``length`` bytes unless this is a HEAD."""
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body that nobody reads would be taken for the next request
        sent = 0 if self.command == "HEAD" else length
        exchange = Exchange(self.command, path, int(answer.status), self.headers.get("Range"), sent)
        with self.server.lock:
            self.server.log.append(exchange)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        return exchange

    def _refuse(self, path: str, answer: _Answer) -> None:
        body = f"{answer.status.value} {answer.status.phrase}\n".encode()
        self._head(path, replace(answer, headers={**answer.headers, "Content-Type": "text/plain"}), len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send(self, path: str, answer: _Answer, file: IO[bytes]) -> None:
        exchange = self._head(path, answer, answer.end - answer.start)
        left = exchange.sent_bytes
        file.seek(answer.start)
        try:
            while left and (block := file.read(min(left, _BLOCK))):
                self.wfile.write(block)
                left -= len(block)
        finally:
            if left:  # the client hung up, or the file has shrunk
                self.close_connection = True
                self._correct(exchange, exchange.sent_bytes - left)

    def _correct(self, exchange: Exchange, sent: int) -> None:
        with self.server.lock:
            for place, logged in enumerate(self.server.log):
                if logged is exchange:
                    self.server.log[place] = replace(exchange, sent_bytes=sent)
