"""The server as a process: messages on the standard streams, HTTP, signals and exit statuses."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from mcp import Client, StdioServerParameters

from catalogue.demo import Miniature
from catalogue.settings import Settings
from tests.support.commands import Command
from tests.support.faults import Fault, FaultServer, Request
from tests.support.miniatures import MODERN, OLD
from tests.support.serving import get
from tests.support.sources import Arrivals
from tests.support.warm import Forked

ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(stored: Settings, tmp_path: Path) -> Command:
    return Command(stored.data, stored.source, tmp_path)


def test_real_client_uses_a_real_process(command: Command, page_url: str, tmp_path: Path) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "catalogue", "mcp", "--max-requests", "20"],
        env=command.environment(PYTHONPATH=str(ROOT)),
        cwd=tmp_path,
    )

    async def talk() -> None:
        async with Client(server) as client:
            assert len((await client.list_tools()).tools) == 6
            page = await client.call_tool("get_page", {"url": page_url, "crawl": [MODERN]})
            assert not page.is_error
            assert page.structured_content
            assert page.structured_content["outcome"] == "found"
            assert json.loads(page.content[0].text) == page.structured_content  # type: ignore[union-attr]
            rows = await client.call_tool("sql_metadata", {"sql": "select 42 as answer"})
            assert rows.structured_content
            assert rows.structured_content["rows"] == [[42]]
            assert rows.structured_content["cost"]["requests_left"] < 20

    anyio.run(talk)


class Talk:
    def __init__(self, command: Command, *words: str) -> None:
        end, ours = os.pipe()
        self.input = open(ours, "wb", buffering=0)  # noqa: PTH123, SIM115 - closed below
        self.process = Forked(["mcp", *words], command.environment(), command.home, given=end)
        self.lines: list[bytes] = []
        """All that it printed."""

    def close(self) -> None:
        self.input.close()
        self.process.kill()
        with self.process:
            pass

    def send(self, method: str, number: int | None = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
        self.write(json.dumps(message).encode())

    def write(self, line: bytes) -> None:
        self.input.write(line + b"\n")

    def answer(self, number: int) -> Any:
        while line := self.process.stdout.readline():
            self.lines.append(line)
            if (message := json.loads(line)).get("id") == number:
                return message["result"]
        pytest.fail("the process has ended")

    def greet(self) -> None:
        about = {"name": "test", "version": "1"}
        self.send("initialize", 1, protocolVersion="2025-06-18", capabilities={}, clientInfo=about)
        assert self.answer(1)["serverInfo"]["name"] == "catalogue"
        self.send("notifications/initialized")

    def call(self, number: int, tool: str, **arguments: Any) -> None:
        self.send("tools/call", number, name=tool, arguments=arguments)


class Hanging(Arrivals):
    """A script that leaves requests for the index of a crawl without a response."""

    def __call__(self, request: Request) -> Fault | None:  # type: ignore[override]
        return super().__call__(request) if f"/{OLD}/indexes" in request.path else None


@contextmanager
def talking(command: Command, miniature: Miniature, *words: str) -> Iterator[tuple[Talk, Hanging]]:
    hanging = Hanging()
    with FaultServer(miniature.folder, script=hanging) as server:
        talk = Talk(replace(command, source=server.url), *words)
        with closing(talk):
            yield talk, hanging


@pytest.mark.in_soak
def test_messages_survive_invalid_lines_and_cancelled_calls(command: Command, miniature: Miniature) -> None:
    """At the end the input is closed while a call waits for the source."""
    with talking(command, miniature, "--verbose", "--trace") as (talk, hanging):
        talk.greet()
        for line in (b"no JSON", b"\xff", b"[]", b"{}", b"", b'{"id": true}', b"[" * 100_000):
            talk.write(line)
        talk.write(b'{"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "\\ud800"}}')
        talk.call(2, "query", url=["example.com"], crawl=[OLD])
        hanging.wait(1)
        talk.send("notifications/cancelled", requestId=2)
        talk.call(3, "query", url=["example.com"], crawl=[MODERN])
        assert talk.answer(3)["structuredContent"]["captures"]
        talk.call(4, "query", url=["example.com"], crawl=[OLD])
        hanging.wait(1)
        talk.input.close()
        out, err = talk.process.communicate(timeout=30)
    assert talk.process.returncode == 0
    messages = [json.loads(line) for line in (*talk.lines, *out.splitlines())]
    assert all(each["jsonrpc"] == "2.0" and each.get("id") != 2 for each in messages)
    assert [each["id"] for each in messages if "error" in each] in ([], [4])
    assert b"request: " in err
    assert b"Traceback" not in err


def test_interrupt_ends_a_waiting_call(command: Command, miniature: Miniature) -> None:
    with talking(command, miniature) as (talk, hanging):
        talk.greet()
        talk.call(2, "query", url=["example.com"], crawl=[OLD])
        hanging.wait(1)
        talk.process.send_signal(signal.SIGINT)
        assert talk.process.wait(timeout=30) == 130
        assert talk.process.stderr.read().splitlines()[-1] == b"stopped"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_print_one_line_while_messages_are_read(
    command: Command, miniature: Miniature, number: int, status: int
) -> None:
    with talking(command, miniature) as (talk, _):
        talk.greet()
        for each in range(2, 900):
            talk.send("ping", each)
        talk.answer(2)
        talk.process.send_signal(number)
        assert talk.process.wait(timeout=30) == status
        assert talk.process.stderr.read().splitlines()[1:] == [b"stopped"]


def test_ends_quietly_if_the_client_stops_reading(command: Command, miniature: Miniature) -> None:
    with talking(command, miniature) as (talk, _):
        talk.greet()
        talk.process.stdout.close()
        status = None
        while status is None:  # a line ends the wait for input
            with suppress(BrokenPipeError):
                talk.send("tools/list", 2)
            with suppress(subprocess.TimeoutExpired):
                status = talk.process.wait(timeout=0.2)
        assert status == 141
        assert b"error" not in talk.process.stderr.read()


def test_http_accepts_local_clients_alone_and_shares_one_budget(
    command: Command, miniature: Miniature, page_url: str
) -> None:
    words = ("--http", "--port", "0", "--allow-host", "mcp.example.org", "--max-requests", "15")

    async def talk(url: str) -> None:
        async with Client(url) as one, Client(url, mode="legacy") as other:
            taken = 0
            for client in (one, other):
                result = await client.call_tool("get_page", {"url": page_url, "crawl": [MODERN], "format": "headers"})
                assert result.structured_content
                taken += result.structured_content["cost"]["requests"]
                assert result.structured_content["cost"]["requests_left"] == 15 - taken
            async with anyio.create_task_group() as group:
                group.start_soon(one.call_tool, "query", {"url": ["example.com"], "crawl": [OLD]})
                await anyio.to_thread.run_sync(hanging.wait, 1)
                group.cancel_scope.cancel()
            assert (await other.call_tool("sql_metadata", {"sql": "select 1"})).structured_content

    with talking(command, miniature, *words) as (process, hanging):
        serving = next(line.decode() for line in process.process.stderr if line.startswith(b"serving "))
        address = serving.split()[1].removesuffix("/mcp")
        parts = urlsplit(address)
        with socket.create_connection((parts.hostname, parts.port)) as connection:  # and leave early
            connection.sendall(
                b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"Accept: application/json, text/event-stream\r\nContent-Length: 500\r\n\r\n{"
            )
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            assert get(address, "/mcp", Accept="text/event-stream", **headers).status in {403, 421}
        assert get(address, "/mcp", Accept="text/event-stream", Host="mcp.example.org:8001").status == 400  # no session
        anyio.run(talk, f"{address}/mcp")
        process.process.terminate()
        assert process.process.wait(timeout=30) == 143
        assert process.process.stdout.read() == b""
        assert b"Traceback" not in process.process.stderr.read()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--table", "hosts"], "only Common Crawl's index is served"),
        (["--allow-host", "mcp.example.org"], "--allow-host needs --http"),
        (["--port", "0"], "--port needs --http"),
        (["--host", "127.0.0.1"], "--host needs --http"),
        (["--http", "--host", "0.0.0.0"], "--host 0.0.0.0 needs --allow-host NAME"),
        (["--http", "--host", "203.0.113.1", "--allow-host", "a.example"], "cannot listen at 203.0.113.1"),
        (["--max-requests", "-1"], "-1 is not in the range x>=0"),
    ],
)
def test_refuses_invalid_options(command: Command, words: list[str], message: str) -> None:
    ran = command("mcp", *words)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
