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
from tests.footers import confused, put_together, scrambled, take_apart, write
from tests.mirrors import crawl_of, index_paths, read_footer

KEY, PLAIN, FEW = "url_surtkey", "url", "content_languages"
ROWS = 130


def overall_of(index: ColumnIndex) -> Bounds | None:
    known = [bounds for bounds in index.bounds if bounds]
    return Bounds(min(b.min for b in known), max(b.max for b in known)) if known else None


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
        schema=pa.schema(
            [pa.field(KEY, pa.string()), pa.field(PLAIN, pa.string(), nullable=False), (FEW, pa.string())]
        ),
    )
    paged: dict[str, Any] = {"data_page_size": 1, "write_batch_size": 10, "dictionary_pagesize_limit": 600}
    return write(table, **(paged | {"use_dictionary": [KEY, FEW], "compression": "gzip"} | options))


def parts(data: bytes) -> list[Part]:
    groups = read_footer(data).row_groups
    return [Part(data, chunk, group.num_rows, group.ordinal) for group in groups for chunk in group.chunks.values()]


def part(name: str, **options: Any) -> Part:
    return next(each for each in parts(written(**options)) if each.chunk.column.name == name)


def largest_of_each_crawl(mirror: Path) -> list[Path]:
    return list(
        {crawl_of(path): path for path in sorted(index_paths(mirror), key=lambda at: at.stat().st_size)}.values()
    )


# As written


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["gzip", "zstd", "none"])
def test_the_pages_themselves_say_what_the_index_says(codec: str, page: str, *, dictionary: bool) -> None:
    for each in parts(written(compression=codec, data_page_version=page, use_dictionary=dictionary, row_group_size=70)):
        index = walk(each.pages, each.chunk)
        assert index == each.located
        assert len(index) == len(index.offsets) - 1 == len(index.first_rows) - 1
        if each.chunk.column.name == PLAIN:
            assert index.first_rows == (*range(0, each.num_rows, 10), each.num_rows)


def test_the_pages_of_the_mirror_say_what_the_index_says(mirror: Path) -> None:
    pages: Counter[bool] = Counter()
    for path in index_paths(mirror):
        for each in parts(path.read_bytes()):
            index = walk(each.pages, each.chunk)
            pages[each.chunk.offset_index is not None] += len(index)
            if each.chunk.offset_index:
                assert index == each.located
                check_pages(each.data[index.offsets[0] : index.offsets[-1]], index, range(len(index)), dictionary=True)
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
    overall = overall_of(index)
    assert (overall is None) == all(bounds is None for bounds in index.bounds)
    if overall:
        every = [value for held in pages for value in held if value is not None]
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


def test_a_chunk_of_nothing_but_nulls() -> None:
    data = write(pa.table({KEY: pa.nulls(30, pa.string())}), data_page_size=1, write_batch_size=10)
    [each] = parts(data)
    count = len(each.located)
    index = decode_column_index(each.column_index, each.chunk, count)
    assert index.bounds == (None,) * count
    assert index.null_counts
    assert sum(index.null_counts) == 30
    assert overall_of(index) is None


# Written again


def test_what_is_decoded_and_encoded_is_the_same(mirror: Path) -> None:
    same: Counter[str] = Counter()
    for path in largest_of_each_crawl(mirror):
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
    assert same["offset"] > 150
    assert same["column"] > 100


BOUNDS = st.one_of(
    st.none(), st.tuples(st.binary(max_size=9), st.binary(max_size=9)).map(lambda pair: Bounds(min(pair), max(pair)))
)


@given(st.lists(st.tuples(BOUNDS, st.integers(1, 1 << 40)), min_size=1, max_size=40), st.booleans())
def test_round_trip_of_column_indexes(pages: list[tuple[Bounds | None, int]], counted: bool) -> None:  # noqa: FBT001
    counts = tuple(count for _, count in pages)
    index = ColumnIndex(tuple(bounds for bounds, _ in pages), counts if counted else None)
    anything = replace(part(KEY).chunk, bounds=None, null_count=None)
    assert decode_column_index(encode_column_index(index), anything, len(pages)) == index


@given(st.lists(st.tuples(st.integers(1, 1 << 30), st.integers(1, 1 << 30)), min_size=1, max_size=40))
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
    return of_locations(
        encode_struct([(number, kind, value) for (number, kind), value in zip(kinds, location, strict=True)])
        for location in locations
    )


def of_locations(encoded: Iterable[bytes]) -> bytes:
    return encode_struct([(1, LIST, encode_list(STRUCT, [*encoded]))])


def locations_of(each: Part) -> list[Location]:
    return [[location[number] for number in (1, 2, 3)] for location in Reader(each.offset_index).struct()[1]]


def add(page: int, *changes: tuple[int, int]) -> Callable[[list[Location]], None]:
    """Add to some fields of a page: 0 is its offset, 1 its size, 2 its first row."""

    def change(pages: list[Location]) -> None:
        for number, amount in changes:
            pages[page][number] += amount

    return change


