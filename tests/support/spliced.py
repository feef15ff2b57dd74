"""Columns of every type in pages of a few rows, and files that are spliced from them."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.parquet.model import ColumnChunk, Footer
from catalogue.parquet.splice import ChunkPages, splice
from catalogue.parquet.thrift import Reader
from tests.support.mirrors import read_footer

ROWS = 650


def columns() -> Iterator[tuple[str, pa.Array]]:
    """Values of each type that Common Crawl's columns have or had, few or many different ones, some null, or all."""
    few = [number * 7 % 10 for number in range(ROWS)]
    many = [(number * 7919 + 5) % 10_007 for number in range(ROWS)]
    types: dict[str, tuple[pa.DataType, Any]] = {
        "int16": (pa.int16(), lambda number: number - 5),
        "int32": (pa.int32(), lambda number: number - 5),
        "int64": (pa.int64(), lambda number: number << 40),
        "ms_utc": (pa.timestamp("ms", "UTC"), lambda number: 1_600_000_000_000 + number),
        "ms_naive": (pa.timestamp("ms"), lambda number: 1_600_000_000_000 + number),
        "binary": (pa.binary(), lambda number: b"\x00\xff" + number.to_bytes(4)),
        "string": (pa.string(), lambda number: f"com,example)/é-{number}" * (number % 3)),
        "bool": (pa.bool_(), lambda number: number % 3 == 0),
        "double": (pa.float64(), lambda number: number / 3),
        "date": (pa.date32(), lambda number: number),
        "decimal": (pa.decimal128(12, 2), Decimal),
        "fixed": (pa.binary(4), lambda number: number.to_bytes(4)),
    }
    for name, (kind, value) in types.items():
        for amount, numbers in [("few", few), ("many", many)]:
            yield f"{name}_{amount}", pa.array(map(value, numbers), kind)
        yield f"{name}_some", pa.array([None if number % 3 == 0 else value(number) for number in many], kind)
        yield f"{name}_null", pa.nulls(ROWS, kind)


def wide_table() -> pa.Table:
    """Columns with and without nulls; those without are declared so."""
    made = dict(columns())
    schema = pa.schema([pa.field(name, array.type, nullable=array.null_count > 0) for name, array in made.items()])
    return pa.Table.from_arrays([*made.values()], schema=schema)


def whole(data: bytes, chunk: ColumnChunk, num_rows: int) -> ChunkPages:
    """Its pages; ``data_page_offset`` is where the file's footer says it is, even if that is wrong."""
    pages = data[chunk.range.start : chunk.range.end]
    size = 0 if chunk.dictionary_page_offset is None else chunk.data_page_offset - chunk.dictionary_page_offset
    return ChunkPages(chunk, [pages], len(pages), size, num_rows, chunk.codec)


def spliced(data: bytes, footer: Footer, chunk: ColumnChunk, num_rows: int) -> bytes:
    file: bytes = splice([whole(data, chunk, num_rows)], created_by=footer.created_by).to_pybytes()
    return file


def read(file: bytes) -> pa.ChunkedArray:
    """The one column of a spliced file, as ``catalogue.reader`` reads it."""
    parsed = pq.ParquetFile(pa.BufferReader(file), page_checksum_verification=True, pre_buffer=False)
    assert parsed.metadata.num_row_groups == parsed.metadata.num_columns == 1
    table = parsed.read(use_threads=False)
    table.validate(full=True)
    return table.column(0)


def groups(data: bytes) -> list[list[ColumnChunk]]:
    return [[*group.chunks.values()] for group in read_footer(data).row_groups]


def headers_of(data: bytes, chunk: ColumnChunk) -> list[tuple[dict[int, Any], range]]:
    """The header of each page of a chunk, and where in the chunk its data are (parquet.thrift, PageHeader)."""
    reader, found = Reader(data[chunk.range.start : chunk.range.end]), []
    while reader.position < len(reader.data):
        header = reader.struct()
        found.append((header, range(reader.position, reader.position + header[3])))
        reader.position += header[3]
    return found
