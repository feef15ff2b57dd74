"""What reads Parquet's metadata, as targets; see ``tests.slow.parsers``."""

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import pairwise

from catalogue.errors import FormatError
from catalogue.parquet.column_types import arrow_type, kind_of
from catalogue.parquet.footer import decode_footer, decode_row_groups
from catalogue.parquet.model import Order
from catalogue.parquet.page_headers import page_header, walk
from catalogue.parquet.page_index import (
    decode_column_index,
    decode_offset_index,
    encode_column_index,
    encode_offset_index,
)
from catalogue.parquet.pages import Indexes
from catalogue.parquet.summary import summarize_file
from catalogue.parquet.thrift import Reader, ThriftError
from catalogue.source.byte_ranges import ByteRange
from tests.slow.accepting import chunks_of_pages, is_accepted
from tests.support.footers import put_together, take_apart

_FILE_SIZE = 1 << 30


def thrift(data: bytes) -> bool:
    def parse() -> None:
        reader = Reader(data)
        struct = reader.struct()
        assert 0 < reader.position <= len(data)
        try:
            again = put_together(take_apart(data[: reader.position]))
        except ValueError:  # nothing here writes maps and floating point
            return
        assert Reader(again).struct() == struct

    return is_accepted(parse, ThriftError)


def footer(data: bytes) -> bool:
    def parse() -> None:
        found = decode_footer(data, _FILE_SIZE)
        facts = summarize_file(found, column_chunks=True)
        json.dumps(asdict(facts))
        assert found.num_rows == sum(group.num_rows for group in found.row_groups) >= 0
        assert not [group for group in found.row_groups if set(group.chunks) != set(found.columns)]
        for column in found.columns.values():
            assert arrow_type(kind_of(column)) is not None
            assert column.plain_integer in {True, False}
        for chunk in (chunk for group in found.row_groups for chunk in group.chunks.values()):
            assert 4 <= chunk.range.start < chunk.range.end <= _FILE_SIZE - 8 - len(data)
            assert not chunk.bounds or chunk.bounds.order in Order
            first, last = chunk.milliseconds or (0, 0)
            assert datetime.fromtimestamp(first / 1000, UTC) <= datetime.fromtimestamp(last / 1000, UTC)
        ranges = sorted(chunk.range for group in found.row_groups for chunk in group.chunks.values())
        assert all(one.end <= other.start for one, other in pairwise(ranges))
        if found.rest is not None:
            offsets = {group.ordinal: group.offset for group in found.row_groups}
            assert decode_row_groups(data, _FILE_SIZE, offsets, found.rest) == found

    return is_accepted(parse, FormatError)


def offset_index(data: bytes) -> bool:
    chunk, num_rows, _ = chunks_of_pages()[data[0] % len(chunks_of_pages()) if data else 0]

    def parse() -> None:
        index = decode_offset_index(data[1:], chunk, num_rows)
        assert index.offsets[-1] == chunk.range.end
        assert index.offsets[0] >= chunk.range.start
        assert (index.first_rows[0], index.first_rows[-1]) == (0, num_rows)
        assert all(one < other for ends in (index.offsets, index.first_rows) for one, other in pairwise(ends))
        assert decode_offset_index(encode_offset_index(index), chunk, num_rows) == index

    return is_accepted(parse, FormatError)


def column_index(data: bytes) -> bool:
    chunk, num_rows, _ = chunks_of_pages()[0]

    def parse() -> None:
        index = decode_column_index(data, chunk, num_rows)
        assert len(index.bounds) == num_rows
        assert all(each is None or each.min <= each.max for each in index.bounds)
        assert index.null_counts is None or sum(index.null_counts) == chunk.null_count
        assert decode_column_index(encode_column_index(index), chunk, num_rows) == index

    return is_accepted(parse, FormatError)


def page_headers(data: bytes) -> bool:
    chunk, num_rows, _ = chunks_of_pages()[0]

    def parse() -> None:
        header = page_header(data)
        assert header.size > 0 <= header.num_values
        there = replace(chunk, range=ByteRange(4, 4 + len(data)), data_page_offset=4, dictionary_page_offset=None)
        index = walk(data, replace(there, num_values=num_rows))
        assert index.offsets[-1] == 4 + len(data)
        assert index.first_rows[-1] == num_rows

    return is_accepted(parse, FormatError)


def held_indexes(data: bytes) -> bool:
    def parse() -> None:
        found = Indexes.unpack(data)
        assert Indexes.unpack(found.pack()) == found

    return is_accepted(parse, FormatError)