def rows_again(pages: list[Location], _gone: Location) -> None:
    """Number the rows as if the page that is the first now always were."""
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
    "the first page left out": lambda pages: rows_again(pages, pages.pop(0)),
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
    with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
        decode_offset_index(each.offset_index, none_coded, each.num_rows)
    with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
        walk(each.pages, none_coded)
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
    with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
        decode_offset_index(offset_index([]), empty, 0)
    with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
        walk(each.pages[:dictionary], empty)


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
    encoded = [
        encode_struct([(1, I64, offset), (2, I32, size), (3, I64, row)]) for offset, size, row in locations_of(each)
    ]
    for number in (1, 2, 3):
        wrong = [overridden(encoded[0], number, kind, body), *encoded[1:]]
        data = of_locations(wrong)
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
        data = of_locations([overridden(encoded[0], number, DOUBLE, body), *encoded[1:]])
        with pytest.raises(BadPageIndex, match="float instead of int"):
            decode_offset_index(data, each.chunk, each.num_rows)


@pytest.mark.parametrize("lacking", [1, 2, 3])
def test_offset_indexes_that_lack_a_field(lacking: int) -> None:
    each = part(PLAIN)
    fields = [
        [(number, I64, value) for number, value in enumerate(page, 1) if number != lacking]
        for page in locations_of(each)
    ]
    data = of_locations(map(encode_struct, fields))
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

    def put(
        self, page: int, least: bytes | None = None, greatest: bytes | None = None, nulls: int | None = None
    ) -> None:
        """Say something else of a page."""
        if least is not None:
            self.mins[page] = least
        if greatest is not None:
            self.maxs[page] = greatest
        if nulls is not None:
            assert self.counts
            self.counts[page] = nulls

    def reverse(self, order: int) -> None:
        for values in (self.nulls, self.mins, self.maxs, self.counts or []):
            values.reverse()
        self.order = order

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
    """Those of the keys: two pages of nulls, then eleven that ascend, with nulls in some of them."""
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
    assert [bounds and bounds.max for bounds in index.bounds] == [None, None, *held.maxs[2:]]
    held.counts = None
    assert decoded(held) == ColumnIndex(index.bounds, None)


LEAST, GREATEST = b"com,example)/000", b"com,example)/" + b"long-" * 20 + b"8"
"""Of the keys."""
Change = Callable[[Claims], object]


def uncounted(held: Claims) -> None:
    held.counts = None


def ordered(order: int) -> Change:
    def change(held: Claims) -> None:
        held.order = order

    return change


def all_null(held: Claims) -> None:
    held.nulls, held.counts = [True] * 13, None


def both(*changes: Change) -> Change:
    def change(held: Claims) -> None:
        for each in changes:
            each(held)

    return change


ORDER = "claims an order that its pages do not have"
COLUMN_FAULTS: dict[str, tuple[Change, dict[str, Any], str]] = {
    "a least above the greatest": (
        lambda held: held.put(5, least=held.maxs[5] + b"0"),
        {},
        "has a page whose least value is greater than its greatest",
    ),
    "ascending, but a least": (lambda held: held.put(6, least=LEAST), {}, ORDER),
    "ascending, but a greatest": (lambda held: held.put(5, greatest=GREATEST), {}, ORDER),
    "ascending, but descending": (lambda held: held.reverse(1), {}, ORDER),
    "descending, but ascending": (ordered(2), {}, ORDER),
    "descending, but a least": (both(lambda held: held.reverse(2), lambda held: held.put(6, least=LEAST)), {}, ORDER),
    "descending, but a greatest": (
        both(lambda held: held.reverse(2), lambda held: held.put(7, greatest=GREATEST)),
        {},
        ORDER,
    ),
    "fewer nulls than none": (
        both(lambda held: held.put(5, nulls=-1), lambda held: held.put(0, nulls=11)),
        {},
        "counts less than no nulls",
    ),
    "a null too many": (lambda held: held.put(5, nulls=1), {}, "counts other nulls than the footer"),
    "a null too few": (lambda held: held.put(0, nulls=9), {}, "counts other nulls than the footer"),
    "nulls where the footer has none": (lambda _: None, {"null_count": 0}, "counts other nulls than the footer"),
    "a page of nulls without nulls": (
        both(lambda held: held.put(0, nulls=0), lambda held: held.put(5, nulls=10)),
        {},
        "has a page of nothing but nulls without any",
    ),
    "a page of nulls in a chunk without nulls": (
        uncounted,
        {"null_count": 0},
        "a page of nothing but nulls without any",
    ),
    "no values at all": (all_null, {}, "knows no values where the footer does"),
    "a least value left out": (lambda held: held.put(2, least=LEAST + b"0"), {}, "leaves out values that the footer"),
    "a greatest value left out": (
        lambda held: held.put(12, greatest=GREATEST[:-1] + b"7"),
        {},
        "leaves out values that the footer knows",
    ),
    "a value below": (lambda held: held.put(2, least=b"com,example)."), {}, "knows values that the footer leaves out"),
    "a value below, if only by its length": (
        lambda held: held.put(2, least=LEAST[:-1] + b"/9"),
        {},
        "knows values that the footer leaves out",
    ),
    "a value above": (
        lambda held: held.put(12, greatest=b"com,example)/lonh-"),
        {},
        "knows values that the footer leaves out",
    ),
    "a value above, if only by its length": (
        lambda held: held.put(12, greatest=GREATEST + b"00"),
        {},
        "knows values that the footer leaves out",
    ),
    "a value below bounds that are cut": (
        lambda held: held.put(2, least=b"com,example)."),
        {"bounds": Bounds(LEAST, GREATEST, cut=True)},
        "knows values that the footer leaves out",
    ),
}


