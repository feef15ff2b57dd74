"""Times as CDX writes them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from catalogue.capture import timestamp


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
