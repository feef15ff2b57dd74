"""Page indexes: those of files compared with the pages themselves, and wrong ones, each in one way."""

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.errors import BadPageIndex
from catalogue.footer import Bounds, ColumnChunk, Order
from catalogue.pages import (
    LONGEST_BOUND,
    MAX_PAGES,
    ColumnIndex,
    Indexes,
    OffsetIndex,
    PageHeader,
    check_pages,
    cut_bounds,
    cut_indexes,
    decode_column_index,
    decode_offset_index,
    encode_column_index,
    encode_offset_index,
    page_header,
    walk,
)
from catalogue.ranges import ByteRange
from catalogue.thrift import (
    BINARY,
    BOOLEAN_FALSE,
    BOOLEAN_TRUE,
    DOUBLE,
    I32,
    I64,
    LIST,
    STRUCT,
    Reader,
    encode_list,
    encode_struct,
)
from tests.footers import confused, scrambled, take_apart, write
from tests.mirrors import index_paths, one_of_each_crawl, read_footer

KEY, PLAIN, FEW = "url_surtkey", "url", "content_languages"
ROWS = 130


@dataclass(frozen=True)
class Part:
    """A column chunk, and the file it is in."""

    data: bytes
    chunk: ColumnChunk
    num_rows: int
    row_group: int

    @property
    def pages(self) -> bytes:
        return self.data[self.chunk.range.start : self.chunk.range.end]

    @property
    def offset_index(self) -> bytes:
        assert self.chunk.offset_index
        return self.data[self.chunk.offset_index.start : self.chunk.offset_index.end]

    @property
    def column_index(self) -> bytes:
        assert self.chunk.column_index
        return self.data[self.chunk.column_index.start : self.chunk.column_index.end]

    @property
    def located(self) -> OffsetIndex:
        return decode_offset_index(self.offset_index, self.chunk, self.num_rows)

    def without_index(self) -> "Part":
        """As files of another writer are."""
        return replace(self, chunk=replace(self.chunk, offset_index=None, column_index=None))


