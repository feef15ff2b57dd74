"""The key column of footers, including hostile footers."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from catalogue.errors import BadFooter
from catalogue.parquet.footer import examine_footer, has_page_index, key_bounds
from catalogue.parquet.model import Order
from catalogue.parquet.thrift import BINARY, I32, LIST, STRUCT
from catalogue.parquet.thrift_encode import encode_list
from catalogue.settings import Limits
from tests.support.amounts import in_part
from tests.support.footers import Items, made, put_together, small_file, write
from tests.support.mirrors import index_paths, raw_footer, read_footer

SMALL = made(small_file())

MAX_FOOTER = Limits().max_footer


def with_unknown_field(kind: int, value: bytes) -> bytes:
    """A footer with one more field, number 100."""
    return SMALL.footer[:-1] + bytes([kind]) + b"\xc8\x01" + value + b"\x00"


# What they say


def test_examines_files_of_every_era(mirror: Path) -> None:
    for path in index_paths(mirror):
        data = path.read_bytes()
        assert examine_footer(raw_footer(data), len(data)) == read_footer(data)


def test_footer_has_the_expected_fields() -> None:
    footer = read_footer(small_file(compression="zstd"))
    assert (footer.num_rows, footer.codecs, has_page_index(footer)) == (4, ("ZSTD",), True)
    assert tuple(footer.columns) == ("url_surtkey", "fetch_time", "fetch_status")
    assert [(group.ordinal, group.num_rows) for group in footer.row_groups] == [(0, 2), (1, 2)]
    bounds = [*map(key_bounds, footer.row_groups)]
    assert bounds == [("com,example)/", "com,example)/a", "footer"), ("org,example)/", "org,example)/b", "footer")]


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


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (pa.int64(), "int64"),
        # Their values are text in rows, but not in files.
        (pa.time64("us"), "int64"),
        (pa.decimal256(50, 2), "fixed_len_byte_array"),
    ],
)
def test_rejects_keys_that_are_not_text(kind: pa.DataType, named: str) -> None:
    data = write(pa.table({"url_surtkey": pa.array([200, 500], pa.int64()).cast(kind)}))
    with pytest.raises(BadFooter, match=f"the column url_surtkey holds {named} and not text"):
        examine_footer(raw_footer(data), len(data))


# Hostile footers


def wide(columns: int) -> bytes:
    """A schema of that many leaves and one row group that has them all, in which every number is small."""
    footer = made(small_file(), row_groups=1)
    footer.fields[2][1].values[1:] = [{1: (I32, 1), 4: (BINARY, b"%d" % number)} for number in range(columns)]
    footer.element(0)[5] = (I32, columns)
    chunk = footer.chunk(0, 1)
    footer.group(0)[1] = (LIST, Items(STRUCT, [chunk]))
    packed = put_together(chunk)
    before, after = footer.footer.split(encode_list(STRUCT, [packed]))
    return before + encode_list(STRUCT, [packed] * columns) + after


def nested(depth: int) -> bytes:
    footer = made(small_file())
    footer.fields[2][1].values[1:1] = [{4: (BINARY, b"g"), 5: (I32, 1)}] * depth
    return footer.footer


BOMBS: dict[str, Callable[[], bytes]] = {
    "chunks and leaves beyond the limit": lambda: wide(20_001),
    "chunks and leaves at the limit": lambda: wide(20_000)[:MAX_FOOTER],
    "groups within each other": lambda: nested(15_000),
    "a list of two thousand millions": lambda: with_unknown_field(LIST, b"\xf5\xff\xff\xff\xff\x07"),
    "a string of two thousand millions": lambda: with_unknown_field(BINARY, b"\xff\xff\xff\xff\x07"),
    "lists within each other": lambda: with_unknown_field(LIST, b"\x19" * MAX_FOOTER),
    "nothing": lambda: b"",
    "zeros": lambda: bytes(MAX_FOOTER),
}


@in_part(3)
@pytest.mark.parametrize("name", BOMBS)
def test_rejects_bombs_in_bounded_memory(name: str) -> None:
    bomb = BOMBS[name]()
    tracemalloc.start()
    try:
        with pytest.raises(BadFooter):
            examine_footer(bomb, 1 << 30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 400 << 20
