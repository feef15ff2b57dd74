"""The access log, and the figures of several processes."""

import json
import os
import select
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import pytest

from catalogue.errors import QueryError
from catalogue.server.monitoring import AccessLog
from catalogue.server.service import Service
from catalogue.settings import Settings
from tests.server.test_processes import WORKER, assert_imported_little, started
from tests.support.commands import Command
from tests.support.metrics import answers, samples
from tests.support.processes import children
from tests.support.serving import get, running

FIELDS = [
    *("time", "client", "method", "path", "query", "status", "bytes", "milliseconds", "complete"),
    *("source_requests", "source_bytes", "user_agent"),
]


@contextmanager
def logging(data: Path, settings: Settings, path: str, messages: list[str]) -> Iterator[tuple[str, Service]]:
    log = AccessLog(path, proxied=False, notify=messages.append)
    with closing(Service(data, settings)) as service, running(service, access_log=log) as address:
        yield address, service


def entries(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def wait_for_lines(path: Path, count: int) -> list[dict[str, Any]]:
    """Return the lines when there are so many: an answer is logged after it was sent."""
    while path.read_text().count("\n") < count:
        pass
    return entries(path.read_text())


def test_a_line_for_each_answer(harvested_data: Path, settings: Settings, crawl: str, tmp_path: Path) -> None:
    path, messages, query = tmp_path / "access.log", list[str](), f"/{crawl}-index?url=example.com/*&limit=3"
    with logging(harvested_data, settings, str(path), messages) as (address, service):
        bodies = [get(address, query, User_Agent="cdxt", X_Forwarded_For="192.0.2.1").body for _ in range(2)]
        get(address, "/search", method="HEAD")
        get(address, "/a%0Ab%22/%C3%A9?" + "x" * 2000, User_Agent='é\t"\\' + "x" * 500)
        with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0)) as client:
            client.sendall(b"GET /\n{}\n HTTP/1.1\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 400 ")
        go_on = Event()
        service.submit(lambda _: go_on.wait(60))
        get(address, f"/{crawl}-index?url=example.org/*")
        go_on.set()
        first, again, head, strange, invalid, parallel = wait_for_lines(path, 6)
    now = datetime.now(UTC)
    assert [*first] == [*invalid] == FIELDS
    for line, body in zip((first, again), bodies, strict=True):
        assert abs((now - datetime.fromisoformat(line["time"])).total_seconds()) < 60
        assert (line["client"], line["method"], line["user_agent"]) == ("127.0.0.1", "GET", "cdxt")
        assert f"{line['path']}?{line['query']}" == query
        assert (line["status"], line["bytes"], line["complete"]) == (200, len(body), True)
        assert 0 < line["milliseconds"] < 60_000
    assert first["source_requests"] > 0
    assert first["source_bytes"] > 0
    assert (again["source_requests"], again["source_bytes"]) == (0, 0)
    assert (head["method"], head["bytes"], head["status"]) == ("HEAD", 0, 200)
    assert (strange["path"], strange["status"]) == ("/a%0Ab%22/%C3%A9", 404)
    assert strange["query"] == "x" * 1000 + "…"
    assert strange["user_agent"] == 'é\t"\\' + "x" * 146 + "…"
    assert (invalid["method"], invalid["status"]) == (None, 400)
    assert parallel["query"] == "url=example.org/*"
    assert (parallel["source_requests"], parallel["source_bytes"]) == (None, None)
    assert messages == []


def test_standard_error_and_an_impossible_file(
    harvested_data: Path, settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(QueryError, match=r"\(No such file or directory\); choose another --access-log"):
        AccessLog(str(tmp_path / "none/access.log"), proxied=False, notify=print)
    with logging(harvested_data, settings, "-", []) as (address, _):
        assert get(address, "/healthz").status == 200
    assert [line["path"] for line in entries(capfd.readouterr().err)] == ["/healthz"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_full_disk_is_reported_once(harvested_data: Path, settings: Settings) -> None:
    messages = list[str]()
    with logging(harvested_data, settings, "/dev/full", messages) as (address, _):
        assert [get(address, "/healthz").status for _ in range(3)] == [200] * 3
    assert messages == ["the access log /dev/full cannot be written (No space left on device); lines are missing"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_share_figures_and_log_and_end_with_the_first(asking: Command, tmp_path: Path) -> None:
    log, clients = tmp_path / "access.log", [f"192.0.2.{number}" for number in range(60)]
    with started(asking.start, "--access-log", str(log), "--proxied", workers=3) as (process, address):
        other, third = children(process.pid, WORKER)
        assert_imported_little(other)
        with ThreadPoolExecutor(8) as pool:
            for answer in pool.map(
                lambda client: get(address, "/collinfo.json", X_Forwarded_For=f"198.51.100.1, {client}"), clients
            ):
                assert answer.status == 200
        while answers(address)["/collinfo.json", "2xx"] < len(clients):
            pass
        of_each = [samples(address) for _ in range(8)]
        assert {each["catalogue_http_requests_total", "/collinfo.json", "2xx"] for each in of_each} == {len(clients)}
        assert {each["catalogue_source_requests_total",] for each in of_each} == {
            of_each[0]["catalogue_source_requests_total",]
        }
        lines = [line for line in entries(log.read_text()) if line["path"] == "/collinfo.json"]
        assert Counter(line["client"] for line in lines) == Counter(clients)

        os.kill(other, signal.SIGKILL)
        assert process.stderr
        message = process.stderr.readline()
        assert b"a process of the server ended with status -9; " in message
        replaced = b"another one is started" in message  # if it has run for 10 seconds
        while (found := samples(address))["catalogue_processes", "running"] != 2 + replaced:
            pass
        assert found["catalogue_processes", "ended"] == 1 - replaced
        assert found["catalogue_http_requests_total", "/collinfo.json", "2xx"] == len(clients)

        log.rename(tmp_path / "access.log.1")
        assert [get(address, "/healthz").status for _ in range(8)] == [200] * 8
        assert wait_for_lines(log, 1)[-1]["path"] == "/healthz"

        ended = os.pidfd_open(third)
        process.kill()
        process.wait(30)
        assert select.select([ended], [], [], 30)[0]
        os.close(ended)
        with pytest.raises(ConnectionRefusedError):
            get(address)
