"""Fetched pages of a column + what its footer says → a tiny valid Parquet file.

pyarrow decodes whole files; so the pages, untouched, are put behind a magic and before a footer of one row group with
one column. The schema element is the file's own, byte for byte; only offsets are new. Statistics are left out: nothing
reads them. See apache/parquet-format, parquet.thrift, for the numbers of the fields.
"""

from dataclasses import replace

from catalogue.parquet.footer import MAGIC, with_trailer
from catalogue.parquet.model import DATA_PAGES, PHYSICAL_TYPES, ColumnChunk
from catalogue.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Reader, encode_list, encode_struct


def splice(chunk: ColumnChunk, pages: bytes, *, dictionary_size: int, num_rows: int, created_by: str) -> bytes:
    """A Parquet file of one column.

    Args:
        chunk: whose pages these are.
        pages: the dictionary page, if one is needed, then data pages in ascending order, which need not be neighbours.
        dictionary_size: bytes of the dictionary page; 0 if there is none, or if it may still be found where
            ``data_page_offset`` says that data begin, as older writers left it.
        num_rows: rows, and for a flat column values, that the data pages hold.
        created_by: of the original file; readers mend known faults of known writers by it.
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
    """A Parquet file of the values in the dictionary page of a column of byte strings.

    The page becomes a data page, which holds values in the same way.

    Args:
        chunk: whose page it is.
        page: with its header.

    Raises:
        ThriftError: if it has none.
        KeyError: if that is none of a dictionary page.
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
