"""Unusual valid files, and files that contradict their footers."""

import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import catalogue
from catalogue.errors import BadFooter
from catalogue.read.key_order import batches_of
from catalogue.read.reader import read
from catalogue.source.open import FolderSource
from catalogue.store.database import Store
from tests.support.catalogues import catalogue_in
from tests.support.crawls import crawl_of, harvest_footers
from tests.support.faults import FaultServer
from tests.support.memory import memory_below

CRAWL = "CC-MAIN-2022-05"
ROWS = 40


def rows(**columns: pa.Array) -> pa.Table:
    """A small index file's rows, some columns of it replaced or added."""
    given: dict[str, Any] = {
        "url_surtkey": pa.array([f"com,example)/{at:04}" for at in range(ROWS)]),
        "url": pa.array([f"https://example.com/{at:04}" for at in range(ROWS)]),
        "fetch_time": pa.array([1_642_000_000_000 + at for at in range(ROWS)], pa.timestamp("ms", "UTC")),
        "fetch_status": pa.array([200] * ROWS, pa.int16()),
        "warc_record_offset": pa.array(range(ROWS), pa.int32()),
    }
    return pa.table({**given, **columns})


def keyed(number: int) -> pa.Table:
    """The rows of one of several files with different keys."""
    return rows(url_surtkey=pa.array([f"com,example)/{number:02}/{at:04}" for at in range(ROWS)]))


@contextmanager
def harvested(folder: Path, *tables: pa.Table, **options: Any) -> Iterator[catalogue.Catalogue]:
    """A crawl of files of these rows, harvested."""
    written = {"compression": "gzip", "write_page_index": False, "use_dictionary": True, **options}
    crawl_of(folder, *tables, crawl=CRAWL, **written)
    (folder / "collinfo.json").write_text(json.dumps([{"id": CRAWL}]), encoding="ascii")
    with catalogue_in(folder, folder) as cat:
        harvest_footers(cat, CRAWL)
        yield cat


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("offsets", "offset", "statuses", "status"),
    [
        (
            *(pa.array([2**32 - 9 + at % 5 for at in range(ROWS)], pa.uint32()), "= 4294967291"),
            *(pa.array([Decimal(200 + at % 3) for at in range(ROWS)], pa.decimal128(9, 0)), "= 200"),
        ),
        (
            *(pa.array([2**31 + at for at in range(ROWS)], pa.int64()), "> 2147483650"),
            *(pa.array([None if at % 2 else 404 for at in range(ROWS)], pa.int32()), "= 404"),
        ),
    ],
)
def test_prunes_integers_by_their_logical_type(
    tmp_path: Path, offsets: pa.Array, offset: str, statuses: pa.Array, status: str
) -> None:
    odd = rows(warc_record_offset=offsets, fetch_status=statuses)
    with harvested(tmp_path, odd, store_decimal_as_integer=True) as cat:
        for column, where in (("warc_record_offset", offset), ("fetch_status", status)):
            pruned = cat.captures("*", where=f"{column} {where}", columns=["url"]).to_arrow()
            scanned = cat.captures("*", where=f"{column} + 0 {where}", columns=["url"]).to_arrow()
            assert pruned == scanned
            assert 0 < pruned.num_rows < ROWS


def test_missing_bytes_are_an_error(tmp_path: Path) -> None:
    with (
        harvested(tmp_path, rows(), rows()) as cat,
        ThreadPoolExecutor(1) as executor,
        closing(FolderSource(tmp_path)) as source,
    ):
        plan = cat.captures("*", columns=["url"]).plan
        assert sum(batch.num_rows for batch in read(plan, source, executor)) == 2 * ROWS
        for fetches in (plan.waves[0][:-1], plan.waves[0][1:], ()):
            with pytest.raises(AssertionError, match="row group 0 was planned but not fetched whole"):
                list(read(replace(plan, crawls=(replace(plan.crawls[0], waves=(fetches,)),)), source, executor))


