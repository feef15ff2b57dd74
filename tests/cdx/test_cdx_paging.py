"""Pages of an answer: disjoint, complete, never empty, and the same whenever they are asked for."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catalogue
from catalogue.catalogue import Catalogue
from catalogue.cdx.cdx_request import parse_request
from catalogue.cdx.paging import BLOCK_ROWS, Block, Mark, cut, marks, pages_of
from catalogue.commoncrawl.capture import format_timestamp
from catalogue.parquet.model import Bounds
from catalogue.selection import stored_crawls
from catalogue.server.cdx_search import has_captures, page_of, part_of
from catalogue.settings import Settings
from catalogue.surt import EVERYTHING, KeyInterval, covers, merge, parse_pattern
from tests.read.test_answers import scanned

KEYS = st.binary(max_size=3).map(lambda key: bytes(byte & 0x7F for byte in key))
INTERVALS = st.lists(st.tuples(KEYS, KEYS).filter(lambda ends: ends[0] < ends[1]), min_size=1, max_size=4).map(
    lambda found: merge(KeyInterval(*ends) for ends in found)
)
MARKS = st.lists(st.builds(Mark, KEYS, st.integers(1, 4 * BLOCK_ROWS).map(float)), max_size=40)


@given(INTERVALS, MARKS, st.lists(KEYS, max_size=40), st.integers(1, 9))
def test_blocks_and_pages_hold_each_key_once(
    intervals: tuple[KeyInterval, ...], at: list[Mark], keys: list[bytes], size: int
) -> None:
    blocks = cut(intervals, at)
    pages = pages_of(blocks, size)
    assert [block for page in pages for block in page] == list(blocks)
    assert all(sum(block.size for block in page) <= size or len(page) == 1 for page in pages)
    for key in keys:
        holding = [block for block in blocks if covers(block.intervals, key)]
        assert len(holding) == covers(intervals, key)
    flat = [each for block in blocks for each in block.intervals]
    assert merge(flat) == intervals
    assert flat == sorted(flat)


@given(INTERVALS, MARKS)
def test_a_block_among_others_has_a_mark_in_it_and_about_as_many_rows_as_it_should(
    intervals: tuple[KeyInterval, ...], at: list[Mark]
) -> None:
    blocks = cut(intervals, at)
    for block in blocks:
        inside = [mark for mark in at if covers(block.intervals, mark.key)]
        rows = sum(mark.rows for mark in inside)
        assert inside or len(blocks) == 1
        assert block.size == max(1, round(rows / BLOCK_ROWS))
        last = max((mark.key for mark in inside), default=b"")
        assert rows - sum(mark.rows for mark in inside if mark.key == last) < BLOCK_ROWS
        assert rows >= BLOCK_ROWS or block is blocks[-1]


def runs(*keys: str, rows: int = BLOCK_ROWS) -> list[tuple[Bounds, int]]:
    return [(Bounds(low.encode(), high.encode()), rows) for low, _, high in (key.partition("-") for key in keys)]


def starts(blocks: Sequence[Block]) -> list[str]:
    return [block.intervals[0].start.decode() for block in blocks]


def test_where_pages_of_a_file_follow_each_other_an_answer_is_cut_where_they_begin() -> None:
    assert starts(cut([EVERYTHING], marks([runs("a-b", "b-d", "e-g", "g-h")]))) == ["", "b", "e", "g"]


def test_where_two_streams_were_zipped_it_is_cut_in_both() -> None:
    zipped = runs("a-m", "b-n", "c-o", "d-p", rows=2 * BLOCK_ROWS)
    assert starts(cut([EVERYTHING], marks([zipped]))) == ["", "b", "c", "d", "m", "n", "o", "p"]


def test_pages_have_as_many_blocks_as_are_asked_for() -> None:
    blocks = cut([EVERYTHING], marks([runs(*(f"{letter}-{letter}" for letter in "abcdefgh"))]))
    assert [len(page) for page in pages_of(blocks, 3)] == [3, 3, 2]
    assert len(pages_of(blocks, 1)) == 8
    assert pages_of((), 5) == []


def test_pages_of_many_blocks_take_no_longer_than_the_blocks() -> None:
    blocks = [Block((EVERYTHING,), 1)] * 60_000
    began = time.process_time()
    assert [len(page) for page in pages_of(blocks, 10**17)] == [60_000]
    assert time.process_time() - began < 5  # what looks at a page again for each block takes a minute


def test_a_block_that_is_larger_than_a_page_is_one() -> None:
    blocks = cut([EVERYTHING], marks([runs("a-b", "c-d", rows=10 * BLOCK_ROWS)]))
    assert [block.size for block in blocks] == [10, 10]
    assert [len(page) for page in pages_of(blocks, 5)] == [1, 1]


# ---- of real crawls ----


def page_lines(cat: Catalogue, crawl: str, url: str, number: int, size: int) -> tuple[int, list[str]]:
    """How many pages there are, and the lines of one of them."""
    asked = {"url": url, "page": str(number), "pageSize": str(size), "output": "text", "fl": "urlkey,timestamp"}
    request = parse_request([*asked.items()])
    page = page_of(cat, crawl, request)
    lines: list[str] = []
    for intervals in page.parts:
        lines += part_of(cat, crawl, request, intervals).column("line").to_pylist()
    return page.pages, lines


@pytest.fixture(scope="module")
def learning(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    with catalogue.open(
        copytree(untaught_data, tmp_path_factory.mktemp("learning") / "data"), settings=settings
    ) as cat:
        yield cat


@pytest.mark.parametrize("url", ["*.nosuch.example", "example.com/*", "*.example.com", "*.com"])
def test_pages_of_every_crawl_are_all_of_it_whatever_was_learned_meanwhile(
    learning: Catalogue, all_rows: pa.Table, url: str
) -> None:
    """Each is about more than the one before it, so that there is something to be learned."""
    crawls = stored_crawls(learning.session)
    rows = scanned(all_rows.select(["url_surtkey", "fetch_time", "crawl"]), [parse_pattern(url)]).to_pylist()
    for crawl in (crawls[0], crawls[-1]) if url == "*.com" else crawls:
        expected = sorted(
            (row["url_surtkey"], format_timestamp(row["fetch_time"])) for row in rows if row["crawl"] == crawl
        )
        for size in (1, 3) if url == "*.example.com" else (1,):
            pages, found = page_lines(learning, crawl, url, 0, size)
            each = [found]
            for number in range(1, pages):
                again, lines = page_lines(learning, crawl, url, number, size)
                assert again == pages
                each.append(lines)
            assert all(each) or not expected
            lines = [line for page in each for line in page]
            assert lines == sorted(lines)
            assert [tuple(line.split(" ")[:2]) for line in lines] == expected
            assert page_lines(learning, crawl, url, 0, size) == (pages, found)


def test_some_answers_have_pages(harvested: Catalogue) -> None:
    found = [
        page_of(harvested, crawl, parse_request([("url", "*"), ("pageSize", "1")]))
        for crawl in stored_crawls(harvested.session)
    ]
    assert max(page.pages for page in found) > 1
    assert all(page.sure for page in found if page.pages > 1)


def test_an_exact_url_is_one_page_and_needs_no_page_index(harvested: Catalogue) -> None:
    crawl = stored_crawls(harvested.session)[0]
    before = harvested.requests
    page = page_of(harvested, crawl, parse_request([("url", "example.com")]))
    assert (page.pages, page.blocks, len(page.parts), page.sure) == (1, 1, 1, False)
    assert harvested.requests == before


def test_whether_there_is_anything_at_all(harvested: Catalogue) -> None:
    crawl = stored_crawls(harvested.session)[0]
    assert has_captures(harvested, crawl, parse_request([("url", "*.com")]))
    assert not has_captures(harvested, crawl, parse_request([("url", "nosuch.example")]))


def test_times_at_which_nothing_was_fetched_need_nothing_read(harvested: Catalogue) -> None:
    request = parse_request([("url", "*.com"), ("from", "2099")])
    before = harvested.requests
    for crawl in stored_crawls(harvested.session):
        assert page_of(harvested, crawl, request).parts == ()
    assert harvested.requests == before
    counting = replace(request, counts_pages=True)
    assert page_of(harvested, stored_crawls(harvested.session)[0], counting).pages > 0  # which does not regard times
