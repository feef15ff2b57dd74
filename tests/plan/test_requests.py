"""Requests of a plan: one for parts that are close, and one read for parts of a cached range."""

from hypothesis import given
from hypothesis import strategies as st

from catalogue.plan.requests import Part, PlannedRequest, Purpose, plan_requests
from catalogue.source.byte_ranges import ByteRange, coalesce

ranges = st.builds(lambda start, length: ByteRange(start, start + length), st.integers(0, 200), st.integers(1, 20))
disjoint = st.lists(ranges, max_size=12).map(lambda found: coalesce(found, max_gap=-1, max_length=1000))


def planned(
    parts: list[ByteRange], *, max_gap: int = 0, cached: tuple[tuple[int, int], ...] = ()
) -> list[PlannedRequest]:
    named = [Part(Purpose.PAGES, 0, "url", part) for part in parts]
    return list(plan_requests("file", named, max_gap=max_gap, cached=[ByteRange(*each) for each in cached]))


def test_cached_parts_are_read_at_once() -> None:
    parts = [ByteRange(10, 20), ByteRange(25, 30), ByteRange(40, 50), ByteRange(60, 65)]
    found = planned(parts, max_gap=10, cached=((0, 45), (60, 70)))
    assert [(each.range, each.cached, len(each.parts)) for each in found] == [
        (ByteRange(10, 45), True, 3),
        (ByteRange(45, 50), False, 1),
        (ByteRange(60, 65), True, 1),
    ]


@given(disjoint, disjoint, st.integers(0, 30))
def test_requests_have_every_byte_of_the_parts_once(
    parts: list[ByteRange], cached: list[ByteRange], max_gap: int
) -> None:
    found = planned(parts, max_gap=max_gap, cached=tuple((each.start, each.end) for each in cached))
    taken = [part.range for request in found for part in request.parts]
    assert sorted(byte for each in taken for byte in range(each.start, each.end)) == sorted(
        byte for each in parts for byte in range(each.start, each.end)
    )
    assert found == sorted(found, key=lambda request: request.range)
    for request in found:
        assert all(part.range in request.range for part in request.parts)
        assert request.cached == any(request.range in each for each in cached)
        assert request.cached or not any(part.range in each for part in request.parts for each in cached)
