"""Bounds of column chunks: correct, or None."""

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.parquet.footer import has_page_index, key_bounds
from catalogue.parquet.model import Bounds, Order
from catalogue.parquet.thrift import BINARY, BOOLEAN_TRUE, I32, LIST, STRUCT
from catalogue.tables.make_table import times_of
from tests.support.footers import KEY, STATUS, TIME, Items, Struct, decoded, field, made, small_file, write
from tests.support.mirrors import read_footer


def changed(change: Callable[[Struct], object], *, created_by: str = "parquet-mr version 1.13.1") -> Bounds | None:
    """The bounds of the keys of the first row group, when something about their statistics is different."""
    footer = made(small_file())
    field(footer.fields, 6, created_by.encode())
    change(footer.statistics(0, KEY))
    return decoded(footer).row_groups[0].chunks[KEY_COLUMN].bounds


def set_bounds(low: bytes, high: bytes) -> Callable[[Struct], None]:
    def change(statistics: Struct) -> None:
        statistics[6], statistics[5] = (BINARY, low), (BINARY, high)

    return change


def deprecated(low: bytes | None, high: bytes | None) -> Callable[[Struct], None]:
    """Only the bounds of the old kind: field 1 is max, 2 is min."""

    def change(statistics: Struct) -> None:
        for place, value in {1: high, 2: low, 5: None, 6: None}.items():
            statistics.pop(place, None)
            if value is not None:
                statistics[place] = (BINARY, value)

    return change


def test_bounds_as_written() -> None:
    assert changed(lambda _: None) == Bounds(b"com,example)/", b"com,example)/a")
    assert changed(set_bounds(b"", b"")) == Bounds(b"", b"")
    assert changed(set_bounds("é".encode(), "é".encode())) == Bounds(b"\xc3\xa9", b"\xc3\xa9")


@pytest.mark.parametrize(
    ("low", "high"),
    [(b"b", b"a"), (b"a\xff", b"b"), (b"a", b"\xff"), (b"a", b"b\xc3")],
    ids=["least above greatest", "least not UTF-8", "greatest not UTF-8", "cut within a character"],
)
def test_invalid_bounds_are_none(low: bytes, high: bytes) -> None:
    assert changed(set_bounds(low, high)) is None
    assert changed(deprecated(low, high)) is None


def test_one_bound_alone_is_none() -> None:
    for missing in (5, 6):
        assert changed(lambda statistics, missing=missing: statistics.pop(missing)) is None  # type: ignore[misc]
    for low, high in ((b"a", None), (None, b"b"), (None, None)):
        assert changed(deprecated(low, high)) is None


def test_inexact_bounds_are_bounds() -> None:
    def change(statistics: Struct) -> None:
        set_bounds(b"com,ex", b"com,ey")(statistics)
        statistics[7] = statistics[8] = (2, False)  # is_max_value_exact, is_min_value_exact

    assert changed(change) == Bounds(b"com,ex", b"com,ey", cut=True)


def test_ignores_bounds_without_column_orders() -> None:
    footer = made(small_file())
    del footer.fields[7]
    chunks = decoded(footer).row_groups[0].chunks
    assert chunks[KEY_COLUMN].bounds is None
    assert chunks["fetch_status"].bounds == Bounds(
        struct.pack("<i", 200), struct.pack("<i", 404)
    )  # the deprecated ones
    for place in (1, 2):
        del footer.statistics(0, STATUS)[place]
    assert decoded(footer).row_groups[0].chunks["fetch_status"].bounds is None


@pytest.mark.parametrize(("column", "order"), [(0, 2), (1, 3), (2, 2), (3, 3)])
def test_unknown_orders_matter_for_types_with_bounds(column: int, order: int) -> None:
    """Order 2 is that of floats by IEEE 754, and 3 that of INT96 times."""
    times = pa.array([1], pa.timestamp("us"))
    table = pa.table({"k": ["a"], "time": times, "half": np.array([1], np.float16), "number": [1]})
    footer = made(write(table, use_deprecated_int96_timestamps=True))
    footer.fields[7] = (LIST, Items(STRUCT, [{order if at == column else 1: (STRUCT, {})} for at in range(4)]))
    assert decoded(footer).ordered == (column in {1, 2})


@pytest.mark.parametrize(
    ("writer", "is_believed"),
    [
        ("parquet-mr version 1.8.0 (build 0fda28af84b9746396014ad6a415b90592a98b3b)", True),
        ("parquet-mr version 1.8.2 (build c6522788629e590a53eb79874b95f6c3ff11f16c)", True),
        ("parquet-mr version 1.10.1 (build a89df8f9932b6ef6633d06069e50c9b7970bebd1)", True),
        ("parquet-mr version 1.13.1 (build db4183109d5b734ec5930d870cdae161e408ddba)", True),
        *(("parquet-mr version 1.7.0", False), ("parquet-mr version 1.6.0rc3", False)),
        *(("parquet-mr version 1.0.0", False), ("parquet-mr version 1.80", False), ("parquet-mr version 1.8", False)),
        *(("parquet-mr", False), ("parquet-cpp version 1.5.1-SNAPSHOT", False), ("impala version 2.2.0", False)),
        *((" parquet-mr version 1.8.2", False), ("", False)),
    ],
)
def test_uses_deprecated_text_bounds_of_correct_writers(writer: str, *, is_believed: bool) -> None:
    """PARQUET-251: parquet-mr before 1.8.0 wrote wrong ones."""
    found = changed(deprecated(b"com,a)/", b"com,b)/"), created_by=writer)
    assert found == (Bounds(b"com,a)/", b"com,b)/", Order.SIGNED) if is_believed else None)


