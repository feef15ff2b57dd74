"""An HTTP server on the loopback interface with faults.

::

    with FaultServer(files, script=first(2, Kind.CUT_FIN)) as server:
        fetch(server.url + "cc-index/part-0.parquet")
        assert [exchange.status for exchange in server.settle()] == [206, 206, 206]

It serves GET, HEAD, single ranges and If-Match as S3 does, unless its script names a fault. Benchmarks run it as a
process, whose log they read as JSON::

    python -m tests.support.faults FOLDER --latency 0.03 --port 0
    curl http://127.0.0.1:PORT/-/log        # since the start, or the last /-/reset
"""

import argparse
import hashlib
import json
import os
import select
import signal
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import formatdate
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from tests.support.fault_answers import PIECE, Answer, Content, right_answer, wrong_answer
from tests.support.fault_kinds import (
    ALL_KINDS,
    BLOCKING,
    DETECTABLE,
    HARMLESS,
    MALFORMED_CONTENT_RANGES,
    PERMANENT,
    SLOW,
    THROTTLING,
    UNDETECTABLE,
    Fault,
    Kind,
    Request,
    Script,
    always,
    first,
    only,
    seeded,
)
from tests.support.gates import Gate

__all__ = ["ALL_KINDS", "BLOCKING", "DETECTABLE", "HARMLESS", "MALFORMED_CONTENT_RANGES", "PERMANENT", "SLOW"]
__all__ += ["THROTTLING", "UNDETECTABLE", "Exchange", "Fault", "FaultServer", "Kind", "Request", "Script", "Step"]
__all__ += ["always", "first", "only", "seeded"]

_HEAD_LIMIT = 64 << 10
_EPOCH = 1_577_836_800.0  # 2020-01-01


class Step(Enum):
    """How answers for Parquet files are out of step with the requests of a connection."""

    IN = "in"
    TWICE = "twice"
    """Each answer is sent twice, in one piece."""
    TWICE_SLOWLY = "twice, slowly"
    BEHIND = "behind"
    """From the second request on, each answer is that of the request before."""


@dataclass(slots=True)
class Exchange:
    """A request and its answer so far. ``fault`` is None, too, if the fault did not apply."""

    method: str
    path: str
    range_header: str | None
    headers: Mapping[str, str]
    connection: int
    fault: Fault | None
    started: float
    finished: float
    status: int = 0
    body_bytes_sent: int = 0


