"""Numbers, sizes, values as JSON, and similar names."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest

from catalogue.formatting import closest_name, duration, join_first, plural, size, to_json


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        *zip(map(size, (0, 999, 1000, 2.5e6, 3e9)), ("0 B", "999 B", "1.0 kB", "2.5 MB", "3.0 GB"), strict=True),
        (size(4e15), "4000.0 TB"),
        *((plural(count, "file"), text) for count, text in ((1, "1 file"), (0, "0 files"), (90_000, "90,000 files"))),
        *zip(map(duration, (0.25, 30, 600, 36_000)), ("0.25 s", "30 s", "10 min", "10 h"), strict=True),
        (join_first("ab"), "a, b"),
        (join_first("abcde"), "a, b, c and 2 more"),
    ],
)
def test_formats_numbers_and_lists(shown: str, text: str) -> None:
    assert shown == text


def test_formats_values_as_json() -> None:
    noon = datetime(2022, 1, 2, 12, 0, 0, 250_000, timezone(timedelta(hours=2)))
    values = {
        1: [None, "é", True, 7, 0.5, float("nan"), float("inf")],
        "times": (noon, datetime(2022, 1, 2), datetime(2022, 1, 2, tzinfo=UTC)),  # noqa: DTZ001 - as old files have them
        "others": [Decimal(7), Decimal("0.5"), b"\x00\xff", np.int64(3), np.float32("nan"), noon.date()],
        "digits": Decimal("1.2345678901234567890"),
        "fine": noon.replace(microsecond=1),
    }
    assert json.loads(json.dumps(to_json(values), allow_nan=False)) == {
        "1": [None, "é", True, 7, 0.5, None, None],
        "times": ["2022-01-02T10:00:00.250Z", "2022-01-02T00:00:00Z", "2022-01-02T00:00:00Z"],
        "others": [7, 0.5, "00ff", 3, None, "2022-01-02"],
        "digits": "1.2345678901234567890",
        "fine": "2022-01-02T10:00:00.000001Z",
    }


def test_closest_name() -> None:
    assert closest_name("url", ["URLS"]) == "URLS"
    assert closest_name("charset", ["url", "content_charset"]) == "content_charset"
    assert closest_name("x", ["xyz"]) is None
