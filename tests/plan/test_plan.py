"""Plans can be printed offline and agree with the log of the server."""

import dataclasses
import json
import pickle
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from shutil import copytree
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catalogue
from catalogue.commoncrawl.datasets import index_file
from catalogue.demo import LoopbackServer
from catalogue.errors import NotHarvested, QueryError
from catalogue.plan.plan import READS
from catalogue.plan.requests import Cost, Part, PlannedRequest, Purpose, plan_requests
from catalogue.query.filters import Moment, time_bounds
from catalogue.query.key_intervals import Intervals
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.settings import Settings
from catalogue.source.byte_ranges import ByteRange, coalesce
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile
from catalogue.surt.interval import merge
from catalogue.surt.pattern import parse_pattern
from catalogue.tables.crawl_table import FileMetadata
from tests.cli.test_cli_pages import ASKED, LARGE, SLOW, large
from tests.read.test_answers import random_patterns
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.mirrors import read_footer
from tests.support.plans import plan_reads

__all__ = ["large"]  # a fixture


def a_held_file(mirror: Path) -> FileMetadata:
    path = max(mirror.rglob("*subset=warc/*.parquet"))
    content = path.read_bytes()
    file = index_file(str(path.relative_to(mirror)))
    assert file
    return FileMetadata(file, StoredFile(b"", len(content), None, None, "", ""), read_footer(content))


def question(*patterns: str, **more: object) -> ResolvedQuery:
    intervals = merge(i for p in patterns for i in parse_pattern(p).intervals)
    return dataclasses.replace(ResolvedQuery(Intervals(intervals), patterns), **more)  # type: ignore[arg-type]


def test_plans_say_why_they_read_and_do_not_change(harvested: catalogue.Catalogue) -> None:
    crawl = harvested.session.stored_crawls()[0]
    plan = harvested.captures("*.com", crawls=crawl, index="columnar").fetch_indexes()
    reasons = {request.reason.partition(" of ")[0] for wave in plan.waves for request in wave}
    assert reasons
    assert all(reason.endswith(("chunks", "pages")) for reason in reasons)
    assert PlannedRequest("cdx-00000.gz", ByteRange(0, 1), ()).reason == "blocks"
    sent = pickle.loads(pickle.dumps(plan))  # noqa: S301 - its own bytes
    assert (sent.files, sent.blocks, sent.missing) == (plan.files, plan.blocks, plan.missing)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.crawls = ()  # type: ignore[misc]


def test_row_groups_without_bounds_might_match(mirror: Path) -> None:
    stored, nowhere = a_held_file(mirror), question("zzz.no-such-host.example/*")
    group = stored.footer.row_groups[0]
    assert not plan_reads(nowhere, [stored], cost=Cost(), considered=1).row_groups
    chunks = {name: dataclasses.replace(chunk, bounds=None) for name, chunk in group.chunks.items()}
    blind = dataclasses.replace(group, chunks=chunks)
    footer = dataclasses.replace(stored.footer, row_groups=(blind,))
    plan = plan_reads(nowhere, [dataclasses.replace(stored, footer=footer)], cost=Cost(), considered=1)
    assert (plan.row_groups, plan.unbounded[0]) == (1, 1)
    assert "1 part of old files has no key range, so every query reads it" in plan.warnings[0]


def test_seconds_follow_rate_bandwidth_and_round_trips() -> None:
    polite = Cost(rate=5.0, burst=10, bandwidth=10e6, latency=0.1)
    assert polite.seconds(0, 0, 0) == 0
    assert polite.seconds(10, 0, 1) == pytest.approx(0.1)
    assert polite.seconds(60, 20_000_000, 1) == pytest.approx(10 + 2 + 0.1)
    assert polite.max_gap == 2_000_000
    assert Cost(rate=None, latency=0.1, connections=10).max_gap == pytest.approx(100_000)


def test_reads_are_divided_where_requests_are_not_limited() -> None:
    unlimited = Cost(rate=None, bandwidth=40e6, latency=0.03, connections=16)
    assert unlimited.quickest(100) == 100
    assert unlimited.quickest(756_001) == 252_001
    assert unlimited.quickest(160_000_000) == 10_000_000
    assert Cost(rate=None, latency=0.0, connections=4).quickest(400) == 100


