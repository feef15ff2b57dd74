"""Slow, silent and greedy clients: others are still served, and memory is bounded."""

import json
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import pytest

from catalogue.server.service import Service
from catalogue.settings import Settings
from tests.server.test_processes import assert_imported_little, started
from tests.support.commands import Command
from tests.support.memory import resident
from tests.support.serving import get, running
from tests.support.web_pages import serving_site

IDLE = 1000


base = pytest.fixture(scope="module")(serving_site)


@contextmanager
def many_files() -> Iterator[None]:
    """Raise the limit of open files: this process has both ends of each connection."""
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


def check_is_served(base: str, crawl: str) -> None:
    began = time.monotonic()
    assert get(base, f"/{crawl}-index?url=example.com/*&limit=5").status == 200
    assert time.monotonic() - began < 10


def test_serves_others_while_1000_connections_are_silent(base: str, crawl: str) -> None:
    check_is_served(base, crawl)
    before = resident()
    with many_files(), ExitStack() as stack:
        for number in range(IDLE):
            connection = stack.enter_context(connected(base))
            connection.sendall(
                (b"", b"GET /", b"GET /status HTTP/1.1\r\nX-Header: ", b"POST / HTTP/1.1\r\n")[number % 4]
            )
        check_is_served(base, crawl)
        assert resident() - before < 100 << 20


def test_refuses_endless_heads(base: str, crawl: str) -> None:
    """They are not stored, and the client can read the answer after sending all of it."""
    before = resident()
    for line in (b"X-Long: " + b"x" * (1 << 20), b"X-Many: x\r\n" * 100_000):
        with connected(base) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + line * 8)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 431 ")
    check_is_served(base, crawl)
    assert resident() - before < 100 << 20
    for size, status in ((60_000, b" 200 "), (70_000, b" 431 ")):
        with connected(base) as connection:
            connection.sendall(b"GET /robots.txt HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * size + b"\r\n\r\n")
            assert status in connection.recv(1 << 16).partition(b"\r\n")[0]


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST"])
def test_refuses_two_lengths_and_closes(base: str, method: bytes) -> None:
    lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
    with connected(base) as connection, connection.makefile("rb") as answers:
        connection.sendall(method + b" /robots.txt HTTP/1.1\r\nHost: x\r\n" + lengths + b"\r\n0\r\n\r\n")
        connection.sendall(b"GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\n")
        head, _, body = answers.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert json.loads(body) == {"message": "Content-Length and Transfer-Encoding exclude each other"}


def test_answers_without_waiting_for_a_valid_body(base: str, crawl: str, capfd: pytest.CaptureFixture[str]) -> None:
    with connected(base) as connection, connection.makefile("rb") as answers:
        connection.sendall(b"POST /robots.txt HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnot hex\r\n")
        received = answers.read()
    assert received.startswith(b"HTTP/1.1 405 ")
    assert received.count(b"HTTP/1.1 ") == 1
    assert capfd.readouterr().err == ""
    with connected(base) as connection:
        connection.sendall(b"POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nx")
        assert b" 405 " in connection.recv(1000)
        check_is_served(base, crawl)


def test_closes_connections_without_complete_head(harvested_data: Path, settings: Settings) -> None:
    """But not those whose request is being answered."""
    request = b"GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\n"
    go_on = Event()
    with closing(Service(harvested_data, settings, at_once=1)) as service, ExitStack() as stack:
        stack.callback(go_on.set)
        base = stack.enter_context(running(service, head_seconds=1))
        service.submit(lambda _: go_on.wait(60))
        answered = stack.enter_context(connected(base))
        answered.sendall(b"GET /collinfo.json HTTP/1.1\r\nHost: x\r\n\r\n")
        silent = [stack.enter_context(connected(base)) for _ in range(4)]
        for connection, sent in zip(silent, (b"", request[:-2], request, request + request[:-2]), strict=True):
            connection.sendall(sent)
        for connection, answers in zip(silent, (0, 0, 1, 1), strict=True):
            with connection.makefile("rb") as received:
                assert received.read().count(b" 200 OK") == answers
        go_on.set()
        assert b" 200 OK" in answered.recv(1 << 16)


@pytest.mark.in_soak
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limits of another process are set on Linux alone")
def test_raises_limit_of_open_files_and_replaces_connections_at_it(asking: Command, crawl: str) -> None:
    """1,500 silent connections to a server that may open 1,024 files. After a failed accept it tries again."""
    request = b"GET /robots.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    def start(*words: str) -> subprocess.Popen[bytes]:
        limited = ["sh", "-c", 'ulimit -S -n 256 && ulimit -H -n 1024 && exec "$@"', "sh", sys.executable, "-m"]
        return subprocess.Popen([*limited, "catalogue", *words], env=asking.environment(), stderr=subprocess.PIPE)

    with started(start, workers=1) as (process, base):
        assert process.stderr
        with many_files(), ExitStack() as stack:
            connections = [stack.enter_context(connected(base)) for _ in range(500)]
            for connection in (connections[0], connections[-1]):
                connection.sendall(request)
                assert b" 200 OK" in connection.recv(1 << 16)
            assert_imported_little(process.pid)
            for _ in range(1000):
                stack.enter_context(connected(base))
            check_is_served(base, crawl)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, 1024))
        with connected(base) as connection, connection.makefile("rb") as answer:
            connection.sendall(request)
            assert b"out of system resource" in process.stderr.readline()
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
            assert answer.read().startswith(b"HTTP/1.1 200 OK")


def test_answers_pipelined_requests_in_order(base: str, crawl: str) -> None:
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


def test_accepts_urls_that_are_not_percent_encoded(base: str, crawl: str) -> None:
    with connected(base) as connection:
        head = f"GET /{crawl}-index?url=example.com/ä HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        assert b"No Captures found for: example.com/\\u00e4" in connection.makefile("rb").read()


def test_serves_others_while_50_clients_do_not_read(base: str, crawl: str) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            connection = stack.enter_context(connected(base))
            connection.sendall(f"GET /{crawl}-index?url=* HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        check_is_served(base, crawl)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_stops_without_an_error_while_clients_do_not_read(
    asking: Command, crawl: str, number: int, status: int
) -> None:
    with started(asking.start, workers=1) as (process, base), connected(base) as connection:
        connection.sendall(f"GET /{crawl}-index?url=* HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 20)
        assert connection.recv(1)
        process.send_signal(number)
        assert process.wait(30) == status
        assert process.stderr
        assert process.stderr.read() == b"stopped\n"
