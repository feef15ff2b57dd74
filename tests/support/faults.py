"""An HTTP server on the loopback interface with faults.

::

    with FaultServer(files, script=first(2, Kind.CUT_FIN)) as server:
        fetch(server.url + "cc-index/part-0.parquet")
        assert [exchange.status for exchange in server.settle()] == [206, 206, 206]

It serves GET, HEAD, single ranges and If-Match as S3 does, unless its script names a fault. Benchmarks run it as a
process, whose log they read as JSON::

    python -m tests.support.faults FOLDER --latency 0.03 --port 0
    curl http://127.0.0.1:PORT/-/log        # since the start or the last /-/reset
"""

import argparse
import hashlib
import json
import os
import select
import signal
import socket
import ssl
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import formatdate
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from io import BufferedReader
from pathlib import Path
from typing import Self
from urllib.parse import unquote_plus

from tests.support.fault_answers import PIECE, Answer, Content, right_answer, text_answer, wrong_answer
from tests.support.fault_kinds import (
    ALL_KINDS,
    SLOW,
    Fault,
    Kind,
    Request,
    Script,
    always,
    first,
    on_suffixes,
    only,
    seeded,
)
from tests.support.gates import Gate

__all__ = ["ALL_KINDS", "SLOW", "Exchange", "Fault", "FaultServer", "Kind", "Request"]
__all__ += ["Script", "Step", "always", "first", "on_suffixes", "only", "seeded"]


class Step(Enum):
    """How responses for Parquet files differ from the requests of a connection."""

    IN = "in"
    TWICE = "twice"
    """Each response is sent twice, in one piece."""
    TWICE_SLOWLY = "twice, slowly"
    BEHIND = "behind"
    """From the second request on, each response is that to the request before."""


@dataclass(slots=True)
class Exchange:
    """A request and its response so far. ``fault`` is also None if the fault did not apply."""

    method: str
    path: str
    headers: Mapping[str, str]
    connection: int
    fault: Fault | None
    status: int = 0
    body_bytes_sent: int = 0

    @property
    def range_header(self) -> str | None:
        return self.headers.get("range")


