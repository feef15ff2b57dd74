"""Clients that are slow, silent or greedy: others are served meanwhile, and nobody is given more than is due."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from catalogue.settings import Settings
from tests.serving import get, serving
from tests.soak.sizes import resident

IDLE = 1000


@pytest.fixture(scope="module")
def base(harvested_data: Path, settings: Settings) -> Iterator[str]:
    with serving(harvested_data, settings) as address:
        yield address


@contextmanager
def many_files() -> Iterator[None]:
    """Both ends of every connection are of this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(before[0], min(3 * IDLE, before[1]))
    if most < 3 * IDLE:
        pytest.skip("this machine does not allow so many connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def connected(base: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(base).port or 0), timeout=30)


def is_served(base: str, crawl: str) -> None:
    began = time.monotonic()
    assert get(base, f"/{crawl}-index?url=example.com/*&limit=5").status == 200
    assert time.monotonic() - began < 10


def test_a_thousand_that_say_nothing(base: str, crawl: str) -> None:
    """Or begin, and never end."""
    is_served(base, crawl)
    before = resident()
    with many_files(), ExitStack() as stack:
        for number in range(IDLE):
            connection = stack.enter_context(connected(base))
            connection.sendall(
                (b"", b"GET /", b"GET /status HTTP/1.1\r\nX-Header: ", b"POST / HTTP/1.1\r\n")[number % 4]
            )
        is_served(base, crawl)
        assert resident() - before < 100 << 20


def test_heads_that_do_not_end(base: str, crawl: str) -> None:
    """A thousandfold of what a head may have is not kept: the client is told so, or finds the connection closed."""
    before = resident()
    for line in (b"X-Long: " + b"x" * (1 << 20), b"X-Many: x\r\n" * 100_000):
        with connected(base) as connection:
            answer = b""
            try:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + line * 8)
                answer = connection.recv(1 << 16)
            except ConnectionError:
                pass
        assert answer == b"" or b" 400 " in answer.partition(b"\r\n")[0]
    is_served(base, crawl)
    assert resident() - before < 100 << 20


def test_requests_one_behind_the_other(base: str, crawl: str) -> None:
    """All are answered, in their order."""
    paths = ["/robots.txt", f"/{crawl}-index?url=example.com/*&limit=3", "/api/openapi.json"] * 3
    sent = b"".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths)
    alone = [get(base, path).body for path in paths]
    with connected(base) as connection, connection.makefile("rb") as answers:
        connection.sendall(sent)
        for expected in alone:
            assert b" 200 " in answers.readline()
            length = 0
            while line := answers.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            assert answers.read(length) == expected


def test_who_does_not_read_what_he_asked_for(base: str, crawl: str) -> None:
    """Large answers to fifty who take nothing of them."""
    with ExitStack() as stack:
        for _ in range(50):
            connection = stack.enter_context(connected(base))
            connection.sendall(f"GET /{crawl}-index?url=* HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        is_served(base, crawl)


def test_a_body_that_does_not_come(base: str, crawl: str) -> None:
    with connected(base) as connection:
        connection.sendall(b"POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nx")
        assert b" 405 " in connection.recv(1000)
        is_served(base, crawl)
