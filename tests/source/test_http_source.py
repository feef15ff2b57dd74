"""Requests over HTTP: connections, proxies, timeouts, closing, and heads of responses."""

import gc
import itertools
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from catalogue.errors import ProxyRefused, QueryError, SourceError, SourceUnavailable, Unreachable
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.http import HttpSource, Timeouts
from tests.support.faults import Fault, FaultServer, Kind, always
from tests.support.sources import AGENT, BOUNDED, DATA, FILES, PATH, SUFFIX, open_http

BODY = b"0123456789"
RANGE = ByteRange(0, 10)
FIELDS = ("Content-Range: bytes 0-9/100", "Content-Length: 10", 'ETag: "e"')


@pytest.mark.parametrize("path", ["a b/ü=+,~.parquet", "a%2Fb", "a?b#c", "a&b;c:d@e", "x" * 1000])
def test_sends_paths_unchanged(path: str) -> None:
    with FaultServer({path: DATA}) as server, closing(open_http(server.url)) as source:
        assert source.get(path, BOUNDED).body == DATA[1000:6000]
        assert [exchange.path for exchange in server.log] == [path]


def test_sends_names_of_any_script_as_utf_8() -> None:
    with FaultServer(FILES) as server, closing(HttpSource(server.url, user_agent="a (李)", connections=1)) as source:
        source.get(PATH, BOUNDED)
        assert server.log[0].headers["user-agent"].encode("latin-1").decode() == "a (李)"


@pytest.mark.parametrize("kind", [Kind.DISCONNECT, Kind.CUT_RST])
def test_broken_connection_counts_as_one_request(kind: Kind) -> None:
    """aiohttp would repeat the request, also on connections that were used before."""
    with (
        FaultServer(FILES, script=lambda request: Fault(kind) if request.number else None) as server,
        closing(open_http(server.url, connections=1)) as source,
    ):
        source.get(PATH, SUFFIX)
        for requests in (2, 3):
            with pytest.raises(Unreachable):
                source.get(PATH, SUFFIX)
            assert len(server.settle()) == requests


@pytest.mark.parametrize(
    ("proxy", "error", "message"),
    [
        ("socks5://me:canary@127.0.0.1:1", QueryError, "socks5 proxy"),
        ("http://me:canary@127.0.0.1:1", ProxyRefused, "http://127.0.0.1:1 that http_proxy"),
        ("http://me:canary@", QueryError, "http_proxy has no valid host"),
        ("http://me:canary@[::1", QueryError, "http_proxy has no valid host"),
        ("me:canary@a:99999", QueryError, "http_proxy has no valid host and port"),
        ("http://me:canary@my proxy:80", QueryError, "http_proxy has no valid host and port"),
        ("http://me:canary@a..b:80", QueryError, "http://a..b/ has no valid host"),
    ],
)
def test_errors_of_proxies_hide_their_password(
    proxy: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "direct.example")
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(error, match=message) as raised:
        open_http("http://data.example/").get("x", SUFFIX)
    assert "canary" not in f"{raised.value} {raised.value!r} {raised.value.__cause__}"


class _NoTunnel(BaseHTTPRequestHandler):
    """A proxy that answers with the status that the requested host is named by."""

    def do_CONNECT(self) -> None:
        self.send_error(int(self.path.partition(".")[0]))

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "error", "advice"),
    [
        (407, SourceUnavailable, "; put a user and password"),
        (403, SourceUnavailable, "$"),
        (502, Unreachable, "$"),
    ],
)
def test_names_the_proxy_that_makes_no_tunnel(
    status: int, error: type[Exception], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _NoTunnel) as proxy:
        Thread(target=proxy.serve_forever).start()
        address, url = f"127.0.0.1:{proxy.server_port}", f"https://{status}.example/"
        monkeypatch.setenv("no_proxy", "direct.example")
        monkeypatch.setenv("https_proxy", f"http://me:canary@{address}")
        message = f"^the proxy http://{address} that https_proxy names answers {status} instead of connecting to {url}"
        with pytest.raises(error, match=message + advice):
            open_http(url).get("x", SUFFIX)
        proxy.shutdown()


def test_close_ends_running_requests_at_any_moment() -> None:
    def read_until_closed(source: HttpSource, answered: threading.Semaphore) -> int:
        for count in itertools.count():
            try:
                assert source.get(PATH, SUFFIX).body == DATA[-5000:]
            except SourceUnavailable:
                return count
            answered.release()
        return -1

    with FaultServer(FILES) as server, ThreadPoolExecutor(4) as executor:
        for number in range(12):
            source, answered = open_http(server.url), threading.Semaphore(0)
            running: list[Future[int]] = [executor.submit(read_until_closed, source, answered) for _ in range(4)]
            for _ in range(number):
                assert answered.acquire(timeout=10)
            source.close()
            assert sum(future.result(timeout=10) for future in running) >= number
    gc.collect(1)


def test_default_timeouts() -> None:
    assert Timeouts() == Timeouts(connect=10.0, silence=20.0, total=60.0)


