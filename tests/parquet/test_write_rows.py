"""Row groups that are written without pyarrow are those that other readers read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.parquet.model import MAGIC
from catalogue.parquet.splice import with_trailer
from catalogue.parquet.write_rows import MOST_ROWS, add_row_group, encode_footer
from tests.support.amounts import EXAMPLES

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bytes": st.binary(max_size=20),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
}
TYPES = {"bool": pa.bool_(), "int32": pa.int32(), "int64": pa.int64(), "bytes": pa.binary(), "text": pa.string()}
COLUMNS = {f"{kind} {number}": kind for kind in VALUES for number in range(2)}
REPEATED = [name for name in COLUMNS if name.endswith("1") and not name.startswith("bool")]
ROW = st.fixed_dictionaries({}, optional={name: VALUES[kind] for name, kind in COLUMNS.items()})


def written(groups: list[list[dict[str, Any]]]) -> bytes:
    data = bytearray(MAGIC)
    structs = [add_row_group(data, COLUMNS, REPEATED, rows) for rows in groups]
    return bytes(data) + with_trailer(encode_footer(COLUMNS, structs, sum(map(len, groups))))


def check(groups: list[list[dict[str, Any]]], path: Path) -> None:
    path.write_bytes(written(groups))
    expected = [tuple(row.get(name) for name in COLUMNS) for rows in groups for row in rows]
    file = pq.ParquetFile(path)
    assert file.schema_arrow == pa.schema([(name, TYPES[kind]) for name, kind in COLUMNS.items()])
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [*map(len, groups)]
    assert [tuple(row.values()) for row in file.read().to_pylist()] == expected
    assert duckdb.read_parquet(str(path)).fetchall() == expected
    assert pl.read_parquet(path).rows() == expected


@settings(max_examples=2 * EXAMPLES)
@given(st.lists(st.lists(ROW, min_size=1, max_size=20), min_size=1, max_size=3))
def test_other_readers_read_the_rows(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[dict[str, Any]]]
) -> None:
    check(groups, tmp_path_factory.mktemp("rows") / "rows.parquet")


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 64, 65, 255, MOST_ROWS])
@pytest.mark.parametrize("every", [1, 2, 1000])
def test_row_groups_of_all_sizes(rows: int, every: int, tmp_path: Path) -> None:
    """Values, of which each is another, in all rows, in some, or in none but the first."""
    values: dict[str, Callable[[int], Any]] = {
        "bool": lambda n: n % 3 == 0,
        "text": "é{}".format,
        "bytes": lambda n: bytes([n]),
    }
    group = [{name: values.get(kind, int)(n) for name, kind in COLUMNS.items() if n % every == 0} for n in range(rows)]
    check([group, group], tmp_path / "rows.parquet")
