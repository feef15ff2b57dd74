"""Footers with a single error, and damaged footers."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from catalogue.errors import BadFooter
from catalogue.parquet.footer import examine_footer
from catalogue.parquet.model import TRAILER
from catalogue.parquet.thrift import BINARY, BOOLEAN_TRUE, I32, I64, LIST, STRUCT, encode_list
from catalogue.settings import Limits
from tests.support.footers import KEY, STATUS, TIME, Items, Made, decoded, field, made, put_together, small_file, write
from tests.support.mirrors import raw_footer, read_footer


def two_trees(footer: Made) -> None:
    elements = footer.fields[2][1].values
    elements.append({**elements[-1], 4: (BINARY, b"another")})


def overlap(footer: Made) -> None:
    meta = footer.meta(1, TIME)
    field(meta, 7, meta[7][1] + 1)


def chunks_at(number: int, value: int) -> Callable[[Made], None]:
    def change(footer: Made) -> None:
        meta = footer.meta(0, TIME)
        meta.pop(11, None)
        field(meta, number, value)

    return change


def behind_the_data(footer: Made) -> None:
    """The last chunk ends a byte after what is before the footer."""
    meta = footer.meta(1, STATUS)
    field(meta, 7, footer.rest - TRAILER - min(meta[9][1], meta[11][1]) + 1)


def deep(footer: Made) -> None:
    group = {4: (BINARY, b"g"), 5: (I32, 1)}
    footer.fields[2][1].values[1:1] = [group] * 2_000


def long_names(footer: Made) -> None:
    """A million bytes for each of thousands of columns, if each were told in full."""
    leaf = {1: (I32, 1), 4: (BINARY, b"x")}
    group = {4: (BINARY, b"n" * (1 << 20)), 5: (I32, 15_000)}
    footer.fields[2][1].values[1:] = [group, *[leaf] * 15_000]
    field(footer.element(0), 5, 1)


WRONG: dict[str, tuple[Callable[[Made], object], str]] = {
    "negative rows": (lambda f: field(f.group(0), 3, -2), "row group 0 has -2 rows"),
    "another count of values": (lambda f: field(f.meta(1, TIME), 5, 3), "column fetch_time has 3 values in 2 rows"),
    "no row groups": (lambda f: f.fields.pop(4), "no list of row groups"),
    "no schema": (lambda f: f.fields.pop(2), "row group 0 has 2 rows and 3 of 0 columns"),
    "an empty schema": (lambda f: f.fields[2][1].values.clear(), "the schema is not a tree"),
    "a schema of numbers": (lambda f: field(f.fields, 2, Items(I32, [1])), "type 5 instead of structs"),
    "a schema without leaves": (lambda f: field(f.element(0), 5, 0), "the schema is not a tree"),
    "a schema with more leaves": (lambda f: field(f.element(0), 5, 4), "KeyError"),
    "a schema with fewer leaves": (lambda f: field(f.element(0), 5, 2), "the schema is not a tree"),
    "endless leaves": (lambda f: field(f.element(0), 5, 1 << 31, I64), "KeyError"),
    "two trees": (two_trees, "the schema is not a tree"),
    "a group that holds nothing": (lambda f: field(f.element(3), 5, 1, I32), "KeyError"),
    "groups within each other": (deep, "a column is below more than 100 groups: g.g.g."),
    "names of gigabytes": (long_names, "an element of the schema takes 1,048,585 bytes"),
    "a name that is not text": (lambda f: field(f.element(1), 4, b"\xff"), "UnicodeDecodeError"),
    "two columns of a name": (lambda f: field(f.element(2), 4, b"url_surtkey"), "two columns are named 'url_surtkey'"),
    "no type": (lambda f: f.element(1).pop(1), "has the unknown type None"),
    "an unknown type": (lambda f: field(f.element(1), 1, 8), "has the unknown type 8"),
    "a negative type": (lambda f: field(f.element(1), 1, -2), "has the unknown type -2"),
    "a column too few": (lambda f: f.group(1)[1][1].values.pop(), "row group 1 has 2 rows and 2 of 3 columns"),
    "a column too many": (lambda f: f.group(1)[1][1].values.append({}), "row group 1 has 2 rows and 4 of 3 columns"),
    "columns in another order": (lambda f: f.group(0)[1][1].values.reverse(), "in the place of 'url_surtkey'"),
    "a chunk of another name": (
        lambda f: field(f.meta(0, KEY), 3, Items(BINARY, [b"url"])),
        "a column chunk of b'url'",
    ),
    "a chunk of a long name": (
        lambda f: field(f.meta(0, KEY), 3, Items(BINARY, [b"x" * (1 << 20)])),
        "a column chunk of b'xxx",
    ),
    "a chunk of another type": (lambda f: field(f.meta(0, KEY), 1, 2), "in the place of 'url_surtkey'"),
    "a chunk without metadata": (lambda f: f.chunk(0, KEY).pop(3), "no number as field 1"),
    "two chunks overlap": (overlap, "two column chunks overlap at byte"),
    "the same chunk twice": (
        lambda f: f.group(1)[1][1].values.__setitem__(KEY, f.chunk(0, KEY)),
        "two column chunks overlap at byte 4",
    ),
    "a chunk in the magic": (chunks_at(9, 3), "column fetch_time claims .* bytes at 3 of a file"),
    "a chunk before the file": (chunks_at(9, -1), "column fetch_time claims .* bytes at -1 of a file"),
    "a chunk behind the file": (chunks_at(9, 1 << 40), "column fetch_time claims .* bytes at 1099511627776 of a file"),
    "an empty chunk": (chunks_at(7, 0), "column fetch_time claims 0 bytes"),
    "a chunk of negative length": (chunks_at(7, -10), "column fetch_time claims -10 bytes"),
    "a chunk longer than the file": (chunks_at(7, (1 << 63) - 1), "column fetch_time claims 9223372036854775807 bytes"),
    "a chunk that ends in the footer": (behind_the_data, "column fetch_status claims"),
    "a codec that is text": (lambda f: field(f.meta(0, KEY), 4, b"GZIP", BINARY), "no number as field 4"),
    "a codec that is true": (lambda f: f.meta(0, KEY).update({4: (BOOLEAN_TRUE, True)}), "no number as field 4"),
    "a size that is text": (lambda f: field(f.meta(0, KEY), 6, b"1", BINARY), "no number as field 6"),
    "a size that is a list": (lambda f: field(f.group(0), 2, Items(I32, []), LIST), "type 9 instead of a number"),
    "rows that are a struct": (lambda f: field(f.group(0), 3, {}, STRUCT), "type 12 instead of a number"),
    "encodings that are text": (
        lambda f: field(f.meta(0, KEY), 2, Items(BINARY, [b"PLAIN"])),
        "elements of type 8 instead of numbers",
    ),
    "a writer that is a number": (lambda f: field(f.fields, 6, 5, I32), "TypeError|AttributeError"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rejects_contradictory_footers(name: str) -> None:
    change, reason = WRONG[name]
    footer = made(small_file())
    assert decoded(footer)
    change(footer)
    with pytest.raises(BadFooter, match=reason) as caught:
        decoded(footer)
    assert len(str(caught.value)) < 400


def test_skips_unknown_fields() -> None:
    footer = made(small_file())
    expected = decoded(footer)
    footer.fields[1] = (BOOLEAN_TRUE, True)  # instead of the version, which is passed over too
    for struct_ in (footer.fields, footer.element(1), footer.group(0), footer.chunk(0, KEY), footer.statistics(0, KEY)):
        struct_[100] = (BOOLEAN_TRUE, True)
        struct_[101] = (STRUCT, {1: (LIST, Items(STRUCT, [{1: (BINARY, b"x")}]))})
        struct_[102] = (2, False)
    found = decoded(footer)
    assert found.num_rows == expected.num_rows
    assert found.row_groups[1] == replace(
        expected.row_groups[1],
        chunks={
            name: replace(chunk, column=found.columns[name]) for name, chunk in expected.row_groups[1].chunks.items()
        },
    )


def test_nested_and_repeated_columns() -> None:
    """There are none so far; they have as many values as they like."""
    table = pa.table({"list": [[1, 2], [], [3]], "struct": [{"x": 1}, None, {"x": 2}], "flat": [1, 2, 3]})
    footer = read_footer(write(table))
    assert {name: column.flat for name, column in footer.columns.items()} == {
        "list.list.element": False,
        "struct.x": False,
        "flat": True,
    }
    assert footer.row_groups[0].chunks["list.list.element"].num_values == 4
    repeated = made(small_file())
    field(repeated.element(1 + TIME), 3, 2)
    field(repeated.meta(0, TIME), 5, 7)
    found = decoded(repeated)
    assert (found.columns["fetch_time"].flat, found.row_groups[0].chunks["fetch_time"].num_values) == (False, 7)


@pytest.mark.parametrize(
    ("key", "kind", "named"),
    [
        *(("url_surtkey", pa.int64(), "int64"), ("k", pa.binary(), "binary")),
        # Their values are text in rows, but not in files.
        *(("k", pa.time64("us"), "int64"), ("k", pa.decimal256(50, 2), "fixed_len_byte_array")),
    ],
)
def test_rejects_keys_that_are_not_text(key: str, kind: pa.DataType, named: str) -> None:
    data = write(pa.table({key: pa.nulls(2, kind)}))
    with pytest.raises(BadFooter, match=f"the column {key} holds {named} and not text"):
        examine_footer(raw_footer(data), len(data), key)


# Hostile footers


SMALL = made(small_file())

MAX_FOOTER = Limits().max_footer


def with_unknown_field(kind: int, value: bytes) -> bytes:
    return SMALL.footer[:-1] + bytes([kind]) + b"\xc8\x01" + value + b"\x00"


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


BOMBS: dict[str, Callable[[], bytes]] = {
    "thousands of chunks and leaves": lambda: wide(2_000),
    "a list of two thousand millions": lambda: with_unknown_field(LIST, b"\xf5\xff\xff\xff\xff\x07"),
    "a string of two thousand millions": lambda: with_unknown_field(BINARY, b"\xff\xff\xff\xff\x07"),
    "lists within each other": lambda: with_unknown_field(LIST, b"\x19" * MAX_FOOTER),
    "nothing": lambda: b"",
    "zeros": lambda: bytes(MAX_FOOTER),
}


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
    assert peak < 16 << 20
