"""Few intervals that cover the keys."""

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from catalogue.parquet.key_ranges import MOST, covers, disjoint, merged
from catalogue.parquet.model import Bounds
from catalogue.parquet.stored_indexes import LONGEST_BOUND
from catalogue.read.key_clusters import clusters

WORDS = st.one_of(
    st.binary(max_size=12),
    st.text("ab,)/", max_size=12).map(str.encode),
    st.builds(lambda head, tail: head + tail, st.sampled_from([b"com,", b"org,", b"k" * 300]), st.binary(max_size=3)),
)


def binary(keys: list[bytes | None]) -> pa.Array:
    return pa.array(keys, pa.binary())


@given(st.lists(st.one_of(st.none(), WORDS), max_size=30))
def test_every_key_lies_in_an_interval(keys: list[bytes | None]) -> None:
    found = clusters(binary(keys))
    there = [key for key in keys if key is not None]
    assert bool(found) == bool(there)
    assert len(found) <= MOST
    assert disjoint(found) or any(len(key) > LONGEST_BOUND for key in there)
    assert all(any(part.min <= key <= part.max for part in found) for key in there)
    if there and max(map(len, there)) <= LONGEST_BOUND:
        assert {end for part in found for end in (part.min, part.max)} <= set(there)


@given(st.lists(st.lists(WORDS, min_size=1, max_size=8), max_size=8), st.randoms(use_true_random=False))
def test_merged_intervals_cover_their_inputs(groups: list[list[bytes]], rng: random.Random) -> None:
    parts = [part for keys in groups for part in clusters(binary([*keys]))]
    rng.shuffle(parts)
    found = merged(parts)
    assert len(found) <= MOST
    assert disjoint(found)
    assert covers(found, parts)
    every = [key for keys in groups for key in keys]
    assert all(any(part.min <= key <= part.max for part in found) for key in every)
    assert bool(found) == bool(every)


def test_separates_two_streams() -> None:
    streams = [[f"org,{name}{number:05})/" for number in range(500)] for name in ("bear", "crane")]
    zipped = [key.encode() for pair in zip(*streams, strict=True) for key in pair]
    assert clusters(binary([*zipped])) == tuple(Bounds(keys[0].encode(), keys[-1].encode()) for keys in streams)
    pages = [clusters(binary([*zipped[start : start + 100]])) for start in range(0, 1000, 100)]
    assert {len(page) for page in pages} == {2}
    assert merged(part for page in pages for part in page) == clusters(binary([*zipped]))


def test_keys_without_wide_gaps_are_one_interval() -> None:
    keys = [f"{a}{b}{c}".encode() for a in "abcdefghij" for b in "abcdefghij" for c in "abcdefghij"]
    assert clusters(binary([*keys])) == (Bounds(keys[0], keys[-1]),)
    assert merged([Bounds(b"a", b"m"), Bounds(b"m", b"p"), Bounds(b"q", b"z")]) == (Bounds(b"a", b"z"),)
    assert clusters(binary([b"one", None, b"one"])) == (Bounds(b"one", b"one"),)