@pytest.mark.parametrize("fault", COLUMN_FAULTS)
def test_column_indexes_that_contradict_themselves_or_the_footer(fault: str) -> None:
    change, chunk, message = COLUMN_FAULTS[fault]
    held = claims()
    change(held)
    with pytest.raises(BadPageIndex, match=f"the column index of {KEY} .*{message}"):
        decoded(held, **chunk)


@pytest.mark.parametrize("order", [0, 3, -1])
def test_pages_may_be_in_no_order(order: int) -> None:
    held = claims()
    held.put(6, least=LEAST)
    held.put(5, greatest=GREATEST)
    ordered(order)(held)
    index = decoded(held)
    assert index.bounds[6]
    assert index.bounds[6].min == LEAST
    assert overall_of(index) == Bounds(LEAST, GREATEST)


def test_pages_may_descend() -> None:
    held = claims()
    held.reverse(2)
    assert decoded(held).bounds == decoded(claims()).bounds[::-1]


def test_equal_pages_have_every_order() -> None:
    for order in (0, 1, 2):
        held = Claims([False] * 13, [LEAST] * 13, [GREATEST] * 13, order, None)
        assert decoded(held).bounds == (Bounds(LEAST, GREATEST),) * 13


ODD = both(lambda held: held.put(2, least=LEAST + b"0"), lambda held: held.put(12, greatest=GREATEST[:-1] + b"7"))
WIDE = both(lambda held: held.put(2, least=b""), lambda held: held.put(12, greatest=b"z"))


@pytest.mark.parametrize(
    ("change", "chunk"),
    [
        (ODD, {"bounds": Bounds(LEAST[:-1], b"com,example)/m", cut=True)}),
        (ODD, {"bounds": None}),
        (ODD, {"bounds": Bounds(LEAST, GREATEST, Order.SIGNED)}),
        (WIDE, {"bounds": Bounds(LEAST, GREATEST, Order.SIGNED)}),
        (WIDE, {"bounds": None}),
        (all_null, {"bounds": None, "null_count": ROWS}),
        (lambda held: held.put(5, nulls=7), {"null_count": None}),
        # Bounds may be cut to nothing, and the last byte of what is left be incremented.
        (lambda held: held.put(2, least=b""), {}),
        (lambda held: held.put(2, least=b"com,example)/"), {}),
        (lambda held: held.put(12, greatest=b"d"), {}),
        (lambda held: held.put(12, greatest=b"com,example)/long."), {}),
    ],
)
def test_what_the_footer_does_not_know_is_no_contradiction(change: Change, chunk: dict[str, Any]) -> None:
    held = claims()
    change(held)
    known = [(low, high) for null, low, high in zip(held.nulls, held.mins, held.maxs, strict=True) if not null]
    assert [(b.min, b.max) for b in decoded(held, **chunk).bounds if b] == known


@pytest.mark.parametrize("name", ["nulls", "mins", "maxs", "counts"])
@pytest.mark.parametrize("more", [-1, 1])
def test_lists_of_other_lengths(name: str, more: int) -> None:
    held = claims()
    values = getattr(held, name)
    setattr(held, name, values[:-1] if more < 0 else [*values, values[-1]])
    with pytest.raises(BadPageIndex, match="cannot be decoded"):
        decoded(held, null_count=None)


@pytest.mark.parametrize("pages", [0, 1, 12, 14])
def test_column_indexes_of_another_number_of_pages(pages: int) -> None:
    each = part(KEY)
    with pytest.raises(BadPageIndex, match="cannot be decoded"):
        decode_column_index(each.column_index, each.chunk, pages)


@pytest.mark.parametrize("lacking", [1, 2, 3, 4])
def test_column_indexes_that_lack_a_field(lacking: int) -> None:
    index = take_apart(part(KEY).column_index)
    del index[lacking]
    with pytest.raises(BadPageIndex, match="cannot be decoded"):
        decode_column_index(put_together(index), part(KEY).chunk, 13)


@pytest.mark.parametrize("other", OTHER_KINDS)
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_column_indexes_of_other_kinds_of_values(number: int, other: str) -> None:
    data = overridden(claims().encoded(), number, *OTHER_KINDS[other])
    with pytest.raises(BadPageIndex, match="cannot be decoded"):
        decode_column_index(data, part(KEY).chunk, 13)


