"""Footers taken apart and put together again, so that a test can say what is wrong with one.

The numbers are those of apache/parquet-format, parquet.thrift.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.parquet import thrift
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.model import TRAILER, Footer
from catalogue.parquet.splice import with_trailer
from tests.support.mirrors import raw_footer

Struct = dict[int, tuple[int, Any]]
"""Kind and value of each field; of a struct another of these, of a list ``Items``."""


@dataclass
class Items:
    kind: int
    values: list[Any]


def take_apart(footer: bytes) -> Struct:
    return _struct(thrift.Reader(footer))


def put_together(fields: Struct, *, backwards: bool = False) -> bytes:
    inorder = sorted(fields.items(), reverse=backwards)
    return thrift.encode_struct([(number, kind, _encodable(kind, value)) for number, (kind, value) in inorder])


def each_field(reader: thrift.Reader) -> Iterator[tuple[int, int]]:
    """Yield number and kind of each field of a struct; the caller decodes it before the next one."""
    number = 0
    while reader.next_field(number):
        number = reader.number
        yield number, reader.kind


def _struct(reader: thrift.Reader) -> Struct:
    return {
        number: (kind, reader.field(kind) if kind <= thrift.BOOLEAN_FALSE else _value(reader, kind))
        for number, kind in each_field(reader)
    }


def _value(reader: thrift.Reader, kind: int) -> Any:
    if kind == thrift.STRUCT:
        return _struct(reader)
    if kind in {thrift.LIST, thrift.SET}:
        element, count = reader.list_header()
        return Items(element, [_value(reader, element) for _ in range(count)])
    return reader.value(kind)


def _encodable(kind: int, value: Any) -> Any:
    if kind == thrift.STRUCT:
        return put_together(value)
    if kind in {thrift.LIST, thrift.SET}:
        return thrift.encode_list(value.kind, [_encodable(value.kind, item) for item in value.values])
    return value


@dataclass
class Made:
    """A footer in parts, and what is before it in its file."""

    fields: Struct
    body: bytes

    @property
    def footer(self) -> bytes:
        return put_together(self.fields)

    @property
    def file_size(self) -> int:
        return len(self.body) + len(self.footer) + TRAILER

    def file(self, more: bytes = b"") -> bytes:
        """Return the file, with more bytes before its footer."""
        return self.body + more + with_trailer(self.footer)

    def element(self, number: int) -> Struct:
        """A SchemaElement; the root is number 0."""
        found: Struct = self.fields[2][1].values[number]
        return found

    def group(self, ordinal: int) -> Struct:
        found: Struct = self.fields[4][1].values[ordinal]
        return found

    def chunk(self, ordinal: int, column: int) -> Struct:
        found: Struct = self.group(ordinal)[1][1].values[column]
        return found

    def meta(self, ordinal: int, column: int) -> Struct:
        """The ColumnMetaData of a chunk."""
        found: Struct = self.chunk(ordinal, column)[3][1]
        return found

    def statistics(self, ordinal: int, column: int) -> Struct:
        found: Struct = self.meta(ordinal, column)[12][1]
        return found


def made(data: bytes, *, row_groups: int | None = None) -> Made:
    """The footer of a file's bytes, or what it were with fewer row groups."""
    footer = raw_footer(data)
    fields = take_apart(footer)
    if row_groups is not None:
        remaining = fields[4][1].values[:row_groups]
        fields[4] = (thrift.LIST, Items(thrift.STRUCT, remaining))
        fields[3] = (thrift.I64, sum(group[3][1] for group in remaining))
    return Made(fields, data[: -TRAILER - len(footer)])


def edited(data: bytes, edit: Callable[[Made], object]) -> bytes:
    """Return a file with another footer."""
    footer = made(data)
    edit(footer)
    return footer.file()


def without_statistics(data: bytes) -> bytes:
    def edit(footer: Made) -> None:
        for group in footer.fields[4][1].values:
            for chunk in group[1][1].values:
                chunk[3][1].pop(12, None)

    return edited(data, edit)


