"""Make a small valid Parquet file of fetched pages of a column, for pyarrow to decode.

The pages, unchanged, follow the magic and precede a footer of one row group with one column. The schema element is that
of the original file; only offsets are new. Statistics are left out. Field numbers are those of parquet.thrift.
"""

from dataclasses import replace

from catalogue.parquet.footer import MAGIC, with_trailer
from catalogue.parquet.model import DATA_PAGES, PHYSICAL_TYPES, ColumnChunk
from catalogue.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Reader
from catalogue.parquet.thrift_encode import encode_list, encode_struct


def splice(chunk: ColumnChunk, pages: bytes, *, dictionary_size: int, num_rows: int, created_by: str) -> bytes:
    """Return a Parquet file of one column.

    Args:
        chunk: of the pages.
        pages: the dictionary page, if needed, then data pages in ascending order, with or without gaps.
        dictionary_size: bytes of the dictionary page; 0 without one, or if it is at ``data_page_offset``, as in files
            of
            older writers.
        num_rows: rows of the data pages.
        created_by: of the original file; readers work around known bugs of writers.
    """
    start = len(MAGIC)
    meta = encode_struct(
        [
            (1, I32, PHYSICAL_TYPES.index(chunk.column.physical_type)),
            (2, LIST, encode_list(I32, chunk.encodings)),
            (3, LIST, encode_list(BINARY, [chunk.column.name.encode()])),
            (4, I32, chunk.codec),
            (5, I64, num_rows),
            (6, I64, chunk.total_uncompressed_size),
            (7, I64, len(pages)),
            (9, I64, start + dictionary_size),
            (11, I64, start if dictionary_size else None),
        ]
    )
    return MAGIC + pages + _footer(chunk, meta, len(pages), num_rows=num_rows, created_by=created_by)


def splice_dictionary(chunk: ColumnChunk, page: bytes) -> bytes:
    """Return a Parquet file whose data page is the dictionary page of a column of byte strings.

    Args:
        chunk: of the page.
        page: with its header.

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
    return splice(values, data, dictionary_size=0, num_rows=count, created_by="")


def _footer(chunk: ColumnChunk, meta: bytes, size: int, *, num_rows: int, created_by: str) -> bytes:
    root = encode_struct([(4, BINARY, b"schema"), (5, I32, 1)])
    column = encode_struct([(2, I64, len(MAGIC)), (3, STRUCT, meta)])
    group = encode_struct([(1, LIST, _structs(column)), (2, I64, size), (3, I64, num_rows)])
    footer = encode_struct(
        [
            (1, I32, 1),
            (2, LIST, _structs(root, chunk.column.element)),
            (3, I64, num_rows),
            (4, LIST, _structs(group)),
            (6, BINARY, created_by.encode()),
        ]
    )
    return with_trailer(footer)


def _structs(*values: bytes) -> bytes:
    return encode_list(STRUCT, values)
