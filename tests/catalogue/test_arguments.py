"""Arguments of Python: short forms, and errors that name arguments instead of options; invalid options of commands."""

import re

import pytest

from catalogue import Catalogue
from catalogue.errors import QueryError, UncoveredColumns
from tests.support.commands import Command


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "*.example.com"], "is not the URL of one page; captures of many: catalogue query"),
        (["get", "example.com", "--text", "--links"], "--text and --links exclude each other"),
        (["get", "example.com", "--main-content"], "--main-content needs --text or --markdown"),
        (["get", "example.com", "--json", "--record"], "--json and --record exclude each other"),
        (["get", "example.com", "--at", "yesterday"], "invalid time 'yesterday'"),
        (["get", "example.com", "--receipt", "r"], "--receipt needs one output file"),
        (["query", "example.com", "--receipt", "r"], "--receipt needs one output file"),
        (["query", "example.com", "--receipt", "r.csv", "-o", "r.csv"], "need different files"),
        (["verify", "missing"], "missing cannot be read"),
        (["site", "a*"], "'a*' is not a site; use a host, such as example.com"),
        (["site", "example.com", "--crawl", "all"], "a report needs one crawl"),
        (["site", "https://"], "is not a site"),
        (["sample", "-n", "0"], "-n"),
        (["sample", "-n", "5", "--fetch", "warc"], "no output; add one, such as -o"),
        (
            ["sample", "-n", "5", "--fetch", "warc", "--format", "csv", "-o", "x.warc.gz"],
            "leave out --format or --fetch",
        ),
        (["sample", "-n", "5", "--fetch", "text", "-o", "x.warc.gz"], "ends in .jsonl"),
        (["sample", "-n", "5", "-o", "x.unknown"], "add --format"),
        (["sample", "-n", "5", "--json"], "use --format jsonl"),
        (["sample", "-n", "5", "--max-size", "1MB"], "need --fetch"),
        (["sample", "-n", "5", "--max", "2"], "--max needs --per"),
        (["sample", "-n", "5", "--fetch", "warc", "--main-content", "-o", "x.warc.gz"], "warc has no texts"),
        (["sample", "-n", "5", "--urls-file", "/dev/null"], "a query needs a pattern"),
        (["sample", "-n", "500", "--max-requests", "0"], "narrow the query, or add --yes"),
    ],
)
def test_commands_reject_invalid_options(asking: Command, words: list[str], message: str) -> None:
    ran = asking(*words)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
