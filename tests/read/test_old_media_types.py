"""Media types of old crawls, where some captures have only a declared one."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import catalogue
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.demo.miniature import cdx_files
from catalogue.settings import Settings
from tests.support.crawls import crawl_of

OLD, TYPED = "CC-MAIN-2017-09", "CC-MAIN-2018-39"
DETECTED = "content_mime_detected"


def _rows(crawl: str, undetected: int) -> list[dict[str, object]]:
    fixed = {
        **dict.fromkeys(SCHEMA.names),
        "url_host_name": "example.com",
        "url_protocol": "https",
        "url_path": "/",
        "content_digest": "A" * 32,
        "fetch_time": datetime(2017, 2, 20, tzinfo=UTC),
        "fetch_status": 200,
        "warc_segment": "1",
        "warc_filename": f"crawl-data/{crawl}/segments/1/warc/a.warc.gz",
        "warc_record_length": 50,
    }
    return [
        {
            **fixed,
            "url_surtkey": f"com,example)/{number:05}",
            "url": f"https://example.com/{number:05}",
            "warc_record_offset": 100 * number,
            "content_mime_type": "text/html" if number % 2 else "text/plain",
            DETECTED: None if number < undetected else "text/html",
        }
        for number in range(600)
    ]


@pytest.mark.parametrize(
    ("crawl", "undetected", "expected"),
    [(OLD, 200, 500), (OLD, 0, 600), (OLD, 600, 300), (OLD, -1, 300), (TYPED, 200, 400)],
    ids=["some", "none", "all", "no column", "newer crawl"],
)
def test_declared_types_replace_missing_ones_in_each_index(
    tmp_path: Path, crawl: str, undetected: int, expected: int
) -> None:
    """Row groups and blocks have different captures next to each other, which decide nothing."""
    rows = _rows(crawl, undetected if undetected >= 0 else 600)
    without = {"crawl", "subset", *([DETECTED] if undetected < 0 else [])}
    schema = pa.schema([field for field in SCHEMA if field.name not in without])
    crawl_of(tmp_path / "source", pa.Table.from_pylist(rows, schema), crawl=crawl, row_group_size=250)
    for path, data in cdx_files(crawl, rows, ()).items():
        (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / path).write_bytes(data)
    with catalogue.open(tmp_path / "data", settings=Settings(source=str(tmp_path / "source"))) as cat:
        cat.harvest(crawl, values=["content_mime_type", DETECTED])
        found = [
            cat.captures("*", crawls=crawl, mime=mime, columns=["url"], index=index).to_arrow()
            for mime in ("text/html", "text/h*")
            for index in ("columnar", "cdx")
        ]
    assert found[0].num_rows == expected
    assert all(other == found[0] for other in found)
