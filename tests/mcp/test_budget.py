"""No sequence of calls makes more requests than the server may make, and cancelled calls stop."""

import asyncio
import re
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st
from mcp import Client

from catalogue.demo import Miniature
from catalogue.mcp_server.calls import Calls
from catalogue.mcp_server.serve import server_of
from catalogue.metadata_db.isolated_sql import SECONDS
from catalogue.settings import Settings
from tests.support.assistants import assistant_of
from tests.support.fault_kinds import Request, seeded
from tests.support.faults import FaultServer, Kind, always, first
from tests.support.gates import Gate
from tests.support.miniatures import MODERN, NEWEST, OLD

pytestmark = pytest.mark.anyio
TEMPORARY = [Kind.CUT_FIN, Kind.SERVER_ERROR, Kind.DISCONNECT, Kind.SLOW_DOWN, Kind.WRONG_CONTENT_RANGE]
Step = list[tuple[int, int | None]]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("crawls", {}),
    ("plan", {"url": ["*.example.com"], "crawl": ["all"]}),
    ("query", {"url": ["example.com"], "crawl": [MODERN]}),
    ("query", {"url": ["*.example.com"], "crawl": [MODERN], "limit": 200}),
    ("query", {"url": ["*.com", "*.org"], "crawl": [OLD], "max_requests": 4}),
    ("query", {"url": ["nowhere.example"], "crawl": ["all"], "max_requests": 1000}),
    ("get_page", {"url": "https://shop.example.com/", "crawl": [MODERN], "format": "headers"}),
    ("get_page", {"url": "https://nowhere.example/", "max_requests": 100}),
    ("get_page", {"url": "https://example.com/", "at": "2018-01", "format": "headers"}),
    ("sample", {"size": 3}),
    ("sql_metadata", {"sql": "select 1 from"}),
]
CALL = st.tuples(st.integers(0, len(CALLS) - 1), st.none() | st.none() | st.integers(0, 3))
steps = st.lists(st.lists(CALL, min_size=1, max_size=3), min_size=1, max_size=4)
"""Calls that run at the same time; some are cancelled after a number of steps of the event loop."""


async def run(steps: list[Step], calls: Calls) -> list[int]:
    """Run the steps by two clients; return what answers say is left."""
    left: list[int] = []

    async def call(client: Client, number: int, patience: int | None) -> None:
        with anyio.CancelScope() as scope:
            if patience is not None:
                asyncio.get_running_loop().call_later(patience / 100, scope.cancel)
            tool, arguments = CALLS[number]
            result = await client.call_tool(tool, arguments)
            answer = result.structured_content or {}
            left.append(answer["cost"]["requests_left"])

    async with Client(server_of(calls)) as one, Client(server_of(calls), mode="legacy") as other:
        for step in steps:
            async with anyio.create_task_group() as group:
                for at, (number, patience) in enumerate(step):
                    group.start_soon(call, (one, other)[at % 2], number, patience)
    return left


@trying(max_examples=trying().max_examples // 3)
@given(steps=steps, most=st.integers(0, 25), seed=st.none() | st.integers(0, 1000))
def test_no_sequence_of_calls_exceeds_the_budget(
    miniature: Miniature, steps: list[Step], most: int, seed: int | None
) -> None:
    script = None if seed is None else seeded(seed, share=0.3, kinds=TEMPORARY, max_in_a_row=1)

    async def use(settings: Settings) -> tuple[list[int], int]:
        async with Calls(settings, most) as calls:
            return await run(steps, calls), calls.limit.used

    with TemporaryDirectory() as folder, FaultServer(miniature.folder, script=script) as server:
        home = Path(folder)
        settings = Settings(source=server.url, cache=home / "cache", data=home / "data", patience=0.01)
        left, used = asyncio.run(use(settings))
        server.settle()
        assert server.requests <= used <= most
        assert all(0 <= each <= most for each in left)
        if not any(patience is not None for step in steps for _, patience in step):
            assert server.requests == used
            assert min(left) == most - used


async def test_refuses_before_the_first_request_if_the_price_is_known(stored: Settings, source: FaultServer) -> None:
    async with assistant_of(stored, max_requests=1) as assistant:
        assert (await assistant.ask("plan", url=["*.example.com"], crawl=[OLD]))["affordable"] is False
        before = source.requests
        refused = await assistant.refused("query", url=["*.example.com"], crawl=[OLD], limit=200, max_requests=1000)
        assert refused["kind"] == "budget"
        assert "1 of the 1 request of this server are left" in refused["error"]
        assert "restart catalogue mcp with a larger --max-requests" in refused["error"]
        assert source.requests == before
    async with assistant_of(stored, max_requests=0) as assistant:  # what is stored is still answered
        assert (await assistant.ask("crawls"))["total"] >= 3
        assert (await assistant.ask("sql_metadata", sql="select 1"))["rows"] == [[1]]
        refused = await assistant.refused("get_page", url="https://example.com/", crawl=[MODERN])
        assert (refused["kind"], source.requests) == ("budget", before)


async def test_refused_call_names_the_requests_that_it_needs(
    stored: Settings, source: FaultServer, page_url: str
) -> None:
    async with assistant_of(stored) as assistant:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("query", {"url": ["*.example.com"], "crawl": [OLD], "limit": 200}),
            ("get_page", {"url": page_url, "crawl": [MODERN]}),
        ]
        for tool, arguments in calls:
            before = source.requests
            refused = await assistant.refused(tool, **arguments, max_requests=1)
            assert refused["kind"] == "too_expensive"
            assert source.requests == before
            (needed,) = re.findall(r"allow max_requests=(\d+)", refused["error"])
            answer = await assistant.ask(tool, **arguments, max_requests=int(needed))
            assert 1 < answer["cost"]["requests"] <= int(needed)


