"""File statistics for other engines, compared with all keys of the files."""

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

import catalogue
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.metadata_db.lake_files import LakeFile, lake_files, lake_schema, may_be_sorted, unsigned_bounds
from catalogue.settings import Settings


def signed(text: str) -> list[int]:
    return [byte - 256 if byte > 127 else byte for byte in text.encode()]


KEYS = st.lists(st.text("ab\x7fé\U0010ffff", max_size=4), min_size=1, max_size=6)


@given(KEYS)
def test_signed_bounds_become_valid_unsigned_bounds(keys: list[str]) -> None:
    found = unsigned_bounds(min(keys, key=signed), max(keys, key=signed))
    if found:
        assert all(found[0].encode() <= key.encode() <= found[1].encode() for key in keys)


@given(st.text("abc", min_size=1, max_size=4), st.text("abc", min_size=1, max_size=4))
def test_keeps_ascii_bounds(one: str, other: str) -> None:
    least, greatest = sorted([one, other])
    assert unsigned_bounds(least, greatest)
    assert unsigned_bounds(least, least) == (least, least)


def test_files_are_sorted_since_2022_27() -> None:
    assert may_be_sorted("CC-MAIN-2022-27")
    assert may_be_sorted("CC-MAIN-2026-05")
    assert not may_be_sorted("CC-MAIN-2022-21")
    assert not may_be_sorted("CC-MAIN-2012")


def test_file_statistics_equal_the_files(data: Path, mirror: Path, settings: Settings) -> None:
    with catalogue.open(data, settings=settings) as cat:
        for taught in (False, True):
            if taught:
                cat.backfill().run()
            with cat.connect() as connection:
                files = lake_files(connection, cat.session.stored_crawls())
            assert len(files) == len(cat.files())
            bounded = sum(file.min_key is not None for file in files)
            for file in files:
                check(file, mirror / file.path)
        assert bounded == len(files)
        assert {file.crawl for file in files if file.ascending} == {
            c for c in cat.session.stored_crawls() if may_be_sorted(c)
        }


def check(file: LakeFile, path: Path) -> None:
    parquet = pq.ParquetFile(path)
    keys = parquet.read(["url_surtkey"]).column(0).combine_chunks()
    if file.min_key is not None and file.max_key is not None:
        found = pc.min_max(keys.cast("binary")).as_py()
        assert file.min_key.encode() <= found["min"]
        assert found["max"] <= file.max_key.encode()
    if file.ascending:
        assert keys.cast("binary").sort().equals(keys.cast("binary"))
    metadata = parquet.metadata
    assert (file.num_rows, file.file_size) == (metadata.num_rows, path.stat().st_size)
    assert file.footer_size == metadata.serialized_size
    assert file.column_names == tuple(parquet.schema_arrow.names)
    assert file.row_group_offsets == tuple(
        metadata.row_group(at).column(0).dictionary_page_offset or metadata.row_group(at).column(0).data_page_offset
        for at in range(metadata.num_row_groups)
    )


def test_one_schema_for_all_files() -> None:
    rest = (True, None, None, False, ())

    def having(**columns: str) -> LakeFile:
        return LakeFile("p", "c", "warc", 1, 1, 1, tuple(columns), tuple(columns.values()), *rest)

    found = lake_schema([having(url="string", score="int64", deep="nested"), having(score="double", fetch_status="x")])
    assert found.names == [*SCHEMA.names, "score"]
    assert str(found.field("score").type) == "double"