def test_requests_equal_the_plan(
    server: LoopbackServer, all_rows: pa.Table, harvested_data: Path, tmp_path: Path
) -> None:
    """For many questions of every kind: no request but those announced, and as many bytes."""
    with catalogue_in(tmp_path, server.url, data=harvested_data) as cat:
        for text in random_patterns(all_rows, 11, seed=23):
            before = len(server.log)
            found = cat.captures(text, index="columnar")
            assert len(server.log) == before, "planning is free"
            found.to_arrow()
            made = server.log[before:]
            summary = found.plan.summary()
            assert summary["exact"]
            assert summary["requests"] == len(made)
            assert summary["bytes"] == sum(exchange.sent_bytes for exchange in made)
            assert summary["files"] == len({exchange.path for exchange in made})
            assert {exchange.status for exchange in made} <= {206}
        assert len(server.log) > 12


def test_plans_can_be_sent_to_other_processes(harvested: catalogue.Catalogue) -> None:
    plan = harvested.captures("*.example.com", index="columnar").plan
    assert plan.files
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301
    assert harvested.captures("*.example.com", index="columnar").plan == plan


def test_selects_crawls_without_times_by_their_dates(harvested: catalogue.Catalogue) -> None:
    rows = harvested.sql("SELECT DISTINCT crawl FROM row_groups WHERE last_fetch IS NULL").fetchall()
    timeless = {crawl for (crawl,) in rows}
    assert "CC-MAIN-2018-05" in timeless

    def planned(**times: str) -> set[str]:
        paths = harvested.captures("*", **times, index="columnar").plan.paths  # type: ignore[arg-type]
        return {file.crawl for path in paths if (file := index_file(path))}

    for crawl in timeless:
        dates = "SELECT first_fetch, last_fetch FROM crawls WHERE crawl = ?"
        with harvested.connect() as connection:
            ((first, last),) = connection.execute(dates, [crawl]).fetchall()
        # A list of crawls is not to be trusted to the day: a month on either side is looked at all the same.
        near, far = timedelta(days=30), timedelta(days=33)
        assert crawl in planned(from_=f"{last + near:%Y%m%d}")
        assert crawl not in planned(from_=f"{last + far:%Y%m%d}")
        assert crawl in planned(to=f"{first - near:%Y%m%d}")
        assert crawl not in planned(to=f"{first - far:%Y%m%d}")
        assert harvested.captures("*", from_=f"{last + near:%Y%m%d}", crawls=crawl, index="columnar").count() == 0


def test_includes_crawls_without_dates(harvested_data: Path, settings: Settings, tmp_path: Path) -> None:
    copytree(harvested_data, tmp_path / "data")
    with Store(tmp_path / "data" / "footers.sqlite") as store:
        store.delete("documents", ["collinfo.json"])
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        assert any("CC-MAIN-2018-05" in path for path in cat.captures("*", from_="2026", index="columnar").plan.paths)