@cache
def written(**options: Any) -> bytes:
    """Pages of ten rows: keys whose dictionary overflows, URLs without one, and few languages; some null, or all."""
    keys = [None] * 20 + [f"com,example)/{number:03}" for number in range(ROWS - 33)] + [None] * 3
    keys = [*keys[:60], None, *keys[60:], *(f"com,example)/{'long-' * 20}{number}" for number in range(9))]
    table = pa.table(
        {
            KEY: pa.array(keys),
            PLAIN: pa.array([f"https://example.com/{number * 7919 % 1009}" for number in range(ROWS)]),
            FEW: pa.array([("deu", None, "eng", None)[number // 25 % 4] for number in range(ROWS)]),
        },
        schema=pa.schema([pa.field(KEY, pa.string()), pa.field(PLAIN, pa.string(), nullable=False), (FEW, pa.string())]),
    )
    paged: dict[str, Any] = {"data_page_size": 1, "write_batch_size": 10, "dictionary_pagesize_limit": 600}
    return write(table, **(paged | {"use_dictionary": [KEY, FEW], "compression": "gzip"} | options))


def parts(data: bytes) -> list[Part]:
    groups = read_footer(data).row_groups
    return [Part(data, chunk, group.num_rows, group.ordinal) for group in groups for chunk in group.chunks.values()]


def part(name: str, **options: Any) -> Part:
    return next(each for each in parts(written(**options)) if each.chunk.column.name == name)


# As written


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["gzip", "zstd", "none"])
def test_the_pages_themselves_say_what_the_index_says(codec: str, page: str, *, dictionary: bool) -> None:
    for each in parts(written(compression=codec, data_page_version=page, use_dictionary=dictionary, row_group_size=70)):
        index = walk(each.pages, each.chunk)
        assert index == each.located
        assert index.first_rows == (*range(0, each.num_rows, 10), each.num_rows)
        assert len(index) == len(index.offsets) - 1 == -(-each.num_rows // 10)


def test_the_pages_of_the_mirror_say_what_the_index_says(mirror: Path) -> None:
    pages: Counter[bool] = Counter()
    for path in index_paths(mirror):
        for each in parts(path.read_bytes()):
            index = walk(each.pages, each.chunk)
            pages[each.chunk.offset_index is not None] += len(index)
            if each.chunk.offset_index:
                assert index == each.located
                check_pages(
                    each.data[index.offsets[0] : index.offsets[-1]], index, range(len(index)), dictionary=True
                )
            again = decode_offset_index(encode_offset_index(index), each.chunk, each.num_rows)
            assert again == index
    assert pages[True] > 1000
    assert pages[False] > 500


@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_which_pages_need_the_dictionary(page: str) -> None:
    needed = {}
    for each in parts(written(data_page_version=page)):
        headers = [page_header(each.data, offset) for offset in each.located.offsets[:-1]]
        assert all(header.data_page for header in headers)
        needed[each.chunk.column.name] = [header.needs_dictionary for header in headers]
        assert sum(needed[each.chunk.column.name]) == each.chunk.dictionary_coded
    assert needed[PLAIN] == [False] * 13
    assert needed[FEW] == [True] * 13
    assert needed[KEY] == sorted(needed[KEY], reverse=True)
    assert 1 < sum(needed[KEY]) < 12


def held_pages(path_or_bytes: Path | bytes) -> Iterator[tuple[str, str, ColumnIndex, list[list[bytes]]]]:
    """Of each chunk of texts: the file's writer, the column, its index, and the values of each page."""
    data = path_or_bytes if isinstance(path_or_bytes, bytes) else path_or_bytes.read_bytes()
    footer, file = read_footer(data), pq.ParquetFile(pa.BufferReader(data))
    for each in parts(data):
        name = each.chunk.column.name
        if each.chunk.column_index and each.chunk.column.physical_type == "BYTE_ARRAY":
            index = decode_column_index(each.column_index, each.chunk, len(each.located))
            values = file.read_row_group(each.row_group, [name])[name].cast(pa.binary()).to_pylist()
            rows = (each.located.rows(range(page, page + 1)) for page in range(len(each.located)))
            yield footer.created_by, name, index, [values[run.start : run.stop] for run in rows]


def check_bounds(index: ColumnIndex, pages: Sequence[Sequence[bytes | None]]) -> Counter[str]:
    """Every value lies within the bounds of its page, and nulls are counted; gives how many bounds were cut."""
    found: Counter[str] = Counter()
    for number, (bounds, held) in enumerate(zip(index.bounds, pages, strict=True)):
        values = [value for value in held if value is not None]
        assert index.null_counts is None or index.null_counts[number] == len(held) - len(values)
        assert (bounds is None) == (not values)
        found["pages"] += 1
        if bounds:
            assert bounds.min <= min(values) <= max(values) <= bounds.max
            found["cut"] += bounds.min != min(values)
            found["incremented"] += bounds.max != max(values)
        else:
            found["null"] += 1
    overall = index.overall()
    assert (overall is None) == all(bounds is None for bounds in index.bounds)
    if overall:
        every = [value for held in pages for value in held if value is not None]
        assert overall.min <= min(every) <= max(every) <= overall.max
    return found


def test_no_value_lies_outside_the_bounds_of_its_page(mirror: Path) -> None:
    found: Counter[str] = Counter()
    for path in one_of_each_crawl(mirror):
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


def test_a_chunk_of_nothing_but_nulls() -> None:
    data = write(pa.table({KEY: pa.nulls(30, pa.string())}), data_page_size=1, write_batch_size=10)
    [each] = parts(data)
    count = len(each.located)
    index = decode_column_index(each.column_index, each.chunk, count)
    assert index.bounds == (None,) * count
    assert index.null_counts
    assert sum(index.null_counts) == 30
    assert index.overall() is None


# Written again


def test_what_is_decoded_and_encoded_is_the_same(mirror: Path) -> None:
    same: Counter[str] = Counter()
    for path in one_of_each_crawl(mirror):
        for each in parts(path.read_bytes()):
            if not each.chunk.offset_index:
                continue
            again = encode_offset_index(each.located)
            # pyarrow's have sizes of values too, field 2.
            assert Reader(again).struct()[1] == Reader(each.offset_index).struct()[1]
            same["offset"] += 1
            if each.chunk.column.physical_type == "BYTE_ARRAY":
                count = len(each.located)
                index = decode_column_index(each.column_index, each.chunk, count)
                assert decode_column_index(encode_column_index(index), each.chunk, count) == index
                same["column"] += 1
    assert same["offset"] > 200
    assert same["column"] > 100


BOUNDS = st.one_of(st.none(), st.tuples(st.binary(max_size=9), st.binary(max_size=9)).map(lambda pair: Bounds(*sorted(pair))))


@given(st.lists(st.tuples(BOUNDS, st.integers(1, 1 << 40)), min_size=1, max_size=40), st.booleans())
@settings(deadline=None)
def test_round_trip_of_column_indexes(pages: list[tuple[Bounds | None, int]], counted: bool) -> None:  # noqa: FBT001
    counts = tuple(count for _, count in pages)
    index = ColumnIndex(tuple(bounds for bounds, _ in pages), counts if counted else None)
    anything = replace(part(KEY).chunk, bounds=None, null_count=None)
    assert decode_column_index(encode_column_index(index), anything, len(pages)) == index


@given(st.lists(st.tuples(st.integers(1, 1 << 30), st.integers(1, 1 << 30)), min_size=1, max_size=40))
@settings(deadline=None)
def test_round_trip_of_offset_indexes(pages: list[tuple[int, int]]) -> None:
    start, offsets, rows = 4, [4], [0]
    for size, count in pages:
        offsets.append(offsets[-1] + size)
        rows.append(rows[-1] + count)
    index = OffsetIndex(tuple(offsets), tuple(rows))
    chunk = replace(part(PLAIN).chunk, range=ByteRange(start, offsets[-1]), data_page_offset=start)
    assert decode_offset_index(encode_offset_index(index), chunk, rows[-1]) == index


# Which pages hold which rows


@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.data())
def test_covering_gives_exactly_the_pages_that_hold_some_of_the_rows(sizes: list[int], data: st.DataObject) -> None:
    first_rows = (0, *(sum(sizes[: page + 1]) for page in range(len(sizes))))
    index = OffsetIndex(tuple(100 + 10 * page for page in range(len(sizes) + 1)), first_rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, first_rows[-1]), max_size=12)))
    runs = [range(start, stop) for start, stop in zip(cuts[::2], cuts[1::2], strict=False)]
    covering = index.covering(runs)
    wanted = set(chain(*runs))
    holding = [page for page in range(len(index)) if wanted & {*range(first_rows[page], first_rows[page + 1])}]
    assert [*chain(*covering)] == holding
    assert all(before.stop < behind.start for before, behind in pairwise(covering))
    for run in covering:
        assert run
        assert index.rows(run) == range(first_rows[run.start], first_rows[run.stop])
        assert index.extent(run) == ByteRange(100 + 10 * run.start, 100 + 10 * run.stop)


