"""Pages that contradict their index."""

from dataclasses import replace

import pytest

from catalogue.errors import BadPageIndex
from catalogue.parquet.page_headers import PageHeader, check_pages, page_header
from catalogue.parquet.page_index import OffsetIndex
from catalogue.parquet.thrift import I32, STRUCT, Reader, encode_struct
from tests.support.paged import FEW, KEY, OTHER_KINDS, PLAIN, ROWS, header, overridden, part


@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("name", [KEY, PLAIN, FEW])
def test_accepts_pages_that_match_the_index(name: str, page: str) -> None:
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
def test_rejects_pages_of_other_length_or_rows(off: int, page: str) -> None:
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
            with pytest.raises(BadPageIndex, match=f"page {at_fault} differs from the page index"):
                check_pages(each.data[index.offsets[run.start] :], wrong, run, dictionary=False)


def test_rejects_a_dictionary_as_data_page() -> None:
    each = part(KEY)
    dictionary = page_header(each.data, each.chunk.range.start)
    assert dictionary == PageHeader(
        data_page=False, size=dictionary.size, inflated=dictionary.inflated, num_values=0, encoding=None, has_crc=True
    )
    assert each.chunk.range.start + dictionary.size == each.located.offsets[0]
    index = OffsetIndex((each.chunk.range.start, each.located.offsets[0]), (0, 0))
    with pytest.raises(BadPageIndex, match="page 0 differs from the page index"):
        check_pages(each.pages, index, range(1), dictionary=True)


def test_rejects_missing_pages() -> None:
    each = part(PLAIN)
    data = each.data[each.located.offsets[0] : each.located.offsets[1]]
    with pytest.raises(BadPageIndex, match="no page starts there: cut short"):
        check_pages(data, each.located, range(2), dictionary=True)


V1 = [(1, I32, 7), (2, I32, 0), (3, I32, 3), (4, I32, 3)]

V2 = [(1, I32, 7), (2, I32, 2), (3, I32, 7), (4, I32, 8), (5, I32, 0), (6, I32, 0)]
"""DataPageHeader: values, encoding, those of levels; DataPageHeaderV2: values, nulls, rows, encoding, levels' bytes."""


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


def test_rejects_invalid_page_headers() -> None:
    for data in (
        *(b"", b"\0", header(0, {}), header(0, {8: V2}), header(3, {5: V1}), header(0, {5: V1}, stored=-1)),
        *(header(2, {}, stored=-1), header(0, {5: encoding(1, V1, -1)})),
        encode_struct([(1, I32, 0), (5, STRUCT, encode_struct(V1))]),
        encode_struct([(3, I32, 20), (5, STRUCT, encode_struct(V1))]),
        *(overridden(header(0, {5: V1}), number, *other) for number in (1, 3) for other in OTHER_KINDS.values()),
        *(
            overridden(header(0, {5: V1}), 5, STRUCT, overridden(encode_struct(V1), field, *other))
            for field in (1, 2, 3)
            for other in OTHER_KINDS.values()
        ),
        *(overridden(header(0, {5: V1}), 5, *OTHER_KINDS[kind]) for kind in OTHER_KINDS if kind != "a struct"),
        *(header(0, {5: V1})[:end] for end in range(len(header(0, {5: V1})))),
    ):
        with pytest.raises(BadPageIndex, match="no page starts there"):
            page_header(data)