def test_limit_makes_the_cost_a_maximum(server: LoopbackServer, harvested_data: Path, tmp_path: Path) -> None:
    with catalogue_in(tmp_path, server.url, data=harvested_data) as cat:
        found = cat.captures("*", where="fetch_status > 0", limit=3, index="columnar")
        planned = found.plan
        assert found.to_arrow().num_rows == 3
        assert not planned.exact
        assert 1 <= len(server.log) < planned.requests


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("2022", "2022", ("2022-01-01T00:00:00", "2023-01-01T00:00:00")),
        ("202202", "202202", ("2022-02-01T00:00:00", "2022-03-01T00:00:00")),
        ("20240229", "20240229", ("2024-02-29T00:00:00", "2024-03-01T00:00:00")),
        ("2022022", "2022022", ("2022-02-20T00:00:00", "2022-03-01T00:00:00")),
        ("2022013112", "2022013112", ("2022-01-31T12:00:00", "2022-01-31T13:00:00")),
        ("20220131123059", "20220131123059", ("2022-01-31T12:30:59", "2022-01-31T12:31:00")),
        ("2022-02", "2022-02", ("2022-02-01T00:00:00", "2022-03-01T00:00:00")),
        ("2022-01-31T12:30", "2022-01-31T12:30", ("2022-01-31T12:30:00", "2022-01-31T12:31:00")),
        ("2022-01-31", "2022-01-31", ("2022-01-31T00:00:00", "2022-02-01T00:00:00")),
        ("2022-01-31T12:00:00+02:00", "2022-01-31T12:00:00Z", ("2022-01-31T10:00:00", "2022-01-31T12:00:01")),
        ("2022-01-31 12:00:00.5", "2022-01-31T12:00:01.0625Z", ("2022-01-31T12:00:00.5", "2022-01-31T12:00:01.063")),
        (" 2022", "202202\n", ("2022-01-01T00:00:00", "2022-03-01T00:00:00")),
        (2022, 202202, ("2022-01-01T00:00:00", "2022-03-01T00:00:00")),
        (date(2022, 1, 31), date(2022, 1, 31), ("2022-01-31T00:00:00", "2022-02-01T00:00:00")),
        (
            datetime(2022, 1, 31, 12),  # noqa: DTZ001 - it is UTC
            datetime(2022, 1, 31, 12, tzinfo=ZoneInfo("America/New_York")),
            ("2022-01-31T12:00:00", "2022-01-31T17:00:01"),
        ),
    ],
)
def test_times_are_inclusive_as_typed(first: Moment, last: Moment, expected: tuple[str, str]) -> None:
    low, high = (int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000) for text in expected)
    assert time_bounds(first, last) == (low, high)
    assert time_bounds("9999", "9999") == (253_370_764_800_000, 253_402_300_800_000)  # the end has no datetime


@pytest.mark.parametrize(
    "text",
    [
        *("", "tomorrow", "20220131123059000", "2022-13-01", "2022-02-30", "2022-W05", "-5"),
        *("\uff12\uff10\uff12\uff12", "202213", "20222", "20220230", "2022013124", "20220131236", "20220131235960"),
    ],
)
def test_rejects_invalid_times(text: str) -> None:
    with pytest.raises(QueryError, match="invalid time"):
        time_bounds(text, None)
    with pytest.raises(QueryError, match="is after"):
        time_bounds("2023", "2022")


def test_reports_subsets_that_are_not_stored(harvested: catalogue.Catalogue) -> None:
    oldest, newest = (choose(harvested.files()["crawl"]) for choose in (min, max))
    soon = f"CC-MAIN-{int(newest[8:12]) + 1}-01"
    with pytest.raises(NotHarvested, match=f"run: catalogue harvest --crawl {soon}"):
        harvested.captures("example.com", crawls=soon, index="columnar")
    without = harvested.captures("*", crawls=oldest, subsets="robotstxt", index="columnar")
    assert (without.complete, without.count(), without.plan.requests) == (True, 0, 0)  # its manifest has none


def test_reports_row_groups_that_cannot_be_pruned(harvested: catalogue.Catalogue) -> None:
    every, some = (harvested.captures(pattern, index="columnar").plan for pattern in ("*", "*.example.com"))
    assert every.row_groups == every.considered
    assert any("cannot be pruned" in warning for warning in every.warnings)
    assert not any("cannot be pruned" in warning for warning in some.warnings)


@pytest.mark.parametrize("index", ["columnar", "cdx"])
def test_reports_conditions_on_columns_that_old_crawls_lack(harvested: catalogue.Catalogue, index: str) -> None:
    oldest, newest = (choose(harvested.files()["crawl"]) for choose in (min, max))
    every, some = (
        harvested.captures("*.example.com", crawls=crawls, index=index, lang="isl").plan
        for crawls in ([oldest, newest], newest)
    )
    assert "crawls before CC-MAIN-2018-39 have no content_languages; it is null there" in every.warnings
    assert not any("content_languages" in warning for warning in some.warnings)


def test_table_has_no_pages_without_indexes(large: Path, tmp_path: Path) -> None:
    command = Command(tmp_path / "data", str(large), tmp_path)
    assert command("harvest", "--crawl", LARGE).status == 0
    assert command("plan", *ASKED, "-o", "plan.jsonl", **SLOW).status == 0
    (row,) = map(json.loads, (tmp_path / "plan.jsonl").read_text().splitlines())
    assert (row["crawl"], row["subset"], row["row_group"]) == (LARGE, "warc", 0)
    assert {row[name] for name in ("column", "start", "end", "bytes")} == {None}
    assert command("plan", *ASKED, "-o", "plan.jsonl", "--indexes", **SLOW).status == 0
    rows = list(map(json.loads, (tmp_path / "plan.jsonl").read_text().splitlines()))
    assert {row["column"] for row in rows} == {"url_surtkey", "url", "fetch_status"}