def test_rows_and_pages_by_hand() -> None:
    index = OffsetIndex((4, 10, 30, 31), (0, 5, 6, 20))
    assert len(index) == 3
    assert index.rows(range(3)) == range(20)
    assert index.rows(range(1, 2)) == range(5, 6)
    assert index.extent(range(1, 3)) == ByteRange(10, 31)
    assert index.covering([range(4, 5)]) == (range(1),)
    assert index.covering([range(4, 6)]) == (range(2),)
    assert index.covering([range(1), range(19, 20)]) == (range(1), range(2, 3))
    assert index.covering([range(1), range(2, 3), range(5, 6)]) == (range(2),)
    assert index.covering([]) == index.covering([range(3, 3), range(20, 20)]) == ()


# Offset indexes that contradict their chunk

Location = list[int]
"""Offset, size and first row of a page."""


def offset_index(locations: Iterable[Location]) -> bytes:
    kinds = ((1, I64), (2, I32), (3, I64))
    encoded = [
        encode_struct([(number, kind, value) for (number, kind), value in zip(kinds, location, strict=True)])
        for location in locations
    ]
    return encode_struct([(1, LIST, encode_list(STRUCT, encoded))])


def locations_of(each: Part) -> list[Location]:
    return [[location[number] for number in (1, 2, 3)] for location in Reader(each.offset_index).struct()[1]]


