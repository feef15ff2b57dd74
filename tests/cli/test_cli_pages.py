"""Pages on the command line: plans, cache, counts and their requests."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from catalogue.demo import LoopbackServer
from tests.support.commands import Command
from tests.support.crawls import CRAWL, crawl_of, table

LARGE = CRAWL
SLOW = {"CATALOGUE_BANDWIDTH": "100000", "CATALOGUE_LATENCY": "0.02"}
"""A connection so slow that plans read pages of small files."""
ASKED = ["example.com/00030000", "--columns", "url_surtkey,url,fetch_status"]
FOUND = {"url_surtkey": "com,example)/00030000", "url": "https://example.com/00030000", "fetch_status": 200}
PATH_COLUMNS = {"crawl": LARGE, "subset": "warc"}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl of one file whose pages have as many rows as in real ones, and little in them."""
    names = [f"{number:08}" for number in range(120_000)]
    urls = pa.array([f"https://example.com/{name}" for name in names])
    statuses = pa.array([200] * len(names), pa.int16())
    rows = table([f"com,example)/{name}" for name in names], url=urls, fetch_status=statuses)
    return crawl_of(tmp_path_factory.mktemp("large"), rows, row_group_size=60_000, use_dictionary=["fetch_status"])


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
    assert sum(exchange.sent_bytes for exchange in server.log) == estimate["indexes"]["bytes"]
    assert exact["exact"]
    for name in ("requests", "bytes"):  # the estimate is of the right size
        assert exact[name] / 2 <= estimate[name] - estimate["indexes"][name] <= 2 * exact[name]
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
    cached = harvested("plan", *ASKED, "--json", **SLOW).json()
    assert (cached["requests"], cached["bytes"]) == (0, 0)
    assert 0 < cached["cached_bytes"] <= exact["bytes"]
    assert "come from the cache" in harvested("plan", *ASKED, **SLOW).out
    neighbour = harvested("query", "example.com/00030001", *ASKED[1:], **SLOW)
    assert [row["url"] for row in neighbour.json_lines()] == ["https://example.com/00030001"]
    assert not server.log
    assert harvested("query", *ASKED, "--no-cache", **SLOW).out == ran.out
    assert server.log


@pytest.mark.parametrize(("bandwidth", "index"), [(8e6, 1), (12e6, 1), (25e6, 0)])
def test_an_index_is_fetched_if_two_queries_pay_for_it(
    harvested: Command, server: LoopbackServer, bandwidth: float, index: int
) -> None:
    counts, pace = [], SLOW | {"CATALOGUE_BANDWIDTH": f"{bandwidth:.0f}"}
    for url in (ASKED[0], "example.com/00030001"):  # of one page
        server.log.clear()
        assert len(harvested("query", url, *ASKED[1:], "--no-cache", **pace).json_lines()) == 1
        counts.append(len(server.log))
    assert counts[0] - counts[1] == index


def test_counting_reads_less_than_querying(harvested: Command, server: LoopbackServer) -> None:
    within, most = ["example.com/0003*"], ["example.com/000*", "example.com/0010*"]
    for patterns, number in ((within, 10_000), (most, 110_000), (["*.example.com"], 120_000), (["nowhere.example"], 0)):
        rows, planned = (
            harvested("plan", *patterns, *more, "--indexes", "--json", **SLOW).json() for more in ([], ["--count"])
        )
        server.log.clear()
        ran = harvested("query", *patterns, "--count", "--no-cache", **SLOW)
        assert (ran.status, ran.out) == (0, f"{number}\n")
        assert len(server.log) == planned["requests"]
        assert sum(exchange.sent_bytes for exchange in server.log) == planned["bytes"]
        assert planned["bytes"] <= rows["bytes"] / (1 if patterns == within else 3)
    assert planned["requests"] == 0
    assert harvested("query", "*.example.com", "--count", "--limit", "70000", **SLOW).out == "70000\n"
