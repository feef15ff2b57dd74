"""Files whose row groups are copied to one have the same rows for every reader."""

from pathlib import Path
from random import Random

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.errors import BadFooter
from catalogue.parquet.footer import footer_length
from catalogue.parquet.merge_footers import merge_footers
from catalogue.parquet.model import MAGIC, TRAILER, with_trailer
from tests.support.amounts import in_part, in_soak
from tests.support.footers import write
from tests.support.mirrors import raw_footer, read_footer
from tests.support.spliced import wide_table

wide = pytest.fixture(scope="module")(wide_table)


def merged(files: list[bytes]) -> bytes:
    pages, footers, shifts = MAGIC, [], []
    for file in files:
        length = footer_length(file[-TRAILER:])
        footers.append(raw_footer(file))
        shifts.append(len(pages) - len(MAGIC))
        pages += file[len(MAGIC) : -TRAILER - length]
    return pages + with_trailer(merge_footers(footers, shifts))


def check(files: list[bytes], tmp_path: Path) -> None:
    expected = pa.concat_tables([pq.read_table(pa.BufferReader(file)) for file in files])
    found = merged(files)
    assert read_footer(found).num_rows == len(expected)  # our own decoder checks offsets, too
    path = tmp_path / "merged.parquet"
    path.write_bytes(found)
    assert pq.read_table(path, page_checksum_verification=True).equals(expected)
    assert pl.read_parquet(path).equals(pl.DataFrame(expected))
    with duckdb.connect() as connection:
        rows = connection.read_parquet(str(path))
        assert len(rows.to_arrow_table()) == len(expected)
        few = rows.filter("string_many = 'com,example)/é-5'").to_arrow_table()
    assert len(few) == expected.column("string_many").to_pylist().count("com,example)/é-5")


@in_part(3)
@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("page_index", [False, True])
def test_equal_rows(wide: pa.Table, tmp_path: Path, page: str, *, page_index: bool) -> None:
    options = {"data_page_version": page, "write_page_index": page_index, "compression": "zstd"}
    files = [write(wide.slice(start, 200), row_group_size=90, **options) for start in (0, 7, 400)]
    check(files, tmp_path)


@in_soak
def test_many_row_groups_and_large_offsets(wide: pa.Table, tmp_path: Path) -> None:
    """Numbers take more bytes than before: of 30 row groups, and beyond 2 MB."""
    rng = Random(3)
    filled = wide.set_column(
        wide.schema.get_field_index("string_some"),
        "string_some",
        pa.array([rng.randbytes(2000).hex() for _ in range(650)]),
    )
    check([write(filled, row_group_size=64, use_dictionary=False) for _ in range(3)], tmp_path)


def test_files_of_duckdb_with_bloom_filters(wide: pa.Table, tmp_path: Path) -> None:
    files = []
    with duckdb.connect() as connection:
        for start in (0, 300):
            path = tmp_path / f"{start}.parquet"
            some = connection.from_arrow(wide.select(["string_many", "int64_few"]).slice(start, 300))
            some.to_parquet(str(path), row_group_size=2048)
            files.append(path.read_bytes())
    check(files, tmp_path)


def test_one_file_and_files_without_rows(wide: pa.Table, tmp_path: Path) -> None:
    check([write(wide)], tmp_path)
    check([write(wide.slice(0, 0)), write(wide), write(wide.slice(0, 0))], tmp_path)


def test_rejects_other_columns(wide: pa.Table) -> None:
    files = [write(wide.select([name])) for name in ("string_many", "string_few")]
    with pytest.raises(BadFooter, match="the parts have different columns"):
        merged(files)


def test_rejects_damaged_footers(wide: pa.Table) -> None:
    footer = raw_footer(write(wide))
    for end in (0, 1, 10, len(footer) // 2, len(footer) - 1):
        with pytest.raises(BadFooter, match="the footer of a part is invalid"):
            merge_footers([footer[:end]], [0])