def add(page: int, *changes: tuple[int, int]) -> Callable[[list[Location]], None]:
    """Add to some fields of a page: 0 is its offset, 1 its size, 2 its first row."""

    def change(pages: list[Location]) -> None:
        for number, amount in changes:
            pages[page][number] += amount

    return change


def rows_again(pages: list[Location]) -> None:
    """Number the rows as if the first page were the first."""
    before = pages[0][2]
    for page in pages:
        page[2] -= before


def sized(size: int) -> Callable[[list[Location]], None]:
    """Put in a page of a size that none can have, all others being in its place."""

    def change(pages: list[Location]) -> None:
        offset, _, row = pages[3]
        pages.insert(3, [offset, size, row])
        pages[4] = [offset + size, pages[4][1] - size, row + 1]

    return change


OFFSET_FAULTS: dict[str, Callable[[list[Location]], object]] = {
    "no pages": lambda pages: pages.clear(),
    "a gap": add(3, (1, -1)),
    "an overlap": add(3, (1, 1)),
    "a page out of place": add(3, (0, 1)),
    "the last page ends early": add(-1, (1, -1)),
    "the last page ends late": add(-1, (1, 1)),
    "starts before the data": add(0, (0, -1), (1, 1)),
    "starts behind the first page": add(0, (0, 1), (1, -1)),
    "the first page left out": lambda pages: (pages.pop(0), rows_again(pages)),
    "the last page left out": lambda pages: pages.pop(),
    "a page left out": lambda pages: pages.pop(3),
    "a page twice": lambda pages: pages.insert(3, [*pages[3]]),
    "two pages the wrong way round": lambda pages: pages.insert(3, pages.pop(4)),
    "a page of no bytes": sized(0),
    "a page of fewer bytes than none": sized(-1),
    "rows that start late": add(0, (2, 1)),
    "rows that start before the first": add(0, (2, -1)),
    "a page of no rows": add(3, (2, -10)),
    "rows that descend": add(3, (2, -11)),
    "a last page of no rows": add(-1, (2, 10)),
    "rows beyond the row group": add(-1, (2, 11)),
}


@pytest.mark.parametrize("fault", OFFSET_FAULTS)
@pytest.mark.parametrize("name", [KEY, PLAIN])
def test_offset_indexes_that_contradict_their_chunk(name: str, fault: str) -> None:
    each = part(name)
    assert (each.chunk.dictionary_page_offset is None) == (name == PLAIN)
    pages = locations_of(each)
    assert decode_offset_index(offset_index(pages), each.chunk, each.num_rows) == each.located
    OFFSET_FAULTS[fault](pages)
    with pytest.raises(BadPageIndex, match=f"the offset index of {name} contradicts its column chunk"):
        decode_offset_index(offset_index(pages), each.chunk, each.num_rows)


def untold() -> Part:
    """A chunk whose footer, as those of parquet-mr before 1.13, does not tell of the dictionary page."""
    each = part(KEY)
    start = each.chunk.range.start
    return replace(each, chunk=replace(each.chunk, dictionary_page_offset=None, data_page_offset=start))


