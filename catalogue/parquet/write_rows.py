"""Write small row groups of flat, optional columns without pyarrow, whose import takes longer than this.

Each column has a page of plain values, or a dictionary and a page of indices. Fields are numbered as in parquet.thrift.
"""

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from catalogue.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, encode_list, encode_struct, encode_varint

MOST_ROWS: Final = 256
"""Rows of a row group, so that an index into a dictionary has one byte."""

_KINDS: Final = {"bool": (0, None), "int32": (1, None), "int64": (2, None), "bytes": (6, None), "text": (6, 0)}
"""Physical type, and the converted type of UTF-8."""
_FORMATS: Final = {"int32": "i", "int64": "q"}
_PLAIN, _RLE, _DICTIONARY = 0, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_OPTIONAL: Final = 1
_INDEX_BITS: Final = 8


def add_row_group(
    file: bytearray, columns: Mapping[str, str], repeated: Collection[str], rows: Sequence[Mapping[str, Any]]
) -> bytes:
    """Append the pages of rows to a file, and return the struct of the row group.

    Args:
        file: what precedes the pages, from the first byte of the file on.
        columns: kinds by name: bool, int32, int64, bytes or text.
        repeated: columns with dictionaries.
        rows: at most ``MOST_ROWS``; a missing value is null.
    """
    start = len(file)
    chunks = []
    for name, kind in columns.items():
        values = [row.get(name) for row in rows]
        chunks.append(_add_chunk(file, name, kind, values, has_dictionary=name in repeated))
    size = len(file) - start
    return encode_struct([(1, LIST, encode_list(STRUCT, chunks)), (2, I64, size), (3, I64, len(rows))])


def encode_footer(columns: Mapping[str, str], row_groups: Sequence[bytes], num_rows: int) -> bytes:
    schema = [encode_struct([(4, BINARY, b"schema"), (5, I32, len(columns))])]
    for name, kind in columns.items():
        physical, converted = _KINDS[kind]
        schema.append(
            encode_struct([(1, I32, physical), (3, I32, _OPTIONAL), (4, BINARY, name.encode()), (6, I32, converted)])
        )
    return encode_struct(
        [
            (1, I32, 1),
            (2, LIST, encode_list(STRUCT, schema)),
            (3, I64, num_rows),
            (4, LIST, encode_list(STRUCT, row_groups)),
        ]
    )


def _add_chunk(file: bytearray, name: str, kind: str, values: list[Any], *, has_dictionary: bool) -> bytes:
    start = len(file)
    present = [value for value in values if value is not None]
    body, encoding, dictionary_at = b"", _PLAIN, None
    if has_dictionary:
        indices = {value: index for index, value in enumerate(dict.fromkeys(present))}
        dictionary_at, encoding = start, _DICTIONARY
        _add_page(file, _DICTIONARY_PAGE, _plain(kind, [*indices]), [(1, I32, len(indices)), (2, I32, _PLAIN)])
        body = bytes([_INDEX_BITS]) + _packed(bytes([indices[value] for value in present]), _INDEX_BITS)
    else:
        body = _plain(kind, present)
    data_at = len(file)
    levels = _packed(_bits([value is not None for value in values]), 1)
    about = [(1, I32, len(values)), (2, I32, encoding), (3, I32, _RLE), (4, I32, _RLE)]
    _add_page(file, _DATA_PAGE, len(levels).to_bytes(4, "little") + levels + body, about)
    size = len(file) - start
    metadata = encode_struct(
        [
            (1, I32, _KINDS[kind][0]),
            (2, LIST, encode_list(I32, [_PLAIN, _RLE, encoding])),
            (3, LIST, encode_list(BINARY, [name.encode()])),
            (4, I32, 0),
            (5, I64, len(values)),
            (6, I64, size),
            (7, I64, size),
            (9, I64, data_at),
            (11, I64, dictionary_at),
        ]
    )
    return encode_struct([(2, I64, start), (3, STRUCT, metadata)])


def _add_page(file: bytearray, page_type: int, body: bytes, about: list[tuple[int, int, Any]]) -> None:
    of_type = 5 if page_type == _DATA_PAGE else 7
    sizes = [(2, I32, len(body)), (3, I32, len(body))]
    file += encode_struct([(1, I32, page_type), *sizes, (of_type, STRUCT, encode_struct(about))]) + body


def _plain(kind: str, values: Sequence[Any]) -> bytes:
    if kind == "bool":
        return _bits(values)
    if kind in _FORMATS:
        return struct.pack(f"<{len(values)}{_FORMATS[kind]}", *values)
    texts = [value.encode() for value in values] if kind == "text" else values
    return b"".join([part for text in texts for part in (len(text).to_bytes(4, "little"), text)])


def _bits(flags: Sequence[bool]) -> bytes:
    number = sum(1 << place for place, flag in enumerate(flags) if flag)
    return number.to_bytes((len(flags) + 7) // 8, "little")


def _packed(data: bytes, width: int) -> bytes:
    groups = -(-len(data) // width)
    return encode_varint(groups << 1 | 1) + data.ljust(groups * width, b"\0")