def test_errors_name_the_column(tmp_path: Path) -> None:
    wrong = {"fetch_status": pa.array([100_000] * ROWS, pa.int32()), "warc_record_offset": pa.array(["x"] * ROWS)}
    wrong["fetch_time"] = pa.array([1 << 48] * ROWS, pa.timestamp("ms", "UTC"))  # the year 10889
    with harvested(tmp_path, rows(**wrong)) as cat:
        for name in wrong:
            with pytest.raises(BadFooter, match=f"row group 0, column {name}"):
                cat.captures("*", columns=[name]).to_arrow()


def test_reads_times_of_finer_units(tmp_path: Path) -> None:
    micro = pa.array([1_642_000_000_123_000] * ROWS, pa.timestamp("us", "UTC"))
    nano = pa.array([1_642_000_000_123_000_000] * ROWS, pa.timestamp("ns", "UTC"))
    with harvested(tmp_path, rows(fetch_time=micro), rows(fetch_time=nano)) as cat:
        found = cat.captures("*", columns=["fetch_time"]).to_arrow()
        assert found.column("fetch_time").cast(pa.int64()).to_pylist() == [1_642_000_000_123] * 2 * ROWS
    finer = pa.array([1_642_000_000_123_456] * ROWS, pa.timestamp("us", "UTC"))
    with harvested(tmp_path / "finer", rows(fetch_time=finer)) as cat, pytest.raises(BadFooter, match="lose data"):
        cat.captures("*", columns=["fetch_time"]).to_arrow()


def test_reads_unknown_columns(tmp_path: Path) -> None:
    new = {
        "warc_ip_address": pa.array(["192.0.2.1"] * ROWS),
        "a_date": pa.array([19000] * ROWS, pa.date32()),
        "a_number": pa.array(range(ROWS), pa.int32()),
        "a_share": pa.array([0.5] * ROWS),
        "an_id": pa.array([b"\0\xff"] * ROWS, pa.binary()),
    }
    with harvested(tmp_path, rows(**new), rows()) as cat:
        found = cat.captures("*", columns=[*new], where="a_number >= 0 OR a_number IS NULL").to_arrow().to_pylist()
        first = {
            "warc_ip_address": "192.0.2.1",
            "a_date": date(2022, 1, 8),
            "a_number": 0,
            "a_share": 0.5,
            "an_id": b"\0\xff",
        }
        assert found[0] == first | {"crawl": CRAWL, "subset": "warc"}
        assert found[-1] == dict.fromkeys(new) | {"crawl": CRAWL, "subset": "warc"}
        assert set(new) <= set(cat.captures("*", columns="*").plan.schema.names)


def test_unknown_column_of_two_types_is_text(tmp_path: Path) -> None:
    with harvested(tmp_path, rows(new=pa.array(["a"] * ROWS)), rows(new=pa.array(range(ROWS), pa.int64()))) as cat:
        assert set(cat.captures("*", columns=["new"]).to_arrow().column("new").to_pylist()) == {
            "a",
            *map(str, range(ROWS)),
        }


def test_column_names_ignore_case(tmp_path: Path) -> None:
    with harvested(tmp_path, rows()) as cat:
        found = cat.captures("*", columns=["URL"], where="FETCH_STATUS = 200").to_arrow()
        assert found.schema.names == ["url", "crawl", "subset"]
        assert found.num_rows == ROWS


def test_reads_empty_row_groups(tmp_path: Path) -> None:
    with harvested(tmp_path, rows().slice(0, 0), rows()) as cat:
        assert cat.captures("*", columns=["url"]).to_arrow().num_rows == ROWS
        assert cat.captures("*", columns=["url"]).complete


def test_first_and_last_second_belong_to_a_query(tmp_path: Path) -> None:
    times = pa.array([1_642_000_000_000 + 500 * at for at in range(ROWS)], pa.timestamp("ms", "UTC"))
    with harvested(tmp_path, rows(fetch_time=times), row_group_size=5) as cat:
        found = cat.captures("*", from_="20220112150642", to="20220112150645", columns=["warc_record_offset"])
        assert found.to_arrow().column("warc_record_offset").to_pylist() == [*range(4, 12)]


def test_long_texts_give_smaller_batches() -> None:
    batches = list(batches_of(pa.table({"url": ["x" * 70_000] * 2200})))
    assert sum(batch.num_rows for batch in batches) == 2200
    assert max(batch.nbytes for batch in batches) < 70 << 20


