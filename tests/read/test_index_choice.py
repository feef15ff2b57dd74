"""Answers of the cheaper index of each crawl: the rows and the order of one index, and the costs of a plan."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

import catalogue
from benchmarks.cluster import make_list
from catalogue import Catalogue
from catalogue.cdx.cluster import index_folder
from catalogue.cdx.lines import COLUMNS
from catalogue.demo import Miniature
from catalogue.errors import IncompleteAnswer, NotHarvested, TooExpensive, UnknownCrawl
from catalogue.plan.plan import ReadPlan
from catalogue.settings import Settings
from tests.read.test_answers import random_patterns
from tests.support.amounts import COMPLETE, EXAMPLES
from tests.support.block_lists import CRAWL, write_list
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.faults import FaultServer

READ = [*COLUMNS, "crawl", "subset"]


@pytest.fixture(scope="module")
def mixed(whole_settings: Settings, crawls: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    """Of the newest crawl the list of blocks is stored, of the next one footers, of the third one both."""
    with catalogue.open(tmp_path_factory.mktemp("mixed") / "data", settings=whole_settings) as cat:
        for number, crawl in enumerate(crawls[:3]):
            cat.harvest(crawl, subsets="all", index=("cdx", "columnar", "both")[number % 3])
        yield cat


def test_mixed_answers_equal_those_of_one_index(columnar: Catalogue, mixed: Catalogue, crawls: list[str]) -> None:
    rows = columnar.captures("*", crawls=crawls[0], columns=["url", "url_host_name"], index="columnar").to_arrow()
    chance = random.Random(6)
    mixes, found = 0, 0
    for text in random_patterns(rows, EXAMPLES if COMPLETE else 5, seed=6):
        words: dict[str, Any] = {"columns": READ, "subsets": chance.choice([(), "all", ["robotstxt", "warc"]])}
        words |= chance.choice([{}, {"status": "2xx"}, {"where": "warc_record_length < 2000"}])
        expected = columnar.captures(text, crawls=crawls[:3], index="columnar", **words).to_arrow()
        answer = mixed.captures(text, crawls=crawls[:3], **words)
        table = answer.to_arrow()
        assert table.equals(expected), (text, words)
        assert answer.count() == table.num_rows
        limit = chance.randrange(table.num_rows + 2)
        assert mixed.captures(text, crawls=crawls[:3], limit=limit, **words).to_arrow() == table.slice(0, limit)
        mixes += bool(answer.plan.files and answer.plan.blocks)
        found += table.num_rows
    assert mixes > 3
    assert found > 300


def test_first_search_of_a_crawl_with_footers_takes_few_requests(
    whole_mirror: Path, crawls: list[str], tmp_path: Path
) -> None:
    with (
        FaultServer(whole_mirror) as server,
        catalogue_in(tmp_path, server.url) as cat,
    ):
        cat.harvest(crawls[1], subsets="all", index="columnar")
        server.reset()
        found = cat.captures("https://example.com/", crawls=crawls[1], index="cdx")
        assert found.plan.requests == 4  # three of the list, one of a block
        assert found.count() > 0
        assert len(server.settle()) <= 4


def test_limit_ends_the_read_before_other_crawls_are_searched(
    whole_mirror: Path, crawls: list[str], tmp_path: Path
) -> None:
    """Nothing is stored. Crawls are searched and read in turn: one, the next two, the next four."""
    with (
        FaultServer(whole_mirror) as server,
        catalogue_in(tmp_path, server.url) as cat,
    ):
        every = cat.captures("*.example.com", crawls="all", columns=READ).to_arrow()
        of_first = every["crawl"].to_pylist().count(crawls[0])
        assert 1 < of_first < every.num_rows
        for limit, searched in ((1, crawls[:1]), (of_first, crawls[:1]), (of_first + 1, crawls[:3])):
            with catalogue_in(tmp_path / str(limit), server.url) as empty:
                server.reset()
                found = empty.captures("*.example.com", crawls="all", columns=READ, limit=limit)
                assert len(found.plan.crawls) == len(crawls)
                assert found.to_arrow() == every.slice(0, limit)
                assert [each.crawl for each in found.plan.crawls] == searched
                touched = {exchange.path.split("/")[2] for exchange in server.settle() if "indexes" in exchange.path}
                assert touched == {*searched}


def test_cost_of_crawls_that_are_read_in_turn_is_agreed_to_in_turn(
    whole_mirror: Path, crawls: list[str], tmp_path: Path
) -> None:
    with (
        FaultServer(whole_mirror) as server,
        catalogue_in(tmp_path, server.url) as cat,
    ):
        asked: list[tuple[list[str], bool]] = []

        def agree(plan: ReadPlan) -> None:
            asked.append(([each.crawl for each in plan.crawls], plan.is_ready))
            if len(asked) > 2:
                raise TooExpensive("enough")

        found = cat.captures("nowhere.invalid", crawls="all", columns=READ, limit=1).agreed(agree)
        with pytest.raises(TooExpensive, match="enough"):
            found.to_arrow()
        assert asked == [(crawls[:1], False), (crawls[:1], True), (crawls[1:3], False)]


def test_plan_names_both_ways(mixed: Catalogue, crawls: list[str], tmp_path: Path) -> None:
    found = mixed.captures("*.com", crawls=crawls[:3], columns="url")
    newest, *others = found.explain().crawls
    _, both = others
    assert [newest.crawl, *(each.crawl for each in others)] == crawls[:3]
    assert (newest.index, newest.why, newest.other) == ("cdx", "no footers are stored", None)
    cost = mixed.session.cost()
    for each in others:
        assert each.other
        assert {each.index, each.other.index} == {"cdx", "columnar"}
        chosen, other = (
            cost.price(plan.requests, plan.bytes) + plan.round_trips * cost.latency for plan in (each, each.other)
        )
        assert chosen <= other
    for index in ("columnar", "cdx"):
        alone = mixed.captures("*.com", crawls=both.crawl, columns="url", index=index).plan
        found_way = both if both.index == index else both.other
        assert found_way
        assert (found_way.requests, found_way.bytes) == (alone.requests, alone.bytes)
    asks = Command(mixed.session.folder, str(mixed.session.settings.source), tmp_path)
    shown = asks("plan", "*.com", "--crawl", ",".join(crawls[:3]), "--columns", "url")
    rows = {line.split()[0]: line for line in shown.out.splitlines() if line.startswith("CC-MAIN")}
    assert rows[newest.crawl].endswith("no footers are stored")
    assert re.search(r" index: \d+ requests?, ", rows[both.crawl])


def test_columns_of_one_index_are_answered_by_it(mixed: Catalogue, crawls: list[str]) -> None:
    with_files = crawls[1:3]
    found = mixed.captures("*.com", crawls=with_files, columns=["url", "url_host_name"])
    assert not found.plan.blocks
    assert not found.plan.searched
    assert found.count() > 0
    message = f"the CDX index has no column url_host_name, and.*harvest --crawl {crawls[0]}"
    with pytest.raises(NotHarvested, match=message):
        mixed.captures("*.com", crawls=crawls[:2], columns=["url_host_name"])


def test_incomplete_harvests_are_completed_by_the_other_index(
    columnar: Catalogue, copied: Path, crawls: list[str], tmp_path: Path
) -> None:
    """Without the CDX index, the answer says what is missing."""
    crawl = crawls[0]
    min((copied / f"cc-index/table/cc-main/warc/crawl={crawl}/subset=warc").iterdir()).write_bytes(b"torn")
    expected = columnar.captures("*", crawls=crawl, subsets="warc", index="columnar").count()
    with catalogue_in(tmp_path, copied) as cat:
        cat.harvest(crawl)
        found = cat.captures("*", crawls=crawl)
        assert found.complete
        assert found.count() == expected
        assert [(each.index, "not all footers" in each.why) for each in found.plan.crawls] == [("cdx", True)]
        rmtree(copied / index_folder(crawl))
        cat.forget(crawl)
        cat.harvest(crawl)
        again = cat.captures("*", crawls=crawl)
        with pytest.warns(IncompleteAnswer, match="1 of the") as warned:
            assert again.count() < expected
        assert {each.filename for each in warned} == {__file__}
        assert not again.complete


@pytest.mark.in_soak
def test_large_sites_propose_a_harvest(tmp_path: Path) -> None:
    write_list(tmp_path / "mirror", make_list(60_000), CRAWL)
    asks = Command(tmp_path / "data", str(tmp_path / "mirror"), tmp_path)
    words = ["--crawl", CRAWL, "--json"]
    site = asks("plan", "*.org", "--indexes", *words).json()
    assert site["requests"] > 0
    assert [each["why"] for each in site["crawls"]] == [
        "no footers are stored; harvesting them takes 300 requests, 25.5 MB, and makes this query cheaper"
    ]
    assert asks("plan", "example.com", *words).json()["crawls"][0]["why"] == "no footers are stored"
    refused = asks("query", "*", "--crawl", CRAWL, "--subset", "all")
    assert (refused.status, refused.out) == (2, "")
    assert "too many blocks to read; add --harvest, or run: catalogue" in refused.err
    assert refused.err.endswith(f"catalogue harvest --crawl {CRAWL} --subset all\n")


def test_plan_of_a_wide_pattern_without_a_list_is_a_minimum(whole_mirror: Path, tmp_path: Path) -> None:
    asks = Command(tmp_path / "data", str(whole_mirror), tmp_path)
    wide, site = (asks("plan", pattern, "--crawl", "latest").out for pattern in ("*.com", "*.example.com"))
    assert "at least " in wide
    assert "this is a minimum: the query first searches" in wide
    assert "at least " not in site
    assert "this is an estimate: the query first searches" in site


def test_plans_of_searches_use_what_is_known_of_other_lists(
    whole_mirror: Path, crawls: list[str], tmp_path: Path
) -> None:
    other, crawl, *_ = crawls
    with catalogue_in(tmp_path, whole_mirror, cache_size=0) as cat:

        def planned(pattern: str | list[str]) -> int:
            plan = cat.captures(pattern, crawls=crawl).plan
            assert plan.about == "about "
            return plan.requests

        unknown = planned("example.com")
        assert planned("*.example.com") == unknown  # these keys are neighbours
        assert planned(["*.example.com", "example.org"]) > unknown
        cat.captures("example.com", crawls=other).to_arrow()
        expected, before = planned("*.example.com"), cat.requests
        cat.captures("*.example.com", crawls=crawl).to_arrow()
        made = cat.requests - before
        assert made / 2 <= expected <= 2 * made < unknown


@pytest.mark.parametrize("index", ["auto", "cdx", "columnar"])
def test_crawls_of_other_times_are_not_read(whole_mirror: Path, crawls: list[str], tmp_path: Path, index: str) -> None:
    newest, oldest = crawls[0], crawls[-1]
    with catalogue_in(tmp_path, whole_mirror) as cat:
        assert cat.captures("*.com", crawls="all").plan  # the list of crawls is stored
        if index == "columnar":
            cat.harvest([newest, oldest])
        newest_year, oldest_year = (crawl.split("-")[2] for crawl in (newest, oldest))
        found, alone = (
            cat.captures("*.com", from_=newest_year, crawls=some, index=index)
            for some in ([newest, f"..{oldest_year}"], newest)
        )
        assert [(each.crawl, each.requests > 0) for each in found.plan.crawls] == [(newest, True), (oldest, False)]
        assert (found.to_arrow(), found.complete) == (alone.to_arrow(), True)
        assert found.count() > 0


def test_limit_of_requests_covers_searches_that_take_longer(
    whole_mirror: Path, crawls: list[str], tmp_path: Path
) -> None:
    with FaultServer(whole_mirror) as server:
        asks = Command(tmp_path / "data", server.url, tmp_path)
        words = ["example.com", "--crawl", crawls[0]]
        estimate = asks("plan", *words, "--json").json()["requests"]
        refused = asks("query", *words, "--max-requests", str(estimate))
        assert (refused.status, server.requests) == (2, 0)
        assert re.search(rf"this takes {estimate} requests, .*, perhaps up to [0-9]+ requests; narrow", refused.err)
        assert asks("query", *words, "--max-requests", str(2 * estimate)).status == 0


@pytest.mark.in_soak
def test_all_crawls_are_priced_before_a_search(tmp_path: Path) -> None:
    crawls = [f"CC-MAIN-{year}-{week:02}" for year in range(2014, 2022) for week in range(5, 45, 4)]
    lines = make_list(3000)
    for crawl in crawls:
        write_list(tmp_path / "mirror", lines, crawl)
    listed = [{"id": crawl, "name": crawl, "from": "2014-01-01", "to": "2014-01-02"} for crawl in crawls]
    (tmp_path / "mirror/collinfo.json").write_text(json.dumps(listed))
    with FaultServer(tmp_path / "mirror") as server:
        asks = Command(tmp_path / "data", server.url, tmp_path)
        ran = asks("query", "https://example.com/", "--crawl", "all")
        assert (ran.status, ran.out) == (2, "")
        assert f"this takes {10 * len(crawls):,} requests" in ran.err
        assert re.search(r"about \d+ (s|min)", ran.err)
        assert {exchange.path for exchange in server.log} == {"collinfo.json"}
        server.reset()
        plan = asks("plan", "https://example.com/", "--crawl", "all", "--indexes", "--json").json()
        assert len(server.log) <= 13 * len(crawls)
        assert plan["requests"] == len(crawls)
        assert {each["index"] for each in plan["crawls"]} == {"cdx"}


@pytest.mark.in_soak
def test_many_files_are_not_planned_when_few_blocks_have_the_rows(miniature: Miniature, tmp_path: Path) -> None:
    with catalogue_in(tmp_path, miniature.folder, bandwidth=1e9, cache_size=0) as cat:
        crawl = miniature.crawls[1]
        cat.harvest(crawl, subsets="all", index="both")
        urls = (
            cat.captures("*", crawls=crawl, subsets="all", columns=["url"], limit=5000)
            .to_arrow()["url"]
            .to_pylist()[::50]
        )
        found = cat.captures(urls, subsets="all", columns=["url"])
        (explained,) = found.explain().crawls
        (way,) = found.plan.crawls
        assert (way.why, way.other) == ("11 files of the columnar index may match", None)
        assert (explained.costs(), explained.why) == (way.costs(), way.why)
        assert explained.other
        assert explained.other.requests >= 2 * way.requests > 0
        assert found.to_arrow().equals(cat.captures(urls, subsets="all", columns=["url"], index="columnar").to_arrow())


def test_misspelled_crawls_get_the_listed_name(whole_mirror: Path, crawls: list[str], tmp_path: Path) -> None:
    wrong = crawls[0].replace("MAIN", "MIAN")
    command = Command(tmp_path / "data", str(whole_mirror), tmp_path)
    reported = f"there is no crawl {wrong}; did you mean {crawls[0]}?"
    for _ in ("an empty folder", "a stored list of crawls"):
        ran = command("query", "example.com", "--crawl", wrong, "--quiet")
        assert (ran.status, ran.err) == (2, f"catalogue: {reported}\n")
    with catalogue.open(command.data, source=command.source) as cat:
        for index in ("cdx", "auto"):
            with pytest.raises(UnknownCrawl, match=re.escape(reported)):
                cat.captures("example.com", crawls=wrong, index=index).to_arrow()
