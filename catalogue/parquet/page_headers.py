"""Decode and check page headers."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from catalogue.errors import BadPageIndex
from catalogue.parquet.model import DATA_PAGES, DICTIONARY_ENCODINGS, ColumnChunk
from catalogue.parquet.thrift import I32, STRUCT, Reader, ThriftError

if TYPE_CHECKING:
    from catalogue.parquet.page_index import OffsetIndex

_V1 = DATA_PAGES[0]
_PLAIN, _RLE = 0, 3
_ENCODINGS: Final = {
    "BOOLEAN": (_RLE,),
    "INT32": (5,),
    "INT64": (5,),
    "BYTE_ARRAY": (6, 7),
    "FIXED_LEN_BYTE_ARRAY": (7,),
}
"""By physical type: 5 is DELTA_BINARY_PACKED, 6 DELTA_LENGTH_BYTE_ARRAY, and 7 DELTA_BYTE_ARRAY.

In BYTE_STREAM_SPLIT, any bytes are values, so that a damaged header would not be noticed.
"""
# Fields of PageHeader. Decoders skip fields of other types, even a checksum, so a wrong type is an error here.
_TYPE: Final = 1
_UNCOMPRESSED_PAGE_SIZE: Final = 2
_COMPRESSED_PAGE_SIZE: Final = 3
_CRC: Final = 4
_DATA_PAGE_HEADER: Final = 5
_DICTIONARY_PAGE_HEADER: Final = 7
_DATA_PAGE_HEADER_V2: Final = 8
_KINDS: Final = {
    **dict.fromkeys((_TYPE, _UNCOMPRESSED_PAGE_SIZE, _COMPRESSED_PAGE_SIZE, _CRC), I32),
    **dict.fromkeys((_DATA_PAGE_HEADER, _DICTIONARY_PAGE_HEADER, _DATA_PAGE_HEADER_V2), STRUCT),
}

# Fields of DataPageHeader and, but for the encoding, of DataPageHeaderV2
_NUM_VALUES: Final = 1
_ENCODING: Final = 2
_DEFINITION_LEVEL_ENCODING: Final = 3
_ENCODING_V2: Final = 4
_UNKNOWN: Final = -1
_NO_DETAILS: Final = [0, 0, _UNKNOWN, _UNKNOWN, _UNKNOWN]


class PageHeader(NamedTuple):
    """A decoded page header."""

    size: int
    """Compressed bytes, including this header."""
    inflated: int
    """Uncompressed bytes without this header, as stated; decoders allocate them."""
    num_values: int
    """Values, including nulls; rows of a flat column."""
    encoding: int | None
    """Encoding of the values; None if unknown, and for other pages."""
    data_page: bool
    has_crc: bool
    levels: int | None = None
    """Encoding of the definition levels, in version 1."""

    @property
    def needs_dictionary(self) -> bool:
        return self.encoding in DICTIONARY_ENCODINGS


def page_header(data: bytes, start: int = 0) -> PageHeader:
    """Decode the page header at an offset.

    Raises:
        BadPageIndex: if it is invalid.
    """
    try:
        return _page_header(Reader(data, start), start)
    except (ThriftError, KeyError, TypeError, OverflowError) as error:
        raise BadPageIndex(f"no page starts there: {error}") from error


def _page_header(reader: Reader, start: int) -> PageHeader:
    numbers = [_UNKNOWN] * (_CRC + 1)
    structs: dict[int, list[int]] = {}
    has_crc = False
    number = 0
    while reader.next_field(number):
        number = reader.number
        expected = _KINDS.get(number)
        if expected is None:
            reader.skip(reader.kind)
        elif reader.kind != expected:
            raise TypeError(number)
        elif expected == I32:
            numbers[number] = reader.integer()
            has_crc = has_crc or number == _CRC
        else:
            structs[number] = _details(reader, _ENCODING if number == _DICTIONARY_PAGE_HEADER else _ENCODING_V2)
    kind, inflated, stored = numbers[_TYPE], numbers[_UNCOMPRESSED_PAGE_SIZE], numbers[_COMPRESSED_PAGE_SIZE]
    data_page = kind in DATA_PAGES
    first = kind == _V1
    details = structs[_DATA_PAGE_HEADER if first else _DATA_PAGE_HEADER_V2] if data_page else _NO_DETAILS
    values, encoding = details[_NUM_VALUES], details[_ENCODING if first else _ENCODING_V2]
    levels = details[_DEFINITION_LEVEL_ENCODING] if first else _UNKNOWN
    if min(kind, inflated, stored, values) < 0:
        raise ThriftError("a number is missing or negative")
    return PageHeader(
        reader.position - start + stored,
        inflated,
        values,
        None if encoding == _UNKNOWN else encoding,
        data_page,
        has_crc,
        None if levels == _UNKNOWN else levels,
    )


def _details(reader: Reader, last: int) -> list[int]:
    found = _NO_DETAILS.copy()
    number = 0
    while reader.next_field(number):
        number = reader.number
        if not 0 < number <= last:
            reader.skip(reader.kind)
        elif reader.kind == I32:
            found[number] = reader.integer()
        else:
            raise TypeError(number)
    return found


def page_headers(data: bytes, num_values: int) -> Iterator[PageHeader]:
    """Yield the headers of consecutive pages until ``num_values`` are complete, as decoders do.

    Raises:
        BadPageIndex: if a header is invalid, or a page exceeds the data.
    """
    position = values = 0
    while position < len(data) and values < num_values:
        header = page_header(data, position)
        values += header.num_values
        position += header.size
        if position > len(data):
            message = f"a page at byte {position - header.size:,} ends after its column chunk"
            raise BadPageIndex(message)
        yield header


def check_headers(headers: Sequence[PageHeader], chunk: ColumnChunk, num_rows: int) -> None:
    """Check page headers against each other and the footer; checksums of pages do not cover them.

    Raises:
        BadPageIndex: if they contradict, or only some data pages have a checksum.
    """
    values = 0
    encodings: set[int | None] = set()
    levels: set[int | None] = set()
    checksums: dict[bool, bool] = {}
    for header in headers:
        values += header.num_values
        encodings.add(header.encoding)
        levels.add(header.levels)
        # parquet-mr 1.11 to 1.13 writes checksums of dictionary pages, not of data pages of version 2, without levels.
        is_second = header.data_page and header.levels is None
        if checksums.setdefault(is_second, header.has_crc) != header.has_crc:
            raise BadPageIndex("a page has no checksum, although other pages of its column chunk have one")
    if values != num_rows:
        raise BadPageIndex(f"its page headers count {values:,} values, not {num_rows:,}")
    # Parquet.Net and DuckDB do not list all encodings in the footer.
    of_type = _ENCODINGS.get(chunk.column.physical_type, ())
    if unknown := encodings - {None, _PLAIN, *DICTIONARY_ENCODINGS, *of_type, *chunk.encodings}:
        raise BadPageIndex(f"a page header has encoding {min(filter(None, unknown))}, which the footer does not list")
    if chunk.column.optional and not levels <= {None, _RLE}:
        raise BadPageIndex("a page header has an encoding of definition levels other than RLE")


def check_pages(data: bytes, index: "OffsetIndex", pages: range, *, dictionary: bool) -> list[PageHeader]:
    """Check consecutive pages against the offset index, and return their headers.

    Raises:
        BadPageIndex: if a page has another length or other rows, or needs a missing dictionary.
    """
    base = index.offsets[pages.start]
    headers = []
    for page in pages:
        start = index.offsets[page] - base
        header = page_header(data, start)
        rows = index.first_rows[page + 1] - index.first_rows[page]
        expected = index.offsets[page + 1] - index.offsets[page]
        if not header.data_page or header.size != expected or header.num_values != rows:
            raise BadPageIndex(f"page {page} differs from the page index")
        if header.needs_dictionary and not dictionary:
            raise BadPageIndex(f"page {page} needs a dictionary, which the footer does not list")
        headers.append(header)
    return headers
