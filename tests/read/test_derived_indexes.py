"""Stores with page indexes that earlier versions derived by reading."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from catalogue import Catalogue
from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import ColumnIndex, Indexes
from catalogue.store.database import Store
from catalogue.store.layout import index_key
from tests.support.catalogues import catalogue_in
from tests.support.crawls import crawl_of, harvest_footers, table
from tests.support.footers import without_statistics
from tests.support.page_indexes import encode_column_index, packed_as_derived

ROWS, GROUPS = 1000, 5
STREAMS = [f"com,host{n % 2})/{n // 2:05}" for n in range(ROWS * GROUPS)]
"""Keys of two streams that were zipped together."""
COLUMNS = [KEY_COLUMN, "url", "fetch_status"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of which neither the bounds of row groups nor page indexes are known."""
    rows, folder = table(STREAMS), tmp_path / "source"
    return crawl_of(folder, rows, change=without_statistics, row_group_size=ROWS, write_page_index=False)


def derive(ordinal: int) -> bytes:
    """Return the packed page indexes of a row group as an earlier version stored them; only bounds are used."""
    keys = STREAMS[ROWS * ordinal : ROWS * (ordinal + 1)]
    pages = [sorted(keys[at : at + 100]) for at in range(0, ROWS, 100)]
    bounds = tuple(Bounds(page[0].encode(), page[-1].encode()) for page in pages)
    column_index = encode_column_index(ColumnIndex(bounds, (0,) * len(bounds)))
    return packed_as_derived(column_index, {"url": b"not used"}, {0: [("a", "b")]})


def store_derived(data: Path, source: Path) -> None:
    with Store(data / "footers.sqlite") as store:
        [path] = store.keys("files")
        version = store.get("files", path)
        assert version
        values = [
            (index_key(path, n), replace(version, data=derive(n)))
            for n in range(pq.ParquetFile(source / path).num_row_groups)
        ]
        store.put("indexes", values)


def opened(source: Path, folder: Path) -> Catalogue:
    return catalogue_in(folder, source, cache_size=0, bandwidth=1e4, latency=1e-4)


def test_derived_indexes_are_bounds_of_row_groups(source: Path, tmp_path: Path) -> None:
    with opened(source, tmp_path) as cat:
        harvest_footers(cat)
        assert {*cat.row_groups().bounds_from} == {"missing"}
    store_derived(tmp_path / "data", source)
    with opened(source, tmp_path) as cat:
        assert cat.backfill().estimate.files == 0
        rows = cat.row_groups().sort_values("row_group")
        assert {*rows.bounds_from} == {"scan"}
        for number, (_, row) in enumerate(rows.iterrows()):
            keys = STREAMS[ROWS * number : ROWS * (number + 1)]
            assert (row.min_url_surtkey, row.max_url_surtkey) == (min(keys), max(keys))
        assert cat.pages().empty
        plan = cat.captures("host1.com/02400", columns=COLUMNS, index="columnar").plan
        assert (plan.row_groups, plan.pages, plan.chunks) == (1, 0, len(COLUMNS))
        assert plan.unbounded == (0, 0)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("column_index", [b"\0", b"noise"])
def test_damaged_derived_indexes_are_ignored(source: Path, tmp_path: Path, column_index: bytes) -> None:
    with opened(source, tmp_path) as cat:
        harvest_footers(cat)
    with Store(tmp_path / "data" / "footers.sqlite") as store:
        [path] = store.keys("files")
        version = store.get("files", path)
        assert version
        damaged = replace(version, data=packed_as_derived(column_index, {}, {}))
        store.put("indexes", [(index_key(path, 0), damaged)])
        assert store.indexes(path, [0], version) == {}
        store.add_indexes(path, {0: Indexes(bounds=Bounds(b"a", b"b"))}, version)
        assert store.indexes(path, [0], version) == {0: Indexes(bounds=Bounds(b"a", b"b"))}
        store.put("indexes", [(index_key(path, 0), damaged)])
    with opened(source, tmp_path) as cat:
        assert {*cat.row_groups().bounds_from} == {"missing"}
        assert cat.backfill().run().failures == {}
        assert {*cat.row_groups().bounds_from} == {"scan"}
        assert cat.captures("host0.com/00000", columns=COLUMNS, index="columnar").to_arrow().num_rows == 1