@pytest.mark.parametrize(
    ("number", "kind", "value"),
    [
        (1, I32, 0),
        (1, BINARY, b""),
        (2, I64, 3),
        (2, I64, 1 << 40),  # bytes() of a number is as many zeros
        (2, LIST, encode_list(I32, [97, 98])),
        (3, I64, 1 << 62),
        (3, STRUCT, b"\0"),
        (3, BOOLEAN_TRUE, True),
        (5, BINARY, b"0"),
        (5, BOOLEAN_TRUE, False),
    ],
)
def test_lists_of_other_kinds_of_values(number: int, kind: int, value: Any) -> None:
    body = encode_list(kind, [value] * 13)
    data = overridden(claims().encoded(), number, LIST, body)
    with pytest.raises(BadPageIndex, match="cannot be decoded"):
        decode_column_index(data, replace(part(KEY).chunk, null_count=None, bounds=None), 13)


# Bounds that were cut


def cut_as_by_parquet_mr(text: str, length: int, *, greatest: bool) -> bytes:
    """Its BinaryTruncator: texts stay texts, and the last byte that can be incremented so is, others stay behind it."""
    value = text.encode()
    if len(value) <= length:
        return value
    kept = bytearray(value[:length].decode("utf-8", "ignore").encode())
    if not kept or not greatest:
        return bytes(kept) or value
    for place in reversed(range(len(kept))):
        kept[place] += 1
        if kept[place] < 0x100 - 1 and is_text(kept):
            return bytes(kept)
        kept[place] -= 1
    return value


def is_text(value: bytes | bytearray) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


TEXTS = st.text(st.sampled_from("ab~\x7f\u0080п\u00ff\u07ff\uffff\U00010000\U0003ffff"), max_size=7)