def test_deprecated_bounds_that_are_not_ascii_are_none() -> None:
    assert changed(deprecated(b"a", "é".encode())) is None
    assert changed(deprecated("é".encode(), "ê".encode())) is None


def test_uses_deprecated_number_bounds_of_any_writer() -> None:
    footer = made(small_file())
    field(footer.fields, 6, b"somebody")
    low, high = struct.pack("<q", -5), struct.pack("<q", 5)
    deprecated(low, high)(footer.statistics(0, TIME))
    assert decoded(footer).row_groups[0].chunks["fetch_time"].bounds == Bounds(low, high)


@pytest.mark.parametrize(
    ("low", "high"),
    [(b"12345678", b"1234"), (b"1234", b"12345678"), (b"", b""), (struct.pack("<q", 3), struct.pack("<q", 2))],
    ids=["greatest too short", "least too short", "empty", "least above greatest"],
)
def test_invalid_number_bounds_are_none(low: bytes, high: bytes) -> None:
    footer = made(small_file())
    set_bounds(low, high)(footer.statistics(0, TIME))
    assert decoded(footer).row_groups[0].chunks["fetch_time"].bounds is None


@pytest.mark.parametrize(("claimed", "trusted"), [(0, 0), (1, 1), (2, None), (3, None), (-1, None)])
def test_counts_of_nulls(claimed: int, trusted: int | None) -> None:
    footer = made(small_file())
    field(footer.statistics(0, STATUS), 3, claimed)
    assert decoded(footer).row_groups[0].chunks["fetch_status"].null_count == trusted
    footer.statistics(0, STATUS)[3] = (BOOLEAN_TRUE, True)  # which would pass for a number
    assert decoded(footer).row_groups[0].chunks["fetch_status"].null_count is None


@pytest.mark.parametrize("wrong", [(LIST, Items(I32, [9])), (BOOLEAN_TRUE, True)])
def test_ignores_invalid_annotations_of_types(wrong: tuple[int, Any]) -> None:
    """As pyarrow does. Chunks stay hashable, which a list in them would prevent."""
    footer = made(small_file())
    footer.element(1 + TIME)[6] = wrong
    chunk = decoded(footer).row_groups[0].chunks["fetch_time"]
    assert chunk.column.converted_type is None
    assert hash(chunk) == hash(replace(chunk))


@pytest.mark.parametrize(
    ("first", "last", "known"),
    [
        *((0, 5, True), (-62_135_596_800_000, 253_402_300_799_999, True), (0, 253_402_300_800_000, False)),
        *((-62_135_596_800_001, 0, False), (0, (1 << 63) - 1, False)),
    ],
)
def test_ignores_times_outside_the_calendar(first: int, last: int, *, known: bool) -> None:
    """One such file would keep a view over all of them from being read, because DuckDB cannot multiply them."""
    footer = made(small_file())
    set_bounds(struct.pack("<q", first), struct.pack("<q", last))(footer.statistics(0, TIME))
    assert times_of(decoded(footer).row_groups[0].chunks["fetch_time"]) == ((first, last) if known else None)


@pytest.mark.parametrize("instead", [{}, {12: (I32, 5)}], ids=["nothing", "a number"])
def test_chunks_without_statistics(instead: Struct) -> None:
    footer = made(small_file())
    del footer.meta(0, KEY)[12]
    footer.meta(0, KEY).update(instead)
    chunk = decoded(footer).row_groups[0].chunks[KEY_COLUMN]
    assert (chunk.bounds, chunk.null_count) == (None, None)


def test_sources_of_bounds() -> None:
    footer = read_footer(small_file())
    group = footer.row_groups[0]
    key = group.chunks["url_surtkey"]
    assert key.bounds
    signed = replace(key, bounds=replace(key.bounds, order=Order.SIGNED))
    groups = [replace(group, chunks={"url_surtkey": chunk}) for chunk in (key, signed, replace(key, bounds=None))]
    groups.append(replace(group, chunks={}))
    found = [*map(key_bounds, groups)]
    assert [origin for *_, origin in found] == ["footer", "footer (signed)", "missing", "missing"]
    assert found[2][0] is None


def test_page_index_needs_both_halves_in_every_row_group() -> None:
    footer = read_footer(small_file())
    first, second = footer.row_groups
    assert has_page_index(footer)
    key = second.chunks["url_surtkey"]
    for missing in (replace(key, column_index=None), replace(key, offset_index=None)):
        poorer = replace(second, chunks={**second.chunks, "url_surtkey": missing})
        assert not has_page_index(replace(footer, row_groups=(first, poorer)))
    assert not has_page_index(replace(footer, row_groups=()))
