"""Write page indexes, and find the pages of a column chunk by their headers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from catalogue.parquet.model import ColumnChunk
from catalogue.parquet.page_headers import page_headers
from catalogue.parquet.page_index import ColumnIndex, OffsetIndex
from catalogue.parquet.thrift import BINARY, BOOLEAN_TRUE, I32, I64, LIST, STRUCT, encode_list, encode_struct


def encode_offset_index(index: OffsetIndex) -> bytes:
    extents = [index.extent(range(page, page + 1)) for page in range(len(index))]
    return encode_locations((at.start, len(at), row) for at, row in zip(extents, index.first_rows, strict=False))


def encode_locations(locations: Iterable[Sequence[int]]) -> bytes:
    """Encode offset, size and first row of each page."""
    structs = [encode_struct([(1, I64, offset), (2, I32, size), (3, I64, row)]) for offset, size, row in locations]
    return encode_struct([(1, LIST, encode_list(STRUCT, structs))])


def encode_column_index(index: ColumnIndex) -> bytes:
    """Encode an index of texts, without an order."""
    nulls = [bounds is None for bounds in index.bounds]
    mins, maxs = ([getattr(each, end) if each else b"" for each in index.bounds] for end in ("min", "max"))
    counts = None if index.null_counts is None else [*index.null_counts]
    return Claims(nulls, mins, maxs, order=0, counts=counts).encoded()


@dataclass
class Claims:
    """A column index of texts in parts."""

    nulls: list[bool]
    mins: list[bytes]
    maxs: list[bytes]
    order: int
    counts: list[int] | None

    def encoded(self) -> bytes:
        return encode_struct(
            [
                (1, LIST, encode_list(BOOLEAN_TRUE, self.nulls)),
                (2, LIST, encode_list(BINARY, self.mins)),
                (3, LIST, encode_list(BINARY, self.maxs)),
                (4, I32, self.order),
                (5, LIST, None if self.counts is None else encode_list(I64, self.counts)),
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
