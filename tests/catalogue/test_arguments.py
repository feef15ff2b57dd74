"""Arguments of Python: short forms, and errors that name arguments instead of options."""

import re

import pytest

from catalogue import Catalogue
from catalogue.errors import QueryError, UncoveredColumns


@pytest.mark.parametrize(
    ("call", "given", "wrong", "message"),
    [
        ("captures", ["a.example"], "crawl", "captures() has no argument crawl; use crawls="),
        ("harvest", [], "crawl", "harvest() has no argument crawl; use crawls="),
        ("get", ["a.example"], "crawl", "get() has no argument crawl; use crawls="),
        ("join", [["a.example"]], "column", "join() has no argument column; use columns="),
        ("scan", [], "crawl", "query() has no argument crawl; use crawls="),
        ("forget", ["2022-05"], "xyzzy", "forget() has no argument xyzzy"),
        ("captures", [], "crawls", "missing 1 required positional argument: 'patterns'"),
    ],
)
def test_unknown_arguments_are_answered_with_the_most_similar_one(
    harvested: Catalogue, call: str, given: list[object], wrong: str, message: str
) -> None:
    with pytest.raises(TypeError, match=f"{re.escape(message)}$"):
        getattr(harvested, call)(*given, **{wrong: "latest"})


def test_texts_with_commas_and_years_are_those_of_the_command_line(harvested: Catalogue, crawl: str) -> None:
    year = int(crawl[8:12])
    found = harvested.captures("example.com/*", crawls=year, columns="url, fetch_time", subsets="warc,robotstxt")
    assert found.columns == ["url", "fetch_time", "crawl", "subset"]
    same = harvested.captures(
        "example.com/*", crawls=[crawl], columns=["url", "fetch_time"], subsets=["warc", "robotstxt"]
    )
    assert found.to_arrow() == same.to_arrow()
    assert found.count() > 0


def test_messages_name_arguments(harvested: Catalogue, crawl: str) -> None:
    with pytest.raises(UncoveredColumns, match=r"no column url_path; use index='columnar'$"):
        harvested.captures("example.com/*", crawls=crawl, columns="url_path", index="cdx").to_arrow()
    with pytest.raises(QueryError, match="is not a complete URL; with exact_url=True use one such"):
        harvested.captures("example.com/page", crawls=crawl, exact_url=True)


def test_says_whether_a_limit_was_reached(harvested: Catalogue, crawl: str) -> None:
    every = harvested.captures("example.com/*", crawls=crawl)
    count = len(every.to_arrow())
    assert every.more is False
    for limit, more in ((1, True), (count, True), (count + 1, False)):
        found = harvested.captures("example.com/*", crawls=crawl, limit=limit)
        assert len(found.to_arrow()) == min(limit, count)
        assert found.more is more
