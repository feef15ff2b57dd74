"""Scans: what conditions, columns and limits save, the budget, and errors."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from os import link
from pathlib import Path
from shutil import copytree
from subprocess import run
from typing import Any

import duckdb
import polars as pl
import pytest

import catalogue
from catalogue import Catalogue, QueryError
from catalogue.cdx.lines import COLUMNS
from catalogue.demo import LoopbackServer
from catalogue.errors import NotFound, NotHarvested, TooExpensive
from catalogue.settings import Settings
from tests.support.amounts import in_part, in_soak

UNLIMITED: dict[str, Any] = {"max_requests": 10**6, "max_bytes": 10**12}

SOME_COLUMNS = [
    *("url", "url_surtkey", "url_host_name", "url_host_registered_domain", "fetch_time", "fetch_status"),
    *("warc_filename", "warc_record_offset", "crawl", "subset"),
]


class Counted:
    def __init__(self, cat: Catalogue, server: LoopbackServer, crawl: str) -> None:
        self.cat = cat
        self.crawls = ["CC-MAIN-2018-05", crawl]
        self._server = server

    def scan(self, **more: Any) -> pl.LazyFrame:
        return self.cat.scan(**UNLIMITED | {"crawls": self.crawls, "subsets": "all", "columns": SOME_COLUMNS} | more)

    def cost(self, frame: pl.LazyFrame, engine: Any = "auto") -> tuple[int, int, pl.DataFrame]:
        requests, received = len(self._server.log), self.cat.bytes
        rows = frame.collect(engine=engine)
        return len(self._server.log) - requests, self.cat.bytes - received, rows


@pytest.fixture(scope="module")
def server(mirror: Path) -> Iterator[LoopbackServer]:
    with LoopbackServer(mirror) as running:
        yield running


@pytest.fixture(scope="module")
def counted(
    server: LoopbackServer,
    untaught_data: Path,
    settings: Settings,
    crawl: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Counted]:
    """One that has all page indexes, so that requests do not depend on earlier ones."""
    data = copytree(untaught_data, tmp_path_factory.mktemp("counted") / "data")
    with catalogue.open(data, settings=replace(settings, source=server.url, cache_size=0)) as cat:
        cat.scan(**UNLIMITED).select("url_surtkey", "fetch_status").collect()
        yield Counted(cat, server, crawl)


@pytest.fixture(scope="module")
def everything(counted: Counted) -> tuple[int, int, pl.DataFrame]:
    return counted.cost(counted.scan())


def test_reads_requested_columns_only(
    counted: Counted, server: LoopbackServer, everything: tuple[int, int, pl.DataFrame], crawl: str
) -> None:
    """On a slow network, where ranges are not read together with what lies between them."""
    _, received, rows = everything
    settings = replace(counted.cat.session.settings, bandwidth=2e4)
    with catalogue.open(counted.cat.session.data, settings=settings) as cat:
        slow = Counted(cat, server, crawl)
        _, less, found = slow.cost(slow.scan().select("fetch_status"))
    assert 0 < less < received / 2
    assert found.to_series().sort().equals(rows["fetch_status"].sort())  # rows with equal keys are in another order
    assert counted.cost(counted.scan().select(pl.len()))[2].item() == rows.height


def test_status_excludes_row_groups_by_statistics(counted: Counted, everything: tuple[int, int, pl.DataFrame]) -> None:
    requests, received, rows = everything
    rare = pl.col("fetch_status") == 404
    fewer, less, found = counted.cost(counted.scan().filter(rare))
    assert 0 < fewer < requests
    assert less < received / 2
    assert found.equals(rows.filter(rare))
    assert found.height


CONDITIONS = [
    (pl.col("url_surtkey").str.starts_with("com,example)/"), 0.4),
    (pl.col("url_host_registered_domain") == "example.com", 0.4),
    (pl.col("url_host_name").is_in(["shop.example.com", "nowhere.example"]), 0.5),
    (pl.col("url_host_name").str.ends_with(".example.com"), 0.4),
    (pl.col("url") == "https://example.com/", 0.4),
    (pl.col("url").str.starts_with("https://shop.example.com/"), 0.4),
    (pl.lit("net,") <= pl.col("url_surtkey"), 0.7),
    (pl.col("crawl") == "CC-MAIN-2018-05", 0.7),
    (pl.col("crawl").str.slice(8, 4) == "2018", 0.7),
    ((pl.col("crawl") == "CC-MAIN-2018-05") & (pl.col("fetch_status") == 200), 0.7),
    (pl.col("fetch_time") < datetime(2019, 1, 1, tzinfo=UTC), 0.7),
]


@in_part(5)
@pytest.mark.parametrize(("condition", "share"), CONDITIONS, ids=lambda value: str(value)[:60])
def test_conditions_save_requests_and_bytes(
    counted: Counted, everything: tuple[int, int, pl.DataFrame], condition: pl.Expr, share: float
) -> None:
    requests, received, rows = everything
    fewer, less, found = counted.cost(counted.scan().filter(condition))
    order = ["url", "fetch_time", "warc_record_offset", "warc_filename"]
    assert found.sort(order).equals(rows.filter(condition).sort(order))
    assert 0 < fewer < requests
    assert less < share * received


def test_conditions_on_subsets_read_no_others(counted: Counted, whole_crawls: list[str]) -> None:
    frame = counted.scan(crawls=whole_crawls).select("url", "subset")
    requests, _, rows = counted.cost(frame)
    fewer, _, found = counted.cost(frame.filter(pl.col("subset") == "robotstxt"))
    assert 0 < fewer < requests
    assert found.height == rows.filter(pl.col("subset") == "robotstxt").height > 0
    # Where crawls have different subsets stored, all are read.
    mixed = counted.scan(crawls="all").select("url", "subset").filter(pl.col("subset") != "warc")
    assert counted.cost(mixed)[2].height == found.height + rows.filter(pl.col("subset") == "crawldiagnostics").height


def test_contradictions_request_nothing(counted: Counted) -> None:
    surtkey, crawl = pl.col("url_surtkey"), pl.col("crawl")
    for condition in (
        (surtkey < "b") & (surtkey > "c"),
        surtkey.is_in([]) | surtkey.is_null(),
        (crawl == "CC-MAIN-2018-05") & crawl.str.ends_with("06"),
        pl.col("fetch_time").is_between(datetime(2023, 1, 1, tzinfo=UTC), datetime(2022, 1, 1, tzinfo=UTC)),
    ):
        requests, _, found = counted.cost(counted.scan().filter(condition))
        assert (requests, found.height) == (0, 0)
        assert found.schema == counted.scan().collect_schema()


def test_limits_read_little_and_return_exactly_so_many(
    counted: Counted, everything: tuple[int, int, pl.DataFrame]
) -> None:
    requests, received, rows = everything
    for engine in ("in-memory", "streaming"):
        fewer, less, found = counted.cost(counted.scan().head(3), engine)
        assert found.equals(rows.head(3))
        assert 0 < fewer < requests
        assert less < received / 5
    condition = pl.col("fetch_status") == 200
    assert counted.cost(counted.scan().filter(condition).head(3), "streaming")[2].equals(rows.filter(condition).head(3))
    assert counted.cost(counted.scan().slice(1, 2))[2].equals(rows.slice(1, 2))
    assert counted.cost(counted.scan().head(0))[0] == 0


def test_filters_of_the_query_and_of_polars_are_both_applied(counted: Counted) -> None:
    frame = counted.scan(patterns="*.example.com", status="2xx", from_="2018", to="2025", where="length(url) < 60")
    rows = frame.collect()
    conditions = pl.col("fetch_time") >= rows["fetch_time"].median(), pl.col("fetch_status") != 404
    found = frame.filter(conditions).collect()
    assert found.equals(rows.filter(conditions))
    assert 0 < found.height < rows.height


def test_two_scans_of_one_catalogue_run_at_the_same_time(counted: Counted) -> None:
    keys = ["url", "warc_filename", "warc_record_offset"]
    one, other = (counted.scan(patterns=pattern).select(keys) for pattern in ("*.example.com", "example.com/*"))
    expected = other.collect().height
    for engine in ("in-memory", "streaming"):
        assert one.join(other, on=keys).collect(engine=engine).height == expected > 0


def test_refuses_more_than_the_budget(counted: Counted) -> None:
    requests, received, _ = counted.cost(counted.scan().select("url"))
    for more in ({"max_requests": requests - 1}, {"max_bytes": received - 1}):
        before = counted.cat.requests
        frame = counted.scan(**more).select("url")
        for engine in ("in-memory", "streaming"):
            with pytest.raises(TooExpensive, match=r"narrow it by url_surtkey.* or raise max_requests and max_bytes"):
                frame.collect(engine=engine)
        assert counted.cat.requests == before
    assert counted.cost(counted.scan(max_requests=requests, max_bytes=received).select("url"))[0] == requests


def test_limited_scans_may_spend_the_budget(counted: Counted) -> None:
    frame = counted.scan(max_requests=5)
    with pytest.raises(TooExpensive, match="this takes"):
        frame.collect()
    assert counted.cost(frame.head(3))[0] <= 5
    with pytest.raises(TooExpensive, match="were not enough"):
        frame.head(50_000).collect()
    # Requests for rows that do not match count, too.
    before = counted.cat.requests
    with pytest.raises(TooExpensive, match="were not enough"):
        counted.scan(where="fetch_status + 1 = 0", max_requests=5).head(1).collect()
    assert counted.cat.requests - before < 15


def test_invalid_scans_fail_before_they_are_collected(harvested: Catalogue) -> None:
    for more, message in (
        ({"columns": "urll"}, "did you mean url"),
        ({"crawls": "nonsense"}, "is not the name of a crawl"),
        ({"where": "fetch_status ="}, "the condition cannot be read"),
        ({"patterns": "a*b.com"}, "patterns look like"),
        ({"limit": 3}, r"scan has no parameter limit; use \.head\(…\) of its LazyFrame"),
        ({"limit": 0}, "scan has no parameter limit"),
        ({"unique": "url"}, r"scan has no parameter unique; use \.unique\("),
        ({"latest": True}, r"scan has no parameter latest; use \.sort\("),
    ):
        with pytest.raises(QueryError, match=message):
            harvested.scan(**more)


def test_missing_polars_is_one_sentence(harvested: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.delitem(sys.modules, "catalogue.scan.lazy_frame", raising=False)
    for call in (harvested.scan, harvested.captures("example.com").to_polars):
        with pytest.raises(QueryError, match=r"^this needs polars; run: .*polars"):
            call()


def test_errors_of_the_source_reach_the_caller(
    mirror: Path, untaught_data: Path, settings: Settings, tmp_path: Path
) -> None:
    folder = Path(copytree(mirror / "cc-index", tmp_path / "mirror/cc-index", copy_function=link)).parent
    data = copytree(untaught_data, tmp_path / "data")
    next(folder.rglob("crawl=CC-MAIN-2018-05/**/*.parquet")).unlink()
    with catalogue.open(data, settings=replace(settings, source=str(folder))) as cat:
        for engine in ("in-memory", "streaming"):
            with pytest.raises(NotFound):
                cat.scan(**UNLIMITED).select("url").collect(engine=engine)


def test_duckdb_passes_conditions_on(counted: Counted) -> None:
    frame = counted.scan().select("url", "url_surtkey", "fetch_status")
    requests, _, rows = counted.cost(frame)
    before = counted.cat.requests
    sql = "SELECT count(*) FROM frame WHERE url_surtkey >= 'com,example)' AND url_surtkey < 'com,example*'"
    ((found,),) = duckdb.sql(sql).fetchall()
    assert found == rows.filter(pl.col("url_surtkey").str.starts_with("com,example)")).height > 0
    assert counted.cat.requests - before < requests


EARLY = """
import sys
import catalogue, polars as pl
from catalogue.settings import Settings
cat = catalogue.open(sys.argv[1], settings=Settings(source=sys.argv[2]))
lazy = cat.scan(max_requests=1000)
print(lazy.filter(pl.col("fetch_status") == 200).head(3).collect(engine="streaming").height)
"""


@in_soak
def test_process_ends_normally_while_polars_reads_ahead(harvested_data: Path, mirror: Path) -> None:
    ran = run([sys.executable, "-c", EARLY, harvested_data, mirror], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "3\n", "")


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_conditions_after_head_select_among_the_first_rows(engine: Any, counted: Counted) -> None:
    lazy, is_https = counted.scan(), pl.col("url").str.starts_with("https")
    first = lazy.head(40).collect(engine=engine)
    expected = first.filter(is_https)
    assert 0 < len(expected) < 40
    assert lazy.head(40).filter(is_https).collect(engine=engine).equals(expected)
    assert lazy.head(40).filter(is_https).head(3).collect(engine=engine).equals(expected.head(3))
    counted_rows = lazy.head(40).filter(is_https).select(pl.len())
    assert counted_rows.collect(engine=engine).item() == len(expected)


def test_harvests_of_some_subsets_change_no_rows_of_scans(whole_mirror: Path, crawl: str, tmp_path: Path) -> None:
    chosen = Settings(source=str(whole_mirror), cache=tmp_path / "cache")
    counts = []
    for subsets in ((), "warc", "all"):
        with catalogue.open(tmp_path / f"data {subsets}", settings=chosen) as cat:
            if subsets:
                cat.harvest(crawl, subsets=subsets)
            else:
                with pytest.raises(NotHarvested):
                    cat.scan()
            lazy = cat.scan("*.example.com", crawls=crawl, subsets="all")
            counts.append(lazy.select(pl.len()).collect().item())
            found = lazy.filter(pl.col("subset") == "warc", pl.col("fetch_status") == 200).select("url").collect()
            expected = cat.captures("*.example.com", crawls=crawl, subsets="warc", status=200, columns="url")
            assert sorted(found["url"]) == sorted(row["url"] for row in expected)
            assert 0 < len(found) < counts[-1]
            assert lazy.filter(pl.col("url_surtkey") < "b").collect().height == 0  # a contradiction
            assert (lazy.collect_schema().names() == [*COLUMNS]) is (subsets != "all")
    assert counts[0] > 0
    assert counts == counts[:1] * 3