@given(st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=4), st.integers(1, 6))
@settings(max_examples=300)
def test_bounds_that_parquet_mr_cut_are_believed(pages: list[list[str]], length: int) -> None:
    encoded = [sorted(text.encode() for text in page) for page in pages]
    every = sorted(chain(*encoded))
    held = ColumnIndex(
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
    index = decode_column_index(encode_column_index(held), chunk, len(pages))
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
@settings(max_examples=300)
def test_our_own_bounds_are_bounds_when_they_are_cut(values: list[bytes]) -> None:
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
        kept = bounds.max[:-1] + bytes([bounds.max[-1] - 1])
        assert greatest[:LONGEST_BOUND] == kept + b"\xff" * (LONGEST_BOUND - len(kept))
    if is_text(least) and is_text(greatest):
        chunk = replace(part(KEY).chunk, bounds=Bounds(least, greatest), null_count=0)
        held = ColumnIndex((bounds,), (0,))
        assert decode_column_index(encode_column_index(held), chunk, 1) == held


@pytest.mark.parametrize(
    ("greatest", "expected"),
    [
        (b"k" * 256, b"k" * 256),
        (b"k" * 257, b"k" * 255 + b"l"),
        (b"k" * 255 + b"\xff", b"k" * 255 + b"\xff"),
        (b"k" * 255 + b"\xff\xff", b"k" * 254 + b"l"),
        (b"k" * 255 + b"\x7f" * 2, b"k" * 255 + b"\x80"),
        (b"k" * 255 + "п".encode(), b"k" * 255 + b"\xd1"),
        (b"k" + b"\xff" * 300, b"l"),
        (b"\xff" * 256, b"\xff" * 256),
        (b"\xff" * 300, b"\xff" * 300),
        (b"", b""),
    ],
)
def test_cut_bounds_by_hand(greatest: bytes, expected: bytes) -> None:
    assert cut_bounds(b"", greatest) == Bounds(b"", expected)
    assert cut_bounds(greatest, greatest).min == greatest[:256]


# Pages that are not what an index says of them


def header_bytes(each: Part, page: int) -> tuple[bytes, bytes]:
    """A page's header, and its body."""
    start, end = each.located.offsets[page : page + 2]
    reader = Reader(each.data, start)
    reader.struct()
    return each.data[start : reader.position], each.data[reader.position : end]


@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("name", [KEY, PLAIN, FEW])
def test_pages_are_what_the_index_says(name: str, page: str) -> None:
    each = part(name, data_page_version=page)
    index = each.located
    runs = [range(first, last) for first in range(len(index)) for last in range(first + 1, len(index) + 1)]
    for run in runs:
        data = each.data[index.extent(run).start : index.extent(run).end]
        check_pages(data, index, run, dictionary=True)
        if run.start >= (each.chunk.dictionary_coded or 0):
            check_pages(data, index, run, dictionary=False)
        else:
            with pytest.raises(BadPageIndex, match=f"page {run.start} needs a dictionary"):
                check_pages(data, index, run, dictionary=False)
    assert len(runs) == 91


@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("off", [-1, 1])
def test_pages_of_another_length_or_other_rows(off: int, page: str) -> None:
    each = part(PLAIN, data_page_version=page)
    index = each.located
    for wrong, at_fault in [
        (replace(index, offsets=(*index.offsets[:4], index.offsets[4] + off, *index.offsets[5:])), 3),
        (replace(index, first_rows=(*index.first_rows[:4], index.first_rows[4] + off, *index.first_rows[5:])), 3),
        (replace(index, first_rows=(*index.first_rows[:-1], ROWS + off)), 12),
    ]:
        one = range(at_fault, at_fault + 1)
        check_pages(each.data[index.offsets[2] :], index, range(2, 13), dictionary=False)
        for run in (one, range(2, 13)):
            with pytest.raises(BadPageIndex, match=f"page {at_fault} is not what the index says of it"):
                check_pages(each.data[index.offsets[run.start] :], wrong, run, dictionary=False)


def test_a_dictionary_is_no_data_page() -> None:
    each = part(KEY)
    dictionary = page_header(each.data, each.chunk.range.start)
    assert dictionary == PageHeader(
        data_page=False,
        size=dictionary.size,
        inflated=dictionary.inflated,
        num_values=0,
        encoding=None,
        has_crc=True,
    )
    assert each.chunk.range.start + dictionary.size == each.located.offsets[0]
    index = OffsetIndex((each.chunk.range.start, each.located.offsets[0]), (0, 0))
    with pytest.raises(BadPageIndex, match="page 0 is not what the index says of it"):
        check_pages(each.pages, index, range(1), dictionary=True)


def test_pages_that_are_not_there() -> None:
    each = part(PLAIN)
    data = each.data[each.located.offsets[0] : each.located.offsets[1]]
    with pytest.raises(BadPageIndex, match="no page starts there: cut short"):
        check_pages(data, each.located, range(2), dictionary=True)


V1 = [(1, I32, 7), (2, I32, 0), (3, I32, 3), (4, I32, 3)]
V2 = [(1, I32, 7), (2, I32, 2), (3, I32, 7), (4, I32, 8), (5, I32, 0), (6, I32, 0)]
"""DataPageHeader: values, encoding, those of levels; DataPageHeaderV2: values, nulls, rows, encoding, levels' bytes."""


def header(kind: int, details: dict[int, list[tuple[int, int, int]]], stored: int = 20) -> bytes:
    """A PageHeader: its type, its size without and with compression, and what is said of pages of its type."""
    structs = [(number, STRUCT, encode_struct(fields)) for number, fields in details.items()]
    return encode_struct([(1, I32, kind), (2, I32, 999), (3, I32, stored), *structs])


def encoding(number: int, fields: list[tuple[int, int, int]], value: int) -> list[tuple[int, int, int]]:
    return [(n, kind, value if n == number else old) for n, kind, old in fields]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (header(0, {5: V1}), (True, 7, False)),
        (header(0, {5: encoding(2, V1, 2)}), (True, 7, True)),  # PLAIN_DICTIONARY
        (header(0, {5: encoding(2, V1, 8)}), (True, 7, True)),  # RLE_DICTIONARY
        (header(0, {5: encoding(2, V1, 5)}), (True, 7, False)),
        (header(0, {5: encoding(4, V1, 8)}), (True, 7, False)),
        (header(3, {8: V2}), (True, 7, True)),
        (header(3, {8: encoding(4, V2, 0)}), (True, 7, False)),
        (header(3, {8: encoding(4, V2, 2)}), (True, 7, True)),
        (header(0, {5: V1, 8: V2}), (True, 7, False)),
        (header(2, {7: encoding(2, V1[:2], 2)}), (False, 0, False)),
        (header(1, {}), (False, 0, False)),
        (header(9, {5: V1}), (False, 0, False)),
        (header(0, {5: encoding(1, V1, 0)}, stored=0), (True, 0, False)),
    ],
)
def test_page_headers(data: bytes, expected: tuple[bool, int, bool]) -> None:
    data_page, values, needs_dictionary = expected
    stored = Reader(data).struct()[3]
    found = page_header(data)
    assert found == page_header(b"before" + data + b"behind", 6)
    assert (found.data_page, found.size, found.inflated, found.num_values) == (
        data_page,
        len(data) + stored,
        999,
        values,
    )
    assert found.needs_dictionary is needs_dictionary


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        header(0, {}),
        header(0, {8: V2}),
        header(3, {5: V1}),
        header(0, {5: V1}, stored=-1),
        header(2, {}, stored=-1),
        header(0, {5: encoding(1, V1, -1)}),
        encode_struct([(1, I32, 0), (5, STRUCT, encode_struct(V1))]),
        encode_struct([(3, I32, 20), (5, STRUCT, encode_struct(V1))]),
        *(overridden(header(0, {5: V1}), number, *other) for number in (1, 3) for other in OTHER_KINDS.values()),
        *(
            overridden(header(0, {5: V1}), 5, STRUCT, overridden(encode_struct(V1), 1, *other))
            for other in OTHER_KINDS.values()
        ),
        *(overridden(header(0, {5: V1}), 5, *OTHER_KINDS[kind]) for kind in OTHER_KINDS if kind != "a struct"),
        *(header(0, {5: V1})[:end] for end in range(len(header(0, {5: V1})))),
    ],
)
def test_what_is_no_page_header(data: bytes) -> None:
    with pytest.raises(BadPageIndex, match="no page starts there"):
        page_header(data)


