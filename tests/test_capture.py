"""Times as CDX writes them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from catalogue.capture import capture_of, moment, timestamp
from catalogue.errors import BadRecord


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


@pytest.mark.parametrize("text", ["2022-02-01T01:00:00+02:00", "2022-01-31 23:00", "20220131230000", "1643670000000.0"])
def test_times_are_utc_however_they_are_written(text: str) -> None:
    time = moment(text)
    assert (time, time.tzinfo) == (datetime(2022, 1, 31, 23, tzinfo=UTC), UTC)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-01:00", "soon"])
def test_a_time_that_is_none_in_utc_is_refused(time: str) -> None:
    with pytest.raises(BadRecord, match="a time that is one"):
        capture_of({"filename": "crawl-data/a", "offset": 1, "length": 2, "timestamp": time})
