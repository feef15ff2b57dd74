"""Names of crawls, and the words that select them."""

import pytest

from catalogue.commoncrawl.crawls import (
    SUBSETS,
    check_crawl_name,
    has_columnar_index,
    select_crawls,
    select_subsets,
    suggest_crawl,
)
from catalogue.errors import QueryError, UnknownCrawl


@pytest.mark.parametrize(
    ("name", "indexed"),
    [
        *(("CC-MAIN-2022-05", True), ("CC-MAIN-2013-20", True), ("CC-MAIN-2012", False), ("CC-MAIN-2009-2010", False)),
        *(("CC-SUPPLEMENTAL-2026-22", True), ("CC-MAIN-2026-22-bis", True)),
    ],
)
def test_accepts_names_of_crawls(name: str, *, indexed: bool) -> None:
    assert check_crawl_name(name) == name
    assert has_columnar_index(name) == indexed


@pytest.mark.parametrize(
    "name",
    [
        *("", "CC-MAIN-22-05", "CC-MAIN-2022-5", "CC-MAIN-2022-05\n", "CC-MAIN-2022-05/../../x"),
        *("CC-MAIN-2022-0\u0665", "cc-main-2022-05", "CC-MAIN-2022-05-index", "2022-05", "latest"),
        "CC-MAIN-2022-05'--",
    ],
)
def test_rejects_other_names(name: str) -> None:
    with pytest.raises(UnknownCrawl, match=r"is not the name of a crawl; (did you mean|one looks like) "):
        check_crawl_name(name)


KNOWN = [f"CC-MAIN-{name}" for name in ("2018-05", "2020-24", "2021-49", "2022-05", "2012")]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        *(([], ""), (["CC-MAIN-2020-24"], "2020-24"), (["CC-MAIN-2030-01"], "2030-01"), (["latest"], "2022-05")),
        *((["all"], "2022-05 2021-49 2020-24 2018-05"), (["CC-MAIN-2018-05..CC-MAIN-2020-24"], "2020-24 2018-05")),
        *((["CC-MAIN-2021-49.."], "2022-05 2021-49"), (["..CC-MAIN-2020-24"], "2020-24 2018-05")),
        (["CC-MAIN-2018-05", "latest", "CC-MAIN-2018-05"], "2022-05 2018-05"),
        *((["2020-24"], "2020-24"), (["2022-05-bis"], "2022-05-bis"), (["cc-main-2022-05-BIS"], "2022-05-bis")),
        *((["cc-main-2020-24, Latest"], "2022-05 2020-24"), (["2018-05..2020-24,2022-05"], "2022-05 2020-24 2018-05")),
        *((["2021"], "2021-49"), (["2020..2021"], "2021-49 2020-24"), (["2021.."], "2022-05 2021-49")),
        *((["2021-49..latest"], "2022-05 2021-49"), (["1"], "2022-05"), (["3"], "2022-05 2021-49 2020-24")),
        *((["99"], "2022-05 2021-49 2020-24 2018-05"), (["1", "2018"], "2022-05 2018-05")),
    ],
)
def test_selects_crawls_by_words(words: list[str], chosen: str) -> None:
    assert select_crawls(words, KNOWN) == [f"CC-MAIN-{name}" for name in chosen.split()]


def test_orders_crawls_by_time() -> None:
    known = ["CC-MAIN-2026-25", "CC-SUPPLEMENTAL-2026-22-bis", "CC-SUPPLEMENTAL-2026-22", "CC-MAIN-2026-21"]
    assert select_crawls(["all"], known[::-1]) == known
    assert select_crawls(["CC-MAIN-2026-22.."], known) == known[:3]


def test_rejects_a_short_name_that_fits_two_crawls() -> None:
    known = ["CC-MAIN-2026-22", "CC-SUPPLEMENTAL-2026-22", "CC-SUPPLEMENTAL-2026-30"]
    assert select_crawls(["2026-30"], known) == ["CC-SUPPLEMENTAL-2026-30"]
    with pytest.raises(UnknownCrawl, match=r"^2026-22 may be CC-.* or CC-.*; write the whole name"):
        select_crawls(["2026-22"], known)


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["CC-MAIN-2023-01..", "..CC-MAIN-2013-20", "2019", "2012", "2019..2019"], KNOWN),
        (["latest", "all", ".."], []),
        (["latest", "all", ".."], ["CC-MAIN-2012"]),
    ],
)
def test_rejects_words_without_crawls(words: list[str], known: list[str]) -> None:
    for word in words:
        with pytest.raises(UnknownCrawl, match=f"there is no crawl in '{word}'"):
            select_crawls([word], known)


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("CC-MAIN-2022-05..CC-MAIN-2018-05", "CC-MAIN-2018-05..CC-MAIN-2022-05"),
        ("2022..2021", "2021..2022"),
        ("2022-05..2021", "2021..CC-MAIN-2022-05"),
    ],
)
def test_rejects_ranges_that_end_before_they_start(word: str, advice: str) -> None:
    with pytest.raises(QueryError, match=f"ends before it starts; write {advice}$"):
        select_crawls([word], KNOWN)


@pytest.mark.parametrize(
    "word", ["", "newest", "CC-MAIN-2018-05,", "2022-5", "CC-MAIN-2018-05...CC-MAIN-2020-24", "a..b", "...", "*"]
)
def test_rejects_words_that_are_not_crawls(word: str) -> None:
    with pytest.raises(UnknownCrawl, match="is not the name of a crawl"):
        select_crawls([word], KNOWN)
    with pytest.raises(UnknownCrawl, match=r"^'latest' is not the name of a crawl; one looks like "):
        select_crawls(["latest..2022-05"], KNOWN)


def test_selects_subsets() -> None:
    assert select_subsets([]) == ()
    assert select_subsets(["robotstxt", "warc", "robotstxt"]) == ("robotstxt", "warc")
    assert select_subsets(["all"]) == SUBSETS
    assert select_subsets(["robotstxt", "all"]) == ("robotstxt", "warc", "crawldiagnostics")
    with pytest.raises(
        QueryError, match="unknown subset 'wet'; choose among warc, crawldiagnostics, robotstxt and all"
    ):
        select_subsets(["warc", "wet"])


@pytest.mark.parametrize(
    ("crawl", "end"),
    [
        ("CC-MAIN-2022-06", "did you mean CC-MAIN-2022-05?"),
        ("CC-MAIN-2099-01", "the newest is CC-MAIN-2026-30"),
        ("CC-MAIN-2026-30", "the list of crawls has it, but its files may not be published yet"),
    ],
)
def test_suggests_what_to_do_about_a_missing_crawl(crawl: str, end: str) -> None:
    assert suggest_crawl(crawl, ["CC-MAIN-2022-05", "CC-MAIN-2026-30"]) == end
