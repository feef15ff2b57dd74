"""What a join writes of unusual captures."""

from pathlib import Path

import pyarrow as pa
import pytest

import catalogue
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
