"""The loopback server answers by the book, leaks nothing and remembers everything."""

import http.client
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from email.utils import parsedate_to_datetime
from os import utime
from pathlib import Path

import pytest

from catalogue.demo import Exchange, LoopbackServer

DATA = bytes(range(256)) * 4
SIZE = len(DATA)
CLIENT_TIMEOUT = 10
"""Seconds after which a hanging server fails a test instead of stopping all of them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_bytes(b"secret")
    root = outside / "root"
    (root / "a=b" / "c d").mkdir(parents=True)
    (root / "a=b" / "data.bin").write_bytes(DATA)
    (root / "a=b" / "c d" / "é.txt").write_bytes(b"accents")
    (root / "empty").touch()
    (root / "within").symlink_to(root / "a=b" / "data.bin")
    (root / "escape").symlink_to(outside / "secret")
    (root / "escape_folder").symlink_to(outside)
    return root


@pytest.fixture
def server(folder: Path) -> Iterator[LoopbackServer]:
    with LoopbackServer(folder) as running:
        yield running


@pytest.fixture
def client(server: LoopbackServer) -> Iterator[http.client.HTTPConnection]:
    with closing(connect(server)) as connection:
        yield connection


def connect(server: LoopbackServer) -> http.client.HTTPConnection:
    host, _, port = server.url.removeprefix("http://").rstrip("/").partition(":")
    return http.client.HTTPConnection(host, int(port), timeout=CLIENT_TIMEOUT)


def ask(
    client: http.client.HTTPConnection, path: str, *, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    client.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = client.getresponse()
    return response, response.read()


def tag(client: http.client.HTTPConnection, path: str = "/a=b/data.bin") -> str:
    response, _ = ask(client, path, method="HEAD")
    found = response.headers["ETag"]
    assert found.startswith('"')
    assert found.endswith('"')
    return found


def test_whole_file_with_what_identifies_it(client: http.client.HTTPConnection, folder: Path) -> None:
    response, body = ask(client, "/a=b/data.bin")
    assert (response.status, body) == (200, DATA)
    assert response.headers["Content-Length"] == str(SIZE)
    assert response.headers["Accept-Ranges"] == "bytes"
    assert "Content-Range" not in response.headers
    modified = parsedate_to_datetime(response.headers["Last-Modified"]).timestamp()
    assert modified == int((folder / "a=b/data.bin").stat().st_mtime)


def test_head_has_the_headers_of_get_and_no_body(client: http.client.HTTPConnection) -> None:
    got, _ = ask(client, "/a=b/data.bin")
    head, body = ask(client, "/a=b/data.bin", method="HEAD")
    assert (head.status, body) == (200, b"")
    kept = ("Content-Length", "Content-Type", "ETag", "Last-Modified", "Accept-Ranges")
    assert [head.headers[name] for name in kept] == [got.headers[name] for name in kept]
    ranged, _ = ask(client, "/a=b/data.bin", method="HEAD", Range="bytes=0-1")
    assert (ranged.status, ranged.headers["Content-Length"]) == (200, str(SIZE))  # RFC 9110, 14.2: for GET alone
    missing, body = ask(client, "/nothing", method="HEAD")
    assert (missing.status, body) == (404, b"")


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-99", 0, 100),
        ("bytes=100-199", 100, 200),
        ("BYTES=100-199", 100, 200),
        (f"bytes={SIZE - 1}-{SIZE - 1}", SIZE - 1, SIZE),
        (f"bytes=1000-{SIZE}", 1000, SIZE),
        ("bytes=1000-999999999999", 1000, SIZE),
        ("bytes=1000-", 1000, SIZE),
        ("bytes=0-", 0, SIZE),
        ("bytes=-1", SIZE - 1, SIZE),
        ("bytes=-200", SIZE - 200, SIZE),
        (f"bytes=-{SIZE}", 0, SIZE),
        ("bytes=-999999999999", 0, SIZE),
    ],
)
def test_single_range(client: http.client.HTTPConnection, asked: str, start: int, end: int) -> None:
    response, body = ask(client, "/a=b/data.bin", Range=asked)
    assert response.status == 206
    assert response.headers["Content-Range"] == f"bytes {start}-{end - 1}/{SIZE}"
    assert response.headers["Content-Length"] == str(end - start)
    assert body == DATA[start:end]


@pytest.mark.parametrize(
    ("path", "asked", "size"),
    [
        ("/a=b/data.bin", f"bytes={SIZE}-", SIZE),
        ("/a=b/data.bin", f"bytes={SIZE}-{SIZE + 9}", SIZE),
        ("/a=b/data.bin", "bytes=-0", SIZE),
        ("/empty", "bytes=0-", 0),
        ("/empty", "bytes=-5", 0),
    ],
)
def test_range_outside_the_file(client: http.client.HTTPConnection, path: str, asked: str, size: int) -> None:
    response, body = ask(client, path, Range=asked)
    assert response.status == 416
    assert response.headers["Content-Range"] == f"bytes */{size}"
    assert len(body) < 100


@pytest.mark.parametrize(
    "asked",
    ["bytes=0-1,5-6", "bytes=9-3", "bytes=", "bytes=-", "bytes=a-b", "bytes=1-2-3", "lines=0-5", "bytes=٣-٤", "0-5"],
)
def test_what_is_no_single_range_is_ignored(client: http.client.HTTPConnection, asked: str) -> None:
    client.request("GET", "/a=b/data.bin", headers={"Range": asked.encode()})
    response = client.getresponse()
    assert (response.status, response.read()) == (200, DATA)
    assert "Content-Range" not in response.headers


def test_precondition(client: http.client.HTTPConnection) -> None:
    right = tag(client)
    for accepted in (right, "*", f'"other", {right}'):
        response, body = ask(client, "/a=b/data.bin", If_Match=accepted, Range="bytes=0-4")
        assert (response.status, body) == (206, DATA[:5])
    for refused in ('"other"', right.strip('"'), f"W/{right}", ""):
        response, body = ask(client, "/a=b/data.bin", If_Match=refused, Range=f"bytes={SIZE}-")
        assert response.status == 412  # before 416: preconditions come first
        assert DATA[:5] not in body
    assert ask(client, "/nothing", If_Match="*")[0].status == 404


def test_range_of_another_version_gives_the_whole_file(client: http.client.HTTPConnection) -> None:
    assert ask(client, "/a=b/data.bin", Range="bytes=0-4", If_Range=tag(client))[0].status == 206
    assert ask(client, "/a=b/data.bin", Range="bytes=0-4", If_Range='"other"')[0].status == 200


def test_tag_changes_with_time_and_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    utime(path, ns=(0, 10**18))
    with LoopbackServer(tmp_path) as server, closing(connect(server)) as client:
        first = tag(client, "/file")
        assert tag(client, "/file") == first
        utime(path, ns=(0, 10**18 + 1000))  # the same second
        second = tag(client, "/file")
        path.write_bytes(b"123456")
        utime(path, ns=(0, 10**18))
        third = tag(client, "/file")
    assert len({first, second, third}) == 3


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/a%3Db/c%20d/%C3%A9.txt", b"accents"),
        ("//a=b/data.bin", DATA),
        ("/a=b/data.bin?versionId=1", DATA),
        ("/within", DATA),
        ("/empty", b""),
    ],
)
def test_names(client: http.client.HTTPConnection, path: str, content: bytes) -> None:
    response, body = ask(client, path)
    assert (response.status, body) == (200, content)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a=b",
        "/a=b/",
        "/nothing",
        "/a=b/data.bin/",
        "/a=b/data.bin/more",
        "/../secret",
        "/a=b/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/a=b/%2e%2e/%2e%2e/secret",
        "/escape",
        "/escape_folder/secret",
        "/%2Fetc/passwd",
        "//etc/passwd",
        "/a%00b",
        "/" + "long" * 1000,
        "/%FF",
        "/C:/Windows/win.ini",
    ],
)
def test_what_is_no_file_below_the_folder_is_not_there(
    server: LoopbackServer, client: http.client.HTTPConnection, path: str
) -> None:
    response, body = ask(client, path)
    assert response.status == 404
    assert body == b"404 Not Found\n"
    assert len(server.log) == 1


def test_raw_request_cannot_climb_out(server: LoopbackServer) -> None:
    """Clients tidy paths up before they send them; here nobody does."""
    with closing(
        socket.create_connection(("127.0.0.1", int(server.url[:-1].rpartition(":")[2])), CLIENT_TIMEOUT)
    ) as raw:
        raw.sendall(b"GET ../secret HTTP/1.0\r\n\r\n")
        answer = raw.makefile("rb").read()
    assert b" 404 " in answer
    assert not answer.endswith(b"secret")


def test_other_methods_are_refused_and_change_nothing(server: LoopbackServer, folder: Path) -> None:
    for method in ("PUT", "POST", "DELETE"):
        with closing(connect(server)) as client:
            client.request(method, "/empty", body=b"GET /a=b/data.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.getresponse().status == 501
    assert (folder / "empty").read_bytes() == b""
    assert server.log == []


def test_body_of_a_get_is_not_taken_for_a_request(server: LoopbackServer) -> None:
    with closing(connect(server)) as client:
        client.request("GET", "/empty", body=b"GET /a=b/data.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        response = client.getresponse()
        assert response.read() == b""
        assert response.headers["Connection"] == "close"
    with closing(connect(server)) as client:
        ask(client, "/empty")
    assert [exchange.path for exchange in server.log] == ["empty", "empty"]


def test_connection_is_kept_alive(server: LoopbackServer, client: http.client.HTTPConnection) -> None:
    client.connect()
    used = client.sock
    for path in ("/a=b/data.bin", "/nothing", "/empty"):
        response, _ = ask(client, path)
        assert response.version == 11
    assert client.sock is used
    assert len(server.log) == 3


def test_log_says_what_was_asked_and_sent(server: LoopbackServer, client: http.client.HTTPConnection) -> None:
    ask(client, "/a%3Db/data.bin?x=1", Range="bytes=-10")
    ask(client, "/a=b/data.bin", method="HEAD")
    ask(client, "/nothing", Range="bytes=0-5")
    ask(client, "/a=b/data.bin", Range=f"bytes={SIZE}-")
    assert server.log == [
        Exchange("GET", "a=b/data.bin", 206, "bytes=-10", 10),
        Exchange("HEAD", "a=b/data.bin", 200, None, 0),
        Exchange("GET", "nothing", 404, "bytes=0-5", len(b"404 Not Found\n")),
        Exchange("GET", "a=b/data.bin", 416, f"bytes={SIZE}-", len(b"416 Requested Range Not Satisfiable\n")),
    ]


def test_many_clients_at_once(server: LoopbackServer) -> None:
    def run(number: int) -> list[bytes]:
        with closing(connect(server)) as client:
            return [ask(client, "/a=b/data.bin", Range=f"bytes={number}-{number + at}")[1] for at in range(10)]

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(run, range(16)))
    assert results == [[DATA[number : number + at + 1] for at in range(10)] for number in range(16)]
    assert len(server.log) == 160
    assert sum(exchange.sent_bytes for exchange in server.log) == 16 * 55


def test_client_that_hangs_up_is_counted_with_what_it_took(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    size = 64 << 20
    with (tmp_path / "large").open("wb") as file:
        file.truncate(size)
    with LoopbackServer(tmp_path) as server:
        with closing(connect(server)) as client:
            client.request("GET", "/large")
            response = client.getresponse()
            assert response.read(10) == bytes(10)
            response.close()
        with closing(connect(server)) as client:  # the server goes on
            assert ask(client, "/large", Range="bytes=0-4")[1] == bytes(5)
    gone, well = sorted(server.log, key=lambda exchange: exchange.range or "")
    assert (gone.status, well.sent_bytes) == (200, 5)
    assert 10 <= gone.sent_bytes < size
    assert capfd.readouterr() == ("", "")


def test_stops_at_once_with_connections_open(folder: Path, recwarn: pytest.WarningsRecorder) -> None:
    before = threading.active_count()
    with LoopbackServer(folder) as server:
        idle = connect(server)
        ask(idle, "/empty")
        waiting = socket.create_connection(("127.0.0.1", int(server.url[:-1].rpartition(":")[2])), CLIENT_TIMEOUT)
        waiting.sendall(b"GET /unfinished")
        ask(idle, "/empty")  # so the other connection, which is older, was accepted as well
        url = server.url
    with closing(idle), closing(waiting):
        assert idle.sock.recv(1) == b""
        with suppress(ConnectionResetError):  # as where the unfinished line was not read when the server closed
            waiting.recv(1000)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", int(url[:-1].rpartition(":")[2])), CLIENT_TIMEOUT)
    for thread in threading.enumerate():
        if "process_request" in thread.name:
            thread.join(CLIENT_TIMEOUT)
    assert threading.active_count() <= before
    assert not recwarn.list


def test_url_only_while_it_runs_and_may_run_again(folder: Path) -> None:
    server = LoopbackServer(folder)
    with pytest.raises(RuntimeError, match="with statement"):
        _ = server.url
    for _ in range(2):
        with server, closing(connect(server)) as client:
            assert server.url.startswith("http://127.0.0.1:")
            assert ask(client, "/empty")[0].status == 200
    with pytest.raises(RuntimeError):
        _ = server.url
    assert len(server.log) == 2


def test_port_can_be_chosen(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with LoopbackServer(folder, port=port) as server:
        assert server.url == f"http://127.0.0.1:{port}/"


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), LoopbackServer(tmp_path / "nothing"):
        pass


def test_quiet(server: LoopbackServer, client: http.client.HTTPConnection, capfd: pytest.CaptureFixture[str]) -> None:
    ask(client, "/empty")
    ask(client, "/nothing")
    with closing(
        socket.create_connection(("127.0.0.1", int(server.url[:-1].rpartition(":")[2])), CLIENT_TIMEOUT)
    ) as raw:
        raw.sendall(b"nonsense\r\n\r\n")
        raw.makefile("rb").read()
    assert capfd.readouterr() == ("", "")
