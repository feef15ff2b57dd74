"""What is written is read again, and whatever else is read is refused soon and cheaply.

apache/thrift, doc/specs/thrift-compact-protocol.md
"""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.parquet.thrift import (
    BINARY,
    BOOLEAN_FALSE,
    BOOLEAN_TRUE,
    BYTE,
    DOUBLE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    MAX_DEPTH,
    SET,
    STRUCT,
    Reader,
    ThriftError,
    encode_list,
    encode_struct,
)
from catalogue.settings import Limits
from tests.support.amounts import EXAMPLES
from tests.support.memory import memory_below

STOP = b"\0"
MAX_ELEMENTS = Limits().max_elements
FOOTER_BYTES = 4 << 20
"""The most that ``catalogue.footer`` has decoded."""

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SCALARS = {
    BYTE: st.integers(-128, 127),
    I16: st.integers(-(1 << 15), (1 << 15) - 1),
    I32: st.integers(-(1 << 31), (1 << 31) - 1),
    I64: INT64,
    BINARY: st.binary(max_size=20),
}
Written = tuple[int, Any, Any]
"""Kind, what the encoder takes, and what the decoder is to give."""


def scalar(kind: int) -> st.SearchStrategy[Written]:
    return SCALARS[kind].map(lambda value: (kind, value, value))


def list_of(values: st.SearchStrategy[Written], kind: int) -> st.SearchStrategy[Written]:
    return st.lists(values, max_size=3).map(
        lambda items: (LIST, encode_list(kind, [raw for _, raw, _ in items]), [value for _, _, value in items])
    )