# Walking


def tiny(pages: bytes, rows: int) -> ColumnChunk:
    """A chunk of such pages."""
    return replace(part(PLAIN).chunk, range=ByteRange(4, 4 + len(pages)), data_page_offset=4, num_values=rows)


def test_a_walk_by_hand() -> None:
    first, second = header(0, {5: V1}, stored=2) + b"ab", header(3, {8: encoding(4, V2, 0)}, stored=0)
    pages = first + second
    assert walk(pages, tiny(pages, 14)) == OffsetIndex((4, 4 + len(first), 4 + len(pages)), (0, 7, 14))


@pytest.mark.parametrize("rows", [0, 7, 13, 15])
def test_a_walk_that_does_not_come_to_all_rows(rows: int) -> None:
    pages = header(0, {5: V1}, stored=0) * 2
    with pytest.raises(BadPageIndex, match=f"the pages of url hold 14 rows, not {rows}"):
        walk(pages, tiny(pages, rows))


def test_a_walk_over_a_page_of_no_rows() -> None:
    pages = header(0, {5: V1}, stored=0) + header(0, {5: encoding(1, V1, 0)}, stored=0)
    with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
        walk(pages, tiny(pages, 7))


def test_a_walk_stays_within_its_chunk() -> None:
    each = part(KEY)
    for data in (each.pages + each.pages[-1:], each.pages[: -len(each.pages) // 2], each.pages[1:], b""):
        with pytest.raises(BadPageIndex):
            walk(data, each.chunk)
    whole = each.pages + b"".join(header_bytes(each, 12))
    with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
        walk(whole, replace(each.chunk, num_values=ROWS + 10))


def test_a_dictionary_comes_first_or_not_at_all() -> None:
    each = untold()
    start = each.located.offsets[0] - each.chunk.range.start
    dictionary, rest = each.pages[:start], each.pages[start:]
    assert walk(dictionary + rest, each.chunk) == each.located
    for data in (dictionary * 2 + rest, rest + dictionary):
        chunk = replace(each.chunk, range=ByteRange(4, 4 + len(data)), data_page_offset=4)
        with pytest.raises(BadPageIndex, match="a page that holds no values behind the first"):
            walk(data, chunk)


def test_pages_are_counted() -> None:
    each = header(0, {5: encoding(1, V1, 1)}, stored=0)
    index = walk(each * MAX_PAGES, tiny(each * MAX_PAGES, MAX_PAGES))
    assert len(index) == MAX_PAGES
    assert decode_offset_index(encode_offset_index(index), tiny(each * MAX_PAGES, MAX_PAGES), MAX_PAGES) == index
    more = each * (MAX_PAGES + 1)
    with pytest.raises(BadPageIndex, match="url has more than 20000 pages"):
        walk(more, tiny(more, MAX_PAGES + 1))


def test_pages_of_nothing_are_not_walked_for_ever() -> None:
    pages = header(2, {}, stored=0) * 1_000_000
    started = process_time()
    with pytest.raises(BadPageIndex):
        walk(pages, tiny(pages, 10))
    assert process_time() - started < 0.5


# Indexes as they are held


NAMES = st.text(max_size=5)
HELD = st.builds(
    Indexes,
    st.one_of(st.none(), st.binary(min_size=1, max_size=9)),
    st.dictionaries(NAMES, st.binary(max_size=9), max_size=4),
    own=st.booleans(),
)


@given(HELD)
def test_what_is_packed_is_unpacked(held: Indexes) -> None:
    assert Indexes.unpack(held.pack()) == held


@given(HELD, HELD)
def test_joined_has_both_and_prefers_what_was_read_from_the_pages(before: Indexes, other: Indexes) -> None:
    joined = before.joined(other)
    winner, loser = (before, other) if before.own and not other.own else (other, before)
    assert joined.own == (before.own or other.own)
    assert joined.column_index == (winner.column_index or loser.column_index)
    assert {*joined.offset_indexes} == {*before.offset_indexes, *other.offset_indexes}
    for name, data in joined.offset_indexes.items():
        assert data == (winner if name in winner.offset_indexes else loser).offset_indexes[name]
    assert before.joined(Indexes()) == Indexes().joined(before) == before


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\n",
        b"null\n",
        b"[]\n",
        b'"text"\n',
        b"\xff\n",
        b"{}\n",
        b'{"own": false, "column_index": 0}\n',
        b'{"own": false, "offset_indexes": []}\n',
        b'{"column_index": 0, "offset_indexes": []}\n',
        b'{"own": 0, "column_index": 0, "offset_indexes": []}\n',
        b'{"own": false, "column_index": 1, "offset_indexes": []}\n',
        b'{"own": false, "column_index": 1, "offset_indexes": []}\nab',
        b'{"own": false, "column_index": 0, "offset_indexes": [["a", 1]]}\n',
        b'{"own": false, "column_index": 0, "offset_indexes": [["a", 1]]}\nab',
        b'{"own": false, "column_index": 2, "offset_indexes": [["a", -1]]}\na',
        b'{"own": false, "column_index": -1, "offset_indexes": [["a", 2]]}\na',
        b'{"own": false, "column_index": Infinity, "offset_indexes": []}\n',
        b'{"own": false, "column_index": 1e999, "offset_indexes": []}\n',
        b'{"own": false, "column_index": NaN, "offset_indexes": []}\n',
        b'{"own": false, "column_index": 0.0, "offset_indexes": []}\n',
        b'{"own": false, "column_index": "0", "offset_indexes": []}\n',
        b'{"own": false, "column_index": true, "offset_indexes": []}\na',
        b'{"own": false, "column_index": 0, "offset_indexes": [["a", Infinity]]}\n',
        b'{"own": false, "column_index": 0, "offset_indexes": ["a1"]}\na',
        b'{"own": false, "column_index": 0, "offset_indexes": [[null, 1]]}\na',
        b'{"own": false, "column_index": 0, "offset_indexes": [["a", 1, 1]]}\na',
        b'{"own": false, "column_index": 0, "offset_indexes": 0}\n',
        b"[" * 100_000 + b"\n",
        b"9" * 5000 + b"\n",
    ],
)
def test_what_was_never_packed_is_not_unpacked(packed: bytes) -> None:
    with pytest.raises(BadPageIndex, match="a page index of the store cannot be read"):
        Indexes.unpack(packed)