def decoded(footer: Made) -> Footer:
    return decode_footer(footer.footer, footer.file_size)


def field(struct: Struct, number: int, value: Any, kind: int | None = None) -> None:
    """Give a field another value, or a value if it had none."""
    struct[number] = (struct[number][0] if kind is None else kind, value)


def write(table: pa.Table, **options: Any) -> bytes:
    """A table as Parquet with a page index and checksums, unless the options say otherwise."""
    file = BytesIO()
    settings = {"store_schema": False, "write_page_index": True, "write_page_checksum": True} | options
    pq.write_table(table, file, **settings)
    return file.getvalue()


KEY, TIME, STATUS = range(3)
"""The columns of ``small_file``."""


def small_file(**options: Any) -> bytes:
    """Two row groups of three columns: keys, times and numbers."""
    table = pa.table(
        {
            "url_surtkey": pa.array(["com,example)/", "com,example)/a", "org,example)/", "org,example)/b"]),
            "fetch_time": pa.array([1, 2, 3, 4], pa.timestamp("ms", "UTC")),
            "fetch_status": pa.array([200, 404, None, 301], pa.int16()),
        }
    )
    return write(table, **({"row_group_size": 2} | options))


def trimmed(data: bytes, columns: Sequence[str]) -> bytes:
    """A file without most of its columns and all row groups but the first, which are still where they were."""
    footer = made(data, row_groups=1)
    fields = footer.fields
    requested = {name.encode() for name in columns}
    schema = fields[2][1].values
    remaining = [number for number, element in enumerate(schema[1:]) if element[4][1] in requested]
    fields[2] = (thrift.LIST, Items(thrift.STRUCT, [schema[0], *(schema[1 + number] for number in remaining)]))
    schema[0][5] = (schema[0][5][0], len(remaining))
    group = footer.group(0)
    group[1] = (thrift.LIST, Items(thrift.STRUCT, [group[1][1].values[number] for number in remaining]))
    if 7 in fields:  # FileMetaData.column_orders
        fields[7] = (thrift.LIST, Items(thrift.STRUCT, [fields[7][1].values[number] for number in remaining]))
    return footer.file()


def confused(footer: bytes, rng: Random) -> bytes:
    """A well-formed struct in which a few fields have another type, another value, or are missing."""
    fields = take_apart(footer)
    for _ in range(rng.choice([1, 1, 2, 5])):
        struct = rng.choice([*_structs_of(fields)])
        if not struct:
            continue
        number = rng.choice([*struct])
        kind, value = struct[number]
        wrong: Sequence[tuple[int, Any]] = [
            (thrift.I32, rng.choice([-1, 0, 3, 255, 1 << 31])),
            (thrift.I64, rng.choice([-(1 << 63), -2, 1 << 40, (1 << 63) - 1])),
            (thrift.BINARY, rng.choice([b"", b"\xff\xfe", b"x" * 300])),
            (thrift.STRUCT, {}),
            (thrift.STRUCT, {1: (thrift.STRUCT, {}), 2: (thrift.BINARY, b"y")}),
            (thrift.LIST, Items(thrift.I32, [1, 2, 3])),
            (thrift.LIST, Items(thrift.STRUCT, [])),
            (thrift.LIST, Items(thrift.BINARY, [b"z"])),
            (thrift.BOOLEAN_TRUE, True),
            (thrift.BOOLEAN_FALSE, False),
        ]
        match rng.randrange(5):
            case 0:
                del struct[number]
            case 1:
                struct[rng.randrange(1, 15)] = (kind, value)
            case _:
                struct[number] = rng.choice(wrong)
    return put_together(fields)


def _structs_of(fields: Struct) -> list[Struct]:
    found = [fields]
    for kind, value in fields.values():
        if kind == thrift.STRUCT:
            found += _structs_of(value)
        elif kind == thrift.LIST and value.kind == thrift.STRUCT:
            for item in value.values:
                found += _structs_of(item)
    return found
