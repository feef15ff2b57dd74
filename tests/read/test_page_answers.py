"""Reads by pages, chunks and complete files return the same rows; pages cost less."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.parquet.page_index import encode_offset_index
from catalogue.parquet.stored_indexes import Indexes
from catalogue.plan.crawl_plan import PlannedRowGroup
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.surt import parse_pattern
from tests.read.test_answers import Scan, in_order, random_patterns, rows_of, scan

__all__ = ["scan"]  # a fixture

COLUMNS = ["url_surtkey", "url", "fetch_time", "fetch_status", "content_languages", "warc_record_offset"]
PRICES = {
    "bytes alone count": (1e6, 0.0),
    "requests are cheap": (1e6, 0.001),
    "requests cost something": (1e6, 0.05),
    "a slow line": (5e4, 0.1),
}
"""Bytes a second, and seconds of latency."""


@pytest.fixture
def data(untaught_data: Path, tmp_path: Path) -> Path:
    """Footers of all crawls, and nothing of their pages."""
    return Path(copytree(untaught_data, tmp_path / "data"))


def priced(settings: Settings, bandwidth: float, latency: float) -> Settings:
    return replace(settings, bandwidth=bandwidth, latency=latency)


@pytest.fixture
def cheap(data: Path, settings: Settings) -> Iterator[Catalogue]:
    """A catalogue for which pages are always cheaper than chunks."""
    with catalogue.open(data, settings=priced(settings, *PRICES["requests are cheap"])) as cat:
        yield cat


@pytest.mark.parametrize("price", PRICES)
def test_pages_and_chunks_equal_full_scans(
    data: Path, settings: Settings, all_rows: pa.Table, scan: Scan, price: str
) -> None:
    """Whatever is cheaper: first without indexes, then with what the first time taught."""
    chance = random.Random(price)
    with catalogue.open(data, settings=priced(settings, *PRICES[price])) as cat:
        pages = 0
        for text in islice(random_patterns(all_rows, 11, seed=len(price)), [*PRICES].index(price), None, 4):
            expected = scan([parse_pattern(text)])
            found = cat.captures(text, columns=COLUMNS, subsets="all")
            answer = found.to_arrow()
            assert in_order(answer, COLUMNS).equals(in_order(expected, COLUMNS)), text
            assert cat.captures(text, subsets="all").count() == expected.num_rows
            again = cat.captures(text, columns=COLUMNS, subsets="all")
            again.fetch_indexes()
            before = (cat.requests, cat.bytes)
            assert again.to_arrow() == answer
            made = (cat.requests - before[0], cat.bytes - before[1])
            planned = (again.plan.requests, again.plan.bytes)
            assert made == planned if again.plan.exact else all(m <= p for m, p in zip(made, planned, strict=True))
            limit = chance.randint(1, 30)
            assert cat.captures(text, columns=COLUMNS, limit=limit, subsets="all").to_arrow() == answer.slice(0, limit)
            pages += again.plan.pages
        assert pages > 50 or price == "requests cost something"


CONDITIONS = [
    "fetch_status = 200",
    "content_languages = 'deu'",
    "length(url) > 60",
    "fetch_status <> 200 OR crawl < 'CC-MAIN-2021'",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_on_pages_equal_full_scans(cheap: Catalogue, all_rows: pa.Table, scan: Scan, condition: str) -> None:
    """Each meets two kinds of patterns, and others than the one after it."""
    for text in islice(random_patterns(all_rows, 6, seed=len(condition)), CONDITIONS.index(condition) % 3, None, 3):
        expected = scan([parse_pattern(text)], condition)
        for _ in range(2):
            found = cheap.captures(text, columns=COLUMNS, where=condition, subsets="all")
            assert in_order(found.to_arrow(), COLUMNS).equals(in_order(expected, COLUMNS)), text
        assert cheap.captures(text, where=condition, subsets="all").count() == expected.num_rows


def sorted_crawl(cat: Catalogue) -> str:
    """The newest crawl with page indexes."""
    return str(cat.files().query("has_page_index").crawl.max())


def test_complete_chunk_teaches_its_pages(cheap: Catalogue) -> None:
    crawl = str(cheap.files().query("not has_page_index").crawl.min())
    first = cheap.captures("*.example.com", crawls=crawl, columns=COLUMNS, subsets="all")
    assert first.plan.chunks > 0 == first.plan.pages
    before = cheap.bytes
    rows = first.to_arrow()
    cost = cheap.bytes - before
    second = cheap.captures("*.example.com", crawls=crawl, columns=COLUMNS, subsets="all")
    assert second.plan.pages > 0
    before = cheap.bytes
    assert second.to_arrow() == rows
    assert cheap.bytes - before < cost
    learned = cheap.pages(crawl)
    assert set(learned.pages_from) == {"scan"}
    assert (learned.min_url_surtkey <= learned.max_url_surtkey).all()


def test_learns_pages_of_small_row_groups_only_where_the_file_has_no_index(
    data: Path, settings: Settings, all_rows: pa.Table
) -> None:
    """They are read whole in less than a round trip."""
    with catalogue.open(data, settings=priced(settings, 1e9, 10.0)) as cat:
        without = str(cat.files().query("not has_page_index").crawl.min())
        for crawl, learned in (sorted_crawl(cat), set()), (without, {"scan"}):
            of_crawl = all_rows.filter(pc.field("crawl") == crawl)
            for url in random.Random(3).sample(of_crawl["url"].to_pylist(), 5):
                found = cat.captures(url, crawls=crawl, exact_url=True, columns=COLUMNS, subsets="all")
                assert learned or found.plan.chunks > 0 == found.plan.pages
                expected = of_crawl.filter(pc.field("url") == url)
                assert in_order(found.to_arrow(), COLUMNS).equals(in_order(expected, COLUMNS))
            assert {*cat.pages(crawl).pages_from} == learned


def test_does_not_learn_stored_page_indexes(cheap: Catalogue) -> None:
    """Though the index of row groups that match whole is of no use to a plan; and other columns have pages, too."""
    with Store(cheap.session.data / "footers.sqlite") as store:
        states = []
        for columns in (["url"], ["url"], ["url", "fetch_status"], ["fetch_status"]):
            found = cheap.captures("*", columns=columns, subsets="all")
            assert found.to_arrow().num_rows > 0
            assert found.plan.pages < found.plan.chunks
            states.append(store.index_state())
            found.to_arrow()
            assert store.index_state() == states[-1]
    assert states[0] == states[1] != states[2] == states[3]


def test_row_groups_without_bounds_learn_them(cheap: Catalogue) -> None:
    missing = cheap.row_groups().query("bounds_from == 'missing'")
    if missing.empty:
        pytest.skip("every row group of this mirror has bounds")
    crawl = str(missing.crawl.iloc[0])
    cheap.captures("*.example.com", crawls=crawl, columns=COLUMNS, subsets="all").to_arrow()
    after = cheap.row_groups(crawl).query("bounds_from in ['scan', 'page index']")
    assert len(after) == len(missing.query("crawl == @crawl"))
    assert (after.min_url_surtkey <= after.max_url_surtkey).all()


@pytest.mark.parametrize("damage", ["noise", "empty", "another column's", "a bound that cannot be", "a row shifted"])
def test_wrong_index_changes_no_result(data: Path, settings: Settings, damage: str) -> None:
    """It is noticed, said, and got round."""
    messages: list[str] = []
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
        healed = cat.captures("*.example.com", crawls=crawl, columns=COLUMNS, subsets="all")
        assert rows_of(healed.to_arrow(), COLUMNS) == rows_of(rows, COLUMNS)
        assert not any(path in text for text in healed.plan.warnings)


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
