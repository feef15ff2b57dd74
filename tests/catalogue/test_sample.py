"""A sample is the first matching rows in a random order: each is as likely, and the same seed gives the same sample."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from warcio.archiveiterator import ArchiveIterator

from catalogue import Catalogue, IncompleteAnswer, QueryError
from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.demo import LoopbackServer
from catalogue.parquet.thrift import Reader
from catalogue.plan.plan import ReadPlan
from catalogue.query.random_order import RandomOrder
from catalogue.session import Session
from catalogue.settings import STORE_NAME, Settings
from catalogue.surt.pattern import parse_pattern
from tests.query.test_random_order import in_order
from tests.read.test_answers import Scan, random_patterns
from tests.support.amounts import EXAMPLES
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.crawls import BARE, CRAWL, bare_crawl, crawl_of, harvest_footers, table
from tests.support.mirrors import read_footer
from tests.support.stores import raw

COLUMNS = ["url_surtkey", "url", "fetch_status", "warc_filename", "warc_record_offset"]
CONDITIONS = [
    *(None, "fetch_status = 200", "fetch_status <> 200", "content_languages = 'eng'", "length(url) % 7 = 3"),
    "url_host_tld IN ('is', 'de') OR warc_record_length < 3000",
]


FAST: dict[str, Any] = {"rate": 1e6, "contact": "me@example.com"}
"""Settings with which many requests take no time."""


def test_has_only_matching_rows_and_each_once(harvested: Catalogue, all_rows: pa.Table) -> None:
    """Random patterns, conditions and crawls, on every era, sorted or zipped."""
    chance = random.Random(0)
    scan, crawls = Scan(all_rows), ["all", *sorted(pc.unique(all_rows.column("crawl")).to_pylist())]
    for text in ["*", "*.com", "*.is", *random_patterns(all_rows, EXAMPLES // 4, 0)]:
        where, crawl, size = chance.choice(CONDITIONS), chance.choice(crawls), chance.choice([1, 5, 40])
        matching = scan([parse_pattern(text)], f"({where or 'true'}) AND '{crawl}' IN ('all', crawl)").select(COLUMNS)
        expected = Counter(tuple(row.values()) for row in matching.to_pylist())
        sample = harvested.sample(
            harvested.captures(text, crawls=crawl, columns=COLUMNS, where=where, subsets="all"), size, seed=0
        )
        if expected.total() >= size:
            found = sample.to_arrow()
        else:
            with pytest.warns(IncompleteAnswer, match=f"only {expected.total()} of {size} capture"):
                found = sample.to_arrow()
        assert found.num_rows == min(size, expected.total()), (text, where, crawl)
        assert Counter(tuple(row.values()) for row in found.select(COLUMNS).to_pylist()) <= expected
        assert (sample.found, sample.complete) == (len(found), len(found) == size)


def test_smaller_sample_is_the_start_of_a_larger_one(harvested: Catalogue, crawl: str) -> None:
    captures = harvested.captures("*", crawls=crawl, columns=COLUMNS, subsets="all")
    large, small = (harvested.sample(captures, size, seed=3).to_pandas() for size in (30, 12))
    assert large[:12].equals(small)
    assert not large.equals(harvested.sample(captures, 30, seed=4).to_pandas())
    assert list(large.columns) == [*COLUMNS, "crawl", "subset"]


def test_does_not_depend_on_bounds_that_a_backfill_found(tmp_path: Path) -> None:
    source, samples = bare_crawl(tmp_path / "mirror"), []
    for _ in range(2):
        with catalogue_in(tmp_path, source) as cat:
            harvest_footers(cat, BARE)
            samples.append(cat.sample(cat.captures("example.com/1/*", columns="url"), 5, seed=3).to_arrow())
            cat.backfill().run()
            assert not cat.backfill().gaps
    assert samples[0].num_rows == 5
    assert samples[0] == samples[1]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("cache_size", [0, 1 << 30])
def test_fetches_each_page_once(server: LoopbackServer, tmp_path: Path, crawl: str, cache_size: int) -> None:
    """Many rounds that need the same pages, with and without a permanent cache."""
    with catalogue_in(tmp_path, server.url, cache_size=cache_size, **FAST) as cat:
        cat.harvest(crawl)
        captures = cat.captures("*", columns=["url"], where="warc_record_offset % 97 = 0")
        before = len(server.log)
        sample = cat.sample(captures, 5)
        rounds: list[int] = []
        rows = sum(batch.num_rows for batch in sample.batches(lambda plan: rounds.append(plan.rows)))
    assert rows == 5
    assert len(set(rounds)) > 2
    fetched: dict[str, list[tuple[int, int]]] = {}
    for exchange in server.log[before:]:
        assert exchange.range
        first, last = map(int, re.findall(r"\d+", exchange.range))
        fetched.setdefault(exchange.path, []).append((first, last))
    for ranges in fetched.values():
        inorder = sorted(ranges)
        assert all(a[1] < b[0] for a, b in pairwise(inorder))


def test_reads_the_pages_of_drawn_rows_alone(tmp_path: Path) -> None:
    rows = table([f"com,example)/{number:07}" for number in range(200_000)])
    source = crawl_of(tmp_path / "source", rows, data_page_size=200_000, row_group_size=100_000, compression="none")
    options = FAST | {"cache_size": 0, "bandwidth": 1e5, "latency": 0.001}
    with LoopbackServer(source) as server, catalogue_in(tmp_path, server.url, **options) as cat:
        cat.harvest(CRAWL)
        plans: list[ReadPlan] = []
        assert len([*cat.sample(cat.captures("*", columns=["url"], subsets="all"), 6).batches(plans.append)]) == 1
    assert (plans[0].estimated, plans[1].exact, plans[1].rows, plans[1].chunks) == (True, True, 6, 0)
    assert plans[1].pages <= 12  # one of each column for each row


def test_limits_captures_of_each_value(harvested: Catalogue, all_rows: pa.Table, crawl: str) -> None:
    captures = harvested.captures("*", crawls=crawl, columns=["url", "url_host_name"], subsets="all")
    hosts = harvested.sample(captures, 30, per="host", most=2).to_pandas()["url_host_name"]
    assert len(hosts) == 30
    assert hosts.value_counts().max() == 2
    statuses = set(all_rows.filter(pc.field("crawl") == crawl).column("fetch_status").to_pylist())
    with pytest.warns(IncompleteAnswer, match=f"only {len(statuses)} of 1,000 captures"):
        each = harvested.sample(
            harvested.captures("*", crawls=crawl, columns=["url"], subsets="all"), 1000, per="fetch_status"
        ).to_pandas()
    assert list(each.columns) == ["url", "crawl", "subset"]
    assert len(each) == len(statuses)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda cat: cat.sample(cat.captures("*", limit=3, subsets="all"), 5), "leave out limit"),
        (lambda cat: cat.sample(cat.captures("*", ordered=True, subsets="all"), 5), "leave out limit"),
        (lambda cat: cat.sample(cat.captures("*", latest=True, subsets="all"), 5), "leave out limit"),
        (lambda cat: cat.sample(cat.captures("*", subsets="all"), 0), "both must be at least 1"),
        (lambda cat: cat.sample(cat.captures("*", subsets="all"), 2.5), "invalid size 2.5; use a whole number"),
        (lambda cat: cat.sample(cat.captures("*", subsets="all"), 5, most=2), "most=2 needs per"),
        (lambda cat: cat.sample(cat.captures("*", subsets="all"), 5, per="hosts"), "there is no column 'hosts'"),
    ],
)
def test_rejects_invalid_samples(harvested: Catalogue, ask: Callable[[Catalogue], object], words: str) -> None:
    with pytest.raises(QueryError, match=words):
        ask(harvested)


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Catalogue, dict[tuple[str, int], int]]]:
    """20,000 rows with numbers that a filter can use, and the number of rows in each row group."""
    folder = tmp_path_factory.mktemp("rare")
    tables = [table([f"com,example)/{n}/{number:07}" for number in range(10_000)]) for n in range(2)]
    source = crawl_of(folder / "source", *tables, row_group_size=6_000)
    with catalogue_in(folder, source) as cat:
        cat.harvest("CC-MAIN-2022-33")
        stored = cat.sql("select path, row_group, num_rows from row_groups").fetchall()
        yield cat, {(path, ordinal): rows for path, ordinal, rows in stored}


@pytest.mark.in_part(3)
@pytest.mark.parametrize(("size", "each"), [(3, 4_000), (40, 150), (60, 300)])
def test_finds_rare_rows_in_a_few_rounds(
    rare: tuple[Catalogue, dict[tuple[str, int], int]], size: int, each: int
) -> None:
    """Few rows match: rounds grow until the rest is read by a scan."""
    cat, groups = rare
    found_by = cat.captures("*", columns=["url_surtkey"], where=f"url[-7:]::int % {each} = 7", subsets="all")
    sample = cat.sample(found_by, size, seed=size)
    rounds: list[ReadPlan] = []
    found = pa.Table.from_batches(sample.batches(rounds.append), sample.schema)
    numbers = (
        (int("part-00001" in path), 6_000 * group + row)
        for path, group, row in in_order(*RandomOrder(groups, size).rest())
    )
    expected = [f"com,example)/{file}/{number:07}" for file, number in numbers if number % each == 7]
    assert found.column("url_surtkey").to_pylist() == expected[:size]
    assert len(rounds) < 12
    assert sum(plan.rows for plan in rounds) < 2.2 * 20_000


def test_stored_values_spare_row_groups_and_change_no_sample(tmp_path: Path) -> None:
    languages = ["isl" if row in {5_005, 5_006, 9_300} else "eng" for row in range(10_000)]
    rows = table([f"com,example)/{row:05}" for row in range(10_000)], content_languages=pa.array(languages))
    chosen = rows.select(["url_surtkey", "url", "content_languages"])
    crawl_of(tmp_path / "mirror", chosen, row_group_size=100, use_dictionary=["content_languages"])
    with catalogue_in(tmp_path, tmp_path / "mirror", cache_size=0) as cat:
        cat.harvest(CRAWL)
        costs, samples = [], []
        for _ in range(2):
            before = cat.bytes
            icelandic = cat.captures("*", lang="isl", columns="url")
            samples += [cat.sample(icelandic, size, seed=7).to_arrow() for size in (2, 3)]
            costs.append(cat.bytes - before)
            cat.harvest(CRAWL, values="content_languages")
    assert [each.num_rows for each in samples] == [2, 3, 2, 3]
    assert samples[:2] == samples[2:]
    assert 2 * costs[1] < costs[0]


def test_wrong_page_index_changes_no_sample(tmp_path: Path, settings: Settings) -> None:
    """The index leaves out rows, which another of its pages reveals."""

    def lie(path: Path) -> None:
        data = bytearray(path.read_bytes())
        at = read_footer(bytes(data)).row_groups[0].chunks[KEY_COLUMN].column_index
        assert at
        bounds = Reader(bytes(data[at.start : at.end])).struct()
        pages = [page for page, low in enumerate(bounds[2]) if low.startswith(b"com,aaa")]
        for value in (value for page in pages[-5:] for value in (bounds[2][page], bounds[3][page])):
            if not value.startswith(b"com,aaa"):  # of the page in which both hosts are
                continue
            found = data.index(value, at.start)
            data[found : found + 7] = b"com,aab"
        least = bounds[2][2]
        data[data.index(least, at.start) + len(least) - 1] += 1
        path.write_bytes(data)

    rows = table([f"com,{host})/{number:05}" for host in ("aaa", "bbb") for number in range(4500)])
    folder = crawl_of(tmp_path / "lies", rows, data_page_size=1 << 13, write_batch_size=100)
    (file,) = folder.rglob("*.parquet")
    messages: list[str] = []
    samples = []
    for name, change in (("data", lambda _: None), ("other", lie)):
        change(file)
        chosen = replace(settings, source=str(folder), cache=tmp_path / name, bandwidth=1e5, latency=0.0001)
        with Catalogue(Session(tmp_path / name, chosen, notify=messages.append)) as cat:
            cat.harvest("CC-MAIN-2022-33", pages=True)
            found = cat.captures("aaa.com/*", columns=["url"], subsets="all")
            samples.append([cat.sample(found, size).to_arrow() for size in (200, 1500, 4500)])
    assert samples[0] == samples[1]
    assert any("is read without its page index" in text for text in messages)


def test_can_be_read_twice_at_the_same_time(harvested: Catalogue, crawl: str) -> None:
    found_by = harvested.captures("*.com", crawls=crawl, columns=["url"], where="fetch_status = 404", subsets="all")
    sample = harvested.sample(found_by, 30)
    one, whole = sample.batches(), sample.to_arrow()
    first = next(one)
    assert sample.to_arrow() == whole
    assert pa.Table.from_batches([first, *one]) == whole


def test_is_empty_without_matching_rows(harvested: Catalogue, crawl: str) -> None:
    sample = harvested.sample(harvested.captures("*.zzz", crawls=crawl, subsets="warc"), 5)
    with pytest.warns(IncompleteAnswer, match="only 0 of 5 captures were found, among 0 rows"):
        assert sample.to_arrow().num_rows == 0
    assert sample.plan.requests == 0


def test_command_prints_and_fetches_samples(asking: Command, harvested: Catalogue, tmp_path: Path, crawl: str) -> None:
    requested = ["sample", "--crawl", crawl, "--status", "200", "--seed", "4"]
    expected = harvested.sample(harvested.captures("*", crawls=crawl, status=200), 7, seed=4).to_arrow()
    ran = asking(*requested, "-n", "7")
    assert (ran.status, ran.err) == (0, "7 captures\n")
    assert [row["url"] for row in ran.json_lines()] == expected.column("url").to_pylist()
    assert asking(*requested, "-n", "7", "-o", "rows.csv").status == 0
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 8
    ran = asking(*requested, "-n", "7", "--fetch", "warc", "-o", "pages.warc.gz")
    assert (ran.status, ran.err) == (0, "7 records in pages.warc.gz\n")
    with (tmp_path / "pages.warc.gz").open("rb") as file:
        urls = [record.rec_headers.get_header("WARC-Target-URI") for record in ArchiveIterator(file)]
    assert sorted(urls[1:]) == sorted(expected.column("url").to_pylist())
    again = asking(*requested, "-n", "9", "--fetch", "warc", "-o", "pages.warc.gz")
    assert (again.status, again.err) == (0, "9 records in pages.warc.gz\n")
    plan = asking(*requested, "-n", "7", "--dry-run", "--json").json()
    assert 0 < plan["rows"] <= 7  # of those that are drawn first


def test_command_reads_only_stored_footers_of_drawn_rows(
    data: Path, mirror: Path, harvested: Catalogue, tmp_path: Path, crawl: str
) -> None:
    (drawn,) = harvested.sample(harvested.captures("*", crawls=crawl), 1).plan.paths
    with raw(data / STORE_NAME) as store:
        others = "UPDATE files SET value = CAST(substr(value, 1, length(value) - 1) AS BLOB) WHERE key != ?"
        assert store.execute(others, [drawn]).rowcount > 0
    ran = Command(data, str(mirror), tmp_path)("sample", "--crawl", crawl, "-n", "1")
    assert (ran.status, ran.err) == (0, "1 capture\n")


def test_command_reports_too_few_captures(asking: Command, crawl: str) -> None:
    ran = asking("sample", "-n", "10", "--crawl", crawl, "--where", "fetch_status = 999", "--per", "host")
    assert (ran.status, ran.out) == (1, "")
    assert re.search(r"only 0 of 10 captures were found, among all [\d,]+ rows", ran.err)
