"""Pages of the CDX API: disjoint, complete, never empty, and always the same."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catalogue
from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.capture import format_timestamp
from catalogue.parquet.model import Bounds
from catalogue.server.cdx_paging import BLOCK_ROWS, Mark, ResultBlock, cut, marks, pages_of
from catalogue.server.cdx_request import parse_request
from catalogue.server.cdx_search import CdxSearch
from catalogue.server.memory import Memory
from catalogue.settings import Settings
from catalogue.surt.interval import EVERYTHING, KeyInterval, covers, merge
from catalogue.surt.pattern import parse_pattern
from tests.read.test_answers import scanned
from tests.support.catalogues import catalogue_in
from tests.support.crawls import CRAWL, crawl_of, table

KEYS = st.binary(max_size=3).map(lambda key: bytes(byte & 0x7F for byte in key))
INTERVALS = st.lists(st.tuples(KEYS, KEYS).filter(lambda ends: ends[0] < ends[1]), min_size=1, max_size=4).map(
    lambda found: merge(KeyInterval(*ends) for ends in found)
)
MARKS = st.lists(st.tuples(KEYS, st.integers(1, 4 * BLOCK_ROWS).map(float)), max_size=40)


@given(INTERVALS, MARKS, st.lists(KEYS, max_size=40), st.integers(1, 9))
def test_each_key_is_on_one_page(
    intervals: tuple[KeyInterval, ...], at: list[Mark], keys: list[bytes], size: int
) -> None:
    blocks = cut(intervals, at)
    pages = pages_of(blocks, size)
    assert [block for page in pages for block in page] == list(blocks)
    assert all(sum(block.size for block in page) <= size or len(page) == 1 for page in pages)
    for block in blocks:
        rows = sum(following for key, following in at if covers(block.intervals, key))
        assert block.size == max(1, round(rows / BLOCK_ROWS))
    for key in keys:
        holding = [block for block in blocks if covers(block.intervals, key)]
        assert len(holding) == covers(intervals, key)
    flat = [each for block in blocks for each in block.intervals]
    assert merge(flat) == intervals
    assert flat == sorted(flat)


def runs(*keys: str, rows: int = BLOCK_ROWS) -> list[tuple[Bounds, int]]:
    return [(Bounds(low.encode(), high.encode()), rows) for low, _, high in (key.partition("-") for key in keys)]


def starts(blocks: Sequence[ResultBlock]) -> list[str]:
    return [block.intervals[0].start.decode() for block in blocks]


def test_cuts_at_starts_of_pages_also_of_both_zipped_streams() -> None:
    assert starts(cut([EVERYTHING], marks([runs("a-b", "b-d", "e-g", "g-h")]))) == ["", "b", "e", "g"]
    zipped = runs("a-m", "b-n", "c-o", "d-p", rows=2 * BLOCK_ROWS)
    assert starts(cut([EVERYTHING], marks([zipped]))) == ["", "b", "c", "d", "m", "n", "o", "p"]


def test_paging_takes_linear_time() -> None:
    blocks = [ResultBlock((EVERYTHING,), 1)] * 60_000
    began = time.process_time()
    assert [len(page) for page in pages_of(blocks, 10**17)] == [60_000]
    assert time.process_time() - began < 5  # quadratic time would be a minute


def page_lines(cat: Catalogue, crawl: str, url: str, number: int, size: int) -> tuple[int, list[str]]:
    parameters = {"url": url, "page": str(number), "pageSize": str(size), "output": "text", "fl": "urlkey,timestamp"}
    request = parse_request([*parameters.items()])
    search = CdxSearch(cat.session, crawl, Memory(0))
    page = search.find_page(request)
    lines = [line for intervals in page.parts for line in search.read_part(request, intervals)]
    return page.pages, lines


@pytest.fixture(scope="module")
def reading(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    with catalogue.open(copytree(untaught_data, tmp_path_factory.mktemp("reading") / "data"), settings=settings) as cat:
        yield cat


@pytest.mark.in_part(3)
@pytest.mark.parametrize("url", ["*.nosuch.example", "example.com/*", "*.example.com", "*.com"])
def test_pages_are_complete_and_do_not_change_while_page_indexes_are_fetched(
    reading: Catalogue, all_rows: pa.Table, url: str
) -> None:
    """Each pattern includes more than the one before, so that reading fetches others."""
    crawls = reading.session.stored_crawls()
    rows = scanned(all_rows.select(["url_surtkey", "fetch_time", "crawl"]), [parse_pattern(url)]).to_pylist()
    for crawl in (crawls[0], crawls[-1]) if url in {"*.example.com", "*.com"} else crawls:
        expected = sorted(
            (row["url_surtkey"], format_timestamp(row["fetch_time"])) for row in rows if row["crawl"] == crawl
        )
        for size in (1, 3) if url == "*.example.com" else (1,):
            pages, found = page_lines(reading, crawl, url, 0, size)
            each = [found]
            for number in range(1, pages):
                again, lines = page_lines(reading, crawl, url, number, size)
                assert again == pages
                each.append(lines)
            assert all(each) or not expected
            lines = [line for page in each for line in page]
            assert lines == sorted(lines)
            assert [tuple(line.split(" ")[:2]) for line in lines] == expected
            assert page_lines(reading, crawl, url, 0, size) == (pages, found)


@pytest.mark.parametrize("stored", [{}, {"index": "columnar"}, {"index": "columnar", "subsets": "all"}])
def test_pages_begin_at_blocks_whatever_is_stored(whole_mirror: Path, stored: dict[str, Any], tmp_path: Path) -> None:
    lists = whole_mirror.glob("cc-index/collections/*/indexes/cluster.idx")
    crawl = max(lists, key=lambda path: path.stat().st_size).parts[-3]
    answers = []
    for number, words in enumerate(({"index": "cdx"}, stored)):
        with catalogue_in(tmp_path / f"{number}", whole_mirror) as cat:
            cat.session.create_store()
            if words:
                cat.harvest(crawl, **words)
            found = [page_lines(cat, crawl, url, number, 5) for url in ("*.com", "*.org") for number in range(3)]
            assert found[0][0] > 1
            answers.append(found)
    assert answers[0] == answers[1]


def test_an_exact_url_needs_no_page_index(harvested: Catalogue) -> None:
    crawl, before = harvested.session.stored_crawls()[0], harvested.requests
    page = CdxSearch(harvested.session, crawl, Memory()).find_page(parse_request([("url", "example.com")]))
    assert (page.pages, page.blocks, len(page.parts)) == (1, 1, 1)
    assert harvested.requests == before


def test_many_row_groups_are_cut_without_page_indexes(tmp_path: Path) -> None:
    keys = [f"com,example)/{number:05}" for number in range(60_400)]
    crawl_of(tmp_path / "mirror", table(keys).select(["url_surtkey"]), row_group_size=200)
    with catalogue_in(tmp_path, tmp_path / "mirror", cache_size=0) as cat:
        cat.harvest(CRAWL)
        requests = cat.requests
        request = parse_request([("url", "*.example.com")])
        page = CdxSearch(cat.session, CRAWL, Memory(0)).find_page(request)
        assert (page.pages, page.blocks, cat.requests) == (5, 21, requests + 1)  # there is no CDX index
        found = [page_lines(cat, CRAWL, "*.example.com", number, 5) for number in range(5)]
        assert [line.split(" ")[0] for _, lines in found for line in lines] == keys
