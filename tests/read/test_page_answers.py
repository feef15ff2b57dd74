"""Reads by pages, chunks and complete files return the same rows; pages cost less."""

import random
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.parquet.page_index import Indexes
from catalogue.plan.crawl_plan import PlannedRowGroup
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.surt.pattern import parse_pattern
from tests.read.test_answers import Scan, in_order, random_patterns, rows_of, scan
from tests.support.page_indexes import encode_offset_index

__all__ = ["scan"]  # a fixture

COLUMNS = ["url_surtkey", "url", "fetch_time", "fetch_status", "content_languages", "warc_record_offset"]
PRICES = {
    "bytes alone count": (1e6, 0.0),
    "requests are cheap": (1e6, 0.001),
    "requests cost something": (1e6, 0.05),
    "a slow line": (5e4, 0.1),
}
"""Bytes a second, and seconds of latency."""


CONDITIONS = ["length(url) > 60", "fetch_status <> 200 OR crawl < 'CC-MAIN-2021'"]


def priced(settings: Settings, bandwidth: float, latency: float) -> Settings:
    return replace(settings, bandwidth=bandwidth, latency=latency)


@pytest.fixture(scope="module")
def paged_data(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with page indexes; to be copied."""
    data = Path(copytree(untaught_data, tmp_path_factory.mktemp("paged") / "data"))
    with catalogue.open(data, settings=settings) as cat:
        cat.harvest("all", subsets="all", pages=True)
    return data


@pytest.mark.in_part(4)
@pytest.mark.parametrize("price", PRICES)
def test_pages_and_chunks_equal_full_scans(
    data: Path, paged_data: Path, settings: Settings, all_rows: pa.Table, scan: Scan, price: str, tmp_path: Path
) -> None:
    """Return the same rows by whole chunks and by pages, whatever is cheaper."""
    chance = random.Random(price)
    with catalogue.open(data, settings=priced(settings, *PRICES[price])) as cat:
        answers = {}
        for text in islice(random_patterns(all_rows, 11, seed=len(price)), [*PRICES].index(price), None, 4):
            expected = scan([parse_pattern(text)])
            answers[text] = cat.captures(text, columns=COLUMNS, subsets="all").to_arrow()
            assert in_order(answers[text], COLUMNS).equals(in_order(expected, COLUMNS)), text
            assert cat.captures(text, subsets="all").count() == expected.num_rows
    with catalogue.open(copytree(paged_data, tmp_path / "paged"), settings=priced(settings, *PRICES[price])) as cat:
        pages = 0
        for text, answer in answers.items():
            again = cat.captures(text, columns=COLUMNS, subsets="all")
            again.fetch_indexes()
            before = (cat.requests, cat.bytes)
            assert again.to_arrow() == answer
            made = (cat.requests - before[0], cat.bytes - before[1])
            planned = (again.plan.requests, again.plan.bytes)
            assert made == planned if again.plan.exact else all(m <= p for m, p in zip(made, planned, strict=True))
            for condition in CONDITIONS:
                expected = scan([parse_pattern(text)], condition)
                found = cat.captures(text, columns=COLUMNS, where=condition, subsets="all")
                assert in_order(found.to_arrow(), COLUMNS).equals(in_order(expected, COLUMNS)), (text, condition)
            limit = chance.randint(1, 30)
            assert cat.captures(text, columns=COLUMNS, limit=limit, subsets="all").to_arrow() == answer.slice(0, limit)
            pages += again.plan.pages
        assert pages > 50 or price == "requests cost something"


def sorted_crawl(cat: Catalogue) -> str:
    """The newest crawl with page indexes."""
    return str(cat.files().query("has_page_index").crawl.max())


def test_reading_stores_nothing_about_files_without_page_indexes(data: Path, settings: Settings) -> None:
    with catalogue.open(data, settings=priced(settings, *PRICES["requests are cheap"])) as cat:
        crawl = str(cat.files().query("not has_page_index").crawl.min())
        found = cat.captures("*.example.com", crawls=crawl, columns=COLUMNS, subsets="all")
        plan = found.plan
        assert plan.chunks > 0 == plan.pages
        assert re.search(rf"column chunks read whole +{plan.chunks}\n", str(plan))
        bounds = cat.row_groups(crawl).bounds_from
        assert found.to_arrow().num_rows > 0
        assert cat.session.store.count("indexes") == 0
        assert cat.captures("*.example.com", crawls=crawl, columns=COLUMNS, subsets="all").plan == plan
        assert cat.pages(crawl).empty
        assert cat.row_groups(crawl).bounds_from.equals(bounds)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("damage", ["noise", "empty", "another column's", "a bound that cannot be", "a row shifted"])
def test_wrong_index_changes_no_result(paged_data: Path, settings: Settings, damage: str, tmp_path: Path) -> None:
    """The row groups are read whole, and a message says why."""
    messages: list[str] = []
    data = Path(copytree(paged_data, tmp_path / "data"))
    chosen = priced(settings, *PRICES["bytes alone count"])
    with Catalogue(Session(data, chosen, notify=messages.append)) as cat:
        crawl = sorted_crawl(cat)
        found = cat.captures("*.example.com", crawls=crawl, columns=COLUMNS, subsets="all")
        rows = found.to_arrow()
        plan = cat.captures("*.example.com", crawls=crawl, columns=COLUMNS, subsets="all").fetch_indexes()
        read = plan.files[0]
        path = read.file.path
        with Store(data / "footers.sqlite") as store:
            version = store.get("files", path)
            assert version
            stored = store.indexes(path, [group.ordinal for group in read.row_groups], version)
            store.delete("indexes", store.keys("indexes"))
            wrong = {group.ordinal: damaged(stored[group.ordinal], group, damage) for group in read.row_groups}
            store.add_indexes(path, wrong, version)
        again = cat.captures("*.example.com", crawls=crawl, columns=COLUMNS, subsets="all")
        assert rows_of(again.to_arrow(), COLUMNS) == rows_of(rows, COLUMNS)
        assert any(path in text for text in [*again.plan.warnings, *messages])


def damaged(indexes: Indexes, group: PlannedRowGroup, how: str) -> Indexes:
    """A wrong index that looks more or less like a right one."""
    bounds, located = indexes.column_index or b"", dict(indexes.offset_indexes)
    match how:
        case "noise":
            return Indexes(bytes(byte ^ 0x55 for byte in bounds), located)
        case "empty":
            return Indexes(b"\0", located)
        case "another column's":
            return Indexes(bounds, dict.fromkeys(located, located["url"]))
        case "a bound that cannot be":
            return Indexes(bounds.replace(b"com,example", b"zom,example", 1), located)
    key = group.columns[0]
    assert key.index
    page = max(1, key.pages[0].start)  # one that is read begins or ends there
    rows = [row + (number == page) for number, row in enumerate(key.index.first_rows)]
    return Indexes(bounds, {**located, "url_surtkey": encode_offset_index(replace(key.index, first_rows=tuple(rows)))})
