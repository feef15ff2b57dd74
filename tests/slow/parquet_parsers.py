"""Parsers of Parquet's metadata, as targets of ``tests.slow.parsers``."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import pairwise
from typing import Any

from catalogue.errors import FormatError
from catalogue.parquet.column_types import arrow_type, kind_of
from catalogue.parquet.footer import decode_footer, decode_row_groups
from catalogue.parquet.model import ColumnChunk
from catalogue.parquet.page_headers import page_header, walk
from catalogue.parquet.page_index import (
    decode_column_index,
    decode_offset_index,
    encode_column_index,
    encode_offset_index,
)
from catalogue.parquet.stored_indexes import Indexes
from catalogue.parquet.summary import summarize_file
from catalogue.parquet.thrift import Reader, ThriftError
from catalogue.source.byte_ranges import ByteRange
from tests.support.footers import put_together, small_file, take_apart
from tests.support.mirrors import read_footer

LONGEST = 2000
"""Characters of a message."""
_FILE_SIZE = 1 << 30


def accepted(parse: Callable[[], object], *errors: type[Exception], printable: bool = True) -> bool:
    try:
        parse()
    except errors as error:
        message = str(error)
        assert 0 < len(message) < LONGEST, message[:300]
        assert not printable or message.isprintable(), message[:300]
        return False
    return True


def _ascending(values: Sequence[Any]) -> bool:
    return all(one < other for one, other in pairwise(values))


@cache
def chunks() -> tuple[tuple[ColumnChunk, int, bytes], ...]:
    """Return column chunks of several pages, their rows and bytes."""
    found = []
    for options in ({}, {"use_dictionary": False, "compression": "zstd"}, {"data_page_version": "2.0"}):
        data = small_file(row_group_size=4, data_page_size=1, write_batch_size=1, **options)
        group = read_footer(data).row_groups[0]
        for name in ("url_surtkey", "fetch_status"):
            chunk = group.chunks[name]
            found.append((chunk, group.num_rows, data[chunk.range.start : chunk.range.end]))
    return tuple(found)


def thrift(data: bytes) -> bool:
    def parse() -> None:
        reader = Reader(data)
        struct = reader.struct()
        assert 0 < reader.position <= len(data)
        try:
            again = put_together(take_apart(data[: reader.position]))
        except ValueError:  # our writer has no maps and floating point numbers
            return
        assert Reader(again).struct() == struct

    return accepted(parse, ThriftError)


def footer(data: bytes) -> bool:
    def parse() -> None:
        found = decode_footer(data, _FILE_SIZE)
        json.dumps(asdict(summarize_file(found, column_chunks=True)))
        assert found.num_rows == sum(group.num_rows for group in found.row_groups) >= 0
        assert all(set(group.chunks) == set(found.columns) for group in found.row_groups)
        assert all(arrow_type(kind_of(column)) is not None for column in found.columns.values())
        chunks = [chunk for group in found.row_groups for chunk in group.chunks.values()]
        assert all(4 <= each.range.start < each.range.end <= _FILE_SIZE - 8 - len(data) for each in chunks)
        assert all(one.end <= other.start for one, other in pairwise(sorted(chunk.range for chunk in chunks)))
        if found.rest is not None:
            offsets = {group.ordinal: group.offset for group in found.row_groups}
            assert decode_row_groups(data, _FILE_SIZE, offsets, found.rest) == found

    return accepted(parse, FormatError)


def offset_index(data: bytes) -> bool:
    chunk, num_rows, _ = chunks()[data[0] % len(chunks()) if data else 0]

    def parse() -> None:
        index = decode_offset_index(data[1:], chunk, num_rows)
        assert chunk.range.start <= index.offsets[0]
        assert index.offsets[-1] == chunk.range.end
        assert (index.first_rows[0], index.first_rows[-1]) == (0, num_rows)
        assert _ascending(index.offsets)
        assert _ascending(index.first_rows)
        assert decode_offset_index(encode_offset_index(index), chunk, num_rows) == index

    return accepted(parse, FormatError)


def column_index(data: bytes) -> bool:
    chunk, num_rows, _ = chunks()[0]

    def parse() -> None:
        index = decode_column_index(data, chunk, num_rows)
        assert len(index.bounds) == num_rows
        assert all(each is None or each.min <= each.max for each in index.bounds)
        assert index.null_counts is None or sum(index.null_counts) == chunk.null_count
        assert decode_column_index(encode_column_index(index), chunk, num_rows) == index

    return accepted(parse, FormatError)


def page_headers(data: bytes) -> bool:
    chunk, num_rows, _ = chunks()[0]

    def parse() -> None:
        header = page_header(data)
        assert header.size > 0 <= header.num_values
        there = replace(chunk, range=ByteRange(4, 4 + len(data)), data_page_offset=4, dictionary_page_offset=None)
        index = walk(data, replace(there, num_values=num_rows))
        assert (index.offsets[-1], index.first_rows[-1]) == (4 + len(data), num_rows)

    return accepted(parse, FormatError)


def stored_indexes(data: bytes) -> bool:
    def parse() -> None:
        found = Indexes.unpack(data)
        assert Indexes.unpack(found.pack()) == found

    return accepted(parse, FormatError)