def test_only_a_dictionary_of_which_the_footer_does_not_tell_lies_before_the_first_page() -> None:
    each = untold()
    assert each.located == walk(each.pages, each.chunk) == part(KEY).located
    assert each.located.offsets[0] > each.chunk.data_page_offset
    none_coded = replace(each.chunk, encodings=(0, 3))
    for read in (
        lambda: decode_offset_index(each.offset_index, none_coded, each.num_rows),
        lambda: walk(each.pages, none_coded),
    ):
        with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
            read()
    before = locations_of(each)
    add(0, (0, each.chunk.data_page_offset - each.located.offsets[0] - 1))(before)
    before[0][1] = before[1][0] - before[0][0]
    with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
        decode_offset_index(offset_index(before), each.chunk, each.num_rows)


def test_there_is_a_page_even_of_no_rows() -> None:
    each = untold()
    dictionary = page_header(each.data, each.chunk.range.start).size
    extent = ByteRange(each.chunk.range.start, each.chunk.range.start + dictionary)
    empty = replace(each.chunk, range=extent, num_values=0)
    for read in (lambda: decode_offset_index(offset_index([]), empty, 0), lambda: walk(each.pages[:dictionary], empty)):
        with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
            read()


def overridden(encoded: bytes, number: int, kind: int, body: bytes) -> bytes:
    """A struct with another value of a field behind what it has: the last of two counts."""
    return encoded[:-1] + bytes([kind, number << 1]) + body + b"\0"


OTHER_KINDS: dict[str, tuple[int, bytes]] = {
    "a text": (BINARY, b"\x012"),
    "no text": (BINARY, b"\x00"),
    "infinity": (DOUBLE, struct.pack("<d", float("inf"))),
    "not a number": (DOUBLE, struct.pack("<d", float("nan"))),
    "zero with a point": (DOUBLE, bytes(8)),
    "true": (BOOLEAN_TRUE, b""),
    "false": (BOOLEAN_FALSE, b""),
    "a struct": (STRUCT, b"\0"),
    "a list": (LIST, b"\x25\x02\x04"),
    "an empty list": (LIST, b"\x05"),
}


@pytest.mark.parametrize("other", OTHER_KINDS)
def test_offset_indexes_of_other_kinds_of_values(other: str) -> None:
    each = part(PLAIN)
    kind, body = OTHER_KINDS[other]
    encoded = [encode_struct([(1, I64, offset), (2, I32, size), (3, I64, row)]) for offset, size, row in locations_of(each)]
    for number in (1, 2, 3):
        wrong = [overridden(encoded[0], number, kind, body), *encoded[1:]]
        data = encode_struct([(1, LIST, encode_list(STRUCT, wrong))])
        with pytest.raises(BadPageIndex, match="the offset index of url cannot be decoded"):
            decode_offset_index(data, each.chunk, each.num_rows)
    with pytest.raises(BadPageIndex, match="the offset index of url c"):
        decode_offset_index(overridden(each.offset_index, 1, kind, body), each.chunk, each.num_rows)


def test_numbers_that_only_compare_alike() -> None:
    """Equal to what would be right, and yet no number of bytes or rows."""
    each = part(PLAIN)
    pages = locations_of(each)
    encoded = [encode_struct([(1, I64, offset), (2, I32, size), (3, I64, row)]) for offset, size, row in pages]
    for number in (1, 2, 3):
        body = struct.pack("<d", pages[0][number - 1])
        data = encode_struct([(1, LIST, encode_list(STRUCT, [overridden(encoded[0], number, DOUBLE, body), *encoded[1:]]))])
        with pytest.raises(BadPageIndex, match="float instead of int"):
            decode_offset_index(data, each.chunk, each.num_rows)