def test_indexes_are_cut_from_what_was_fetched(mirror: Path) -> None:
    files = [path.read_bytes() for path in largest_of_each_crawl(mirror)] + [written(row_group_size=50)]
    rng, found_some = Random(1), 0
    for data in files:
        footer, every = read_footer(data), parts(data)
        places = sorted({at.start for each in every for at in (each.chunk.offset_index, each.chunk.column_index) if at})
        windows = [(0, len(data))]
        windows += [
            (max(0, rng.choice(places) + rng.choice([-1, 0, 0, 1])), rng.randrange(1, 9000)) for _ in places[:30]
        ]
        for start, size in windows:
            body = data[start : start + size]
            cut = cut_indexes(footer, KEY, body, start)
            expected: dict[int, tuple[bytes | None, dict[str, bytes]]] = {}
            for each in every:
                for at, is_bounds in ((each.chunk.offset_index, False), (each.chunk.column_index, True)):
                    name = each.chunk.column.name
                    inside = at and start <= at.start and at.end <= start + len(body)
                    if at and inside and (name == KEY or not is_bounds):
                        _, located = expected.setdefault(each.row_group, (None, {}))
                        if is_bounds:
                            expected[each.row_group] = (data[at.start : at.end], located)
                        else:
                            located[name] = data[at.start : at.end]
            assert {n: (held.column_index, held.offset_indexes) for n, held in cut.items()} == expected
            assert not any(held.own for held in cut.values())
            found_some += len(cut) > 0
    assert found_some > 20


def test_without_the_key_column_bounds_are_not_cut() -> None:
    data = written()
    cut = cut_indexes(read_footer(data), "no such column", data, 0)
    assert [held.column_index for held in cut.values()] == [None]
    assert [{*held.offset_indexes} for held in cut.values()] == [{KEY, PLAIN, FEW}]


# Damage


@dataclass
class Outcomes:
    """What became of damaged bytes."""

    passed: int = 0
    refused: int = 0
    slowest: float = 0

    def of(self, attempt: Callable[[], None]) -> None:
        """Anything but ``BadPageIndex`` goes through and fails the test, as does what is not what it should be."""
        started = process_time()
        try:
            attempt()
        except BadPageIndex:
            self.refused += 1
        else:
            self.passed += 1
        self.slowest = max(self.slowest, process_time() - started)


def check_offset_index(index: OffsetIndex, chunk: ColumnChunk, num_rows: int) -> None:
    assert all(type(number) is int for number in chain(index.offsets, index.first_rows))
    assert len(index.offsets) == len(index.first_rows) == len(index) + 1 > 1
    assert chunk.data_page_offset <= index.offsets[0]
    assert (index.offsets[-1], index.first_rows[0], index.first_rows[-1]) == (chunk.range.end, 0, num_rows)
    assert all(start < end for numbers in (index.offsets, index.first_rows) for start, end in pairwise(numbers))


