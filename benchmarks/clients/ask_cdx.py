"""Send queries to a CDX server: ``python -m benchmarks.clients.ask_cdx FILE CLIENTS SECONDS [OPTION …]``.

A file has one URL a line, all of one server. Each client has a connection that stays open, and sends one query after
the other. Together they send each query once, and go on until the seconds are over. The cost is printed as JSON.

With ``--bodies FILE``, the first response to each query is written as JSON. With ``--quickack``, the client
acknowledges each packet at once; a server that sends head and body separately may wait for delayed acknowledgements.

HTTP is parsed here: aiohttp needs several times as much CPU, about 0.3 ms a query, which would limit the measurement.
"""

import argparse
import asyncio
import json
import socket
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

_TIMEOUT = 300.0
"""Seconds for all queries, after the given duration."""
_SPACE = b"\r\n"
_CHUNKED = b"transfer-encoding: chunked"
_LENGTH = b"content-length:"
_CLOSE = b"connection: close"


class Connection(asyncio.Protocol):
    """A connection with one request at a time."""

    def __init__(self, *, quickack: bool = False) -> None:
        self._quickack = quickack
        self._received = bytearray()
        self._body: list[bytes] = []
        self._position = 0
        self._length = -1
        self._chunked = False
        self._status = 0
        self._reply: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None
        self.closed = False
        self.head = b""
        """Head of the last response, in lower case."""

    def get(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        """Send a request; the result is status and body."""
        assert self._transport
        self._received.clear()
        self._body, self._position, self._length, self._chunked, self._status = [], 0, -1, False, 0
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._reply

    def close(self) -> None:
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._acknowledge()

    def data_received(self, data: bytes) -> None:
        self._acknowledge()
        self._received += data
        if not self._status and not self._read_head():
            return
        if self._chunked:
            self._read_chunks()
        elif 0 <= self._length <= len(self._received) - self._position:
            self._finish(bytes(self._received[self._position : self._position + self._length]))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._reply and not self._reply.done():
            if self._status and not self._chunked and self._length < 0:
                self._finish(bytes(self._received[self._position :]))
            else:
                self._reply.set_exception(error or ConnectionResetError("closed before the end of the response"))

    def _acknowledge(self) -> None:
        if self._quickack and self._transport and hasattr(socket, "TCP_QUICKACK"):  # the kernel forgets this option
            connected: socket.socket = self._transport.get_extra_info("socket")
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _read_head(self) -> bool:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return False
        self.head = head = bytes(self._received[:end]).lower()
        self._status, self._position = int(head[9:12]), end + 4
        self._chunked = _CHUNKED in head
        self.closed = _CLOSE in head
        start = head.find(_LENGTH)
        if start >= 0:
            self._length = int(head[start + len(_LENGTH) :].split(_SPACE, 1)[0])
        return True

    def _read_chunks(self) -> None:
        received = self._received
        while (line := received.find(_SPACE, self._position)) >= 0:
            size = int(received[self._position : line].split(b";")[0], 16)
            end = line + 2 + size
            if len(received) < end + 2:
                return
            if not size:
                self._finish(b"".join(self._body))
                return
            self._body.append(bytes(received[line + 2 : end]))
            self._position = end + 2

    def _finish(self, body: bytes) -> None:
        assert self._reply
        if not self._reply.done():
            self._reply.set_result((self._status, body))


async def ask(
    urls: Sequence[str], clients: int, seconds: float, *, quickack: bool = False
) -> tuple[dict[str, float], list[str]]:
    """Send the queries; return the cost, and the first response to each query."""
    address = urlsplit(urls[0])
    host, port = address.hostname or "", address.port or 80
    requests = [_request(url, address.netloc) for url in urls]
    bodies = [b""] * len(urls)
    taken: list[float] = []
    received = failed = 0
    loop = asyncio.get_running_loop()
    started = time.monotonic()
    first = iter(range(len(urls)))
    numbers = cycle(range(len(urls)))

    async def connect() -> Connection:
        _, made = await loop.create_connection(lambda: Connection(quickack=quickack), host, port)
        return made

    async def client() -> None:
        nonlocal received, failed
        connection = await connect()
        while True:
            number = next(first, -1)
            is_first = number >= 0
            if not is_first:
                if time.monotonic() - started >= seconds:
                    break
                number = next(numbers)
            if connection.closed:
                connection.close()
                connection = await connect()
            sent = time.monotonic()
            status, body = await connection.get(requests[number])
            taken.append(time.monotonic() - sent)
            received += len(body)
            failed += status != 200
            if is_first:
                bodies[number] = body
        connection.close()

    async with asyncio.timeout(seconds + _TIMEOUT):
        await asyncio.gather(*(client() for _ in range(clients)))
    ended = time.monotonic()
    taken.sort()
    costs = {
        "queries": len(taken),
        "seconds": ended - started,
        "p50": taken[len(taken) // 2],
        "p99": taken[len(taken) * 99 // 100],
        "bytes": received,
        "failed": failed,
        "client_cpu_seconds": time.process_time(),
    }
    return costs, [body.decode() for body in bodies]


def _request(url: str, host: str) -> bytes:
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\n\r\n".encode("ascii")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("clients", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--bodies", type=Path)
    parser.add_argument("--quickack", action="store_true")
    options = parser.parse_args()
    urls = options.file.read_text(encoding="utf-8").splitlines()
    costs, bodies = asyncio.run(ask(urls, options.clients, options.seconds, quickack=options.quickack))
    if options.bodies:
        options.bodies.write_text(json.dumps(bodies), encoding="utf-8")
    print(json.dumps(costs))


if __name__ == "__main__":
    main()
