"""Wrong indexes, wide bounds, caches, and concurrent use of a store."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue import Catalogue
from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.demo import LoopbackServer
from catalogue.parquet.page_index import Indexes, decode_column_index, decode_offset_index
from catalogue.parquet.thrift import Reader
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.store.database import Store
from tests.support.crawls import CRAWL, crawl_of, harvest_footers, table
from tests.support.footers import each_field
from tests.support.memory import arrow_below
from tests.support.mirrors import read_footer
from tests.support.page_indexes import encode_column_index

Opened = Callable[..., Catalogue]


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def opened(tmp_path: Path, settings: Settings, messages: list[str]) -> Iterator[Opened]:
    """Opens catalogues of one data folder; prices are bytes and seconds of latency."""
    with ExitStack() as stack:

        def open_(source: str | Path, bandwidth: float, latency: float, **more: Any) -> Catalogue:
            more = {"cache_size": 0} | more
            chosen = replace(settings, source=str(source), bandwidth=bandwidth, latency=latency, **more)
            return stack.enter_context(Catalogue(Session(tmp_path / "data", chosen, notify=messages.append)))

        yield open_


def keys_of(rows: pa.Table) -> list[str]:
    found: list[str] = rows.column(KEY_COLUMN).to_pylist()
    return found


def without_null_counts(data: bytes) -> bytes:
    """End the key's column indexes before the field that counts nulls."""
    changed = bytearray(data)
    for group in read_footer(data).row_groups:
        at = group.chunks[KEY_COLUMN].column_index
        assert at
        reader = Reader(data[at.start : at.end])
        for number, kind in each_field(reader):
            if number == 5:
                changed[at.start + reader.position - 1] = 0
                break
            reader.field(kind)
    return bytes(changed)


@pytest.mark.in_soak
def test_plans_again_after_fetching_indexes(opened: Opened, tmp_path: Path) -> None:
    """Only the first say that rows are not certain, so that a limit needs more row groups than one."""
    rng = random.Random(1)
    digests = pa.array([rng.randbytes(40).hex() for _ in range(180_000)])
    rows = table([f"com,host)/{number:06}" for number in range(180_000)], content_digest=digests)
    folder = crawl_of(
        tmp_path / "source", rows, change=without_null_counts, row_group_size=60_000, data_page_size=1 << 13
    )
    cat = opened(folder, 1e5, 0.01)
    harvest_footers(cat)
    found = cat.captures("*.com", limit=5, columns=["url", "content_digest"], index="columnar")
    first = found.plan
    assert first.indexes
    plan = found.fetch_indexes()
    assert not plan.indexes
    assert len(plan.files[0].row_groups) > first.row_groups
    assert found.to_arrow().column("url").to_pylist() == rows.column("url").to_pylist()[:5]


def test_wrong_index_counts_no_rows_twice(opened: Opened, tmp_path: Path, messages: list[str]) -> None:
    def later_than_it_does(data: bytes) -> bytes:
        """The page in which both hosts are claims to begin one key later."""
        at = read_footer(data).row_groups[0].chunks[KEY_COLUMN].column_index
        assert at
        least = max(low for low in Reader(data[at.start : at.end]).struct()[2] if low.startswith(b"com,aaa"))
        end = data.index(least, at.start) + len(least)
        return data[: end - 1] + bytes([data[end - 1] + 1]) + data[end:]

    keys = [f"com,{host})/{number:05}" for host in ("aaa", "bbb") for number in range(9000)]
    folder = crawl_of(tmp_path / "source", table([*keys]), change=later_than_it_does, data_page_size=1 << 13)
    cat = opened(folder, 1e5, 0.0001)
    harvest_footers(cat, pages=True)
    requested = cat.captures("aaa.com/*", index="columnar").counting()
    counted = requested.plan.counted[CRAWL]
    assert counted > 1000
    assert requested.count() == requested.count() == 9000
    assert any("is read without its page index" in text for text in messages)


def test_order_and_limits_do_not_depend_on_what_is_cached(opened: Opened, tmp_path: Path) -> None:
    """The status lies before the keys; with keys of one row group cached, those of others can be complete first."""
    rows = table([f"com,host)/{number:05}" for number in range(900)]).select(["fetch_status", KEY_COLUMN, "url"])
    folder = crawl_of(tmp_path / "source", rows, row_group_size=300, write_page_index=False)
    with LoopbackServer(folder) as server:
        cat = opened(server.url, 1e7, 0.1, cache_size=1 << 24)
        harvest_footers(cat)
        cat.captures("host.com/00001", columns=[KEY_COLUMN], index="columnar").to_arrow()
        columns = [KEY_COLUMN, "fetch_status"]
        found = cat.captures("host.com/*", columns=columns, index="columnar")
        assert found.plan.cached_bytes > 0 < found.plan.requests
        assert (
            keys_of(cat.captures("host.com/*", columns=columns, limit=5, index="columnar").to_arrow())
            == keys_of(rows)[:5]
        )
        assert keys_of(found.to_arrow()) == keys_of(rows)