def struct_of(values: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    fields = st.dictionaries(st.one_of(st.integers(1, 20), st.integers(-(1 << 15), (1 << 15) - 1)), values, max_size=4)
    return fields.map(
        lambda stored: (
            STRUCT,
            encode_struct([(number, kind, raw) for number, (kind, raw, _) in sorted(stored.items())]),
            {number: value for number, (_, _, value) in stored.items()},
        )
    )


def values() -> st.SearchStrategy[Written]:
    scalars = st.one_of(
        *map(scalar, SCALARS),
        st.sampled_from([(BOOLEAN_TRUE, True, True), (BOOLEAN_TRUE, False, False), (BOOLEAN_FALSE, True, True)]),
        *(list_of(scalar(kind), kind) for kind in SCALARS),
    )
    return st.recursive(
        scalars, lambda inner: st.one_of(struct_of(inner), list_of(struct_of(inner), STRUCT)), max_leaves=6
    )


def read(data: bytes) -> dict[int, Any]:
    return Reader(data).struct()


def field(kind: int, body: bytes, number: int = 1) -> bytes:
    return bytes([number << 4 | kind]) + body + STOP


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def end_of_skipped(data: bytes, start: int = 0) -> int:
    reader = Reader(data, start)
    reader.skip(STRUCT)
    return reader.position


# What is written is read


@given(struct_of(values()))
@settings(max_examples=3 * EXAMPLES)
def test_round_trip(written: Written) -> None:
    _, data, expected = written
    reader = Reader(b"before" + data + b"behind", position=6)
    assert reader.struct() == expected
    assert reader.position == 6 + len(data)
    assert end_of_skipped(b"before" + data + b"behind", 6) == 6 + len(data)


@given(struct_of(values()))
@settings(max_examples=2 * EXAMPLES)
def test_rejects_every_truncation(written: Written) -> None:
    _, data, _ = written
    for end in range(len(data)):
        for decode in (read, end_of_skipped):
            with pytest.raises(ThriftError):
                decode(data[:end])


def test_known_bytes() -> None:
    """Worked out by hand from the specification."""
    assert read(b"\x15\x02\x05\x02\x04\x00") == {1: 2}  # the last of two fields counts
    assert encode_struct([]) == b"\x00"
    assert encode_struct([(1, I32, 1)]) == b"\x15\x02\x00"
    assert encode_struct([(1, I32, -1), (3, BINARY, b"ab"), (4, BOOLEAN_TRUE, False)]) == b"\x15\x01\x28\x02ab\x12\x00"
    assert encode_struct([(16, I64, 150)]) == b"\x06\x20\xac\x02\x00"  # 15 at most fit beside the kind
    assert encode_struct([(15, I64, None), (15, I16, 1), (31, BYTE, -2)]) == b"\xf4\x02\x03\x3e\xfe\x00"
    assert encode_list(I32, range(14)) == b"\xe5" + bytes(range(0, 28, 2))
    assert encode_list(I32, [0] * 15) == b"\xf5\x0f" + bytes(15)
    assert encode_list(BOOLEAN_TRUE, [True, False, False]) == b"\x31\x01\x02\x02"
    assert encode_list(STRUCT, [b"\x00", b"\x15\x02\x00"]) == b"\x2c\x00\x15\x02\x00"


def test_decodes_types_that_are_not_encoded() -> None:
    assert read(field(DOUBLE, struct.pack("<d", 0.1))) == {1: 0.1}
    assert read(field(SET, b"\x25\x02\x04")) == {1: [1, 2]}
    assert read(field(MAP, b"\x00")) == {1: []}
    assert read(field(MAP, b"\x02\x85\x01a\x02\x01b\x04")) == {1: [(b"a", 1), (b"b", 2)]}
    assert read(field(LIST, b"\x31\x01\x02\x00")) == {1: [True, False, False]}
    for kind in (DOUBLE, MAP):
        with pytest.raises(ThriftError, match=f"cannot write kind {kind}"):
            encode_list(kind, [1])


# Limits


def nested(kind: int, depth: int) -> bytes:
    data = {STRUCT: STOP, LIST: b"\x05", MAP: b"\x00"}[kind]
    for _ in range(depth - 1):
        data = {STRUCT: b"\x1c" + data + STOP, LIST: b"\x19" + data, MAP: b"\x01\x5b\x02" + data}[kind]
    return field(kind, data)


@pytest.mark.parametrize("kind", [STRUCT, LIST, MAP])
def test_depth(kind: int) -> None:
    read(nested(kind, MAX_DEPTH))
    with pytest.raises(ThriftError, match="nested too deeply"):
        read(nested(kind, MAX_DEPTH + 1))
    end_of_skipped(nested(kind, MAX_DEPTH - 1))
    with pytest.raises(ThriftError, match="nested too deeply"):
        end_of_skipped(nested(kind, MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("kind", "header"), [(LIST, b"\xf5%b"), (SET, b"\xf5%b"), (MAP, b"%b\x55")], ids=["list", "set", "map"]
)
def test_elements(kind: int, header: bytes) -> None:
    each = 2 if kind == MAP else 1
    full = read(field(kind, header % varint(MAX_ELEMENTS) + bytes(MAX_ELEMENTS * each)))
    assert len(full[1]) == MAX_ELEMENTS
    with pytest.raises(ThriftError, match=r"a container of 100,001 elements at byte .* CATALOGUE_MAX_ELEMENTS raises"):
        read(field(kind, header % varint(MAX_ELEMENTS + 1) + bytes((MAX_ELEMENTS + 1) * each)))


@pytest.mark.parametrize("kind", [LIST, SET, MAP])
def test_rejects_more_elements_than_bytes(kind: int) -> None:
    for count in (100, 1 << 31, (1 << 63) - 1):
        body = varint(count) + b"\x55" if kind == MAP else b"\xf5" + varint(count)
        with pytest.raises(ThriftError, match=f"a container of {count} elements"):
            read(field(kind, body + bytes(90)))


def test_rejects_lengths_beyond_the_data() -> None:
    for length in (4, 1 << 31, (1 << 63) - 1):
        with pytest.raises(ThriftError, match=f"{length} bytes at byte"):
            read(field(BINARY, varint(length) + b"ab"))
    with pytest.raises(ThriftError, match="8 bytes at byte 1 of 8"):
        read(field(DOUBLE, b"1234567")[:-1])


def test_numbers() -> None:
    for number in (0, 1, -1, 63, 64, -64, -65, 1 << 31, (1 << 63) - 1, -(1 << 63)):
        assert read(encode_struct([(1, I64, number)])) == {1: number}
    assert read(field(I64, b"\xff" * 9 + b"\x01")) == read(field(I64, b"\xff" * 9 + b"\x7f")) == {1: -(1 << 63)}
    assert read(field(I64, b"\x82\x80\x80\x00")) == {1: 1}  # longer than need be
    with pytest.raises(ThriftError, match="a number of over 64 bits at byte 1"):
        read(field(I64, b"\xff" * 10 + b"\x01"))
    with pytest.raises(ThriftError, match="a number of over 64 bits"):
        read(field(I64, b"\x80" * (1 << 20) + b"\x01"))
    with pytest.raises(ThriftError, match="cut short at byte 4"):
        read(b"\x16\xff\xff\xff")


def test_rejects_lists_of_other_elements() -> None:
    assert Reader(encode_list(I32, [1, -2])).integers() == [1, -2]
    for encoded in (encode_list(BINARY, [b"a"]), b"\x11\x01", b"\x1c\x00"):
        with pytest.raises(ThriftError, match="instead of numbers"):
            Reader(encoded).integers()
    with pytest.raises(ThriftError, match="instead of texts"):
        Reader(encode_list(I32, [1])).joined_texts()


@pytest.mark.parametrize("kind", [0, 13, 14, 15])
def test_rejects_unknown_types(kind: int) -> None:
    if kind:
        with pytest.raises(ThriftError, match=f"unknown kind {kind} at byte 1"):
            read(field(kind, b"\x01\x01"))
    with pytest.raises(ThriftError, match=f"unknown kind {kind} at byte 2"):
        read(field(LIST, bytes([0x10 | kind, 1])))


def many(count: int, element: bytes, kind: int) -> bytes:
    lists = [MAX_ELEMENTS] * (count // MAX_ELEMENTS) + [count % MAX_ELEMENTS]
    header = b"\x19" + bytes([0xF0 | kind])
    return b"".join(header + varint(length) + element * length for length in lists if length) + STOP


BUDGET = 5000
"""Values that a reader may decode in these tests; by default a few hundred times as many."""


def read_with_budget(data: bytes) -> dict[int, Any]:
    return Reader(data, budget=BUDGET).struct()


@pytest.mark.parametrize(
    ("element", "kind", "each"),
    [(b"\x02", I32, 1), (b"\x01", BOOLEAN_TRUE, 1), (b"\x05", LIST, 1), (b"\x11\x00", STRUCT, 2)],
)
def test_values(element: bytes, kind: int, each: int) -> None:
    """The list is a value, and so is what is in it."""
    assert len(read_with_budget(many((BUDGET - 1) // each, element, kind))[1]) == (BUDGET - 1) // each
    with pytest.raises(ThriftError, match="too many values"):
        read_with_budget(many((BUDGET - 1) // each + 1, element, kind))


@pytest.mark.parametrize("field", [b"\x15\x02", b"\x18\x00", b"\x11", b"\x13\x02"])
def test_fields(field: bytes) -> None:
    assert len(read_with_budget(field * BUDGET + STOP)) == BUDGET
    with pytest.raises(ThriftError, match="too many values"):
        read_with_budget(field * (BUDGET + 1) + STOP)


# Bombs: a few megabytes, or a few bytes, that claim gigabytes or hours


MANY: dict[str, Callable[[], bytes]] = {
    "column chunks": lambda: many(FOOTER_BYTES // 7, b"\x26\x00\x1c\x15\x02\x00\x00", STRUCT),
    "fields with numbers of their own": lambda: b"".join(b"\x01" + varint(2 * n) for n in range(2 * BUDGET)) + STOP,
}
"""Bombs that nothing but the number of their values tells from a footer."""
BOMBS: dict[str, Callable[[], bytes]] = {
    "one list of a million": lambda: field(LIST, b"\xf5" + varint(1_000_000) + bytes(1_000_000)),
    "a list of two thousand millions": lambda: field(LIST, b"\xfc" + varint(1 << 31) + bytes(60)),
    "a string of two thousand millions": lambda: field(BINARY, varint(1 << 31) + bytes(60)),
    "structs within each other": lambda: b"\x1c" * FOOTER_BYTES,
    "lists within each other": lambda: b"\x19" * FOOTER_BYTES,
    "maps within each other": lambda: b"\x1b" + b"\x01\xbb" * (FOOTER_BYTES // 2),
    "an endless number": lambda: b"\x16" + b"\xff" * FOOTER_BYTES,
}


@pytest.mark.parametrize("bomb", [*BOMBS, *MANY])
def test_rejects_bombs(bomb: str) -> None:
    if bomb in MANY:
        with pytest.raises(ThriftError, match="too many values"):
            read_with_budget(MANY[bomb]())
    else:
        data = BOMBS[bomb]()
        for decode in (read, end_of_skipped):
            with pytest.raises(ThriftError):
                decode(data)


def test_memory_is_bounded() -> None:
    """By what takes the most of it a byte, and a value; of as many values as there may be, a 32nd part."""
    data = many(15 * MAX_ELEMENTS // 64, b"\x11\x00", STRUCT)  # two values each
    with memory_below((200 << 20) / 32):
        stored = read(data)
    assert sum(map(len, stored.values())) == 15 * MAX_ELEMENTS // 64
