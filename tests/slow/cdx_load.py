"""A CDX server under the load of 100 clients, some of which read slowly or disconnect.

Queries of all kinds are drawn from a pool, whose answers were computed by a scan of all captures. Each complete answer
is compared. Each form of the server gets an equal share of the queries: with stored footers, or a list of blocks, and
with several workers. It has answered the pool and a part of the queries when its memory becomes the reference.
"""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPResponse
from io import BytesIO
from pathlib import Path
from random import Random
from typing import cast
from urllib.parse import urlsplit

from benchmarks.cdx_crawls import Crawl
from benchmarks.cdx_servers import forms
from benchmarks.clients.ask_cdx import Connection
from benchmarks.processes import Served, serving
from tests.support.cdx_oracle import read_captures
from tests.support.cdx_questions import Question, Questions, SiteOracle
from tests.support.synthetic_crawl import CRAWL, write_synthetic_crawl

ROWS = 200_000
_CLIENTS = 100
_POOL = 2_000
"""Most different queries; a pool has at most one for each ten queries."""
_SECONDS = 0.006
"""Shortest duration for each query: 10 minutes for 100,000; a fast server answers more queries."""
_SLOW, _DISCONNECTING = 0.005, 0.03
"""Shares of queries."""
_IDLE = 15.0
"""Seconds after which a connection is not used again; the server closes it after 20."""
_SLOW_BYTES, _SLOW_WAIT = 2_000, 0.005
_WARM = 0.25
"""Share of the time after which memory becomes the reference."""
_MEMORY = 16
"""MB that a process may keep: less than the answers to the pool need."""
_MOST_GROWTH = 50 << 20
_MEMORY_INTERVAL = 0.5
_TIMEOUT = 120.0


class _Load:
    """Clients of a server."""

    def __init__(self, served: Served, pool: Sequence[Question], seed: int) -> None:
        self._served, self._pool, self._seed = served, pool, seed
        self.found: Counter[str] = Counter()
        self.slowest = 0.0
        self.memory: list[int] = []
        """Samples, in equal intervals."""

    async def run(self, count: int, seconds: float) -> None:
        """Send so many queries, and more until the time is over."""
        until = time.monotonic() + seconds

        def ended() -> bool:
            return self.found["compared"] >= count and time.monotonic() >= until

        async def sample() -> None:
            while True:
                self.memory.append(await asyncio.to_thread(self._served.memory_bytes))
                await asyncio.sleep(_MEMORY_INTERVAL)

        async def client(number: int) -> None:
            random = Random(f"client {self._seed} {number}")
            connection, used = await self._connect(), time.monotonic()
            while not ended():
                question, chance = random.choice(self._pool), random.random()
                async with asyncio.timeout(_TIMEOUT):
                    if chance < _SLOW:
                        await self._read_slowly(question)
                    elif chance < _SLOW + _DISCONNECTING:
                        await self._disconnect(question, random)
                    else:
                        idle = time.monotonic() - used
                        if connection.closed or idle > _IDLE:  # the server may be closing it
                            connection.close()
                            connection = await self._connect()
                        await self._ask(connection, question)
                        used = time.monotonic()
            connection.close()

        sampler = asyncio.create_task(sample())
        async with asyncio.TaskGroup() as group:
            for number in range(_CLIENTS):
                group.create_task(client(number))
        sampler.cancel()

    @property
    def _address(self) -> tuple[str, int]:
        address = urlsplit(self._served.url)
        return address.hostname or "", address.port or 80

    async def _connect(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, *self._address)
        return connection

    async def _ask(self, connection: Connection, question: Question) -> None:
        began = time.monotonic()
        try:
            status, body = await connection.get(_request(question))
        except ConnectionError as error:
            message = f"{question.path}: {error}"
            raise AssertionError(message) from error
        self.slowest = max(self.slowest, time.monotonic() - began)
        media_type = connection.head.partition(b"\r\ncontent-type: ")[2].partition(b"\r\n")[0].decode()
        self._compare(question, status, media_type, body)

    async def _read_slowly(self, question: Question) -> None:
        loop, received = asyncio.get_running_loop(), b""
        with self._socket() as connected:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(connected, self._address)
            await loop.sock_sendall(connected, _request(question, "Connection: close\r\n"))
            while data := await loop.sock_recv(connected, _SLOW_BYTES):
                received += data
                await asyncio.sleep(_SLOW_WAIT)
        answer = HTTPResponse(cast("socket.socket", _Received(received)))
        answer.begin()
        self.found["read slowly"] += 1
        self._compare(question, answer.status, (answer.getheader("content-type") or "").lower(), answer.read())

    async def _disconnect(self, question: Question, random: Random) -> None:
        """Close within the request, after it, or within the answer."""
        loop, request = asyncio.get_running_loop(), _request(question)
        with self._socket() as connected, suppress(ConnectionError):
            await loop.sock_connect(connected, self._address)
            await loop.sock_sendall(connected, request[: random.choice([len(request) // 2, *[len(request)] * 3])])
            if random.random() < 0.5:
                await loop.sock_recv(connected, 100)
            else:
                await asyncio.sleep(random.random() / 20)
        self.found["disconnected"] += 1

    @contextmanager
    def _socket(self) -> Iterator[socket.socket]:
        with socket.socket() as connected:
            connected.settimeout(0)
            yield connected

    def _compare(self, question: Question, status: int, media_type: str, body: bytes) -> None:
        error = question.error(status, media_type, body)
        assert error is None, error
        self.found["compared"] += 1
        self.found[f"status {status}"] += 1
        self.found["bytes"] += len(body)


class _Received:
    """A socket from which everything was read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _: str) -> BytesIO:
        return BytesIO(self._data)


def _request(question: Question, more: str = "") -> bytes:
    return f"GET {question.path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode("ascii")


def run(count: int, seed: int, folder: Path, rows: int = ROWS) -> dict[str, object]:
    """Send so many queries to all forms of the server together; return figures of each."""
    source = folder / "source"
    source.mkdir()
    write_synthetic_crawl(source, rows, seed)
    crawl = Crawl(CRAWL, rows, source, folder)
    oracle = SiteOracle(read_captures(source, CRAWL))
    figures: dict[str, object] = {}
    with serving(source, latency=0.0) as server:
        options = ["--memory", str(_MEMORY)]
        servers = forms(crawl, server.url, folder / "data", options)
        share = -(-count // len(servers))
        for form in servers:
            with form.start(folder / f"home {form.name}") as served:
                questions = Questions(served.url, CRAWL, oracle, Random(f"load {seed}"))
                pool = [questions.choose() for _ in range(max(1, min(_POOL, share // 10)))]
                load = _Load(served, pool, seed)
                began = time.monotonic()
                try:
                    asyncio.run(load.run(share, share * _SECONDS))
                except* AssertionError as errors:
                    raise AssertionError(f"{form.name}: {errors.exceptions[0]}") from errors
                seconds = time.monotonic() - began
            warm = max(1, round(len(load.memory) * _WARM))
            before, after = max(load.memory[:warm]), max(load.memory[warm:], default=0)
            figures[form.name] = {
                **load.found,
                "different": len(pool),
                "per second": round(load.found["compared"] / seconds),
                "slowest": round(load.slowest, 2),
                "memory": before,
                "memory grown": after - before,
            }
            assert after - before <= _MOST_GROWTH, figures
    return figures
