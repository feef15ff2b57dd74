"""Files of small pages and their indexes, so that a test can say what is wrong with one."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import pyarrow as pa

from catalogue.parquet.model import ColumnChunk
from catalogue.parquet.page_index import OffsetIndex, decode_offset_index
from catalogue.parquet.thrift import BINARY, BOOLEAN_FALSE, BOOLEAN_TRUE, DOUBLE, I32, LIST, STRUCT, encode_struct
from tests.support.footers import write
from tests.support.mirrors import read_footer

KEY, PLAIN, FEW = "url_surtkey", "url", "content_languages"
ROWS = 130


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


def pages_of(rows: Iterable[int]) -> OffsetIndex:
    first_rows = tuple(accumulate(rows, initial=0))
    return OffsetIndex(tuple(range(4, 4 + len(first_rows))), first_rows)


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


def header(kind: int, details: dict[int, list[tuple[int, int, int]]], stored: int = 20) -> bytes:
    """A PageHeader: its type, its size without and with compression, and what is said of pages of its type."""
    structs = [(number, STRUCT, encode_struct(fields)) for number, fields in details.items()]
    return encode_struct([(1, I32, kind), (2, I32, 999), (3, I32, stored), *structs])
