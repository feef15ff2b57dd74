"""Limits of Parquet files are settings, and the error of a file that exceeds one names it."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.settings import limits
from tests.support.commands import Command

HARVEST = "harvest", "--table", "t", "--key", "k"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Command]:
    """The command line with a folder of one file as its source."""
    folder = tmp_path / "files"
    folder.mkdir()
    table = pa.table({"k": [f"k{number:03}" for number in range(200)], "text": ["x" * 50] * 200})
    pq.write_table(table, folder / "a.parquet", row_group_size=10, use_dictionary=False)
    yield Command(tmp_path / "data", str(folder), tmp_path)
    limits.cache_clear()  # commands run in this process


@pytest.mark.parametrize(
    ("name", "limit", "found"),
    [
        ("max_footer", "1000", "a.parquet: the footer claims "),
        ("max_elements", "19", "a.parquet: the footer cannot be decoded: ThriftError: a container of 20 elements"),
        ("max_rows", "9", "a.parquet: row group 0 has 10 rows"),
    ],
)
def test_names_limit_value_and_setting(source: Command, name: str, limit: str, found: str) -> None:
    variable = f"CATALOGUE_{name.upper()}"
    refused = source(*HARVEST, "a.parquet", **{variable: limit})
    assert refused.status == 1
    assert found in refused.err
    assert f"at most {int(limit):,} are accepted; the setting {name} or {variable} raises this limit" in refused.err
    missing = source("query", "*", "--table", "t", **{variable: limit})
    assert missing.status == 2
    assert "t is not harvested yet; run: catalogue harvest --table t" in missing.err
    assert source(*HARVEST, "a.parquet").status == 0
    assert len(source("query", "*", "--table", "t", "--format", "jsonl").out.splitlines()) == 200


def test_names_setting_of_pages(source: Command) -> None:
    assert source(*HARVEST, "a.parquet").status == 0
    refused = source("query", "*", "--table", "t", CATALOGUE_MAX_PAGE="200")
    assert refused.status == 1
    assert "column text: a page of it would have 546 bytes decompressed; at most 200 are accepted" in refused.err
    assert "the setting max_page or CATALOGUE_MAX_PAGE raises this limit" in refused.err
