"""Make a small valid Parquet file of fetched pages of a column, for pyarrow to decode.

The unchanged pages precede a footer without statistics, with one row group for each column chunk and the original
schema element. Field numbers are those of parquet.thrift.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from catalogue.commoncrawl.gzip_members import crc32, pieces_by_isal
from catalogue.errors import BadManifest
from catalogue.parquet.model import CODECS, DATA_PAGES, MAGIC, PHYSICAL_TYPES, TRAILER, ColumnChunk
from catalogue.parquet.page_headers import PageHeader
from catalogue.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Reader, ThriftError, encode_list, encode_struct

if TYPE_CHECKING:
    import pyarrow as pa


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


def splice(pieces: Sequence[ChunkPages], *, created_by: str) -> "pa.Buffer":
    """Return a Parquet file of one column, with a row group for each piece; all have the same ``column.element``."""
    import pyarrow as pa

    # pyarrow needs to know old versions of its own writer, which stated wrongly whether pages are compressed. For
    # parquet-mr before 1.2.9 it would read on after the pages, here into the footer.
    created_by = created_by if created_by.startswith("parquet-cpp") else ""
    start, num_rows = len(MAGIC), 0
    groups = []
    for piece in pieces:
        groups.append(_row_group(piece, start))
        start += piece.size
        num_rows += piece.num_rows
    footer = encode_struct(
        [
            (1, I32, 1),
            (2, LIST, encode_list(STRUCT, [_ROOT, pieces[0].chunk.column.element])),
            (3, I64, num_rows),
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


def with_trailer(footer: bytes) -> bytes:
    return footer + len(footer).to_bytes(TRAILER - len(MAGIC), "little") + MAGIC


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


def splice_dictionaries(pages: Sequence[tuple[ColumnChunk, bytes]]) -> "pa.Buffer":
    """Return a Parquet file of one column, whose data pages are dictionary pages of one type, given with their headers.

    Raises:
        ThriftError: if one has no header.
        KeyError: if one is not a dictionary page.
    """
    plain, levels = 0, 3
    kind = PHYSICAL_TYPES.index(pages[0][0].column.physical_type)
    required = encode_struct([(1, I32, kind), (3, I32, 0), (4, BINARY, b"values")])
    column = replace(pages[0][0].column, name="values", element=required)
    pieces = []
    for chunk, page in pages:
        reader = Reader(page)
        header = reader.struct()
        count = header[7][1]
        about = encode_struct([(1, I32, count), (2, I32, plain), (3, I32, levels), (4, I32, levels)])
        fields = [(1, I32, DATA_PAGES[0]), (2, I32, header[2]), (3, I32, header[3]), (4, I32, header.get(4))]
        data = encode_struct([*fields, (5, STRUCT, about)]) + page[reader.position :]
        values = replace(chunk, column=column, encodings=(plain,), total_uncompressed_size=header[2])
        pieces.append(ChunkPages(values, [data], len(data), 0, count, chunk.codec))
    return splice(pieces, created_by="")


PART_BYTES: Final = 4 << 20
"""Uncompressed bytes of a part; a larger page is a part by itself."""

_UNCOMPRESSED, _GZIP = CODECS.index("UNCOMPRESSED"), CODECS.index("GZIP")
_DATA_PAGE, _DICTIONARY_PAGE = DATA_PAGES[0], 2
_TYPE, _INFLATED, _STORED, _CRC = 1, 2, 3, 4
"""Fields of ``PageHeader``."""
_DETAILS: Final = {_DATA_PAGE: (5, range(1, 5)), _DICTIONARY_PAGE: (7, range(1, 3))}
"""The field with the details of a page, and the numbers of its integers."""


class NotInflatedError(Exception):
    """pyarrow must examine the pages."""


def parts(piece: ChunkPages, headers: Sequence[PageHeader]) -> Iterator[tuple[ChunkPages, Sequence[PageHeader], int]]:
    """Yield parts of a piece, with the headers and the uncompressed bytes of their pages."""
    whole = sum(header.inflated for header in headers)
    if whole <= PART_BYTES:
        yield piece, headers, whole
        return
    data = b"".join(piece.pages)
    dictionary = [] if headers[0].data_page else headers[:1]
    start, first = sum(page.size for page in dictionary), len(dictionary)
    while first < len(headers):
        after, size = first + 1, headers[first].inflated
        while after < len(headers) and size + headers[after].inflated <= PART_BYTES:
            size += headers[after].inflated
            after += 1
        pages = headers[first:after]
        end = start + sum(page.size for page in pages)
        before = dictionary if any(page.needs_dictionary for page in pages) else []
        kept = [data[: sum(page.size for page in before)], data[start:end]]
        num_rows = sum(page.num_values for page in pages)
        size_before = piece.dictionary_size if before else 0
        part = ChunkPages(piece.chunk, kept, sum(map(len, kept)), size_before, num_rows, piece.codec)
        yield part, [*before, *pages], size + sum(page.inflated for page in before)
        start, first = end, after


def inflated(piece: ChunkPages, headers: Sequence[PageHeader]) -> ChunkPages:
    """Return pages without compression; they are decompressed when ``splice`` takes them.

    ISA-L takes half the time of pyarrow's zlib. pyarrow gets pages that are not one gzip member of the stated size and
    checksum, so that errors are the same with and without ISA-L.

    Raises:
        NotInflatedError: if that is impossible, also while pages are taken.
    """
    if piece.codec != _GZIP:
        raise NotInflatedError
    data = b"".join(piece.pages)
    pages = list(_located(data, headers))
    return ChunkPages(
        piece.chunk,
        (part for page in pages for part in _inflated(data, page)),
        sum(len(page.header) + page.inflated for page in pages),
        len(pages[0].header) + pages[0].inflated if piece.dictionary_size else 0,
        piece.num_rows,
        _UNCOMPRESSED,
    )


class _Page(NamedTuple):
    header: bytes
    """The header of the decompressed page, without a checksum."""
    start: int
    end: int
    inflated: int
    crc: int | None


def _located(data: bytes, headers: Sequence[PageHeader]) -> Iterator[_Page]:
    end = 0
    for header in headers:
        reader = Reader(data, end)
        end += header.size
        try:
            fields = reader.struct()
            number, integers = _DETAILS[fields[_TYPE]]
            details = fields[number]
            about = encode_struct([(each, I32, details.get(each)) for each in integers])
            sizes = [(_INFLATED, I32, header.inflated), (_STORED, I32, header.inflated)]
            new = encode_struct([(_TYPE, I32, fields[_TYPE]), *sizes, (number, STRUCT, about)])
        except (ThriftError, KeyError, TypeError) as error:
            raise NotInflatedError from error
        yield _Page(new, reader.position, end, header.inflated, fields.get(_CRC))


def _inflated(data: bytes, page: _Page) -> Iterator[bytes]:
    body = memoryview(data)[page.start : page.end]
    if page.crc is not None and crc32(body) != page.crc & 0xFFFF_FFFF:
        raise NotInflatedError
    yield page.header
    try:
        yield from pieces_by_isal(body, page.inflated)
    except BadManifest as error:
        raise NotInflatedError from error
