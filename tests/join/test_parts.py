"""What a join writes of unusual captures, and many large row groups in one file."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue.join.parts import concatenate
from catalogue.settings import Settings
from tests.support.crawls import CRAWL, crawl_of, table

KEYS = [f"com,example)/{letter}" for letter in "aabc"]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("latest", []),
        ("crawls", [("com,example)/a", 2, None, []), ("com,example)/c", 1, None, []), ("com,example)/d", 0, None, [])]),
    ],
)
def test_captures_without_times_and_statuses(tmp_path: Path, how: str, expected: list[tuple[object, ...]]) -> None:
    nulls = {
        "fetch_time": pa.nulls(4, pa.timestamp("ms", "UTC")),
        "fetch_status": pa.nulls(4, pa.int16()),
        "warc_filename": pa.array([f"crawl-data/{n}.warc.gz" for n in range(4)]),
        "warc_record_offset": pa.array([0, 1, 2, 3], pa.int32()),
    }
    source = crawl_of(tmp_path / "source", table(KEYS, **nulls))
    with catalogue.open(tmp_path / "data", settings=Settings(source=str(source))) as cat:
        cat.harvest(CRAWL)
        keys = pa.table({"key": [KEYS[0], KEYS[3], "com,example)/d"]})
        found = cat.join(keys, tmp_path / "found", how=how, crawls=CRAWL).to_arrow()
    shown = ["input_key", "captures", "first", "statuses"] if how == "crawls" else ["input_key"]
    assert [tuple(row.values()) for row in found.select(shown).to_pylist()] == expected


def test_one_file_of_parts_with_large_footers(tmp_path: Path) -> None:
    """Bounds of long texts make a footer larger than any that is harvested."""
    part, path = tmp_path / "part.parquet", tmp_path / "all.parquet"
    rows = pa.table({f"c{n}": pa.array(["x" * 3900, "y" * 3900]) for n in range(10)})
    with pq.ParquetWriter(part, rows.schema) as writer:
        for _ in range(60):
            writer.write_table(rows)
    concatenate([part, part], path)
    assert pq.read_table(path).equals(pa.concat_tables([rows] * 120))
