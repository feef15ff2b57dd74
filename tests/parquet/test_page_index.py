"""Page indexes, their bounds, and pages of given rows."""

from dataclasses import replace
from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import (
    LONGEST_BOUND,
    ColumnIndex,
    OffsetIndex,
    cut_bounds,
    decode_column_index,
    decode_offset_index,
)
from catalogue.source.byte_ranges import ByteRange
from tests.support.page_indexes import encode_column_index, encode_offset_index
from tests.support.paged import KEY, PLAIN, pages_of, part


@given(st.lists(st.tuples(st.integers(1, 1 << 30), st.integers(1, 1 << 30)), min_size=1, max_size=40))
def test_round_trip_of_offset_indexes(pages: list[tuple[int, int]]) -> None:
    start, offsets, rows = 4, [4], [0]
    for size, count in pages:
        offsets.append(offsets[-1] + size)
        rows.append(rows[-1] + count)
    index = OffsetIndex(tuple(offsets), tuple(rows))
    chunk = replace(part(PLAIN).chunk, range=ByteRange(start, offsets[-1]), data_page_offset=start)
    assert decode_offset_index(encode_offset_index(index), chunk, rows[-1]) == index


@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.data())
def test_covering_returns_exactly_the_pages_of_the_rows(sizes: list[int], data: st.DataObject) -> None:
    first_rows = (0, *(sum(sizes[: page + 1]) for page in range(len(sizes))))
    index = OffsetIndex(tuple(100 + 10 * page for page in range(len(sizes) + 1)), first_rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, first_rows[-1]), max_size=12)))
    runs = [range(start, stop) for start, stop in zip(cuts[::2], cuts[1::2], strict=False)]
    covering = index.covering(runs)
    requested = set(chain(*runs))
    holding = [page for page in range(len(index)) if requested & {*range(first_rows[page], first_rows[page + 1])}]
    assert [*chain(*covering)] == holding
    assert all(before.stop < end.start for before, end in pairwise(covering))
    for run in covering:
        assert run
        assert index.rows(run) == range(first_rows[run.start], first_rows[run.stop])
        assert index.extent(run) == ByteRange(100 + 10 * run.start, 100 + 10 * run.stop)


def cut_as_by_parquet_mr(text: str, length: int, *, greatest: bool) -> bytes:
    """Its BinaryTruncator: texts stay texts, and the last byte that can be incremented so is, others stay behind it."""
    value = text.encode()
    if len(value) <= length:
        return value
    remaining = bytearray(value[:length].decode("utf-8", "ignore").encode())
    if not remaining or not greatest:
        return bytes(remaining) or value
    for place in reversed(range(len(remaining))):
        remaining[place] += 1
        if remaining[place] < 0x100 - 1 and is_text(remaining):
            return bytes(remaining)
        remaining[place] -= 1
    return value


def is_text(value: bytes | bytearray) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


TEXTS = st.text(st.sampled_from("ab~\x7f\u0080п\u00ff\u07ff\uffff\U00010000\U0003ffff"), max_size=7)


@given(st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=4), st.integers(1, 6))
def test_accepts_bounds_truncated_by_parquet_mr(pages: list[list[str]], length: int) -> None:
    encoded = [sorted(text.encode() for text in page) for page in pages]
    every = sorted(chain(*encoded))
    stored = ColumnIndex(
        tuple(
            Bounds(
                cut_as_by_parquet_mr(page[0].decode(), length, greatest=False),
                cut_as_by_parquet_mr(page[-1].decode(), length, greatest=True),
            )
            for page in encoded
        ),
        None,
    )
    chunk = replace(part(KEY).chunk, bounds=Bounds(every[0], every[-1]), null_count=None)
    index = decode_column_index(encode_column_index(stored), chunk, pages_of([10] * len(pages)))
    for bounds, values in zip(index.bounds, encoded, strict=True):
        assert bounds
        assert bounds.min <= values[0] <= values[-1] <= bounds.max


BYTES = st.one_of(
    st.binary(max_size=LONGEST_BOUND + 3),
    st.tuples(
        st.integers(LONGEST_BOUND - 4, LONGEST_BOUND + 4),
        st.sampled_from([b"\xff", b"\x7f", b"a", b"\0", "п".encode()]),
    ).map(lambda pair: (pair[1] * pair[0])[: pair[0]]),
    st.tuples(
        st.integers(LONGEST_BOUND - 6, LONGEST_BOUND + 1),
        st.lists(st.sampled_from([b"\xff", b"\x7f", b"\xfe", "п".encode(), "ÿ".encode(), b"\0"]), max_size=9),
    ).map(lambda pair: b"k" * pair[0] + b"".join(pair[1])),
)


@given(st.lists(BYTES, min_size=1, max_size=4))
def test_truncated_bounds_are_bounds(values: list[bytes]) -> None:
    least, greatest = min(values), max(values)
    bounds = cut_bounds(least, greatest)
    assert bounds.min <= least <= greatest <= bounds.max
    assert least.startswith(bounds.min)
    assert len(bounds.min) == min(len(least), LONGEST_BOUND)
    if greatest[:LONGEST_BOUND] == b"\xff" * LONGEST_BOUND or len(greatest) <= LONGEST_BOUND:
        assert bounds.max == greatest
    else:
        assert len(bounds.max) <= LONGEST_BOUND
        # The least there is of what begins otherwise and is greater than all that begins so.
        remaining = bounds.max[:-1] + bytes([bounds.max[-1] - 1])
        assert greatest[:LONGEST_BOUND] == remaining + b"\xff" * (LONGEST_BOUND - len(remaining))
    if is_text(least) and is_text(greatest):
        chunk = replace(part(KEY).chunk, bounds=Bounds(least, greatest), null_count=0)
        stored = ColumnIndex((bounds,), (0,))
        assert decode_column_index(encode_column_index(stored), chunk, pages_of([1])) == stored
