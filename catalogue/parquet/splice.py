"""Make a small valid Parquet file of fetched pages of a column, for pyarrow to decode.

The unchanged pages precede a footer without statistics, with one row group for each column chunk and the original
schema element. Field numbers are those of parquet.thrift.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from catalogue.parquet.footer import MAGIC, with_trailer
from catalogue.parquet.model import DATA_PAGES, PHYSICAL_TYPES, ColumnChunk
from catalogue.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Reader
from catalogue.parquet.thrift_encode import encode_list, encode_struct


class ChunkPages(NamedTuple):
    """Pages of a column chunk."""

    chunk: ColumnChunk
    pages: Iterable[bytes]
    """The dictionary page, if needed, then data pages in ascending order, cut anywhere."""
    size: int
    dictionary_size: int
    """Bytes of the dictionary page; 0 without one, or if it is at ``data_page_offset``, as old writers place it."""
    num_rows: int
    """Rows of the data pages."""
    codec: int


def splice(pieces: Sequence[ChunkPages], *, created_by: str) -> pa.Buffer:
    """Return a Parquet file of one column, with a row group for each piece.

    Args:
        pieces: pages of chunks with the same ``column.element``.
        created_by: writer of the original files; readers work around known bugs.
    """
    start = len(MAGIC)
    groups = []
    for piece in pieces:
        groups.append(_row_group(piece, start))
        start += piece.size
    footer = encode_struct(
        [
            (1, I32, 1),
            (2, LIST, encode_list(STRUCT, [_ROOT, pieces[0].chunk.column.element])),
            (3, I64, sum(piece.num_rows for piece in pieces)),
            (4, LIST, encode_list(STRUCT, groups)),
            (6, BINARY, created_by.encode()),
        ]
    )
    after = with_trailer(footer)
    file = pa.allocate_buffer(start + len(after))  # Arrow keeps memory for the next file
    view = memoryview(file).cast("B")
    view[: len(MAGIC)], view[start:] = MAGIC, after
    at = len(MAGIC)
    for piece in pieces:
        for part in piece.pages:
            view[at : at + len(part)] = part
            at += len(part)
    return file


_ROOT = encode_struct([(4, BINARY, b"schema"), (5, I32, 1)])


def _row_group(piece: ChunkPages, start: int) -> bytes:
    chunk, size = piece.chunk, piece.size
    meta = encode_struct(
        [
            (1, I32, PHYSICAL_TYPES.index(chunk.column.physical_type)),
            (2, LIST, encode_list(I32, chunk.encodings)),
            (3, LIST, encode_list(BINARY, [chunk.column.name.encode()])),
            (4, I32, piece.codec),
            (5, I64, piece.num_rows),
            (6, I64, chunk.total_uncompressed_size),
            (7, I64, size),
            (9, I64, start + piece.dictionary_size),
            (11, I64, start if piece.dictionary_size else None),
        ]
    )
    column = encode_struct([(2, I64, start), (3, STRUCT, meta)])
    return encode_struct([(1, LIST, encode_list(STRUCT, [column])), (2, I64, size), (3, I64, piece.num_rows)])


def splice_dictionary(chunk: ColumnChunk, page: bytes) -> pa.Buffer:
    """Return a Parquet file whose data page is a dictionary page of byte strings, given with its header.

    Raises:
        ThriftError: if it has no header.
        KeyError: if it is not a dictionary page.
    """
    reader = Reader(page)
    header = reader.struct()
    count, plain, levels = header[7][1], 0, 3
    about = encode_struct([(1, I32, count), (2, I32, plain), (3, I32, levels), (4, I32, levels)])
    fields = [(1, I32, DATA_PAGES[0]), (2, I32, header[2]), (3, I32, header[3]), (4, I32, header.get(4))]
    data = encode_struct([*fields, (5, STRUCT, about)]) + page[reader.position :]
    required = encode_struct([(1, I32, PHYSICAL_TYPES.index("BYTE_ARRAY")), (3, I32, 0), (4, BINARY, b"values")])
    column = replace(chunk.column, name="values", element=required)
    values = replace(chunk, column=column, encodings=(plain,), total_uncompressed_size=header[2])
    return splice([ChunkPages(values, [data], len(data), 0, count, chunk.codec)], created_by="")
