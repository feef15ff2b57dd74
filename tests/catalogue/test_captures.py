"""Captures in Python: arguments and their errors, loops, the first rows, columns, length, truth."""

import pydoc
import re
from itertools import islice
from typing import Any

import pandas as pd
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import QueryError, UnknownColumn
from tests.support.amounts import in_part
from tests.support.commands import Command


@pytest.mark.parametrize(
    ("call", "given", "wrong", "message"),
    [
        ("captures", ["a.example"], "crawl", "captures() has no argument crawl; did you mean crawls=?"),
        ("harvest", [], "crawl", "harvest() has no argument crawl; did you mean crawls=?"),
        ("get", ["a.example"], "crawl", "get() has no argument crawl; did you mean crawls=?"),
        ("join", [["a.example"]], "column", "join() has no argument column; did you mean columns=?"),
        ("scan", [], "crawl", "scan() has no argument crawl; did you mean crawls=?"),
        ("forget", ["2022-05"], "xyzzy", "forget() has no argument xyzzy; it has crawls"),
        ("captures", [], "crawls", "missing 1 required positional argument: 'patterns'"),
    ],
)
def test_unknown_arguments_are_answered_with_the_most_similar_one(
    harvested: Catalogue, call: str, given: list[object], wrong: str, message: str
) -> None:
    with pytest.raises(TypeError, match=f"{re.escape(message)}$"):
        getattr(harvested, call)(*given, **{wrong: "latest"})


def test_messages_name_arguments(harvested: Catalogue, crawl: str) -> None:
    with pytest.raises(UnknownColumn, match=r"no column url_path; use index='columnar'$"):
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
    "words", [["--limit", "0"], ["--limit", "2", "--count"], ["--limit", "2", "--count", "--latest"]]
)
def test_prints_whether_a_limit_was_reached(asking: Command, words: list[str]) -> None:
    ran = asking("query", "*.example.com", *words)
    assert ran.status == 0
    assert "; there may be more, beyond --limit\n" in ran.err


COLUMNS = ["url", "fetch_time", "fetch_status"]


def test_iteration_yields_dicts(harvested: Catalogue) -> None:
    found = harvested.captures("*.example.com", columns=COLUMNS)
    table = found.to_arrow()
    assert found.columns == table.column_names == [*COLUMNS, "crawl", "subset"]
    assert list(found) == table.to_pylist()
    assert list(islice(found, 3)) == table.slice(0, 3).to_pylist()
    assert pd.DataFrame(found).shape == table.shape
    assert list(harvested.captures("nowhere.example")) == []


@in_part(2)
@pytest.mark.parametrize(
    "how", [{}, {"limit": 3}, {"ordered": True}, {"unique": "url"}, {"latest": True, "limit": 3}], ids=str
)
def test_head_returns_the_first_rows(harvested: Catalogue, how: dict[str, object]) -> None:
    found = harvested.captures("*.example.com", columns=COLUMNS, **how)  # type: ignore[arg-type]
    whole = found.to_pandas()
    assert whole.shape[0] in {3, *range(20, 10_000)}
    for few in (0, 2, 5):
        pd.testing.assert_frame_equal(found.head(few), whole.head(few))
    assert found.head(10**30).equals(whole)
    assert found.head().shape[0] == min(5, whole.shape[0])
    wrong: list[Any] = [-1, "5"]
    for number in wrong:
        with pytest.raises(QueryError, match=f"invalid limit {number!r}; use a whole number, 0 or more"):
            found.head(number)
    assert found.question.query.limit == (None if "unique" in how or "latest" in how else how.get("limit"))


def test_head_reads_no_more_than_a_limit(harvested: Catalogue) -> None:
    found = harvested.captures("*", columns=COLUMNS)
    before = harvested.bytes
    harvested.captures("*", columns=COLUMNS, limit=2).to_pandas()
    limited = harvested.bytes - before
    found.head(2)
    assert harvested.bytes - before == 2 * limited
    assert 0 < limited < found.plan.bytes


def test_length_is_known_after_reading_or_if_nothing_can_match(harvested: Catalogue) -> None:
    for read in (lambda found: found.count(), lambda found: found.to_arrow().num_rows, lambda found: len(list(found))):
        found = harvested.captures("*.example.com", columns=COLUMNS)
        before = harvested.bytes
        with pytest.raises(TypeError, match=r"count\(\) reads"):
            len(found)
        assert found
        assert harvested.bytes == before
        rows = read(found)
        read_bytes = harvested.bytes
        assert len(found) == rows > 0
        assert harvested.bytes == read_bytes
    started = harvested.captures("*.example.com")
    next(iter(started))
    with pytest.raises(TypeError):
        len(started)
    empty = harvested.captures("*.example.com", limit=0)
    before = harvested.bytes
    assert len(empty) == 0
    assert empty
    assert harvested.bytes == before


def test_help_shows_no_function_addresses() -> None:
    for name in catalogue.__all__:
        assert " at 0x" not in pydoc.render_doc(getattr(catalogue, name)), name
