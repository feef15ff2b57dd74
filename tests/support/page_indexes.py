"""Write page indexes, and find the pages of a column chunk by their headers."""

import json
from collections.abc import Mapping, Sequence

from catalogue.parquet.model import ColumnChunk
from catalogue.parquet.page_headers import page_headers
from catalogue.parquet.page_index import ColumnIndex, OffsetIndex
from catalogue.parquet.thrift import BINARY, BOOLEAN_TRUE, I32, I64, LIST, STRUCT, encode_list, encode_struct


def encode_offset_index(index: OffsetIndex) -> bytes:
    locations = []
    for page in range(len(index)):
        extent = index.extent(range(page, page + 1))
        fields = [(1, I64, extent.start), (2, I32, len(extent)), (3, I64, index.first_rows[page])]
        locations.append(encode_struct(fields))
    return encode_struct([(1, LIST, encode_list(STRUCT, locations))])


def encode_column_index(index: ColumnIndex) -> bytes:
    """Encode an index of texts, without an order."""
    unordered = 0
    return encode_struct(
        [
            (1, LIST, encode_list(BOOLEAN_TRUE, [bounds is None for bounds in index.bounds])),
            (2, LIST, encode_list(BINARY, [bounds.min if bounds else b"" for bounds in index.bounds])),
            (3, LIST, encode_list(BINARY, [bounds.max if bounds else b"" for bounds in index.bounds])),
            (4, I32, unordered),
            (5, LIST, None if index.null_counts is None else encode_list(I64, index.null_counts)),
        ]
    )


def packed_as_derived(
    column_index: bytes, offset_indexes: dict[str, bytes], clusters: Mapping[int, Sequence[tuple[str, str]]]
) -> bytes:
    """Pack page indexes for the store as earlier versions packed those that they had derived from pages."""
    header = {
        "own": True,
        "column_index": len(column_index),
        "offset_indexes": [[name, len(data)] for name, data in offset_indexes.items()],
        "clusters": clusters,
    }
    return json.dumps(header).encode() + b"\n" + b"".join([column_index, *offset_indexes.values()])


def located_by_headers(pages: bytes, chunk: ColumnChunk) -> OffsetIndex:
    """Return where the data pages of a column chunk are, by their headers."""
    offsets, first_rows, position, row = [], [], chunk.range.start, 0
    for header in page_headers(pages, chunk.num_values):
        if header.data_page:
            offsets.append(position)
            first_rows.append(row)
        row += header.num_values if header.data_page else 0
        position += header.size
    assert position == chunk.range.end
    assert row == chunk.num_values
    return OffsetIndex((*offsets, position), (*first_rows, row))
