"""The loopback server, as long as nothing is wrong with it: HTTP, its log, its scripts, and how it ends."""

import email.utils
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.faults import DETECTABLE, Fault, FaultServer, Kind, Request, Script, always, first, only, seeded

ROOT = Path(__file__).parents[2]
PATH = "crawl=CC-MAIN-2022-05/part 0.parquet"
DATA = random.Random(1).randbytes(300_000)


@pytest.fixture(params=["folder", "mapping"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultServer]:
    """The same two files, from a folder and from memory."""
    files = {PATH: DATA, "empty": b""}
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    with FaultServer(tmp_path if request.param == "folder" else files) as server:
        yield server


def connect(server: FaultServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=5)


Answer = tuple[int, http.client.HTTPMessage, bytes]


def ask(server: FaultServer, path: str, method: str = "GET", **headers: str) -> Answer:
    """One request on a connection of its own; ``_`` in the names of headers stands for ``-``."""
    with closing(connect(server)) as client:
        client.request(method, path, headers={name.replace("_", "-"): headers[name] for name in headers})
        reply = client.getresponse()
        return reply.status, reply.headers, reply.read()


@pytest.mark.parametrize(
    ("span", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=100-100099", 100, 100_100),
        ("bytes=299999-", 299_999, 300_000),
        ("bytes=1000-999999", 1000, 300_000),
        ("bytes=-4096", 295_904, 300_000),
        ("bytes=-999999", 0, 300_000),
    ],
)
def test_a_range_is_answered_exactly(server: FaultServer, span: str, start: int, end: int) -> None:
    status, headers, body = ask(server, "/crawl%3DCC-MAIN-2022-05/part%200.parquet?x=y", Range=span)
    assert (status, body) == (206, DATA[start:end])
    assert headers["Content-Range"] == f"bytes {start}-{end - 1}/300000"
    assert headers["Content-Length"] == str(end - start)
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["ETag"].startswith('"')
    assert email.utils.parsedate_to_datetime(headers["Last-Modified"])


@pytest.mark.parametrize("span", ["bytes=300000-", "bytes=300000-300001", "bytes=-0"])
def test_a_range_without_a_byte_is_unsatisfiable(server: FaultServer, span: str) -> None:
    status, headers, _ = ask(server, "/crawl=CC-MAIN-2022-05/part%200.parquet", Range=span)
    assert (status, headers["Content-Range"]) == (416, "bytes */300000")
    status, headers, _ = ask(server, "/empty", Range="bytes=-8")
    assert (status, headers["Content-Range"]) == (416, "bytes */0")


@pytest.mark.parametrize("span", ["bytes=5-4", "bytes=0-1,5-6", "bytes=-", "lines=1-2", "bytes=a-b"])
def test_other_ranges_are_passed_over(server: FaultServer, span: str) -> None:
    status, headers, body = ask(server, "/crawl=CC-MAIN-2022-05/part%200.parquet", Range=span)
    assert (status, headers["Content-Range"], body == DATA) == (200, None, True)


def test_whole_files_heads_and_what_is_not_there(server: FaultServer) -> None:
    assert ask(server, "/empty")[::2] == (200, b"")
    status, headers, body = ask(server, "/crawl=CC-MAIN-2022-05/part%200.parquet", "HEAD", Range="bytes=0-0")
    assert (status, headers["Content-Length"], body) == (200, "300000", b"")
    for path in ("/none", "/", "/crawl=CC-MAIN-2022-05", "/crawl=CC-MAIN-2022-05/", "/a%00b", "/" + "x" * 5000):
        assert ask(server, path)[0] == 404
    status, headers, _ = ask(server, "/empty", "POST")
    assert (status, headers["Allow"], headers["Connection"]) == (405, "GET, HEAD", None)
    assert ask(server, "/empty", "POST", Content_Length="3")[1]["Connection"] == "close"  # for that is never read


@pytest.mark.parametrize("path", ["/../secret", "/%2e%2e/secret", "/in/../../secret", "//etc/passwd", "/link", "/fifo"])
def test_nothing_outside_the_folder_is_served(tmp_path: Path, path: str) -> None:
    inside = tmp_path / "folder"
    (inside / "in").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (inside / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(inside / "fifo")
    with FaultServer(inside) as server:
        assert ask(server, path)[0] == 404


def test_if_match_and_a_file_that_changes() -> None:
    files = {"file": b"old"}
    with FaultServer(files) as server:
        _, old, _ = ask(server, "/file")
        for tags in (old["ETag"], f'"x", {old["ETag"]}', "*"):
            assert ask(server, "/file", If_Match=tags)[::2] == (200, b"old")
        assert ask(server, "/file", If_Match=f"W/{old['ETag']}")[0] == 412
        files["file"] = b"new"
        assert ask(server, "/file", If_Match=old["ETag"], Range="bytes=0-0")[0] == 412
        _, new, body = ask(server, "/file")
        assert (body, new["ETag"] == old["ETag"], new["Last-Modified"] == old["Last-Modified"]) == (
            b"new",
            False,
            False,
        )
        del files["file"]
        assert ask(server, "/file", If_Match=old["ETag"])[0] == 404


def test_a_folder_is_read_at_each_request(tmp_path: Path) -> None:
    with FaultServer(tmp_path) as server:
        assert ask(server, "/file")[0] == 404
        (tmp_path / "file").write_bytes(b"one")
        _, one, body = ask(server, "/file")
        assert body == b"one"
        (tmp_path / "file").write_bytes(b"other")
        assert ask(server, "/file", If_Match=one["ETag"])[0] == 412


def test_connections_are_kept_and_requests_may_be_pipelined() -> None:
    with FaultServer({"a": b"1", "b": b"22"}) as server:
        with closing(connect(server)) as client:
            for path in ("/a", "/none", "/b"):
                client.request("GET", path)
                client.getresponse().read()
        with socket.create_connection((urlsplit(server.url).hostname, urlsplit(server.url).port), timeout=5) as raw:
            raw.sendall(b"GET /a HTTP/1.1\r\n\r\n" * 3 + b"GET /b HTTP/1.0\r\n\r\n")
            with raw.makefile("rb") as lines:
                assert lines.read().count(b"HTTP/1.1 200 OK\r\n") == 4
        assert [(one.connection, one.path, one.status) for one in server.log] == [
            *[(0, "a", 200), (0, "none", 404), (0, "b", 200)],
            *[(1, "a", 200), (1, "a", 200), (1, "a", 200), (1, "b", 200)],
        ]


@pytest.mark.parametrize(
    "text", [b"\r\n\r\n", b"GET /\r\n\r\n", b"GET / FTP/1\r\n\r\n", b"GET / HTTP/1.1\r\nx\r\n\r\n", b"x" * 70_000]
)
def test_what_is_not_http_is_refused(text: bytes) -> None:
    with FaultServer({}) as server:
        with socket.create_connection((urlsplit(server.url).hostname, urlsplit(server.url).port), timeout=5) as raw:
            raw.sendall(text)
            assert raw.recv(100).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert server.log == []


def test_the_log_keeps_the_newest_and_counts_all() -> None:
    with FaultServer({"a": b"123"}, keep=2) as server:
        for path in ("/a", "/a?b", "/none", "/a"):
            ask(server, path, X_Test="tester")
        assert [(one.path, one.status, one.body_bytes_sent, one.fault) for one in server.log][1:] == [
            ("a", 200, 3, None)
        ]
        assert (len(server.log), server.requests, server.log[1].headers["x-test"]) == (2, 4, "tester")
        server.reset()
        assert (server.log, server.requests, server.body_bytes_sent) == ([], 0, 0)


def test_latency_is_each_requests_own() -> None:
    with FaultServer({"a": b"1"}, latency=0.2) as server, ThreadPoolExecutor(20) as pool:
        started = time.monotonic()
        assert {answer[0] for answer in pool.map(lambda _: ask(server, "/a"), range(40))} == {200}
        took, each = time.monotonic() - started, [one.finished - one.started for one in server.settle()]
        assert min(each) > 0.19
        assert took < sum(each) / 4


def test_rate_is_each_connections_own() -> None:
    with FaultServer({"a": DATA[:40_000]}, rate=200_000) as server, ThreadPoolExecutor(4) as pool:
        started = time.monotonic()
        assert [answer[2] for answer in pool.map(lambda _: ask(server, "/a"), range(4))] == [DATA[:40_000]] * 4
        took, each = time.monotonic() - started, [one.finished - one.started for one in server.settle()]
        assert min(each) > 0.19
        assert took < sum(each) / 2


def test_an_endless_body_ends_when_the_client_leaves() -> None:
    with FaultServer({"a": b"1"}, script=always(Fault(Kind.ENDLESS, excess=1 << 50))) as server:
        with closing(connect(server)) as client:
            client.request("GET", "/a")
            assert len(client.getresponse().read(100_000)) == 100_000
        (exchange,) = server.settle()
        assert 100_000 < exchange.body_bytes_sent < 64 << 20


def test_settle_waits_for_what_is_under_way() -> None:
    come = threading.Event()

    def script(_: Request) -> Fault | None:
        come.set()
        return Fault(Kind.SILENT)

    with FaultServer({"a": b"1"}, script=script) as server, closing(connect(server)) as client:
        client.request("GET", "/a")
        assert come.wait(5)
        with pytest.raises(TimeoutError):
            server.settle(0.01)
        client.close()
        assert [one.status for one in server.settle()] == [0]


def broken_script(request: Request) -> Fault | None:
    message = f"cannot tell what to do to {request.path}"
    raise ConnectionError(message)


def test_what_a_script_raises_is_raised_at_the_end() -> None:
    def ask_in_vain(server: FaultServer) -> None:
        with server, pytest.raises(http.client.RemoteDisconnected):
            ask(server, "/a")

    with pytest.raises(ConnectionError, match="cannot tell what to do to a"):
        ask_in_vain(FaultServer({}, script=broken_script))


def test_what_the_test_raises_comes_first() -> None:
    with pytest.raises(http.client.RemoteDisconnected), FaultServer({}, script=broken_script) as server:
        ask(server, "/a")


def requests(path: str, span: str, count: int) -> Iterator[Request]:
    return (Request("GET", path, {"range": span}, number, number) for number in range(count))


def met(script: Script, path: str = "a", span: str = "bytes=-8", count: int = 60) -> list[Fault | None]:
    return [script(request) for request in requests(path, span, count)]


def test_seeded_depends_on_nothing_else() -> None:
    script = seeded(7, kinds=DETECTABLE)
    keys = [(path, span) for path in "abc" for span in ("bytes=-8", "bytes=0-7")]
    apart = {key: met(seeded(7, kinds=DETECTABLE), *key) for key in keys}
    turns = [key for key in keys for _ in range(60)]
    random.Random(3).shuffle(turns)
    mixed: dict[tuple[str, str], list[Fault | None]] = {key: [] for key in keys}
    for key in turns:
        mixed[key] += met(script, *key, 1)
    assert mixed == apart
    assert len({repr(faults) for faults in apart.values()}) == len(keys)
    assert met(seeded(8, kinds=DETECTABLE)) != met(seeded(7, kinds=DETECTABLE))


def test_seeded_is_the_same_in_every_process() -> None:
    text = """from tests.support.fault_kinds import *
script = seeded(7, kinds=DETECTABLE)
print([script(Request("GET", "a", {"range": "bytes=-8"}, number, number)) for number in range(60)])"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", text], cwd=ROOT, env={"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{met(seeded(7, kinds=DETECTABLE))}\n".encode()}


def test_seeded_keeps_its_share_and_its_limit() -> None:
    assert 0.25 < sum(fault is not None for fault in met(seeded(1), count=4000)) / 4000 < 0.31
    assert {fault.kind for fault in met(seeded(1), count=4000) if fault} == set(Kind)
    assert [fault is not None for fault in met(seeded(1, share=1, max_in_a_row=2), count=6)] == [True, True, False] * 2
    assert not any(met(seeded(1, share=0)))
    (fault,) = {(one.kind, one.hold) for one in met(seeded(1, kinds=[Fault(Kind.SILENT, hold=0.5)])) if one}
    assert fault == (Kind.SILENT, 0.5)


def test_other_scripts() -> None:
    fault = Fault(Kind.DENIED)
    assert met(always(Kind.DENIED), count=3) == [fault] * 3
    assert met(first(2, fault), count=3) == [fault, fault, None]
    assert met(only("a", fault), "a", count=2) + met(only("a", fault), "b", count=1) == [fault, fault, None]
    with FaultServer({"a": b"1", "b": b"1"}, script=first(1, Kind.DENIED)) as server:
        assert [ask(server, path)[0] for path in ("/a", "/a", "/b", "/b")] == [403, 200, 403, 200]


STOP = """
import gc, socket, threading, time
from tests.support.faults import *
come = threading.Event()
def script(request):
    if request.number == 149:
        come.set()
    return Fault(list(Kind)[request.number % len(Kind)], hold=60, excess=1 << 40)
with FaultServer({"a": bytes(1 << 20), "b": bytes(1 << 21)}, script=script, latency=0.01) as server:
    where = server.url[7:-1].split(":")
    clients = [socket.create_connection(where) for _ in range(200)]
    for client in clients[50:]:
        client.sendall(b"GET /a HTTP/1.1\\r\\nRange: bytes=0-999999\\r\\n\\r\\n")
    come.wait()
    late = [socket.create_connection(where) for _ in range(50)]
    started = time.monotonic()
print(time.monotonic() - started)
for client in clients + late:
    client.close()
gc.collect()
"""


def test_stopping_is_quick_and_leaves_nothing_behind() -> None:
    command = [sys.executable, "-W", "error", "-c", STOP]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert float(done.stdout) < 1


def test_it_serves_a_folder_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.support.faults",
        str(tmp_path),
        "--latency",
        "0.01",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        client = http.client.HTTPConnection(urlsplit(process.stdout.readline().strip()).netloc, timeout=5)
        exchange = {"method": "GET", "path": "file", "range": "bytes=-3", "status": 206, "bytes": 3}
        log = {"requests": 1, "body_bytes_sent": 3, "exchanges": [exchange]}
        none = {"requests": 0, "body_bytes_sent": 0, "exchanges": []}
        for path, expected in (("/file", 789), ("/-/log", log), ("/-/reset", none), ("/-/log", none)):
            client.request("GET", path, headers={"Range": "bytes=-3"})
            assert json.loads(client.getresponse().read()) == expected
        client.close()
        process.terminate()
        assert (process.wait(5), process.stderr.read()) == (0, "")
