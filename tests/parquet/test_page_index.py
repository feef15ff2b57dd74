"""Page indexes compared with the pages, and pages of given rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.parquet.model import Bounds
from catalogue.parquet.page_headers import check_pages
from catalogue.parquet.page_index import (
    LONGEST_BOUND,
    ColumnIndex,
    OffsetIndex,
    cut_bounds,
    decode_column_index,
    decode_offset_index,
)
from catalogue.source.byte_ranges import ByteRange
from tests.support.footers import write
from tests.support.mirrors import index_paths, read_footer
from tests.support.page_indexes import encode_column_index, encode_offset_index, located_by_headers
from tests.support.paged import FEW, KEY, PLAIN, overall_of, pages_of, part, parts, written


def test_pages_of_the_mirror_equal_their_index(mirror: Path) -> None:
    pages: Counter[bool] = Counter()
    for path in index_paths(mirror):
        for each in parts(path.read_bytes()):
            index = located_by_headers(each.pages, each.chunk)
            pages[each.chunk.offset_index is not None] += len(index)
            if each.chunk.offset_index:
                assert index == each.located
                check_pages(each.data[index.offsets[0] : index.offsets[-1]], index, range(len(index)), dictionary=True)
    assert pages[True] > 1000
    assert pages[False] > 500


def held_pages(path_or_bytes: Path | bytes) -> Iterator[tuple[str, str, ColumnIndex, list[list[bytes]]]]:
    """Of each chunk of texts: the file's writer, the column, its index, and the values of each page."""
    data = path_or_bytes if isinstance(path_or_bytes, bytes) else path_or_bytes.read_bytes()
    footer, file = read_footer(data), pq.ParquetFile(pa.BufferReader(data))
    for each in parts(data):
        name = each.chunk.column.name
        if each.chunk.column_index and each.chunk.column.physical_type == "BYTE_ARRAY":
            index = decode_column_index(each.column_index, each.chunk, each.located)
            values = file.read_row_group(each.row_group, [name])[name].cast(pa.binary()).to_pylist()
            rows = (each.located.rows(range(page, page + 1)) for page in range(len(each.located)))
            yield footer.created_by, name, index, [values[run.start : run.stop] for run in rows]


def check_bounds(index: ColumnIndex, pages: Sequence[Sequence[bytes | None]]) -> Counter[str]:
    """Every value lies within the bounds of its page, and nulls are counted; gives how many bounds were cut."""
    found: Counter[str] = Counter()
    for number, (bounds, stored) in enumerate(zip(index.bounds, pages, strict=True)):
        values = [value for value in stored if value is not None]
        assert index.null_counts is None or index.null_counts[number] == len(stored) - len(values)
        assert (bounds is None) == (not values)
        found["pages"] += 1
        if bounds:
            assert bounds.min <= min(values) <= max(values) <= bounds.max
            found["cut"] += bounds.min != min(values)
            found["incremented"] += bounds.max != max(values)
        else:
            found["null"] += 1
    overall = overall_of(index)
    assert (overall is None) == all(bounds is None for bounds in index.bounds)
    if overall:
        every = [value for stored in pages for value in stored if value is not None]
        assert overall.min <= min(every) <= max(every) <= overall.max
    return found


def test_no_value_lies_outside_the_bounds_of_its_page(mirror: Path) -> None:
    found: Counter[str] = Counter()
    for path in index_paths(mirror):
        for writer, _, index, pages in held_pages(path):
            counts = check_bounds(index, pages)
            found.update(counts)
            found.update({f"{kind} by parquet-mr": counts[kind] for kind in counts if "parquet-mr" in writer})
    assert found["pages"] > 400
    assert found["null"] > 10
    if found["pages by parquet-mr"]:
        assert found["cut by parquet-mr"] > 20
        assert found["incremented by parquet-mr"] > 20


@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_bounds_of_pyarrow(page: str) -> None:
    nulls = {}
    for _, name, index, pages in held_pages(written(data_page_version=page)):
        nulls[name] = check_bounds(index, pages)["null"]
        assert name != PLAIN or index.null_counts == (0,) * 13
    assert nulls == {KEY: 2, PLAIN: 0, FEW: 4}


def test_chunk_of_nulls() -> None:
    data = write(pa.table({KEY: pa.nulls(30, pa.string())}), data_page_size=1, write_batch_size=10)
    [each] = parts(data)
    count = len(each.located)
    index = decode_column_index(each.column_index, each.chunk, each.located)
    assert index.bounds == (None,) * count
    assert index.null_counts
    assert sum(index.null_counts) == 30
    assert overall_of(index) is None


BOUNDS = st.one_of(
    st.none(), st.tuples(st.binary(max_size=9), st.binary(max_size=9)).map(lambda pair: Bounds(min(pair), max(pair)))
)


@given(st.lists(st.tuples(BOUNDS, st.integers(1, 1 << 40)), min_size=1, max_size=40), st.booleans())
def test_round_trip_of_column_indexes(pages: list[tuple[Bounds | None, int]], counted: bool) -> None:  # noqa: FBT001
    counts = tuple(count for _, count in pages)
    index = ColumnIndex(tuple(bounds for bounds, _ in pages), counts if counted else None)
    anything = replace(part(KEY).chunk, bounds=None, null_count=None)
    rows = pages_of(count + (bounds is not None) for bounds, count in pages)
    assert decode_column_index(encode_column_index(index), anything, rows) == index


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
