"""Captures as an Arrow stream, which other libraries read."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from os import link
from pathlib import Path
from shutil import copytree
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import catalogue
from catalogue import Captures, Catalogue
from catalogue.demo import Miniature
from catalogue.errors import CatalogueError, IncompleteAnswer
from tests.support.catalogues import catalogue_in
from tests.support.faults import FaultServer
from tests.support.mirrors import crawl_of


def by_duckdb(found: Captures) -> pa.Table:
    with duckdb.connect() as connection:
        return connection.register("found", found).sql("FROM found").to_arrow_table()


CONSUMERS: dict[str, Callable[[Captures], Any]] = {
    "pyarrow": pa.table,
    "reader": lambda found: pa.RecordBatchReader.from_stream(found).read_all(),
    "polars": pl.DataFrame,
    "polars, a column of structs": pl.from_arrow,
    "pandas": pd.DataFrame.from_arrow,  # type: ignore[attr-defined]
    "DuckDB": by_duckdb,
    "to_polars": lambda found: found.to_polars(),
}


@pytest.mark.in_part(2)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_consumers_get_all_rows(harvested: Catalogue, consumer: str) -> None:
    found = harvested.captures("*.example.com", ordered=True)
    table = found.to_arrow()
    read = CONSUMERS[consumer](found)
    assert len(read) == table.num_rows > 0
    if consumer == "pandas":
        read = pa.Table.from_pandas(read, schema=table.schema)
    elif "polars" in consumer:
        read = (read.struct.unnest() if isinstance(read, pl.Series) else read).to_arrow()
    assert read.cast(table.schema).equals(table)  # from texts of other widths, and times in microseconds


def test_streams_have_plain_types_and_the_schema(harvested: Catalogue) -> None:
    """No dictionaries or views, which not every consumer reads."""
    found = harvested.captures("*.example.com", columns="*")
    assert pa.schema(found) == found.schema
    reader = pa.RecordBatchReader.from_stream(found)
    assert reader.schema == found.schema
    rows = 0
    for batch in reader:
        assert batch.schema == found.schema
        rows += batch.num_rows
    assert rows == found.count() > 0


def test_requested_schemas_are_cast_as_by_pyarrow(harvested: Catalogue) -> None:
    found = harvested.captures("*.example.com", columns=["url", "fetch_status"])
    other = pa.schema([found.schema.field(name).with_type(pa.large_string()) for name in ("url", "crawl", "subset")])
    other = other.insert(1, pa.field("fetch_status", pa.int64()))
    assert pa.RecordBatchReader.from_stream(found, schema=other).read_all() == found.to_arrow().cast(other)
    with pytest.raises(ValueError, match="field names"):
        pa.RecordBatchReader.from_stream(found, schema=pa.schema([("other", pa.string())]))


def test_nothing_is_read_before_the_first_batch(harvested: Catalogue) -> None:
    found = harvested.captures("*", columns="url")
    before = harvested.requests
    reader = pa.RecordBatchReader.from_stream(found)
    relation = duckdb.sql("SELECT url FROM found")
    assert relation.columns == ["url"]
    assert harvested.requests == before
    assert 0 < reader.read_next_batch().num_rows < found.plan.rows
    assert harvested.requests > before
    reader.close()


def test_streams_of_one_catalogue_are_read_at_the_same_time(harvested: Catalogue) -> None:
    """DuckDB reads both in its own threads."""
    one = harvested.captures("*.example.com", columns=["url", "warc_filename", "warc_record_offset"])
    other = harvested.captures("example.com/*", columns=["warc_filename", "warc_record_offset"])
    sql = "SELECT count(*) FROM one JOIN other USING (warc_filename, warc_record_offset) JOIN one AS third USING (url)"
    keys = ["warc_filename", "warc_record_offset"]
    left, right = one.to_arrow(), other.to_arrow().select(keys)
    rows = left.select(["url", *keys]).join(right, keys, join_type="inner")
    expected = rows.join(left.select(["url"]), "url", join_type="inner").num_rows
    assert duckdb.sql(sql).fetchall() == [(expected,)]
    assert expected > 0


@pytest.fixture
def broken(mirror: Path, data: Path, tmp_path: Path) -> Catalogue:
    """One whose source lost a file since the harvest."""
    folder = copytree(mirror / "cc-index", tmp_path / "mirror/cc-index", copy_function=link).parent
    max(folder.rglob("subset=warc/*.parquet")).unlink()
    return catalogue_in(tmp_path, folder, data=data)


def test_errors_in_the_middle_reach_every_consumer(broken: Catalogue) -> None:
    with broken:
        found = broken.captures("*", columns="url")
        reader = pa.RecordBatchReader.from_stream(found)
        with suppress(OSError):
            assert reader.read_next_batch().num_rows  # a small mirror is one batch
        for name, consume in CONSUMERS.items():
            with pytest.raises(Exception, match=r"does not exist") as raised:
                consume(found)
            assert not isinstance(raised.value, AssertionError), name


def test_a_file_is_found_missing_by_another_reader_while_a_cost_is_agreed_to(broken: Catalogue) -> None:
    with broken:
        found = broken.captures("*", columns="url")

        def agree(_: object) -> None:
            with suppress(CatalogueError):
                found.to_arrow()

        with pytest.raises(CatalogueError, match="does not exist"):
            found.agreed(agree).to_arrow()


def test_reading_on_after_the_catalogue_is_closed(data: Path, mirror: Path, tmp_path: Path) -> None:
    """With a limit few requests are made ahead, so that others are needed after the end."""
    with FaultServer(mirror) as server:
        with catalogue_in(tmp_path, server.url, data=data, cache_size=0) as cat:
            found = cat.captures("*", columns="url", index="columnar", limit=1_000_000)
            reader, rows = pa.RecordBatchReader.from_stream(found), found.batches(warn=False)
            reader.read_next_batch()
            next(rows)
        with pytest.raises(pa.ArrowInvalid, match="was closed"):
            reader.read_all()
        with pytest.raises(CatalogueError, match=r"was closed.*open .* again"):
            list(rows)


def test_incomplete_streams_warn(tmp_path: Path, mirror: Path) -> None:
    folder = copytree(mirror, tmp_path / "mirror", copy_function=link)
    (missing := max(folder.rglob("subset=warc/*.parquet"))).unlink()
    with catalogue_in(tmp_path, folder) as cat:
        (harvested,) = cat.harvest(crawl_of(missing))
        assert harvested.failures
        found = cat.captures("*", columns="url", index="columnar")
        for consume in (pa.table, pl.DataFrame, by_duckdb, lambda found: found.to_polars()):
            with pytest.warns(IncompleteAnswer, match="not harvested"):
                consume(found)
        frame = cat.scan(columns="url", index="columnar")
        for engine in ("in-memory", "streaming"):
            with pytest.warns(IncompleteAnswer, match="not harvested"):
                frame.collect(engine=engine)


def test_a_process_ends_while_duckdb_reads_ahead(data: Path, mirror: Path) -> None:
    script = (
        "import sys, catalogue, duckdb\n"
        "duckdb.sql('SET enable_progress_bar = false')\n"  # it is printed after two seconds
        "found = catalogue.open(sys.argv[1], source=sys.argv[2]).captures('*')\n"
        "print(len(duckdb.sql('SELECT url FROM found LIMIT 3').fetchall()))\n"
    )
    words = [sys.executable, "-c", script, str(data), str(mirror)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("3\n", "")


def test_dask_does_not_decode_bytes(miniature: Miniature, tmp_path: Path) -> None:
    with catalogue.open(tmp_path, source=miniature.folder) as cat:
        found = cat.captures("*.example.com", crawls="latest")
        here, there = found.to_pandas(), found.to_dask().compute(scheduler="synchronous")
    column = "warc_record_id"
    assert here.dtypes[column] == there.dtypes[column]
    assert sorted(here[column]) == sorted(there[column]) > [b""]
