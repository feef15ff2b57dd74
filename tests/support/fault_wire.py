"""How the loopback server of ``tests.support.faults`` reads requests from a connection and puts answers on it."""

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import unquote

from tests.support.fault_answers import Answer, Ending, Pace
from tests.support.fault_files import CHUNK

HEAD_LIMIT = 64 << 10
"""Bytes that a request's headers may have."""

_TICK = 0.02
"""Seconds between two pieces of a body under a rate."""


@dataclass(frozen=True, slots=True)
class Head:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    last: bool
    """Whether the connection cannot, or shall not, take another request."""


def parse_head(data: bytes) -> Head:
    """A request's headers, with the empty line behind them.

    Raises:
        ValueError: if they are not HTTP.
    """
    first, *lines = data[:-4].decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        message = f"not HTTP/1: {first!r}"
        raise ValueError(message)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            message = f"not a header: {line!r}"
            raise ValueError(message)
        name = name.lower()
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    path = unquote(target.partition("?")[0].removeprefix("/"), errors="surrogateescape")
    # No body is ever read, so behind one the next request could not be found.
    body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    last = body or version == "HTTP/1.0" or headers.get("connection", "").lower() == "close"
    return Head(method, path, headers, last)


class Wire:
    """One connection. Its methods raise ``ConnectionError`` or ``IncompleteReadError`` when the client has left."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float | None) -> None:
        self._reader = reader
        self._writer = writer
        self._rate = rate
        self._piece = CHUNK if rate is None else min(CHUNK, max(1, int(rate * _TICK)))
        self._due = 0.0
        # Draining then waits until the system has everything: never more than a piece in memory, or counted too early.
        writer.transport.set_write_buffer_limits(high=0)
        # asyncio does it only for sockets made with the number of the protocol; pieces would wait 40 ms for each other.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def head(self) -> Head:
        """The next request.

        Raises:
            ValueError: if it is not HTTP, or too long.
        """
        try:
            return parse_head(await self._reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError as error:
            raise ValueError from error

    async def send(self, answer: Answer, head: Head | None, note: Callable[[int], None]) -> bool:
        """Send an answer, and do to the connection what is to be done behind it.

        Args:
            answer: whose body is read.
            head: of the request; None if it could not be read.
            note: called before each piece is sent, with the number of bytes of body in it.

        Returns:
            Whether another request may follow.
        """
        last = head is None or head.last
        pieces = self._pieces(answer.plus(Connection="close") if last else answer, head)
        match answer.pace:
            case Pace.PROMPT if answer.status:
                await self._send(pieces, note)
            case Pace.SILENT:
                await self._wait(answer.hold)
            case Pace.DRIP_BODY | Pace.DRIP_ALL:
                await self._drip(answer, pieces, note)
        if answer.ending is Ending.RST:
            linger = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()
        elif answer.ending is Ending.FIN or last:
            self._writer.close()
        return answer.ending is Ending.KEEP and not last

    def packed(self, answer: Answer, head: Head) -> bytes:
        """All bytes of an answer."""
        return b"".join(piece for piece, _ in self._pieces(answer, head))

    async def write(self, data: bytes) -> None:
        """Send bytes that belong to no answer."""
        await self._write(data, 0, lambda _: None)

    def _pieces(self, answer: Answer, head: Head | None) -> Iterator[tuple[bytes, int]]:
        """All bytes of an answer, each piece with the number of bytes of body in it."""
        status = f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        lines = (f"{name}: {text}\r\n" for name, text in answer.headers.items())
        start = (status + f"Date: {formatdate(usegmt=True)}\r\n" + "".join(lines)).encode("latin-1")
        for filler in answer.filler:
            yield start, 0
            start = filler
        yield start + b"\r\n", 0
        if head and head.method == "HEAD":
            return
        for data in answer.body:
            for at in range(0, len(data), self._piece):
                piece = data[at : at + self._piece]
                yield (b"%x\r\n%b\r\n" % (len(piece), piece) if answer.chunked else piece), len(piece)
        if answer.chunked and answer.ending is Ending.KEEP:
            yield b"0\r\n\r\n", 0

    async def _send(self, pieces: Iterator[tuple[bytes, int]], note: Callable[[int], None]) -> None:
        held = b""  # the headers wait for the first of the body: one write is half the work of two
        for number, (data, count) in enumerate(pieces):
            if number > 1:
                await asyncio.sleep(0)  # draining lets nobody else in as long as the client keeps up
            if not count:
                await self._write(held, 0, note)
                held = data
                continue
            if self._rate:
                now = time.monotonic()
                self._due = max(self._due, now) + count / self._rate
                await asyncio.sleep(self._due - now)
            await self._write(held + data, count, note)
            held = b""
        await self._write(held, 0, note)

    async def _drip(self, answer: Answer, pieces: Iterator[tuple[bytes, int]], note: Callable[[int], None]) -> None:
        end = time.monotonic() + answer.hold
        for data, count in pieces:
            if not count and answer.pace is Pace.DRIP_BODY:
                await self._write(data, 0, note)
                continue
            for at in range(len(data)):
                left = end - time.monotonic()
                if left <= 0:
                    return
                await self._write(data[at : at + 1], 1 if count else 0, note)
                await self._wait(min(answer.interval, left))

    async def _write(self, data: bytes, count: int, note: Callable[[int], None]) -> None:
        if data:
            note(count)
            self._writer.write(data)
            await self._writer.drain()

    async def _wait(self, seconds: float) -> None:
        """Wait, but not for a client that leaves."""
        try:
            async with asyncio.timeout(seconds):
                while await self._reader.read(CHUNK):
                    pass
        except TimeoutError:
            return
        raise ConnectionResetError
