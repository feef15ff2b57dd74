"""Statistics that contradict each other: rows and counts equal those of a scan."""

import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.parquet.thrift import BINARY, LIST, STRUCT
from tests.support.amounts import EXAMPLES
from tests.support.footers import Items, Made, edited, field, write
from tests.support.own_tables import KEY, dataset_of, rows_of, scan

ROWS = 60
COLUMNS = [KEY, "number", "text"]
TABLE = pa.table(
    {
        KEY: pa.array([None if row % 6 == 0 else f"key{row:03}" for row in range(ROWS)]),
        "number": pa.array([None if row % 5 == 0 else row // 7 for row in range(ROWS)], pa.int32()),
        "text": pa.array([None if row % 4 == 0 else f"text{row // 9}" for row in range(ROWS)]),
    }
)
WRITTEN = write(TABLE, row_group_size=20, data_page_size=1, write_batch_size=5, use_dictionary=False)
CONDITIONS = ["number = 3", "number > 5", "text = 'text2'", "text LIKE 'text4%'", "number <= 1"]
PATTERNS = {"key*": "k LIKE 'key%'", "key02*": "k LIKE 'key02%'", "key031": "k = 'key031'", "key0*": "k LIKE 'key0%'"}


Edit = Callable[[Made, int, int], object]


def nulls(count: int) -> Edit:
    return lambda footer, group, column: field(footer.statistics(group, column), 3, count)


def counted_once_a_page(footer: Made, group: int, column: int) -> None:
    statistics = footer.statistics(group, column)
    field(statistics, 3, 4 * statistics[3][1])


def swapped_bounds(footer: Made, group: int, column: int) -> None:
    statistics = footer.statistics(group, column)
    statistics[5], statistics[6] = statistics[6], statistics[5]
    for deprecated in (1, 2):
        statistics.pop(deprecated, None)


def unknown_order(footer: Made, _: int, column: int) -> None:
    """Give the column an order that no reader knows, and bounds in that order."""
    footer.fields[7] = (LIST, Items(STRUCT, [{2 if at == column else 1: (STRUCT, {})} for at in range(3)]))
    for group in range(3):
        statistics = footer.statistics(group, column)
        bound = struct.pack("<i", 1 << 30) if column == 1 else b"zzz"
        statistics[5] = statistics[6] = (BINARY, bound)
        for deprecated in (1, 2):
            statistics.pop(deprecated, None)


EDITS: list[Edit] = [nulls(20), nulls(23), nulls(-1), counted_once_a_page, swapped_bounds, unknown_order]
"""All values are null, more than there are, or fewer than none."""


@settings(max_examples=EXAMPLES // 2)
@given(
    st.lists(st.tuples(st.sampled_from(EDITS), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4),
    st.sampled_from([*PATTERNS]),
    st.sampled_from([None, *CONDITIONS]),
    st.booleans(),
)
def test_rows_and_counts_equal_a_scan(
    edits: list[tuple[Edit, int, int]],
    pattern: str,
    where: str | None,
    pages: bool,  # noqa: FBT001
) -> None:
    def edit(footer: Made) -> None:
        for change, group, column in edits:
            change(footer, group, column)

    expected = scan(TABLE, f"({PATTERNS[pattern]}) AND ({where or 'true'})")
    with dataset_of({"a.parquet": edited(WRITTEN, edit)}, pages=pages) as cat:
        found = cat.captures(pattern, where=where, columns=COLUMNS)
        assert rows_of(found.to_arrow().select(COLUMNS)) == expected
        assert cat.captures(pattern, where=where).count() == len(expected)


@pytest.mark.parametrize("pages", [False, True])
def test_count_does_not_use_a_count_of_nulls_of_each_page(pages: bool) -> None:  # noqa: FBT001
    """Polars 1.41 to 1.44 wrote such files."""
    rows = 20_000
    table = pa.table({KEY: pa.array([None if row < rows // 20 else f"key{row:06}" for row in range(rows)])})
    data = write(table, data_page_size=1, write_batch_size=rows // 5, use_dictionary=False)
    with dataset_of(
        {"a.parquet": edited(data, lambda made: field(made.statistics(0, 0), 3, rows // 4))}, pages=pages
    ) as cat:
        assert cat.captures("key*").count() == cat.captures("key*").to_arrow().num_rows == rows - rows // 20