@pytest.mark.parametrize("pattern", ["*.de", "*.com"])
def test_table_lists_the_ranges_of_the_plan(asking: Command, settings: Settings, tmp_path: Path, pattern: str) -> None:
    words = ("plan", pattern, "--columns", "url,fetch_status", "--indexes")
    assert asking(*words, "-o", "plan.parquet").out == ""
    with catalogue.open(asking.data, settings=settings) as cat:
        plan = cat.captures(pattern, columns=["url", "fetch_status"]).plan
    written = pq.read_table(tmp_path / "plan.parquet")
    assert written.schema.equals(READS)
    planned = [(fetch.path, part) for wave in plan.waves for fetch in wave for part in fetch.parts]
    rows = written.to_pylist()
    assert {(row["path"], row["row_group"], row["column"], row["start"], row["end"]) for row in rows} == {
        (path, part.row_group, part.column, part.range.start, part.range.end) for path, part in planned
    }
    assert tuple(dict.fromkeys(row["path"] for row in rows)) == plan.paths
    assert len({(row["path"], row["row_group"]) for row in rows}) == plan.row_groups
    for row in rows:
        assert f"crawl={row['crawl']}/subset={row['subset']}/" in row["path"]
        assert row["bytes"] == row["end"] - row["start"]
    ran = asking(*words, "--paths")
    assert (ran.status, ran.err) == (0, "")
    assert set(ran.out.splitlines()) == set(plan.paths)
    asking(*words, "-o", "plan.csv")
    lines = (tmp_path / "plan.csv").read_text().splitlines()
    assert (lines[0], len(lines)) == (",".join(READS.names), 1 + len(rows))


def test_command_refuses_other_tables(asking: Command) -> None:
    for words in (["-o", "plan.cdxj"], ["-o", "plan"], ["-o", "no/plan.csv"], ["--json", "--paths"]):
        refused = asking("plan", "*.de", *words)
        assert refused.status == 2
        assert len(refused.err.splitlines()) == 1
    for words in (["--paths"], ["-o", "plan.csv"]):  # nothing is stored
        refused = asking("plan", "*.de", *words, "--data", "new", "--crawl", "2022-05")
        assert "add --indexes or --index columnar" in refused.err


ranges = st.builds(lambda start, length: ByteRange(start, start + length), st.integers(0, 200), st.integers(1, 20))
disjoint = st.lists(ranges, max_size=12).map(lambda found: coalesce(found, max_gap=-1, max_length=1000))


def planned(parts: list[ByteRange], cached: list[ByteRange], max_gap: int) -> list[PlannedRequest]:
    named = [Part(Purpose.PAGES, 0, "url", part) for part in parts]
    return plan_requests("file", named, Cost(rate=1, bandwidth=max_gap), cached)


def test_cached_parts_are_read_at_once() -> None:
    parts = [ByteRange(10, 20), ByteRange(25, 30), ByteRange(40, 50), ByteRange(60, 65)]
    found = planned(parts, [ByteRange(0, 45), ByteRange(60, 70)], 10)
    assert [(each.range, each.cached, len(each.parts)) for each in found] == [
        (ByteRange(10, 45), True, 3),
        (ByteRange(45, 50), False, 1),
        (ByteRange(60, 65), True, 1),
    ]


@given(disjoint, disjoint, st.integers(0, 30))
def test_requests_have_every_byte_of_the_parts_once(
    parts: list[ByteRange], cached: list[ByteRange], max_gap: int
) -> None:
    found = planned(parts, cached, max_gap)
    taken = [part.range for request in found for part in request.parts]
    assert sorted(byte for each in taken for byte in range(each.start, each.end)) == sorted(
        byte for each in parts for byte in range(each.start, each.end)
    )
    assert found == sorted(found, key=lambda request: request.range)
    for request in found:
        assert all(part.range in request.range for part in request.parts)
        assert request.cached == any(request.range in each for each in cached)
        assert request.cached or not any(part.range in each for part in request.parts for each in cached)
