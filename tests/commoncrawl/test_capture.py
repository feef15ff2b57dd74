"""Captures from rows of every origin, and times of CDX."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest

from catalogue.commoncrawl.capture import MAX_RECORD, Capture, capture_of, format_timestamp
from catalogue.errors import BadRecord
from tests.support.archives import BODY, TIME, URL, digest

ROW = {
    "url": URL,
    "fetch_time": TIME,
    "fetch_status": 200,
    "content_digest": digest(BODY),
    "warc_filename": "crawl-data/CC-MAIN-2022-33/segments/1.2/warc/x.warc.gz",
    "warc_record_offset": 5,
    "warc_record_length": 7,
}


def test_converts_rows_of_every_origin() -> None:
    meant = Capture(str(ROW["warc_filename"]), 5, 7, URL, TIME, digest(BODY), 200)
    assert capture_of(ROW) == meant
    assert (meant.range.start, meant.range.end) == (5, 12)
    cdx = {"urlkey": "com,example)/", "timestamp": "20220815010203", "url": URL, "status": "200"}
    cdx |= {"digest": digest(BODY), "filename": str(ROW["warc_filename"]), "offset": "5", "length": "7"}
    assert capture_of(cdx) == meant
    athena = {name: str(value) for name, value in ROW.items()} | {"fetch_time": "2022-08-15 01:02:03.000"}
    assert capture_of(athena) == meant
    assert capture_of(ROW | {"warc_filename": f"common-crawl/{ROW['warc_filename']}"}) == meant
    for absent in (None, "", "-", float("nan"), pd.NaT, pd.NA, np.datetime64("NaT", "s"), "NaN", r"\N", "NA", "N/A"):
        nothing = dict.fromkeys(("url", "fetch_time", "fetch_status", "content_digest"), absent)
        assert capture_of(ROW | nothing) == Capture(meant.filename, 5, 7)
        with pytest.raises(BadRecord, match="is not the path of an archive"):
            capture_of(ROW | {"warc_filename": absent})
    floats = {"warc_record_offset": "5.0", "warc_record_length": np.float64(7), "fetch_status": "200.0"}
    assert capture_of(ROW | floats) == meant


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        *(("20220815010203", 3), (20220815010203.0, 3), ("20220815010203999", 3), ("202208150102", 0)),
        *(("2022-08-15 01:02:03.000 UTC", 3), ("2022-08-15T01:02:03z", 3), ("2022-08-15 01:02:03 GMT", 3)),
        *((1660525323000, 3), ("1660525323000", 3), ("2022-08-15T03:02:03+02:00", 3)),
        *((pd.Timestamp("2022-08-15 01:02:03"), 3), (pd.Timestamp("2022-08-15 03:02:03+02:00"), 3)),
        (np.datetime64("2022-08-15T01:02:03"), 3),
    ],
)
def test_parses_times(time: object, seconds: int) -> None:
    assert capture_of(ROW | {"fetch_time": time}).time == TIME.replace(second=seconds)


INVALID = "invalid offset, length, status or time"
ODD = [["x"], {}, ("x", "y"), np.array([1, 2]), np.array([]), b"x", {1, 2}]


@pytest.mark.parametrize("name", ROW)
def test_rejects_lists_as_values(name: str) -> None:
    for value in ODD:
        with pytest.raises(BadRecord, match="is not one value"):
            capture_of(ROW | {name: value})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        *(
            ({"warc_filename": f"crawl-data/{name}"}, "is not the path of an archive")
            for name in ("x/", "../x", "a//x", "a\nb", "a/" * 70 + "x")
        ),
        *(({"warc_record_offset": offset}, "invalid record of") for offset in (-1, 1 << 63)),
        ({"warc_record_length": 0}, "invalid record of"),
        ({"warc_record_length": MAX_RECORD + 1}, "at most"),
        *(({"warc_record_offset": offset}, INVALID) for offset in (None, float("inf"), 1.5, "9" * 5000)),
        *(({"fetch_time": time}, INVALID) for time in ("yesterday", "2022-13", "20229915010203", "-166052532300")),
        *(({"warc_record_length": "many"}, INVALID), ({"fetch_status": "OK"}, INVALID)),
        ({"fetch_time": "2022081501"}, "use 14 digits"),
    ],
)
def test_rejects_invalid_values(more: dict[str, Any], why: str) -> None:
    with pytest.raises(BadRecord, match=why):
        capture_of(ROW | more)


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
def test_formats_times_as_14_digits_in_utc(time: datetime | None, digits: str) -> None:
    assert format_timestamp(time) == digits


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-01:00", "soon", "9" * 5000])
def test_rejects_times_outside_of_utc_years(time: str) -> None:
    with pytest.raises(BadRecord, match=r"time of a capture: .{1,300}\Z"):
        capture_of({"filename": "crawl-data/a", "offset": 1, "length": 2, "timestamp": time})
