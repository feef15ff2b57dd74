"""Column indexes with a single contradiction in themselves or to the footer."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from catalogue.errors import BadPageIndex
from catalogue.parquet.model import Bounds, Order
from catalogue.parquet.page_index import ColumnIndex, decode_column_index
from catalogue.parquet.thrift import BINARY, BOOLEAN_TRUE, I32, I64, LIST, STRUCT, Reader, encode_list
from tests.support.footers import put_together, take_apart
from tests.support.page_indexes import Claims
from tests.support.paged import KEY, OTHER_KINDS, ROWS, overridden, pages_of, part


def claims() -> Claims:
    """Those of the keys: two pages of nulls, then eleven that ascend, with nulls in some of them."""
    index = Reader(part(KEY).column_index).struct()
    return Claims(*(index[number] for number in (1, 2, 3, 4, 5)))


def decoded(stored: Claims, **chunk: Any) -> ColumnIndex:
    return decode_column_index(stored.encoded(), replace(part(KEY).chunk, **chunk), part(KEY).located)


def test_accepts_correct_column_indexes() -> None:
    stored = claims()
    assert stored.nulls == [True, True] + [False] * 11
    assert stored.order == 1
    assert stored.counts
    assert sum(stored.counts) == part(KEY).chunk.null_count == 24
    index = decoded(stored)
    assert index.null_counts == tuple(stored.counts)
    assert [bounds and bounds.min for bounds in index.bounds] == [None, None, *stored.mins[2:]]
    assert [bounds and bounds.max for bounds in index.bounds] == [None, None, *stored.maxs[2:]]
    stored.counts = None
    assert decoded(stored) == ColumnIndex(index.bounds, None)


LEAST, GREATEST = b"com,example)/000", b"com,example)/" + b"long-" * 20 + b"8"
"""Of the keys."""

Change = Callable[[Claims], object]


def put(page: int, *, least: bytes | None = None, greatest: bytes | None = None, nulls: int | None = None) -> Change:
    def change(stored: Claims) -> None:
        for values, value in ((stored.mins, least), (stored.maxs, greatest), (stored.counts or [], nulls)):
            if value is not None:
                values[page] = value  # type: ignore[assignment]

    return change


def in_reverse(order: int) -> Change:
    def change(stored: Claims) -> None:
        for values in (stored.nulls, stored.mins, stored.maxs, stored.counts or []):
            values.reverse()
        stored.order = order

    return change


def ordered(order: int) -> Change:
    return lambda stored: setattr(stored, "order", order)


def uncounted(stored: Claims) -> None:
    stored.counts = None


def all_null(stored: Claims) -> None:
    stored.nulls, stored.counts = [True] * 13, None


def both(*changes: Change) -> Change:
    return lambda stored: [change(stored) for change in changes]


ORDER = "states an order that its pages do not have"
NULLS = "counts .* nulls in a page of 10 values, which contradicts"
OTHER_NULLS = "has another number of nulls than the footer"
UNCOVERED = "does not cover the bounds in the footer"
OUTSIDE = "has bounds outside those in the footer"
CUT = {"bounds": Bounds(LEAST, GREATEST, cut=True)}

COLUMN_FAULTS: dict[str, tuple[Change, dict[str, Any], str]] = {
    "a least above the greatest": (
        lambda stored: put(5, least=stored.maxs[5] + b"0")(stored),
        {},
        "has a page whose smallest value is greater than its largest",
    ),
    "ascending, but a least": (put(6, least=LEAST), {}, ORDER),
    "ascending, but a greatest": (put(5, greatest=GREATEST), {}, ORDER),
    "ascending, but descending": (in_reverse(1), {}, ORDER),
    "descending, but ascending": (ordered(2), {}, ORDER),
    "descending, but a least": (both(in_reverse(2), put(6, least=LEAST)), {}, ORDER),
    "descending, but a greatest": (both(in_reverse(2), put(7, greatest=GREATEST)), {}, ORDER),
    "fewer nulls than none": (both(put(5, nulls=-1), put(0, nulls=11)), {}, NULLS),
    "a null too many": (put(5, nulls=1), {}, OTHER_NULLS),
    "a null too few": (put(0, nulls=9), {}, NULLS),
    "nulls where the footer has none": (lambda _: None, {"null_count": 0}, OTHER_NULLS),
    "a page of nulls without nulls": (both(put(0, nulls=0), put(5, nulls=10)), {}, NULLS),
    "a page of nulls in a chunk without nulls": (uncounted, {"null_count": 0}, "only, and the footer counts no nulls"),
    "no values at all": (all_null, {}, "has no bounds, although the footer has bounds"),
    "a least value left out": (put(2, least=LEAST + b"0"), {}, UNCOVERED),
    "a greatest value left out": (put(12, greatest=GREATEST[:-1] + b"7"), {}, UNCOVERED),
    "a value below": (put(2, least=b"com,example)."), {}, OUTSIDE),
    "a value below, if only by its length": (put(2, least=LEAST[:-1] + b"/9"), {}, OUTSIDE),
    "a value above": (put(12, greatest=b"com,example)/lonh-"), {}, OUTSIDE),
    "a value above, if only by its length": (put(12, greatest=GREATEST + b"00"), {}, OUTSIDE),
    "a value below bounds that are cut": (put(2, least=b"com,example)."), CUT, OUTSIDE),
}


@pytest.mark.parametrize("fault", COLUMN_FAULTS)
def test_rejects_contradictory_column_indexes(fault: str) -> None:
    change, chunk, message = COLUMN_FAULTS[fault]
    stored = claims()
    change(stored)
    with pytest.raises(BadPageIndex, match=f"the column index of {KEY} .*{message}"):
        decoded(stored, **chunk)


@pytest.mark.parametrize("order", [0, 3, -1])
def test_accepts_unordered_pages(order: int) -> None:
    stored = claims()
    both(put(6, least=LEAST), put(5, greatest=GREATEST), ordered(order))(stored)
    index = decoded(stored)
    assert index.bounds[6]
    assert index.bounds[6].min == LEAST
    known = [bounds for bounds in index.bounds if bounds]
    assert (min(each.min for each in known), max(each.max for each in known)) == (LEAST, GREATEST)


def test_accepts_descending_pages() -> None:
    stored = claims()
    in_reverse(2)(stored)
    assert decoded(stored).bounds == decoded(claims()).bounds[::-1]


def test_equal_pages_have_every_order() -> None:
    for order in (0, 1, 2):
        stored = Claims([False] * 13, [LEAST] * 13, [GREATEST] * 13, order, None)
        assert decoded(stored).bounds == (Bounds(LEAST, GREATEST),) * 13


ODD = both(put(2, least=LEAST + b"0"), put(12, greatest=GREATEST[:-1] + b"7"))
WIDE = both(put(2, least=b""), put(12, greatest=b"z"))


@pytest.mark.parametrize(
    ("change", "chunk"),
    [
        (ODD, {"bounds": Bounds(LEAST[:-1], b"com,example)/m", cut=True)}),
        (ODD, {"bounds": None}),
        (ODD, {"bounds": Bounds(LEAST, GREATEST, Order.SIGNED)}),
        (WIDE, {"bounds": Bounds(LEAST, GREATEST, Order.SIGNED)}),
        (WIDE, {"bounds": None}),
        (all_null, {"bounds": None, "null_count": ROWS}),
        (put(5, nulls=7), {"null_count": None}),
        # Bounds may be cut to nothing, and the last byte of what is left be incremented.
        (put(2, least=b""), {}),
        (put(2, least=b"com,example)/"), {}),
        (put(12, greatest=b"d"), {}),
        (put(12, greatest=b"com,example)/long."), {}),
    ],
)
def test_missing_statistics_are_no_contradiction(change: Change, chunk: dict[str, Any]) -> None:
    stored = claims()
    change(stored)
    known = [(low, high) for null, low, high in zip(stored.nulls, stored.mins, stored.maxs, strict=True) if not null]
    assert [(b.min, b.max) for b in decoded(stored, **chunk).bounds if b] == known


@pytest.mark.parametrize("name", ["nulls", "mins", "maxs", "counts"])
@pytest.mark.parametrize("more", [-1, 1])
def test_rejects_lists_of_wrong_length(name: str, more: int) -> None:
    stored = claims()
    values = getattr(stored, name)
    setattr(stored, name, values[:-1] if more < 0 else [*values, values[-1]])
    with pytest.raises(BadPageIndex, match="cannot be decoded"):
        decoded(stored, null_count=None)


def test_rejects_column_indexes_without_a_field_or_pages() -> None:
    each = part(KEY)
    for pages in (0, 1, 12, 14):
        with pytest.raises(BadPageIndex, match="cannot be decoded"):
            decode_column_index(each.column_index, each.chunk, pages_of([10] * pages))
    for missing in (1, 2, 3, 4):
        index = take_apart(each.column_index)
        del index[missing]
        with pytest.raises(BadPageIndex, match="cannot be decoded"):
            decode_column_index(put_together(index), each.chunk, each.located)


OTHER_LISTS = [
    (I32, 0),
    (BINARY, b"0"),
    (I64, 1 << 40),  # bytes() of a number is as many zeros
    (LIST, encode_list(I32, [97, 98])),
    (STRUCT, b"\0"),
    (BOOLEAN_TRUE, True),
]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_rejects_column_indexes_with_other_types(number: int) -> None:
    right = {1: BOOLEAN_TRUE, 2: BINARY, 3: BINARY, 5: I64}.get(number)
    lists = [(LIST, encode_list(kind, [value] * 13)) for kind, value in OTHER_LISTS if kind not in {right, I32}]
    for kind, body in [*OTHER_KINDS.values(), *lists]:
        data = overridden(claims().encoded(), number, kind, body)
        with pytest.raises(BadPageIndex, match="cannot be decoded"):
            decode_column_index(data, replace(part(KEY).chunk, null_count=None, bounds=None), part(KEY).located)
