"""Offset indexes with a single contradiction to their chunk."""

import struct
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from catalogue.errors import BadPageIndex
from catalogue.parquet.page_index import decode_column_index, decode_offset_index
from catalogue.parquet.thrift import DOUBLE, I32, I64, LIST, STRUCT, Reader, encode_list, encode_struct
from tests.support.page_indexes import encode_locations
from tests.support.paged import KEY, OTHER_KINDS, PLAIN, Part, overridden, part

Location = list[int]
"""Offset, size and first row of a page."""


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
def test_rejects_offset_indexes_that_contradict_their_chunk(name: str, fault: str) -> None:
    each = part(name)
    assert (each.chunk.dictionary_page_offset is None) == (name == PLAIN)
    pages = locations_of(each)
    assert decode_offset_index(encode_locations(pages), each.chunk, each.num_rows) == each.located
    OFFSET_FAULTS[fault](pages)
    with pytest.raises(BadPageIndex, match=f"the offset index of {name} contradicts its column chunk"):
        decode_offset_index(encode_locations(pages), each.chunk, each.num_rows)


def test_only_an_unlisted_dictionary_lies_before_the_first_page() -> None:
    known = part(KEY)
    start = known.chunk.range.start  # which parquet-mr before 1.13 has as the offset of the first data page
    each = replace(known, chunk=replace(known.chunk, dictionary_page_offset=None, data_page_offset=start))
    assert each.located == known.located
    assert each.located.offsets[0] > each.chunk.data_page_offset
    none_coded = replace(each.chunk, encodings=(0, 3))
    with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
        decode_offset_index(each.offset_index, none_coded, each.num_rows)
    before = locations_of(each)
    add(0, (0, each.chunk.data_page_offset - each.located.offsets[0] - 1))(before)
    before[0][1] = before[1][0] - before[0][0]
    with pytest.raises(BadPageIndex, match="contradicts its column chunk"):
        decode_offset_index(encode_locations(before), each.chunk, each.num_rows)


@pytest.mark.parametrize("other", [*OTHER_KINDS, "the same number with a point"])
def test_rejects_offset_indexes_with_other_types(other: str) -> None:
    each = part(PLAIN)
    pages = locations_of(each)
    for number, value in enumerate(pages[0], 1):
        kind, body = OTHER_KINDS.get(other, (DOUBLE, struct.pack("<d", value)))
        first, *others = (encode_struct([(1, I64, at), (2, I32, size), (3, I64, row)]) for at, size, row in pages)
        data = of_locations([overridden(first, number, kind, body), *others])
        message = "cannot be decoded" if other in OTHER_KINDS else ".*float instead of int"
        with pytest.raises(BadPageIndex, match=f"the offset index of url {message}"):
            decode_offset_index(data, each.chunk, each.num_rows)
    with pytest.raises(BadPageIndex, match="the offset index of url c"):
        decode_offset_index(overridden(each.offset_index, 1, kind, body), each.chunk, each.num_rows)


def test_rejects_every_truncation_of_an_index() -> None:
    each = part(KEY)
    located = each.located
    for end in range(len(each.offset_index)):
        with pytest.raises(BadPageIndex, match="cannot be decoded"):
            decode_offset_index(each.offset_index[:end], each.chunk, each.num_rows)
    for end in range(len(each.column_index)):
        with pytest.raises(BadPageIndex, match="cannot be decoded"):
            decode_column_index(each.column_index[:end], each.chunk, located)