async def test_search_that_ends_early_is_not_taken_for_an_empty_one(stored: Settings) -> None:
    async with assistant_of(stored) as assistant:
        asked = {"url": "https://nowhere.example/", "crawl": [NEWEST, OLD]}
        part = await assistant.refused("get_page", **asked, max_requests=3)
        assert (part["outcome"], part["crawls_without_capture"]) == ("not_read", [NEWEST])
        assert f"searching {OLD} too takes" in part["reason"]
        complete = await assistant.ask("get_page", **asked, max_requests=100)
        assert (complete["outcome"], complete["crawls_without_capture"]) == ("not_archived", [NEWEST, OLD])


async def test_query_that_a_limit_does_not_end_early_ends_at_its_last_request(
    stored: Settings, source: FaultServer
) -> None:
    """What it reads before is not known, since reading stops when there are enough rows; either request may win.

    The refusal of the other one may end the call before the first one has reached the server.
    """
    async with assistant_of(stored) as assistant:
        before = source.requests
        asked = {"url": ["*"], "crawl": [MODERN], "limit": 100, "offset": 900, "subset": "warc"}
        refused = await assistant.refused("query", **asked, max_requests=1)
        assert "this call made 1 request and did not finish, since its max_requests is 1" in refused["error"]
        assert source.requests <= before + 1
        assert refused["cost"]["requests"] == 1
        assert len((await assistant.ask("query", **asked))["captures"]) == 100


async def test_cancelled_call_stops_and_the_next_one_runs(miniature: Miniature, empty: Settings) -> None:
    gate = Gate(lambda request: "cluster.idx" in request.path)
    call = {"url": ["example.com"], "crawl": [MODERN], "max_requests": 100}

    async def ask() -> None:
        await assistant.result("query", **call)
        pytest.fail("the call was not cancelled")

    with FaultServer(miniature.folder, gate=gate) as server:
        async with assistant_of(replace(empty, source=server.url)) as assistant:
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await anyio.to_thread.run_sync(gate.wait)
                group.cancel_scope.cancel()
            used = assistant.calls.limit.used
            gate.open()
            answer = await assistant.ask("query", **call)
            assert answer["captures"]
            assert assistant.calls.limit.used - used == answer["cost"]["requests"]


async def test_cancelled_sql_stops(stored: Settings) -> None:
    async with assistant_of(stored) as assistant:
        started = time.monotonic()
        with anyio.move_on_after(0.3) as scope:
            await assistant.result("sql_metadata", sql="select count(*) from range(100000000000) a, range(1000000) b")
        assert scope.cancelled_caught
        assert (await assistant.ask("sql_metadata", sql="select 2"))["rows"] == [[2]]
        assert time.monotonic() - started < SECONDS


async def test_repeated_requests_are_counted(miniature: Miniature, empty: Settings) -> None:
    def script(request: Request) -> Any:
        return first(1, Kind.CUT_FIN)(request) if request.path == "collinfo.json" else None

    with FaultServer(miniature.folder, script=script) as server:
        async with assistant_of(replace(empty, source=server.url)) as assistant:
            assert (await assistant.ask("crawls"))["cost"]["requests"] == 2
        assert server.requests == 2


async def test_call_does_not_wait_for_a_source_that_blocks(miniature: Miniature, empty: Settings) -> None:
    with FaultServer(miniature.folder, script=always(Kind.BLOCKED)) as server:
        async with assistant_of(replace(empty, source=server.url)) as assistant:
            error = await assistant.refused("query", url=["example.com"], crawl=[MODERN])
    assert error["kind"] == "source"
    assert re.search("try again in (?:29.|30.) s", error["error"])