def test_timeout_grows_with_the_body() -> None:
    """A body above the minimum speed does not time out, even if it takes long."""
    timeouts = Timeouts(connect=5.0, silence=5.0, total=0.2)
    with (
        FaultServer(FILES, rate=800_000.0) as server,
        closing(open_http(server.url, timeouts=timeouts)) as source,
    ):
        assert source.get(PATH, ByteRange(0, 300_000)).body == DATA  # in 0.4 of 3.2 s
    with (
        FaultServer(FILES, script=always(Fault(Kind.DRIP_BODY, hold=30, interval=0.05))) as server,
        closing(open_http(server.url, timeouts=timeouts)) as source,
        pytest.raises(Unreachable, match="TimeoutError"),
    ):
        source.get(PATH, SUFFIX)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("ending", ["", "; del source; gc.collect()"])
def test_unclosed_source_prints_no_warning(ending: str) -> None:
    """As in the example of the README: a script ends, or a function returns."""
    with FaultServer(FILES) as server:
        script = (
            "import gc; from catalogue.source.http import HttpSource; "
            f"source = HttpSource({server.url!r}, user_agent={AGENT!r}, connections=1); "
            f"print(len(source.get({PATH!r}).body)){ending}"
        )
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (f"{len(DATA)}\n", "")


@contextmanager
def answering(*responses: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Serve one response for each connection, then close it; yield the address and the heads of the requests."""
    heads: list[bytes] = []

    def serve() -> None:
        for response in responses:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as lines:
                heads.append(b"".join(iter(lines.readline, b"\r\n")))
                connection.sendall(response)

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", heads
        thread.join()


def response(*fields: str, status: str = "HTTP/1.1 206 Partial Content", end: str = "\r\n") -> bytes:
    return end.join([status, *fields, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    "head",
    [
        response(*FIELDS),
        response(*FIELDS, end="\n"),
        response(*FIELDS, status="HTTP/1.0 206"),
        response(*FIELDS, status="HTTP/1.1 206 Parti\xe9l"),
        response("CONTENT-RANGE:bytes 0-9/100 ", "Content-Length:\t10", 'etag:  "e"'),
        response("Content-Range: bytes\r\n  0-9/100", *FIELDS[1:]),
        response("no colon", "Content-Range : bytes 5-6/7", "X: \xe9", *FIELDS),
        response(*FIELDS, *(f"X-{number}: {number}" for number in range(97))),
        response("X: 1", status="HTTP/1.1 103 Early Hints") + response(*FIELDS),
        response(*FIELDS, *FIELDS),
    ],
)
def test_reads_heads_of_unusual_servers(head: bytes) -> None:
    with answering(head + BODY) as (url, heads), closing(open_http(url)) as source:
        found = source.get("a b", RANGE)
        assert (found.body, found.total_size, found.etag) == (BODY, 100, '"e"')
    (sent,) = heads
    assert sent.startswith(b"GET /a%20b HTTP/1.1\r\nHost: " + url.removeprefix("http://")[:-1].encode() + b"\r\n")
    assert b"\r\nRange: bytes=0-9\r\n" in sent


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "RemoteDisconnected"),
        (b"HTTP/1.1 206 Partial", "RemoteDisconnected"),
        (response(*FIELDS)[:-2], "RemoteDisconnected"),
        (response(*FIELDS) + BODY[:9], "ConnectionError"),
        (response(*FIELDS, status="HTTP/2 206") + BODY, "BadStatusLine"),
        (response(*FIELDS, status="HTTP/1.1 20") + BODY, "BadStatusLine"),
        (b"<html>" + response(*FIELDS) + BODY, "BadStatusLine"),
        (response(*FIELDS, "X: " + "x" * 70_000) + BODY, "LineTooLong"),
        (response(*FIELDS, *["X: 1"] * 98) + BODY, "HTTPException"),
        (response(*FIELDS, "Content-Range: bytes 1-10/100") + BODY, "Content-Range is"),
        (response(*FIELDS, "Content-Length: 11") + BODY, "Content-Length is"),
    ],
)
def test_rejects_invalid_and_contradictory_heads(answer: bytes, reason: str) -> None:
    with (
        answering(answer) as (url, _),
        closing(open_http(url)) as source,
        pytest.raises(SourceError, match=reason if " " in reason else rf"no usable response \({reason}\)"),
    ):
        source.get("x", RANGE)


@pytest.mark.parametrize("etag", ['"e"\r\nHost: elsewhere', '"e"\nX: y', '"e"\rX: y', '"\u20ac"'])
def test_sends_no_invalid_headers(etag: str) -> None:
    with answering(response(*FIELDS) + BODY) as (url, heads), closing(open_http(url)) as source:
        with pytest.raises(Unreachable, match="no usable response"):
            source.get("x", RANGE, pin=FileVersion(100, etag))
        assert source.get("x", RANGE, pin=FileVersion(100, '"e"')).body == BODY
    (head,) = heads
    assert head.splitlines()[0] == b"GET /x HTTP/1.1"
    assert f"Host: {url.split('/')[2]}".encode() in head.splitlines()
    assert b'If-Match: "e"' in head.splitlines()


def test_rejects_control_characters_in_request_headers() -> None:
    with (
        answering() as (url, heads),
        closing(HttpSource(url, user_agent="a\r\nX: b", connections=1)) as source,
        pytest.raises(Unreachable, match="no usable response"),
    ):
        source.get("x", RANGE)
    assert not heads