class FaultServer:
    """The server; each connection has a thread.

    Args:
        files: a folder, or bytes by path without a leading slash; a test may change either between two requests.
        script: chooses faults. What it raises is raised again at the end of the block.
        gate: holds one request before it is answered.
        latency: seconds before each answer.
        rate: bytes of body per second and connection.
        host: a loopback address.
        port: 0 for a free one.
    """

    def __init__(
        self,
        files: Path | Mapping[str, bytes],
        *,
        script: Script | None = None,
        gate: Gate | None = None,
        latency: float = 0.0,
        rate: float | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.step = Step.IN
        self._files = files.resolve(strict=True) if isinstance(files, Path) else files
        self._script, self._gate, self._latency, self._rate = script, gate, latency, rate
        self._listener = socket.create_server((host, port), backlog=1024)
        self.url = "http://{}:{}/".format(*self._listener.getsockname()[:2])
        self._changed = threading.Condition()
        self._log: deque[Exchange] = deque(maxlen=100_000)
        self._attempts: Counter[str] = Counter()
        self._running = self._accepted = 0
        self.requests = self.body_bytes_sent = 0
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._failures: list[BaseException] = []
        self._etags: dict[str, tuple[bytes, Content]] = {}
        self._thread = threading.Thread(target=self._accept, name="fault server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._gate:
            self._gate.open()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which ends accept()
        self._thread.join()
        self._listener.close()
        for thread, connection in list(self._connections.items()):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()
        if error is None and self._failures:
            raise self._failures[0]

    @property
    def log(self) -> list[Exchange]:
        """The exchanges in the order of the requests; the last ones may still run."""
        with self._changed:
            return list(self._log)

    def settle(self, timeout: float = 5.0) -> list[Exchange]:
        """Return the log when no exchange runs; raise TimeoutError if one still does after ``timeout`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running, timeout):
                raise TimeoutError(f"{self._running} exchanges still run after {timeout} s")
            return list(self._log)

    def reset(self) -> None:
        """Forget all requests."""
        with self._changed:
            self._log.clear()
            self._attempts.clear()
            self.requests = self.body_bytes_sent = 0

    # ---- files ----

    def _content(self, path: str) -> Content | None:
        return self._from_folder(path, self._files) if isinstance(self._files, Path) else self._from_memory(path)

    def _from_folder(self, path: str, folder: Path) -> Content | None:
        where = folder / path
        if not {"", ".", ".."}.isdisjoint(path.split("/")) or not where.is_file():
            return None
        found = where.stat()

        def read(start: int, end: int) -> bytes:
            with where.open("rb") as file:
                return os.pread(file.fileno(), end - start, start)

        return Content(found.st_size, f'"{found.st_size:x}-{found.st_mtime_ns:x}"', found.st_mtime, read)

    def _from_memory(self, path: str) -> Content | None:
        """Return a file as it is now; each change makes it an hour younger."""
        data = self._files.get(path) if isinstance(self._files, Mapping) else None
        if data is None:
            return None
        before, content = self._etags.get(path, (None, None))
        if before is not data or content is None:
            modified = _EPOCH if content is None else content.modified + 3600 * (before != data)
            etag = f'"{hashlib.blake2b(data, digest_size=16).hexdigest()}"'
            content = Content(len(data), etag, modified, lambda start, end: data[start:end])
            self._etags[path] = (data, content)
        return content

    def _others(self, path: str) -> list[str]:
        if isinstance(self._files, Path):
            return sorted(str(each.relative_to(self._files)) for each in (self._files / path).parent.iterdir())
        return list(self._files)

    # ---- connections ----

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is shut down
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                target, args = self._serve, (connection, self._accepted)
                thread = threading.Thread(target=target, args=args, name="fault connection", daemon=True)
                self._accepted += 1
                self._connections[thread] = connection
                thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        previous: list[Request] = []
        try:
            with connection:
                while head := _read_head(connection):
                    if not self._answer(connection, number, head, previous):
                        break
        except OSError:
            pass  # the client has left
        except Exception as error:  # noqa: BLE001 - raised in __exit__
            self._failures.append(error)
        finally:
            self._connections.pop(threading.current_thread(), None)

    def _answer(
        self,
        connection: socket.socket,
        number: int,
        head: tuple[str, str, dict[str, str], bool],
        previous: list[Request],
    ) -> bool:
        """Answer a request; return whether another one may follow."""
        method, path, headers, last = head
        if not method:
            self._send(connection, Answer(400, {"Content-Length": "0"}, ending="fin"), None, None)
            return False
        if path in {"-/log", "-/reset"}:
            return self._send(connection, self._report(path), None, None)
        now = time.monotonic()
        with self._changed:
            request = Request(method, path, headers, self.requests, self._attempts[path])
            fault = self._script(request) if self._script else None
            exchange = Exchange(method, path, headers.get("range"), headers, number, fault, now, now)
            self.requests += 1
            self._attempts[path] += 1
            self._log.append(exchange)
            self._running += 1
        try:
            if self._gate:
                self._gate.pass_through(request)
            time.sleep(self._latency)
            step = self.step if path.endswith(".parquet") else Step.IN
            answer = self._choose(previous[-1] if step is Step.BEHIND and previous else request, exchange)
            again = b"" if step is Step.IN else b"".join(_pieces(self._choose(request, exchange), "GET", PIECE))
            previous[:] = [request] if step is not Step.IN else []
            exchange.status = answer.status
            if step is Step.TWICE:
                answer = replace(answer, body=[b"".join(answer.body) + again])
            answer = replace(answer.plus(Connection="close"), ending=max(answer.ending, "fin")) if last else answer
            more = self._send(connection, answer, exchange, fault)
            if step is Step.TWICE_SLOWLY:
                connection.sendall(again)
            return more
        finally:
            with self._changed:
                exchange.finished = time.monotonic()
                self._running -= 1
                self._changed.notify_all()

    def _choose(self, request: Request, exchange: Exchange) -> Answer:
        if exchange.fault:
            answer = wrong_answer(exchange.fault, request, self._content, lambda: self._others(request.path))
            if answer:
                return answer
            exchange.fault = None
        return right_answer(request, self._content(request.path))

    def _send(self, connection: socket.socket, answer: Answer, exchange: Exchange | None, fault: Fault | None) -> bool:
        if answer.wait:
            _wait_unless_closed(connection, answer.wait)
        end = time.monotonic() + (fault.hold if fault else 0.0)
        head = True
        size = min(PIECE, int(self._rate / 50)) if self._rate else PIECE
        for piece in _pieces(answer, exchange.method if exchange else "GET", size) if answer.status else ():
            if answer.drip == "all" or (answer.drip and not head):
                for at in range(len(piece)):
                    if time.monotonic() >= end:
                        break
                    self._note(exchange, 0 if head else 1)
                    connection.sendall(piece[at : at + 1])
                    _wait_unless_closed(connection, min(fault.interval if fault else 0.0, end - time.monotonic()))
            else:
                if self._rate and not head:
                    _wait_unless_closed(connection, len(piece) / self._rate)
                self._note(exchange, 0 if head else len(piece))
                connection.sendall(piece)
            head = head and not piece.endswith(b"\r\n\r\n")
        if answer.ending == "rst":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return answer.ending == "keep"

    def _note(self, exchange: Exchange | None, size: int) -> None:
        """Count bytes before they are sent, so that a client that has them finds them counted."""
        if exchange and size:
            with self._changed:
                exchange.finished = time.monotonic()
                exchange.body_bytes_sent += size
                self.body_bytes_sent += size

    def _report(self, path: str) -> Answer:
        if path == "-/reset":
            self.reset()
        names = {"method": "method", "path": "path", "range": "range_header", "status": "status"}
        names["bytes"] = "body_bytes_sent"
        with self._changed:
            exchanges = [{name: getattr(one, field) for name, field in names.items()} for one in self._log]
            report = {"requests": self.requests, "body_bytes_sent": self.body_bytes_sent, "exchanges": exchanges}
        data = json.dumps(report).encode()
        return Answer(200, {"Content-Type": "application/json", "Content-Length": str(len(data))}, (data,))


def _read_head(connection: socket.socket) -> tuple[str, str, dict[str, str], bool] | None:
    """Return method, path, headers and whether it is the last request; an empty method if it is not HTTP."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        received = connection.recv(_HEAD_LIMIT)
        if not received or len(data) > _HEAD_LIMIT:
            return None if not received else ("", "", {}, True)
        data += received
    first_line, *lines = data[:-4].decode("latin-1").split("\r\n")
    method, _, rest = first_line.partition(" ")
    target, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1.") or not all(":" in line for line in lines):
        return "", "", {}, True
    headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
    path = unquote(target.partition("?")[0].removeprefix("/"), errors="surrogateescape")
    # A body is not read, so that the next request could not be found after it.
    body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    return method, path, headers, body or version == "HTTP/1.0" or headers.get("connection", "").lower() == "close"


def _pieces(answer: Answer, method: str, size: int) -> Iterator[bytes]:
    """All bytes of an answer; its headers end with the first piece that ends with an empty line."""
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}", f"Date: {formatdate(usegmt=True)}"]
    lines += [f"{name}: {text}" for name, text in answer.headers.items()]
    start = ("\r\n".join(lines) + "\r\n").encode("latin-1")
    for filler in answer.filler:
        yield start
        start = filler
    yield start + b"\r\n"
    for data in answer.body if method != "HEAD" else ():
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            yield b"%x\r\n%b\r\n" % (len(piece), piece) if answer.chunked else piece
    if answer.chunked and answer.ending == "keep":
        yield b"0\r\n\r\n"


def _wait_unless_closed(connection: socket.socket, seconds: float) -> None:
    """Wait, or raise ConnectionResetError as soon as the client closes the connection."""
    if seconds > 0 and select.select([connection], [], [], seconds)[0] and not connection.recv(PIECE):
        raise ConnectionResetError


def main() -> None:
    """Serve a folder until killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.faults", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--rate", type=float, help="bytes of body per second and connection")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    given = parser.parse_args()
    # Blocked before threads start, which inherit that; sigwait receives them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with FaultServer(given.folder, latency=given.latency, rate=given.rate, host=given.host, port=given.port) as server:
        print(server.url, flush=True)  # noqa: T201 - what it is started for
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
