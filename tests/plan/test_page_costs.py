"""Requests and bytes of queries by pages, counted by the server."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.demo import LoopbackServer
from catalogue.parquet.model import RowGroup
from catalogue.plan.requests import Purpose
from catalogue.settings import Settings
from tests.read.test_page_answers import COLUMNS, priced, sorted_crawl
from tests.support.mirrors import read_footer
from tests.support.page_indexes import located_by_headers

CHEAP = (1e5, 0.02)
"""A line on which bytes count more than requests, so that pages are cheaper than chunks even as small as here."""


@pytest.fixture
def cat(data: Path, server: LoopbackServer, settings: Settings) -> Iterator[Catalogue]:
    """A catalogue of the footers of all crawls, and of nothing of their pages, over HTTP, that keeps no pages."""
    chosen = replace(priced(settings, *CHEAP), source=server.url, cache_size=0)
    with catalogue.open(data, settings=chosen) as opened:
        yield opened


def of_crawl(all_rows: pa.Table, crawl: str) -> pa.Table:
    return all_rows.filter((pc.field("crawl") == crawl) & (pc.field("subset") == "warc"))


def keys_of(mirror: Path, cat: Catalogue, crawl: str) -> Iterator[tuple[bytes, RowGroup, pa.ChunkedArray]]:
    """The content of each file of a crawl, each of its row groups, and the keys in it."""
    for path in cat.files(crawl).query("subset == 'warc'").path:
        content = (mirror / path).read_bytes()
        file = pq.ParquetFile(mirror / path)
        for group in read_footer(content).row_groups:
            yield content, group, file.read_row_group(group.ordinal, columns=[KEY_COLUMN])[KEY_COLUMN]


def pages_that_hold(there: Sequence[tuple[bytes, RowGroup, pa.ChunkedArray]], keys: pa.ChunkedArray) -> tuple[int, int]:
    """Bytes of the pages of ``COLUMNS`` that hold rows with some keys, dictionaries too; and how many columns' pages.

    By the files alone: their rows are read whole, and their pages told apart by their headers.
    """
    size = count = 0
    for content, group, stored in there:
        rows = np.flatnonzero(pc.is_in(stored, pc.unique(keys)).to_numpy()).tolist()
        if not rows:
            continue
        for name in COLUMNS:
            chunk = group.chunks[name]
            index = located_by_headers(content[chunk.range.start : chunk.range.end], chunk)
            size += sum(len(index.extent(run)) for run in index.covering(range(r, r + 1) for r in rows))
            size += index.offsets[0] - chunk.range.start if (chunk.dictionary_coded or 0) > 0 else 0
            count += 1
    return size, count


def test_one_url_of_a_sorted_crawl_takes_one_wave(
    cat: Catalogue, server: LoopbackServer, mirror: Path, all_rows: pa.Table
) -> None:
    """Indexes held, five columns beside the key: at most a request a column and one for its dictionary."""
    crawl = sorted_crawl(cat)
    cat.harvest(crawl, subsets="warc", pages=True)
    mine, there = of_crawl(all_rows, crawl), [*keys_of(mirror, cat, crawl)]
    sent = ideal = 0
    for url in random.Random(1).sample(mine.column("url").to_pylist(), 5):
        found = cat.captures(url, crawls=crawl, columns=COLUMNS, subsets="warc")
        plan = found.fetch_indexes()
        assert len(plan.waves) == 1
        before = len(server.log)
        rows = found.to_arrow()
        made = server.log[before:]
        assert {exchange.method for exchange in made} == {"GET"}
        assert {part.purpose for fetch in plan.waves[0] for part in fetch.parts} <= {Purpose.PAGES, Purpose.DICTIONARY}
        needed, columns = pages_that_hold(there, rows.column(KEY_COLUMN))
        dictionaries = sum(p.purpose is Purpose.DICTIONARY for fetch in plan.waves[0] for p in fetch.parts)
        assert 0 < len(made) <= columns + dictionaries
        sent += sum(exchange.sent_bytes for exchange in made)
        ideal += needed
    assert ideal <= sent <= 1.2 * ideal


def test_limit_reads_enough_pages(cat: Catalogue, server: LoopbackServer) -> None:
    crawl = sorted_crawl(cat)
    cat.harvest(crawl, subsets="warc", pages=True)
    all_of_it = cat.captures("*.com", crawls=crawl, subsets="warc", columns=COLUMNS)
    every = all_of_it.to_arrow()
    few = cat.captures("*.com", crawls=crawl, subsets="warc", columns=COLUMNS, limit=5)
    plan = few.fetch_indexes()
    before = len(server.log)
    assert few.to_arrow() == every.slice(0, 5)
    sent = sum(exchange.sent_bytes for exchange in server.log[before:])
    assert 0 < sent <= plan.bytes < all_of_it.plan.bytes / 3