class FaultServer:
    """The server; each connection has a thread.

    Args:
        files: a folder, or bytes by path without a leading slash; a test may change either between two requests.
        script: chooses faults. Its exceptions are raised again at the end of the block.
        gate: holds one request before its response.
        latency: seconds before each response.
        rate: bytes of body per second and connection.
        host: a loopback address.
        tls: a context for https.
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
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.step = Step.IN
        self._files, self._script, self._gate, self._latency, self._rate = files, script, gate, latency, rate
        self._tls = tls
        self.tag = ""
        """The start of all ETags, for those of another storage."""
        self._listener = socket.create_server((host, port), backlog=1024)
        self.url = "{}://{}:{}/".format("https" if tls else "http", *self._listener.getsockname()[:2])
        self._changed = threading.Condition()
        self._log: list[Exchange] = []
        self._attempts: Counter[str] = Counter()
        self._running = 0
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._failures: list[Exception] = []
        self._thread = threading.Thread(target=self._accept, name="fault server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._gate:
            self._gate.open()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends accept()
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

    @property
    def requests(self) -> int:
        return len(self._log)

    @property
    def body_bytes_sent(self) -> int:
        return sum(exchange.body_bytes_sent for exchange in self.log)

    def settle(self) -> list[Exchange]:
        """Return the log when no exchange runs; raise TimeoutError if one still does after five seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running, 5.0):
                raise TimeoutError(f"{self._running} exchanges still run after 5 s")
            return list(self._log)

    def reset(self) -> None:
        with self._changed:
            self._log.clear()
            self._attempts.clear()

    def _content(self, path: str) -> Content | None:
        content = self._untagged(path)
        return content and replace(content, etag=f'"{self.tag}{content.etag[1:]}')

    def _untagged(self, path: str) -> Content | None:
        if not isinstance(self._files, Path):
            data = self._files.get(path)
            return None if data is None else _in_memory(data)
        file = self._files / path
        if not {"", ".", ".."}.isdisjoint(path.split("/")):
            return None
        if not file.is_file():
            return _in_parts(file) if file.with_name(f"{file.name}.parts").is_file() else None
        status = file.stat()

        def read(start: int, end: int) -> bytes:
            with file.open("rb") as opened:
                return os.pread(opened.fileno(), end - start, start)

        return Content(status.st_size, f'"{status.st_size:x}-{status.st_mtime_ns:x}"', status.st_mtime, read)

    def _names(self, path: str) -> list[str]:
        if isinstance(self._files, Path):
            return sorted(str(file.relative_to(self._files)) for file in (self._files / path).parent.iterdir())
        return list(self._files)

    # ---- connections ----

    def _accept(self) -> None:
        number = 0
        with suppress(OSError):  # the listener is shut down
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                target, args = self._serve, (connection, number)
                thread = threading.Thread(target=target, args=args, name="fault connection", daemon=True)
                number += 1
                self._connections[thread] = connection
                thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        previous: Request | None = None
        try:
            if self._tls:
                connection = self._connections[threading.current_thread()] = self._tls.wrap_socket(
                    connection, server_side=True
                )
            with connection, connection.makefile("rb") as reader:
                while head := _read_head(reader):
                    method, path, headers = head
                    if path in {"-/log", "-/reset"}:
                        _send(connection, self._report(path), method)
                        continue
                    with self._changed:
                        request = Request(method, path, headers, self.requests, self._attempts[path])
                        fault = self._script(request) if self._script else None
                        exchange = Exchange(method, path, headers, number, fault)
                        self._attempts[path] += 1
                        self._log.append(exchange)
                        self._running += 1
                    try:
                        if not self._answer(connection, request, exchange, previous or request):
                            break
                    finally:
                        with self._changed:
                            self._running -= 1
                            self._changed.notify_all()
                    previous = request if path.endswith(".parquet") else None
        except OSError:
            pass  # the client closed the connection
        except Exception as error:  # noqa: BLE001 - raised in __exit__
            self._failures.append(error)
        finally:
            self._connections.pop(threading.current_thread(), None)

    def _answer(self, connection: socket.socket, request: Request, exchange: Exchange, previous: Request) -> bool:
        """Send the response to a request; return whether another request may follow."""
        if self._gate:
            self._gate.pass_through(request)
        time.sleep(self._latency)
        fault = exchange.fault
        if fault and fault.kind in {Kind.DISCONNECT, Kind.SILENT}:
            _wait_unless_closed(connection, fault.hold if fault.kind is Kind.SILENT else 0.0)
            return False
        step = self.step if request.path.endswith(".parquet") else Step.IN
        answer = self._choose(previous if step is Step.BEHIND else request, exchange)
        exchange.status = answer.status
        if step in {Step.TWICE, Step.TWICE_SLOWLY}:
            again = b"".join(piece for _, piece in _pieces(self._choose(request, exchange), "GET", PIECE))
            if step is Step.TWICE_SLOWLY:
                _send(connection, answer, request.method, exchange)
                connection.sendall(again)
                return True
            answer = replace(answer, body=[b"".join(answer.body) + again])
        # Bodies of requests are not read, so the connection cannot be used again.
        if request.method not in {"GET", "HEAD"} or request.headers.get("connection", "").lower() == "close":
            answer = replace(answer.plus(Connection="close"), ending=max(answer.ending, "fin"))
        return _send(connection, answer, request.method, exchange, self._rate)

    def _choose(self, request: Request, exchange: Exchange) -> Answer:
        if exchange.fault:
            if answer := wrong_answer(exchange.fault, request, self._content, lambda: self._names(request.path)):
                return answer
            exchange.fault = None
        return right_answer(request, self._content(request.path))

    def _report(self, path: str) -> Answer:
        if path == "-/reset":
            self.reset()
        exchanges = [{"method": each.method, "status": each.status} for each in self.log]
        report = {"body_bytes_sent": self.body_bytes_sent, "exchanges": exchanges}
        return text_answer(200, "application/json", json.dumps(report))