def check_column_index(index: ColumnIndex, chunk: ColumnChunk, pages: int) -> None:
    assert len(index.bounds) == pages
    for bounds in index.bounds:
        assert bounds is None or (type(bounds.min) is type(bounds.max) is bytes and bounds.min <= bounds.max)
    if index.null_counts is not None:
        assert all(type(count) is int and count >= 0 for count in index.null_counts)
        assert len(index.null_counts) == pages
        assert chunk.null_count in {None, sum(index.null_counts)}
    overall = overall_of(index)
    if chunk.bounds and chunk.bounds.order is Order.UNSIGNED:
        assert overall
        assert chunk.bounds.cut or overall.min <= chunk.bounds.min <= chunk.bounds.max <= overall.max


def sources(mirror: Path) -> list[Part]:
    """Chunks of texts with indexes, of all writers that there are."""
    files = [
        written(),
        written(data_page_version="2.0"),
        *(path.read_bytes() for path in largest_of_each_crawl(mirror)),
    ]
    found = []
    for data in files:
        texts = (each for each in parts(data) if each.chunk.column.physical_type == "BYTE_ARRAY")
        found += [each for each in texts if each.chunk.offset_index and len(each.located) > 2][:6]
    assert len(found) >= 10
    return found


def damaged(data: bytes, rng: Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield scrambled(data, rng) if rng.randrange(3) else confused(data, rng)


def test_damaged_offset_indexes(mirror: Path) -> None:
    outcomes = Outcomes()
    for seed, each in enumerate(sources(mirror)):
        for data in damaged(each.offset_index, Random(seed), 150):

            def attempt(data: bytes = data, each: Part = each) -> None:
                check_offset_index(decode_offset_index(data, each.chunk, each.num_rows), each.chunk, each.num_rows)

            outcomes.of(attempt)
    assert outcomes.refused > 1000
    assert outcomes.passed > 10
    assert outcomes.slowest < 0.3


def test_damaged_column_indexes(mirror: Path) -> None:
    outcomes = Outcomes()
    for seed, each in enumerate(sources(mirror)):
        pages = len(each.located)
        for data in damaged(each.column_index, Random(seed), 150):

            def attempt(data: bytes = data, each: Part = each, pages: int = pages) -> None:
                check_column_index(decode_column_index(data, each.chunk, pages), each.chunk, pages)

            outcomes.of(attempt)
    assert outcomes.refused > 800
    assert outcomes.passed > 100
    assert outcomes.slowest < 0.3


def test_damaged_page_headers(mirror: Path) -> None:
    outcomes = Outcomes()
    for seed, each in enumerate(sources(mirror)):
        rng, index = Random(seed), each.located
        for page in range(min(3, len(index))):
            before = each.data[index.offsets[0] : index.offsets[page]]
            first = each.data[each.chunk.range.start : index.offsets[0]]
            whole, body = header_bytes(each, page)
            behind = each.data[index.offsets[page + 1] : index.offsets[-1]]
            for changed in damaged(whole, rng, 60):
                data = before + changed + body + behind

                def check(data: bytes = data, index: OffsetIndex = index) -> None:
                    check_pages(data, index, range(len(index)), dictionary=True)

                def walked(data: bytes = first + data, each: Part = each) -> None:
                    found = walk(data, each.chunk)
                    check_offset_index(found, each.chunk, each.num_rows)

                outcomes.of(check)
                outcomes.of(walked)
    assert outcomes.refused > 1500
    assert outcomes.passed > 100
    assert outcomes.slowest < 0.3


def test_damaged_pages_anywhere(mirror: Path) -> None:
    """A byte of a chunk changed: the walk comes to the same pages, or to none."""
    outcomes, others = Outcomes(), list[bool]()
    for seed, each in enumerate(sources(mirror)):
        rng = Random(seed)
        for _ in range(60):
            changed = bytearray(each.pages)
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)

            def attempt(data: bytes = bytes(changed), each: Part = each) -> None:
                index = walk(data, each.chunk)
                check_offset_index(index, each.chunk, each.num_rows)
                others.append(index.offsets != each.located.offsets)

            outcomes.of(attempt)
    assert outcomes.passed > 300
    assert outcomes.refused > 10
    assert sum(others) < 3
    assert outcomes.slowest < 0.3


def test_damaged_indexes_of_the_store() -> None:
    outcomes = Outcomes()
    held = Indexes(part(KEY).column_index, {name: part(name).offset_index for name in (KEY, PLAIN, FEW)}, own=True)
    packed = held.pack()
    head = packed.index(b"\n") + 1
    rng = Random(3)
    for turn in range(3000):
        # A change of the body alone is not noticed here: the store has a digest of it all.
        data = scrambled(packed, rng) if turn % 3 == 0 else scrambled(packed[:head], rng) + packed[head:]

        def attempt(data: bytes = data) -> None:
            found = Indexes.unpack(data)
            assert Indexes.unpack(found.pack()) == found
            assert type(found.own) is bool
            assert all(type(name) is str and type(held) is bytes for name, held in found.offset_indexes.items())
            assert found.column_index is None or type(found.column_index) is bytes

        outcomes.of(attempt)
    assert outcomes.refused > 1500
    assert outcomes.passed > 300
    assert outcomes.slowest < 0.3
