"""Ranges of crawls and years: what is stored of them is the answer, and what is not stored is reported."""

import re
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import NotHarvested, UnknownCrawl
from catalogue.reports import crawl_rows
from catalogue.selection import stored_crawls
from catalogue.settings import Settings
from tests.support.commands import Command

COLUMNAR = ("--index", "columnar")


@pytest.fixture
def cat(untaught_data: Path, settings: Settings, tmp_path: Path) -> Iterator[Catalogue]:
    """All crawls are listed, and all but the second are stored."""
    data = copytree(untaught_data, tmp_path / "data")
    with catalogue.open(data, settings=settings) as opened:
        opened.forget(stored_crawls(opened.session)[1])
        yield opened


def missing(cat: Catalogue, crawls: str) -> tuple[str, ...]:
    found = cat.captures("*.example.com", crawls=crawls, index="columnar")
    assert found.complete == (not found.plan.missing)
    return found.plan.missing


def listed(cat: Catalogue) -> list[str]:
    """Newest first; one has no columnar index."""
    return [row["crawl"] for row in crawl_rows(cat.session) if row["has_table"]]


def test_reports_crawls_of_a_range_that_are_not_stored(cat: Catalogue) -> None:
    newest, removed, *_, oldest = listed(cat)
    count = len(listed(cat))
    closed = f"{oldest}..{newest}"
    messages = (
        f"{count - 1} of the {count} crawls in {closed} are harvested; run: catalogue harvest --crawl {closed}",
    )
    for words in (closed, f"{oldest}..", f"..{newest}", ".."):
        assert missing(cat, words) == messages
    assert missing(cat, f"{oldest[8:]}..LATEST") == messages
    assert missing(cat, "all") == ()
    assert missing(cat, f"{oldest},{newest}") == ()
    cat.harvest(removed)
    assert missing(cat, closed) == ()


def test_rejects_a_range_whose_end_is_not_stored(cat: Catalogue) -> None:
    newest, removed, *_, oldest = listed(cat)
    for words in (f"{oldest}..{removed}", f"{removed}..{newest}", f"{removed}.."):
        with pytest.raises(
            NotHarvested, match=f"^{removed} is not harvested yet; run: catalogue harvest --crawl {removed}\n"
        ):
            cat.captures("example.com", crawls=words, index="columnar")
    with pytest.raises(UnknownCrawl, match=f"^'.{newest}' is not the name of a crawl; did you mean {newest}"):
        cat.captures("example.com", crawls=f"{oldest}...{newest}", index="columnar")


def test_year_selects_its_crawls_and_reports_missing_ones(cat: Catalogue) -> None:
    newest, removed, *_ = listed(cat)
    year, gone_year = newest[8:12], removed[8:12]
    assert stored_crawls(cat.session, year) == [newest]
    assert missing(cat, year) == ()
    assert missing(cat, f"{gone_year}..{year}")
    with pytest.raises(NotHarvested, match=f"harvest --crawl {gone_year}\n"):
        cat.captures("example.com", crawls=gone_year, index="columnar")


def test_incomplete_range_exits_with_status_1(cat: Catalogue, command: Command) -> None:
    newest, *_, oldest = listed(cat)
    words = f"{oldest[8:]}..{newest[8:].lower()}"
    for requested in (
        ["query", "example.com", "--count", *COLUMNAR],
        ["plan", "example.com", *COLUMNAR],
        ["export", "ducklake"],
    ):
        ran = command(*requested, "--crawl", words)
        assert ran.status == 1
        assert " crawls in " in ran.out + ran.err
    plan = command("plan", "example.com", "--json", "--crawl", words, *COLUMNAR)
    assert (plan.status, plan.json()["complete"]) == (1, False)


def test_advice_to_harvest_names_the_subsets_of_the_query(cat: Catalogue, settings: Settings, tmp_path: Path) -> None:
    newest, removed, *_, oldest = listed(cat)
    chosen = ["robotstxt", "warc"]
    options = "--subset robotstxt --subset warc"
    for opened, crawls in (
        (cat, removed),
        (cat, removed[8:12]),
        (catalogue.open(tmp_path / "new", settings=settings), removed),
    ):
        with pytest.raises(NotHarvested, match=f"--crawl {crawls} {options}\n.*subsets={re.escape(str(chosen))}"):
            opened.captures("example.com", crawls=crawls, subsets=chosen, index="columnar")
    gap, *_ = cat.captures("example.com", crawls=f"{oldest}..{newest}", subsets=chosen, index="columnar").plan.missing
    assert gap.endswith(f"--crawl {oldest}..{newest} {options}")