@lru_cache(maxsize=1000)
def _in_memory(data: bytes) -> Content:
    """Return a version of a file; other data have another ETag and another time."""
    etag = f'"{hashlib.blake2b(data, digest_size=16).hexdigest()}"'
    return Content(len(data), etag, 1_577_836_800.0 + zlib.crc32(data) % 10**8, lambda start, end: data[start:end])


@lru_cache(maxsize=1000)
def _in_parts(file: Path) -> Content:
    """Return a file that consists of parts of others: lines of path, start and length in ``NAME.parts``."""
    listed = file.with_name(f"{file.name}.parts")
    parts = []
    size = 0
    for line in listed.read_text(encoding="utf-8").splitlines():
        path, start, length = line.rsplit(" ", 2)
        parts.append((size, file.parent / path, int(start), int(length)))
        size += int(length)

    def read(start: int, end: int) -> bytes:
        found = []
        for at, path, begin, length in parts:
            low, high = max(start, at), min(end, at + length)
            if low < high:
                with path.open("rb") as opened:
                    found.append(os.pread(opened.fileno(), high - low, begin + low - at))
        return b"".join(found)

    status = listed.stat()
    return Content(size, f'"{size:x}-{status.st_mtime_ns:x}"', status.st_mtime, read)


def _read_head(reader: BufferedReader) -> tuple[str, str, dict[str, str]] | None:
    """Return method, path and headers of the next request; None if there is none, or it is not HTTP."""
    method, _, rest = reader.readline(64 << 10).decode("latin-1").strip().partition(" ")
    target, _, version = rest.partition(" ")
    if version != "HTTP/1.1":
        return None
    try:
        headers = {name.lower(): text.strip() for name, text in parse_headers(reader).items()}
    except HTTPException:
        return None
    return method, unquote_plus(target.partition("?")[0].removeprefix("/"), errors="surrogateescape"), headers


def _send(
    connection: socket.socket, answer: Answer, method: str, exchange: Exchange | None = None, rate: float | None = None
) -> bool:
    fault = exchange.fault if exchange else None
    end = time.monotonic() + (fault.hold if fault else 0.0)
    for in_body, piece in _pieces(answer, method, min(PIECE, int(rate / 50)) if rate else PIECE):
        drips = answer.drip == "all" or (answer.drip == "body" and in_body)
        size = 1 if drips else len(piece)
        for at in range(0, len(piece), size):
            if drips and time.monotonic() >= end:
                return False
            if exchange and in_body:  # counted before it is sent, so that clients never see a lower count
                exchange.body_bytes_sent += size
            if drips and fault:
                _wait_unless_closed(connection, fault.interval)
            elif rate and in_body:
                _wait_unless_closed(connection, size / rate)
            connection.sendall(piece[at : at + size])
    if answer.ending == "rst":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return answer.ending == "keep"


def _pieces(answer: Answer, method: str, size: int) -> Iterator[tuple[bool, bytes]]:
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}", f"Date: {formatdate(usegmt=True)}"]
    lines += [f"{name}: {text}" for name, text in answer.headers.items()]
    head = "".join(f"{line}\r\n" for line in lines).encode("latin-1")
    for filler in answer.filler:
        yield False, head
        head = filler
    yield False, head + b"\r\n"
    for data in answer.body if method != "HEAD" else ():
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            yield True, b"%x\r\n%b\r\n" % (len(piece), piece) if answer.chunked else piece
    if answer.chunked and answer.ending == "keep":
        yield True, b"0\r\n\r\n"


def _wait_unless_closed(connection: socket.socket, seconds: float) -> None:
    """Wait, or raise ConnectionResetError as soon as the client closes the connection."""
    if seconds > 0 and select.select([connection], [], [], seconds)[0] and not connection.recv(PIECE):
        raise ConnectionResetError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.faults", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each response")
    parser.add_argument("--rate", type=float, help="bytes of body per second and connection")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    options = parser.parse_args()
    # Blocked before threads start, since threads inherit that; sigwait receives the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with FaultServer(options.folder, latency=options.latency, rate=options.rate, port=options.port) as server:
        print(server.url, flush=True)  # noqa: T201 - what it is started for
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