@pytest.mark.parametrize("lacking", [1, 2, 3])
def test_offset_indexes_that_lack_a_field(lacking: int) -> None:
    each = part(PLAIN)
    fields = [
        [(number, I64, value) for number, value in enumerate(page, 1) if number != lacking] for page in locations_of(each)
    ]
    data = encode_struct([(1, LIST, encode_list(STRUCT, [encode_struct(field) for field in fields]))])
    with pytest.raises(BadPageIndex, match="cannot be decoded"):
        decode_offset_index(data, each.chunk, each.num_rows)


def test_every_truncation_of_an_index_is_noticed() -> None:
    each = part(KEY)
    count = len(each.located)
    for end in range(len(each.offset_index)):
        with pytest.raises(BadPageIndex, match="cannot be decoded"):
            decode_offset_index(each.offset_index[:end], each.chunk, each.num_rows)
    for end in range(len(each.column_index)):
        with pytest.raises(BadPageIndex, match="cannot be decoded"):
            decode_column_index(each.column_index[:end], each.chunk, count)


# Column indexes that contradict themselves or the footer


@dataclass
class Claims:
    """A column index in parts."""

    nulls: list[bool]
    mins: list[bytes]
    maxs: list[bytes]
    order: int
    counts: list[int] | None

    def encoded(self) -> bytes:
        return encode_struct(
            [
                (1, LIST, encode_list(BOOLEAN_TRUE, self.nulls)),
                (2, LIST, encode_list(BINARY, self.mins)),
                (3, LIST, encode_list(BINARY, self.maxs)),
                (4, I32, self.order),
                (5, LIST, None if self.counts is None else encode_list(I64, self.counts)),
            ]
        )


def claims() -> Claims:
    """Those of the keys: two pages of nulls, then ascending ones; some nulls in the pages 6 and 11 or 12."""
    index = Reader(part(KEY).column_index).struct()
    return Claims(*(index[number] for number in (1, 2, 3, 4, 5)))


def decoded(held: Claims, **chunk: Any) -> ColumnIndex:
    return decode_column_index(held.encoded(), replace(part(KEY).chunk, **chunk), 13)


def test_claims_as_they_are() -> None:
    held = claims()
    assert held.nulls == [True, True] + [False] * 11
    assert held.order == 1
    assert held.counts
    assert sum(held.counts) == part(KEY).chunk.null_count == 24
    index = decoded(held)
    assert index.null_counts == tuple(held.counts)
    assert [bounds and bounds.min for bounds in index.bounds] == [None, None, *held.mins[2:]]
    held.counts = None
    assert decoded(held) == ColumnIndex(index.bounds, None)


def swap(values: list[Any], *places: int) -> None:
    first, second = places
    values[first], values[second] = values[second], values[first]


def reverse(held: Claims) -> None:
    for values in (held.nulls, held.mins, held.maxs, held.counts or []):
        values.reverse()


def backwards(held: Claims, order: int) -> None:
    reverse(held)
    held.order = order


def put(held: Claims, name: str, page: int, value: bytes | int) -> None:
    getattr(held, name)[page] = value


def no_values(held: Claims) -> None:
    held.nulls = [True] * 13
    held.counts = None


def moved_nulls(held: Claims) -> None:
    """Nulls of the first page, which has nothing else, said to be in another."""
    assert held.counts
    held.counts[5] += held.counts[0]
    held.counts[0] = 0


def fewer_than_none(held: Claims) -> None:
    assert held.counts
    held.counts[5] = -1
    held.counts[0] += 1


def uncounted(held: Claims) -> None:
    held.counts = None


COLUMN_FAULTS: dict[str, tuple[Callable[[Claims], object], dict[str, Any], str]] = {
    "least above greatest": (
        lambda held: (put(held, "mins", 5, held.maxs[5] + b"0"), put(held, "order", 0, 0) if False else None),
        {},
        "whose least value is greater",
    ),
}
