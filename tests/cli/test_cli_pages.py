"""Pages on the command line: plans, cache, counts and their requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogue.demo import LoopbackServer
from tests.plan.test_page_costs import LARGE, large
from tests.support.commands import Command

__all__ = ["large"]  # a fixture

SLOW = {"CATALOGUE_BANDWIDTH": "100000", "CATALOGUE_LATENCY": "0.02"}
"""A connection so slow that plans read pages of small files."""
ASKED = ["example.com/00030000", "--columns", "url_surtkey,url,fetch_status"]
FOUND = {"url_surtkey": "com,example)/00030000", "url": "https://example.com/00030000", "fetch_status": 200}
PATH_COLUMNS = {"crawl": LARGE, "subset": "warc"}


@pytest.fixture
def server(large: Path) -> Iterator[LoopbackServer]:
    with LoopbackServer(large) as running:
        yield running


@pytest.fixture
def harvested(server: LoopbackServer, tmp_path: Path) -> Command:
    command = Command(tmp_path / "data", server.url, tmp_path)
    assert command("harvest", "--crawl", LARGE).status == 0
    server.log.clear()
    return command


def test_plans_fetch_page_indexes_and_queries_cache_pages(harvested: Command, server: LoopbackServer) -> None:
    estimate = harvested("plan", *ASKED, "--json", **SLOW).json()
    assert estimate["estimated"]
    assert not estimate["exact"]
    assert not server.log
    shown = harvested("plan", *ASKED, **SLOW)
    assert "about" in shown.out
    assert "--indexes fetches them now" in shown.out
    drawn = harvested("sample", "-n", "3", "--dry-run", "--crawl", LARGE, **SLOW)
    assert "first fetches page indexes" in drawn.out
    assert "--indexes" not in drawn.out
    exact = harvested("plan", *ASKED, "--indexes", "--json", **SLOW).json()
    assert len(server.log) == estimate["indexes"]["requests"] > 0 == exact["indexes"]["requests"]
    assert exact["exact"]
    server.log.clear()
    assert harvested("plan", *ASKED, "--json", **SLOW).json() == exact
    assert "about" not in harvested("plan", *ASKED, **SLOW).out
    assert not server.log
    ran = harvested("query", *ASKED, **SLOW)
    assert ran.json_lines() == [FOUND | PATH_COLUMNS]
    assert len(server.log) == exact["requests"]
    assert sum(exchange.sent_bytes for exchange in server.log) == exact["bytes"]
    server.log.clear()
    assert harvested("query", *ASKED, **SLOW).out == ran.out
    assert "come from the cache" in harvested("plan", *ASKED, **SLOW).out
    assert not server.log
    assert harvested("query", *ASKED, "--no-cache", **SLOW).out == ran.out
    assert server.log


def test_counting_reads_less_than_querying(harvested: Command, server: LoopbackServer) -> None:
    for pattern, number in (("example.com/0003*", 10_000), ("*.example.com", 120_000), ("nowhere.example", 0)):
        planned = harvested("plan", pattern, "--count", "--indexes", "--json", **SLOW).json()
        server.log.clear()
        ran = harvested("query", pattern, "--count", "--no-cache", **SLOW)
        assert (ran.status, ran.out) == (0, f"{number}\n")
        assert len(server.log) == planned["requests"]
    assert planned["requests"] == 0
    assert harvested("query", "*.example.com", "--count", "--limit", "70000", **SLOW).out == "70000\n"
