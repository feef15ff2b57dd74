"""Iceberg tables read by pyiceberg and DuckDB, compared with all rows of all files."""

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.demo import LoopbackServer
from catalogue.errors import FileChanged, StoreError, StoreLocked
from catalogue.metadata_db.lake_files import LakeFile
from catalogue.settings import Settings
from tests.support.catalogues import catalogue_in
from tests.support.lakes import SUMS, Truth, export, extension, in_order, in_shell, plain, questions, sums, write_file

needs_duckdb = pytest.mark.skipif(
    not all(map(extension, ["avro", "iceberg", "httpfs"])), reason="wheels of DuckDB's extensions are not installed"
)


@pytest.fixture(scope="module")
def rows_in_order(all_rows: pa.Table) -> pa.Table:
    return in_order(all_rows)


@pytest.fixture(scope="module")
def path(harvested: catalogue.Catalogue, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("iceberg") / "a table"
    harvested.export_iceberg(path)
    return path


@pytest.fixture(scope="module")
def table(harvested: catalogue.Catalogue) -> Any:
    return harvested.iceberg()


@pytest.fixture
def served(mirror: Path, harvested_data: Path, tmp_path: Path) -> Iterator[tuple[LoopbackServer, catalogue.Catalogue]]:
    with (
        LoopbackServer(mirror) as server,
        catalogue_in(tmp_path, server.url, data=harvested_data, cache_size=0, rate=1000) as cat,
    ):
        yield server, cat


def test_pyiceberg_equals_a_full_scan(path: Path, table: Any, all_rows: pa.Table, truth: Truth) -> None:
    """Our table from several threads, and the written one by pyiceberg alone."""
    columns = ("crawl", "subset", "warc_record_offset", "fetch_time")
    requested = questions(all_rows, 8)
    with ThreadPoolExecutor(4) as executor:
        found = executor.map(lambda where: table.scan(where, columns[2:]).to_arrow(), requested)
        for where, rows in zip(requested, found, strict=True):
            assert set(rows.column_names) == set(columns[2:])
            assert sums(rows) == truth(where), where
    for where in requested[::2]:
        assert sums(plain(path).scan(where, columns).to_arrow()) == truth(where), where


@pytest.mark.in_soak
def test_columns_equal_those_of_the_files(table: Any, rows_in_order: pa.Table, path: Path) -> None:
    where = "url_surtkey >= 'com,e' AND url_surtkey < 'com,f'"  # a few row groups of each era
    some = (pc.field("url_surtkey") >= "com,e") & (pc.field("url_surtkey") < "com,f")
    expected = rows_in_order.filter(some)
    eras = ["crawl", "subset"]
    assert expected.group_by(eras).aggregate([]).num_rows == rows_in_order.group_by(eras).aggregate([]).num_rows
    for found in (table.scan(where).to_arrow(), plain(path).scan(where).to_arrow()):
        assert found.column_names == SCHEMA.names
        assert in_order(found.cast(SCHEMA)).equals(expected)


@pytest.mark.in_soak
@needs_duckdb
def test_duckdb_equals_a_full_scan(
    path: Path, all_rows: pa.Table, rows_in_order: pa.Table, truth: Truth, tmp_path: Path
) -> None:
    requested = questions(all_rows, 8)
    scan = f"FROM iceberg_scan('{path}')"
    copied = tmp_path / "all.parquet"
    found = in_shell(
        [
            "SET TimeZone = 'UTC'",
            *(f"SELECT {SUMS} {scan} WHERE {each}" for each in requested),
            "SET TimeZone = 'Asia/Tokyo'",
            f"SELECT crawl, sum(epoch_ms(fetch_time))::VARCHAR AS times {scan} GROUP BY ALL ORDER BY ALL",
            "SET TimeZone = 'UTC'",
            f"COPY (SELECT * {scan}) TO '{copied}'",
        ],
        "avro",
        "iceberg",
    )
    for each, got in zip(requested, found, strict=False):
        assert got == [truth(each)], each
    assert in_order(pq.read_table(copied).cast(SCHEMA)).equals(rows_in_order)
    # As documented: DuckDB reads times that are not declared UTC in the session's zone.
    assert {row["crawl"] for row in found[len(requested)]} == set(all_rows["crawl"].to_pylist())
    for row in found[len(requested)]:
        right = truth(f"crawl = '{row['crawl']}'")["times"] == row["times"]
        assert right == (row["crawl"] >= "CC-MAIN-2021-49"), row


@needs_duckdb
def test_duckdb_opens_only_the_files_of_the_plan(
    served: tuple[LoopbackServer, catalogue.Catalogue], tmp_path: Path, all_rows: pa.Table, truth: Truth
) -> None:
    server, cat = served
    cat.export_iceberg(tmp_path / "table")
    assert not server.log
    (where,) = questions(all_rows, 1)
    planned = {task.file.file_path for task in plain(tmp_path / "table").scan(where).plan_files()}
    server.log.clear()
    requested = f"SELECT {SUMS} FROM iceberg_scan('{tmp_path / 'table'}') WHERE {where}"  # noqa: S608 - a constant
    found = in_shell([requested], "avro", "iceberg", "httpfs")
    assert found[0][0]["n"] == truth(where)["n"]
    opened = {server.url + each.path for each in server.log}
    assert opened
    assert opened <= planned
    assert len(planned) < len(cat.files())


def test_scan_requests_no_footers(
    served: tuple[LoopbackServer, catalogue.Catalogue], all_rows: pa.Table, truth: Truth, files: list[LakeFile]
) -> None:
    server, cat = served
    table = cat.iceberg()
    footers = {server.url + each.path: each.file_size - each.footer_size - 8 for each in files}
    assert not server.log
    requests = 0
    for requested in questions(all_rows, 3, seed=7):
        server.log.clear()
        scan = table.scan(requested, ("url", "fetch_time"))
        planned = {task.file.file_path for task in scan.plan_files()}
        assert scan.to_arrow().num_rows == truth(requested)["n"]
        assert {each.method for each in server.log} <= {"GET"}
        requests += len(server.log)
        for each in server.log:
            assert server.url + each.path in planned
            assert each.status == 206
            assert int((each.range or "").rpartition("-")[2]) < footers[server.url + each.path]
    assert requests


def test_replaced_file_is_an_error(files: list[LakeFile], mirror: Path, tmp_path: Path) -> None:
    first, second, *_ = files
    changing = tmp_path / "mirror"
    file, listing = changing / first.path, changing / f"crawl-data/{first.crawl}/cc-index-table.paths.gz"
    for each in (file, listing):
        each.parent.mkdir(parents=True)
    file.write_bytes((mirror / first.path).read_bytes())
    listing.write_bytes(gzip.compress(f"{first.path}\n".encode()))
    with catalogue_in(tmp_path, changing) as cat:
        cat.harvest(first.crawl, subsets="all")
        table = cat.iceberg()
        assert table.scan(selected_fields=("url",)).to_arrow().num_rows == first.num_rows
        file.write_bytes((mirror / second.path).read_bytes())
        with pytest.raises(FileChanged):
            table.scan(selected_fields=("url",)).to_arrow()
        cat.harvest(first.crawl, subsets="all", refresh=True)
        with pytest.raises(StoreLocked, match="open the table again"):
            table.scan(selected_fields=("url",)).to_arrow()
        assert cat.iceberg().scan(selected_fields=("url",)).to_arrow().num_rows == second.num_rows


def test_table_needs_an_open_catalogue(harvested_data: Path, settings: Settings) -> None:
    with catalogue.open(harvested_data, settings=settings) as cat:
        scan = cat.iceberg("latest").scan(selected_fields=("url",), limit=1)
        assert scan.to_arrow().num_rows == 1
    with pytest.raises(StoreError, match="open the catalogue again"):
        scan.to_arrow()


def test_filters_on_crawl_that_is_not_selected(table: Any, path: Path, all_rows: pa.Table, truth: Truth) -> None:
    crawl = all_rows["crawl"][0].as_py()
    where = f"crawl = '{crawl}' AND fetch_status = 200"
    expected = truth(where)["n"]
    scan = table.scan(where, ("url",))
    assert expected
    assert scan.count() == expected
    assert scan.to_arrow().num_rows == expected
    assert scan.to_arrow_batch_reader().read_all().column_names == ["url"]
    assert table.scan(limit=3).filter(where).select("url").to_pandas().shape == (3, 1)
    # If this fails, pyiceberg is fixed, and IndexScan is not needed any more.
    assert plain(path).scan(where, ("url",)).to_arrow().num_rows == 0


def test_bounds_are_complete_or_missing(files: list[LakeFile], tmp_path: Path) -> None:
    unknown = files[0]
    files = [replace(unknown, min_key=None, max_key=None), *files[1:]]
    location = "https://example.com/"
    metadata = export(tmp_path / "table", files, location)
    table = plain(metadata)
    key = table.schema().find_field("url_surtkey").field_id
    tasks = {task.file.file_path: task.file for task in table.scan().plan_files()}
    assert tasks.keys() == {location + file.path for file in files}
    for file in files:
        task = tasks[location + file.path]
        bounds = [(each or {}).get(key) for each in (task.lower_bounds, task.upper_bounds)]
        assert bounds == [each and each.encode() for each in (file.min_key, file.max_key)]
        assert (task.record_count, task.file_size_in_bytes) == (file.num_rows, file.file_size)
        assert (task.partition[0], task.partition[1]) == (file.crawl, file.subset)
        assert task.split_offsets == list(file.row_group_offsets)
        assert task.sort_order_id == (1 if file.ascending else None)
    assert max(len(file.max_key or "") for file in files) > 16
    planned = {task.file.file_path.removeprefix(location) for task in table.scan("url_surtkey = 'zz'").plan_files()}
    assert planned == {f.path for f in files if f.min_key is None or f.min_key <= "zz" <= (f.max_key or "")}
    assert unknown.path in planned
    assert len(planned) < len(files) / 2


def test_leaves_out_columns_without_an_iceberg_type(tmp_path: Path) -> None:
    crawl = "CC-MAIN-2026-30"
    found_files = [
        write_file(tmp_path, crawl, name, [f"{name})/", f"{name})/x"], score=score, newer=[0.5, 1.5])
        for name, score in (("a", [1, 2]), ("b", ["x", "y"]))
    ]
    table = plain(export(tmp_path / "table", found_files, f"file://{tmp_path}/"))
    found = table.scan("url_surtkey > 'a)/' and newer > 1", ("url_surtkey", "newer", "crawl", "url")).to_arrow()
    assert sorted(found["url_surtkey"].to_pylist()) == ["a)/x", "b)/x"]
    assert set(found["crawl"].to_pylist()) == {"CC-MAIN-2026-30"}
    assert "score" not in table.schema().column_names
