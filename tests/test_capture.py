"""Lines of CDXJ, with the fields of Common Crawl's index server in its order, all of them text."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.capture import cdx_fields, cdxj_line, timestamp
from catalogue.crawl import SCHEMA
from tests.mirrors import one_of_each_crawl

ROW: dict[str, Any] = {
    "url_surtkey": "com,example)/",
    "url": "https://example.com/",
    "fetch_time": datetime(2022, 1, 16, 9, 31, 37, tzinfo=UTC),
    "fetch_status": 200,
    "content_digest": "UXZBCQEGW5JKFAF4Y7OTQGEM2ICUPBP5",
    "content_mime_type": "text/html",
    "content_mime_detected": "application/xhtml+xml",
    "content_charset": "UTF-8",
    "content_languages": "eng,isl",
    "warc_filename": "crawl-data/CC-MAIN-2022-05/segments/1/warc/x.warc.gz",
    "warc_record_offset": 5_000_000_000,
    "warc_record_length": 1234,
    "crawl": "CC-MAIN-2022-05",
    "subset": "warc",
}


def test_a_line() -> None:
    assert cdxj_line(ROW) == (
        'com,example)/ 20220116093137 {"url": "https://example.com/", "mime": "text/html", '
        '"mime-detected": "application/xhtml+xml", "status": "200", "digest": "UXZBCQEGW5JKFAF4Y7OTQGEM2ICUPBP5", '
        '"length": "1234", "offset": "5000000000", "filename": "crawl-data/CC-MAIN-2022-05/segments/1/warc/x.warc.gz", '
        '"languages": "eng,isl", "encoding": "UTF-8"}'
    )


def test_a_redirect() -> None:
    row = ROW | {"fetch_status": 301, "fetch_redirect": "https://www.example.com/", "content_truncated": "length"}
    row |= {"content_languages": None, "content_charset": None}
    assert [*cdx_fields(row)] == [
        *("url", "mime", "mime-detected", "status", "digest", "length", "offset", "filename"),
        *("redirect", "truncated"),
    ]
    assert cdx_fields(row)["redirect"] == "https://www.example.com/"


def test_what_is_null_or_missing_is_left_out() -> None:
    assert cdx_fields({}) == {}
    assert cdx_fields(dict.fromkeys(SCHEMA.names)) == {}
    assert cdx_fields({"url": "", "warc_record_offset": 0}) == {"url": "", "offset": "0"}


@pytest.mark.parametrize(
    ("time", "digits"),
    [
        (None, "-"),
        (datetime(2022, 1, 31, 23, 59, 59, 999_000, tzinfo=UTC), "20220131235959"),
        (datetime(2022, 1, 31, 23, 59, 59), "20220131235959"),  # noqa: DTZ001 - columns without a zone are UTC
        (datetime(2022, 2, 1, 1, tzinfo=timezone(timedelta(hours=2))), "20220131230000"),
        (datetime(2022, 1, 31, 20, tzinfo=timezone(-timedelta(hours=5))), "20220201010000"),
        (datetime(1, 2, 3, 4, 5, 6, tzinfo=UTC), "00010203040506"),
    ],
)
def test_times_are_14_digits_in_utc(time: datetime | None, digits: str) -> None:
    assert timestamp(time) == digits


@pytest.mark.parametrize(
    "text", ['"', "\\", "\n", "\r\n", "\t", "\0", "\x1b[31m", "\u2028", "\x85", "é", "😀", "</script>"]
)
def test_a_row_is_one_line_whatever_it_holds(text: str) -> None:
    line = cdxj_line(ROW | {"url": f"https://example.com/{text}", "url_surtkey": f"com,example)/{text}"})
    assert line.isprintable()
    assert len(line.splitlines()) == 1
    _, time, fields = line.split(" ", 2)
    assert time == "20220116093137"
    assert json.loads(fields)["url"] == f"https://example.com/{text}"


def test_a_key_stays_one_field() -> None:
    assert (
        cdxj_line(ROW | {"url_surtkey": "com,example)/a b\n\u2028c"}).split(" ")[0] == "com,example)/a%20b%0a%e2%80%a8c"
    )
    assert cdxj_line(ROW | {"url_surtkey": "com,example)/é%20"}).split(" ")[0] == "com,example)/é%20"


def test_rows_of_every_crawl(mirror: Path) -> None:
    for path in one_of_each_crawl(mirror):
        for row in pq.read_table(path, coerce_int96_timestamp_unit="ms").slice(0, 100).to_pylist():
            key, time, fields = cdxj_line(row).split(" ", 2)
            assert key == row["url_surtkey"]
            assert datetime.strptime(time, "%Y%m%d%H%M%S").replace(tzinfo=UTC) == row["fetch_time"].replace(
                microsecond=0, tzinfo=UTC
            )
            found = json.loads(fields)
            assert all(isinstance(value, str) for value in found.values())
            assert found["url"] == row["url"]
            assert (int(found["status"]), int(found["offset"])) == (row["fetch_status"], row["warc_record_offset"])


def test_rows_as_arrow_gives_them() -> None:
    table = pa.Table.from_pylist([ROW], schema=SCHEMA)
    assert cdxj_line(table.to_pylist()[0]) == cdxj_line(ROW)
