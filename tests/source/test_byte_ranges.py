"""Half-open byte ranges, and their conversion to and from HTTP's inclusive ranges."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.errors import WrongRange
from catalogue.source.byte_ranges import ByteRange, coalesce, parse_content_range, resolve

RANGES = st.builds(lambda start, length: ByteRange(start, start + length), st.integers(0, 500), st.integers(1, 60))


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 3), (4, 3), (-4, -2), (0, 0)])
def test_rejects_empty_and_negative_ranges(start: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"invalid byte range: {start} to {end}"):
        ByteRange(start, end)


def test_parses_content_range_as_half_open() -> None:
    """RFC 9110, section 14."""
    assert parse_content_range("bytes 0-0/1") == (ByteRange(0, 1), 1)
    assert parse_content_range("bytes 42-1233/1234") == (ByteRange(42, 1234), 1234)
    assert parse_content_range("bytes 0-99/999999999999999999") == (ByteRange(0, 100), 999_999_999_999_999_999)
    assert parse_content_range("Bytes  0-9/10 ") == (ByteRange(0, 10), 10)
    assert parse_content_range("bytes 5-9/*") == (ByteRange(5, 10), 0)


OTHER_FORMS = [None, "", "bytes", "bytes */1234", "bytes 0-9", "bytes=0-9/10", " bytes 0-9/10", "bytes 0 - 9/10"]
OTHER_FORMS += ["bytes 0-9/", "bytes 0-/10", "bytes -9/10", "bytes 0-9/10, bytes 0-9/10"]
OTHER_FORMS += ["bytes 0-9,20-29/100", "bytes +0-9/10", "bytes -0-9/10", "bytes 0-9/1e1", "items 0-9/10"]
OTHER_FORMS += ["bytes \u0660-\u0669/\u0661\u0660", "bytes 0-9/" + "1" * 19, "multipart/byteranges; boundary=x"]


@pytest.mark.parametrize("text", OTHER_FORMS)
def test_rejects_other_forms_of_content_range(text: str | None) -> None:
    with pytest.raises(WrongRange, match="Content-Range is"):
        parse_content_range(text)


@pytest.mark.parametrize("text", ["bytes 9-0/10", "bytes 0-10/10", "bytes 5-20/10", "bytes 10-10/10", "bytes 0-0/0"])
def test_rejects_contradictory_content_range(text: str) -> None:
    with pytest.raises(WrongRange, match="is contradictory"):
        parse_content_range(text)


def test_rejects_ranges_outside_of_the_file() -> None:
    with pytest.raises(WrongRange, match="requested bytes 99 to 101 of a file of 100 bytes"):
        resolve(ByteRange(99, 101), 100)


def test_merges_ranges_within_gap_and_length() -> None:
    near, far = [ByteRange(0, 10), ByteRange(15, 20)], [ByteRange(0, 10), ByteRange(16, 20)]
    assert coalesce(near, max_gap=5, max_length=100) == [ByteRange(0, 20)]
    assert coalesce(far, max_gap=5, max_length=100) == far
    assert coalesce(near, max_gap=5, max_length=20) == [ByteRange(0, 20)]
    assert coalesce(near, max_gap=5, max_length=19) == near
    assert coalesce([ByteRange(10, 20), ByteRange(0, 10)], max_gap=0, max_length=20) == [ByteRange(0, 20)]
    assert coalesce([], max_gap=5, max_length=100) == []


@given(st.lists(RANGES, max_size=20), st.integers(0, 50), st.integers(1, 400))
def test_merged_ranges_cover_all_and_waste_nothing(ranges: list[ByteRange], max_gap: int, max_length: int) -> None:
    merged = coalesce(ranges, max_gap=max_gap, max_length=max_length)
    assert all(any(part in one for one in merged) for part in ranges)
    for before, after in pairwise(merged):
        assert before.end <= after.start
        assert after.start - before.end > max_gap or after.end - before.start > max_length
    for whole in merged:
        inside = sorted(part for part in ranges if part in whole)
        assert whole.start == inside[0].start
        assert whole.end == max(part.end for part in inside)
        reached = inside[0].end
        for part in inside:
            assert part.start - reached <= max_gap
            reached = max(reached, part.end)
    assert merged == coalesce(reversed(ranges), max_gap=max_gap, max_length=max_length)
