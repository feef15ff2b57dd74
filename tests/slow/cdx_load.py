"""A CDX server under the load of 100 clients, some of which read slowly or disconnect.

Queries of all kinds are drawn from a pool, whose answers were computed by a scan of all captures. Each complete answer
is compared. Each form of the server gets an equal share of the queries: with stored footers, or a list of blocks, and
with several workers. It has answered the pool and a part of the queries when its memory becomes the reference.
"""

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path
from random import Random
from urllib.parse import urlencode, urlsplit

from benchmarks.cdx_crawls import Crawl
from benchmarks.cdx_servers import forms
from benchmarks.processes import Served, serving
from tests.server.conftest import requests
from tests.server.test_memory import OPTIONS
from tests.support.cdx_exchanges import check_pages, requested_page, send
from tests.support.cdx_known import is_plain, oracle_of
from tests.support.cdx_oracle import Answer, Oracle, Page
from tests.support.synthetic_crawl import CRAWL, write_synthetic_crawl

ROWS = 20_000
_CLIENTS = 100
_POOL = 2_000
"""Most different queries; a pool has at most one for each ten queries."""
_SECONDS = 0.006
"""Shortest duration for each query: 10 minutes for 100,000; a fast server answers more queries."""
_SLOW, _DISCONNECTING = 0.005, 0.03
"""Shares of queries."""
_SLOW_BYTES, _SLOW_WAIT = 2_000, 0.005
_WARM = 0.25
"""Share of the time after which memory becomes the reference."""
_MEMORY = 2
"""MB that a process may keep: less than the answers to the pool need."""
_MOST_GROWTH = 50 << 20
_MEMORY_INTERVAL = 0.5
_TIMEOUT = 120.0

Question = tuple[str, Answer]
"""A path, and the expected answer."""


def _questions(base: str, oracle: Oracle, count: int) -> Iterator[Question]:
    """Yield questions for a server, whose pages are checked before."""
    pages_of: dict[str, list[Page]] = {}
    urls = sorted({each.fields["url"] for each in oracle.captures if is_plain(each)})
    known = [each for each in OPTIONS if "charset" not in each.get("fl", "")]  # which the oracle does not return
    for words, options in zip(requests(urls, count), cycle(known), strict=False):
        query = urlencode(words | options)
        path = f"/{CRAWL}-index?{query}"
        pages = check_pages(partial(send, base), oracle, CRAWL, query, pages_of)
        if "showNumPages" in options:
            reply = send(base, path)
            found = json.loads(reply.body)["pages"]
            assert (reply.status, found) == (200, len(pages) if pages[0].captures else 0), f"{path}: {reply}"
            yield path, Answer(reply.status, reply.type, reply.text)
        else:
            yield path, oracle.answer(query, requested_page(query, pages))


class _Load:
    """Clients of a server, which send so many queries, and more until the time is over."""

    def __init__(self, served: Served, pool: Sequence[Question], count: int) -> None:
        self._served, self._pool, self._count = served, pool, count
        self._until = time.monotonic() + count * _SECONDS
        self._stopped = False
        self.found: Counter[str] = Counter()
        self.slowest = 0.0
        self.memory: list[int] = []
        """Samples, in equal intervals."""

    def run(self, seed: int) -> None:
        with ThreadPoolExecutor(_CLIENTS) as executor:
            running = [executor.submit(self._client, Random(f"client {seed} {each}")) for each in range(_CLIENTS)]
            while wait(running, _MEMORY_INTERVAL, FIRST_EXCEPTION).not_done and not self._stopped:
                self.memory.append(self._served.memory_bytes())
                self._stopped = any(each.done() and each.exception() for each in running)
            for each in running:
                each.result()

    def _client(self, random: Random) -> None:
        with closing(self._connection()) as connection:
            while not self._stopped and (self.found["compared"] < self._count or time.monotonic() < self._until):
                question, chance = random.choice(self._pool), random.random()
                if chance < _SLOW:
                    connection.close()
                    connection.connect()
                    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    self._ask(connection, question, _SLOW_WAIT)
                    connection.close()  # the next request opens it
                    self.found["read slowly"] += 1
                elif chance < _SLOW + _DISCONNECTING:
                    self._disconnect(question, random)
                else:
                    began = time.monotonic()
                    self._ask(connection, question)
                    self.slowest = max(self.slowest, time.monotonic() - began)

    def _connection(self) -> HTTPConnection:
        connection = HTTPConnection(urlsplit(self._served.url).netloc, timeout=_TIMEOUT)
        connection.connect()
        return connection

    def _ask(self, connection: HTTPConnection, question: Question, pause: float = 0.0) -> None:
        path, expected = question
        connection.request("GET", path)
        answer = connection.getresponse()
        body = b""
        while piece := answer.read(_SLOW_BYTES if pause else None):
            body += piece
            time.sleep(pause)
        found = Answer(answer.status, (answer.getheader("content-type") or "").lower(), body.decode())
        assert found == expected, f"{path}: {found} instead of {expected}"
        self.found.update({"compared": 1, f"status {answer.status}": 1, "bytes": len(body)})

    def _disconnect(self, question: Question, random: Random) -> None:
        request = f"GET {question[0]} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("ascii")
        with closing(self._connection()) as connection, suppress(ConnectionError):
            connection.sock.sendall(request[: random.choice([len(request) // 2, *[len(request)] * 3])])
            if random.random() < 0.5:
                connection.sock.recv(100)
            else:
                time.sleep(random.random() / 20)
        self.found["disconnected"] += 1


def run(count: int, seed: int, folder: Path, rows: int = ROWS) -> dict[str, object]:
    """Send so many queries to all forms of the server together; return figures of each."""
    source = folder / "source"
    source.mkdir()
    write_synthetic_crawl(source, rows, seed)
    crawl, oracle = Crawl(CRAWL, rows, source, folder), oracle_of(source, CRAWL)
    figures: dict[str, object] = {}
    with serving(source, latency=0.0) as server:
        servers = forms(crawl, server.url, folder / "data", ["--memory", str(_MEMORY)])
        share = -(-count // len(servers))
        for form in servers:
            with form.start(folder / f"home {form.name}") as served:
                pool = [*_questions(served.url, oracle, max(1, min(_POOL, share // 10)))]
                load = _Load(served, pool, share)
                try:
                    load.run(seed)
                except AssertionError as error:
                    raise AssertionError(f"{form.name}: {error}") from error
            warm = max(1, round(len(load.memory) * _WARM))
            before, after = max(load.memory[:warm]), max(load.memory[warm:], default=0)
            figures[form.name] = {
                **load.found,
                "different": len(pool),
                "slowest": round(load.slowest, 2),
                "memory": before,
                "memory grown": after - before,
            }
            assert after - before <= _MOST_GROWTH, figures
    return figures
