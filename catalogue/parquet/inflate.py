"""Decompress the gzip pages of a column by ISA-L, in half the time of pyarrow's zlib.

pyarrow also gets pages that are not one gzip member of the stated size and checksum, so that errors are the same with
and without ISA-L.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from catalogue.commoncrawl.gzip_members import crc32, pieces_by_isal
from catalogue.errors import BadManifest
from catalogue.parquet.model import CODECS, DATA_PAGES
from catalogue.parquet.page_headers import PageHeader
from catalogue.parquet.splice import ChunkPages
from catalogue.parquet.thrift import I32, STRUCT, Reader, ThriftError
from catalogue.parquet.thrift_encode import encode_struct

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


def parts(piece: ChunkPages, headers: Sequence[PageHeader]) -> Iterator[tuple[ChunkPages, Sequence[PageHeader]]]:
    """Divide the data pages of a column chunk into parts of about ``PART_BYTES`` with their page headers."""
    if sum(header.inflated for header in headers) <= PART_BYTES:
        yield piece, headers
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
        yield ChunkPages(piece.chunk, kept, sum(map(len, kept)), size_before, num_rows, piece.codec), [*before, *pages]
        start, first = end, after


def inflated(piece: ChunkPages, headers: Sequence[PageHeader]) -> ChunkPages:
    """Return pages without compression; they are decompressed when ``splice`` takes them.

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