def test_limit_reads_little_more_than_needed(tmp_path: Path) -> None:
    tables = [keyed(number) for number in range(12)]
    with harvested(tmp_path, *tables) as cat:
        for limit, most in ((0, 0), (1, 3), (ROWS, 3), (ROWS + 1, 4)):
            before = cat.requests
            assert cat.captures("*", columns=["url"], limit=limit).to_arrow().num_rows == limit
            assert cat.requests - before <= most


@pytest.mark.in_soak
def test_bytes_are_freed_when_their_rows_were_returned(tmp_path: Path) -> None:
    """So a large answer takes no more memory than a small one."""
    drawn = Random(1)
    urls = [pa.array([f"https://example.com/{drawn.randbytes(25_000).hex()}" for _ in range(ROWS)]) for _ in range(12)]
    with harvested(tmp_path, *(rows(url=each) for each in urls), use_dictionary=False, compression="none") as cat:
        # With a limit, few requests are made ahead.
        found = cat.captures("*", columns=["url"], index="columnar", limit=ROWS * len(urls))
        assert found.plan.bytes > 24_000_000
        with memory_below(found.plan.bytes / 2):
            read = sum(batch.num_rows for batch in found.batches())
        assert read == ROWS * len(urls)


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    ("codec", "checksum", "flipped"),
    [("gzip", False, 1), ("none", True, 1), ("none", False, 0x80)],
    ids=["the codec's own checksum", "the page's", "none, but what it says is no text"],
)
def test_changed_page_is_an_error(tmp_path: Path, codec: str, flipped: int, *, checksum: bool) -> None:
    with harvested(tmp_path, rows(), compression=codec, write_page_checksum=checksum, use_dictionary=False) as cat:
        (stored,) = cat.files()["path"]
        content = bytearray((tmp_path / stored).read_bytes())
        plan = cat.captures("*", columns=["url"]).plan
        chunk = next(c.chunk for c in plan.files[0].row_groups[0].columns if c.chunk.column.name == "url")
        content[chunk.range.end - 20] ^= flipped
        with (
            FaultServer({stored: bytes(content)}) as server,
            catalogue_in(tmp_path, server.url) as other,
            pytest.raises(BadFooter, match="column url"),
        ):
            other.captures("*", columns=["url"]).to_arrow()


def test_subset_without_any_file_is_reported(tmp_path: Path) -> None:
    with harvested(tmp_path, rows()):
        pass
    robots = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=robotstxt/part-00000-x.c000.gz.parquet"
    manifest = tmp_path / f"crawl-data/{CRAWL}/cc-index-table.paths.gz"
    manifest.write_bytes(gzip.compress(gzip.decompress(manifest.read_bytes()) + b"\n" + robots.encode()))
    (tmp_path / robots).parent.mkdir()
    (tmp_path / robots).write_bytes(b"no Parquet at all")
    with catalogue_in(tmp_path, tmp_path) as cat:
        assert cat.captures("*", index="columnar").complete
        (outcome,) = cat.harvest(CRAWL, subsets="all", refresh=True)
        assert list(outcome.failures) == [robots]
        assert not cat.captures("*", subsets="all", index="columnar").complete
        assert cat.captures("*", index="columnar").complete


def test_undecodable_footer_affects_only_its_file(tmp_path: Path) -> None:
    with harvested(tmp_path, rows(), rows()) as cat:
        victim, other = sorted(cat.files()["path"])
        with Store(tmp_path / "data" / "footers.sqlite") as store:
            stored = store.get("files", victim)
            assert stored
            store.put("files", [(victim, replace(stored, data=b"junk"))])
        assert list(cat.files()["path"]) == [other]
        assert victim in cat.failures()["reason"].iloc[0]
        assert not cat.captures("*", index="columnar").complete


def test_invalid_list_of_crawls_does_not_stop_a_named_crawl(tmp_path: Path) -> None:
    with harvested(tmp_path, rows()):
        pass
    (tmp_path / "collinfo.json").write_text("<html>", encoding="ascii")
    with catalogue_in(tmp_path, tmp_path, data=tmp_path / "elsewhere") as cat:
        assert not cat.harvest(CRAWL)[0].failures
        with pytest.raises(catalogue.CatalogueError, match="not JSON"):
            cat.harvest("latest")
