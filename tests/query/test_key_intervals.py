"""The keys of a query: both implementations answer as a comparison with each interval does."""

import pickle
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.parquet.model import Bounds, Order
from catalogue.query.key_intervals import Intervals, KeyBatches, KeyIntervals, SingleKeys
from catalogue.surt.interval import exact_interval, merge, prefix_interval

keys = st.text("ab/\x7fé", max_size=4).map(str.encode)


class Batches(KeyBatches):
    def __init__(self, every: Sequence[bytes], size: int) -> None:
        self._parts = [every[at : at + size] for at in range(0, len(every), size)]
        starts = [*range(0, len(every), size), len(every)]
        is_ascii = all(key.isascii() for key in every)
        super().__init__(starts, [part[0] for part in self._parts], is_ascii=is_ascii)

    def keys(self, number: int) -> pa.BinaryArray:
        return pa.array(self._parts[number], pa.binary())


@st.composite
def implementations(draw: st.DrawFn) -> KeyIntervals:
    """Draw intervals of either implementation, complete or a part."""
    drawn = draw(st.lists(keys, max_size=9))
    kind = draw(st.sampled_from(["intervals", "keys", "batches", "pickled"]))
    if kind == "intervals":
        prefixes = draw(st.lists(keys.filter(bool), max_size=4))
        every: KeyIntervals = Intervals(merge([*map(exact_interval, drawn), *map(prefix_interval, prefixes)]))
    elif kind == "keys":
        every = SingleKeys.of(pa.array(sorted({*drawn}), pa.binary()))
    else:
        every = SingleKeys(Batches(sorted(drawn), draw(st.integers(1, 4))), range(len(drawn)))
    first, stop = sorted(draw(st.tuples(st.integers(0, len(every)), st.integers(0, len(every)))))
    part = every.part(first, stop)
    return pickle.loads(pickle.dumps(part)) if kind == "pickled" else part  # noqa: S301 - made here


@given(implementations(), st.lists(st.none() | keys))
def test_mask_has_the_keys_in_an_interval(intervals: KeyIntervals, some: list[bytes | None]) -> None:
    found = intervals.mask(pa.array(some, pa.binary())).to_pylist()
    assert [bool(each) for each in found] == [
        key is not None and any(key in each for each in intervals) for key in some
    ]


@given(implementations(), keys, keys)
def test_bounds(intervals: KeyIntervals, one: bytes, other: bytes) -> None:
    least, greatest = sorted([one, other])
    inside = [each for each in intervals if each.start <= greatest and each.end > least]
    assert [*intervals.between(least, greatest)] == [*intervals.near(Bounds(least, greatest))] == inside
    assert intervals.overlap(least, greatest) == bool(inside)
    assert intervals.contain_all(Bounds(least, greatest)) == any(least in each and greatest in each for each in inside)
    assert intervals.near(Bounds(least, greatest)).least_match(Bounds(least, greatest)) == (
        max(inside[0].start, least) if inside else least
    )


@given(implementations())
def test_keys_that_are_not_ascii_may_be_between_signed_bounds(intervals: KeyIntervals) -> None:
    others = [each for each in intervals if not (each.start + each.end).isascii()]
    near = [*intervals.near(Bounds(b"a", b"a", Order.SIGNED))]
    assert [each for each in others if each not in near] == []
    assert bool(intervals.not_ascii) == bool(others)
    assert len(intervals.near(None)) == len(intervals)


@given(implementations())
def test_pickled_intervals_are_the_same(intervals: KeyIntervals) -> None:
    loaded = pickle.loads(pickle.dumps(intervals))  # noqa: S301 - made here
    assert [*loaded] == [*dict.fromkeys(intervals)]
    assert [intervals[place] for place in range(len(intervals))] == [*intervals]
    many = SingleKeys.of(pa.array([b"%08d" % number for number in range(10_000)], pa.binary()))
    assert len(pickle.dumps(many.part(10, 20))) < 1_000  # it has only its keys


@pytest.mark.parametrize("count", [64, 65, 200])
def test_mask_of_many_wide_intervals(count: int) -> None:
    intervals = Intervals(prefix_interval(b"%04d" % (2 * number)) for number in range(count))
    some = [b"%04d/" % number for number in range(2 * count)]
    assert intervals.mask(pa.array(some, pa.binary())).to_pylist() == [True, False] * count