def test_second_wave_makes_no_more_requests_than_planned(opened: Opened, tmp_path: Path) -> None:
    """Where row groups are so near each other that what is wanted of them looks like one range."""
    rng = random.Random(1)
    keys: list[str | None] = [
        f"com,host)/{rng.randrange(10**6):06}" if n % 500 else "com,host)/5" for n in range(12000)
    ]
    rows = pa.table({KEY_COLUMN: keys, "url": [rng.randbytes(80).hex() for _ in keys]})
    folder = crawl_of(tmp_path / "source", rows, row_group_size=1000, data_page_size=1 << 12)
    with LoopbackServer(folder) as server:
        cat = opened(server.url, 1e7, 0.005, rate=50.0)
        harvest_footers(cat, pages=True)
        found = cat.captures("host.com/5", columns=["url"], index="columnar")
        assert len(found.plan.waves) == 2
        server.log.clear()
        assert found.to_arrow().num_rows == keys.count("com,host)/5")
        assert 1 < len(server.log) <= found.plan.requests
        assert sum(exchange.sent_bytes for exchange in server.log) <= found.plan.bytes


def test_wrong_null_counts_lose_no_rows(opened: Opened, tmp_path: Path, messages: list[str]) -> None:
    keys = [None if n < 300 else f"com,host)/{n:05}" if n % 1000 else None for n in range(4000)]
    folder = crawl_of(tmp_path / "source", table(keys), data_page_size=1 << 12, max_rows_per_page=500)
    cat = opened(folder, 1e4, 0.0)
    harvest_footers(cat, pages=True)
    with Store(tmp_path / "data" / "footers.sqlite") as store:
        [path] = store.keys("files")
        version = store.get("files", path)
        assert version
        stored = store.indexes(path, [0], version)[0].column_index
        assert stored
        chunk = read_footer((folder / path).read_bytes()).row_groups[0].chunks[KEY_COLUMN]
        located = store.indexes(path, [0], version)[0].offset_indexes[KEY_COLUMN]
        claimed = decode_column_index(stored, chunk, decode_offset_index(located, chunk, chunk.num_values))
        assert claimed.null_counts
        first, *others, last = claimed.null_counts
        moved = replace(claimed, null_counts=(0, *others, last + first))
        store.add_indexes(path, {0: Indexes(encode_column_index(moved))}, version)
    assert cat.captures("host.com/*", columns="url", limit=400, index="columnar").to_arrow().num_rows == 400
    assert any("nulls, which contradicts the page index" in text for text in messages), messages


def test_indexes_of_an_old_version_are_not_used(opened: Opened, tmp_path: Path) -> None:
    """A file that is exchanged, and harvested again, while it is being read."""
    options: dict[str, Any] = {"use_dictionary": False, "data_page_size": 1 << 12, "compression": "none"}
    keys = [f"com,host)/{number:05}" for number in range(4000)]
    folder = crawl_of(tmp_path / "source", table([*keys]), write_page_index=False, **options)
    reading = opened(folder, 1e5, 1e-4)
    harvest_footers(reading)
    batches = reading.captures("host.com/*", columns="url", index="columnar").batches()
    next(batches)
    keys[500], keys[3500] = keys[501], keys[500]
    [path] = folder.rglob("*.parquet")
    pq.write_table(table([*keys]), path, **options)
    other = opened(folder, 1e5, 1e-4)
    other.harvest(CRAWL, refresh=True)
    list(batches)
    assert other.captures("host.com/00500", columns="url", index="columnar").to_arrow().num_rows == 1


@pytest.mark.in_soak
def test_indexes_are_stored_again_after_forget(opened: Opened, tmp_path: Path) -> None:
    """A session that has read page indexes does not take them for stored when they were deleted with the crawl."""
    rows = table([f"com,host)/{number:05}" for number in range(60_000)])
    folder = crawl_of(tmp_path / "source", rows)
    cat = opened(folder, 1e5, 0.001)

    def asked() -> int:
        for _ in range(2):
            assert len(cat.captures("host.com/04*", index="columnar", columns="url").to_arrow()) == 1000
        return cat.session.store.count("indexes")

    harvest_footers(cat)
    assert asked() == 1
    cat.forget(CRAWL)
    harvest_footers(cat)
    assert asked() == 1


def test_query_survives_forget(opened: Opened, tmp_path: Path) -> None:
    tables = [table([f"com,host)/{part}{number:05}" for number in range(4000)]) for part in range(2)]
    folder = crawl_of(tmp_path / "source", *tables, write_page_index=False)
    reading = opened(folder, 1e6, 0.001)
    harvest_footers(reading)
    batches = reading.captures("host.com/*", columns="url", index="columnar").batches()
    rows = next(batches).num_rows
    opened(folder, 1e6, 0.001).forget(CRAWL)
    assert rows + sum(batch.num_rows for batch in batches) == 8000


@pytest.mark.in_soak
def test_second_wave_keeps_few_row_groups_in_memory(opened: Opened, tmp_path: Path) -> None:
    """Not the decoded keys of all of them, which compress a hundredfold here."""
    groups, rows = 24, 5_000
    keys = [f"com,host)/{'x' * 280}{number:06}" for number in range(groups * rows)]
    rng = random.Random(1)
    urls = pa.array([rng.randbytes(10).hex() for _ in keys])
    folder = crawl_of(tmp_path / "source", table([*keys], url=urls), row_group_size=rows, compression="zstd")
    cat = opened(folder, 1e6, 0.01)
    harvest_footers(cat)
    found = cat.captures("*", where="fetch_status = 200", columns=["url"], index="columnar")
    assert len(found.plan.waves) == 2
    del keys, urls
    batches = arrow_below(groups * rows * 300 / 4, found.batches())
    assert sum(batch.num_rows for batch in batches) == -(-groups * rows // 3)
