"""An HTTP server for a folder on the loopback interface, with a log of requests.

It has what this package needs of https://data.commoncrawl.org/: files, single ranges, strong ETags and ``If-Match``.
"""

import re
import sys
import threading
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Self
from urllib.parse import unquote

from catalogue.source.byte_ranges import ByteRange, content_range

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer."""

    method: str
    path: str
    """Decoded, without query and leading slash."""
    status: int
    range: str | None
    sent_bytes: int


class LoopbackServer:
    """Serve a folder in a thread; a context manager that may be entered again."""

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.folder = folder
        self.log: list[Exchange] = []
        """Requests, logged before the first byte of their answer is sent."""
        self._port = port
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError("the loopback server does not run; use it in a with statement")
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Self:
        self._server = _Server(self._port, self.folder.resolve(strict=True), self.log)
        # The interval is how long shutdown() waits.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), name="loopback", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.closed = True
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    closed = False

    def __init__(self, port: int, root: Path, log: list[Exchange]) -> None:
        self.root = root
        self.log = log
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "loopback"
    sys_version = ""
    disable_nagle_algorithm = True  # headers and body are written separately
    timeout = 60
    server: _Server

    def do_GET(self) -> None:
        if self.server.closed:  # clients keep connections open
            self.close_connection = True
            return
        path = unquote(self.path.partition("?")[0]).lstrip("/")
        status, headers, body = self._answer(path)
        sent = 0 if self.command == "HEAD" else len(body)
        self.server.log.append(Exchange(self.command, path, status, self.headers.get("Range"), sent))
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:sent])

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        ...

    def _answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        file = self._find(path)
        if file is None:
            return 404, {}, b""
        found = file.stat()
        size, etag = found.st_size, f'"{found.st_size:x}-{found.st_mtime_ns:x}"'
        headers = {
            "Content-Type": "application/octet-stream",
            "Accept-Ranges": "bytes",
            "ETag": etag,
            "Last-Modified": formatdate(found.st_mtime, usegmt=True),
        }
        if self.headers.get("If-Match", etag) != etag:
            return 412, {"ETag": etag}, b""
        requested = _RANGE.fullmatch(self.headers.get("Range", "").strip())
        if requested is None or self.command == "HEAD":
            return 200, headers, file.read_bytes()
        first, last, suffix = requested.groups()
        start = int(first) if first else max(0, size - int(suffix))
        end = min(int(last) + 1, size) if last else size
        if start >= end:
            return 416, {"Content-Range": f"bytes */{size}"}, b""
        with file.open("rb") as opened:
            opened.seek(start)
            return (
                206,
                headers | {"Content-Range": content_range(ByteRange(start, end), size)},
                opened.read(end - start),
            )

    def _find(self, path: str) -> Path | None:
        try:
            target = (self.server.root / path).resolve()
            found = target.is_relative_to(self.server.root) and target.is_file() and not path.endswith("/")
        except (OSError, ValueError):  # a NUL, or a name that is too long
            return None
        return target if found else None
