"""Decode and check page headers, and derive an offset index from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catalogue.errors import BadPageIndex
from catalogue.parquet.model import DATA_PAGES, DICTIONARY_ENCODINGS, ColumnChunk
from catalogue.parquet.page_index import tiled
from catalogue.parquet.stored_indexes import OffsetIndex
from catalogue.parquet.thrift import I32, STRUCT, Reader, ThriftError, typed

MAX_PAGES = 20_000
"""Of a column chunk; Common Crawl's have about 120."""

_V1 = DATA_PAGES[0]
_PLAIN, _RLE = 0, 3
"""Of ``Encoding``."""
_CRC = 4
"""``PageHeader.crc``."""
_KINDS = {1: I32, 2: I32, 3: I32, _CRC: I32, 5: STRUCT, 7: STRUCT, 8: STRUCT}
"""Thrift types of the fields of ``PageHeader``. Decoders skip fields of other types, even a checksum."""


@dataclass(frozen=True, slots=True)
class PageHeader:
    """A decoded page header."""

    data_page: bool
    size: int
    """Compressed bytes, including this header."""
    inflated: int
    """Uncompressed bytes without this header, as stated; decoders allocate them."""
    num_values: int
    """Including nulls; rows of a flat column."""
    encoding: int | None
    """Of the values; None for other pages, or if unknown."""
    has_crc: bool
    levels: int | None = None
    """Encoding of the definition levels, in a data page of version 1."""

    @property
    def needs_dictionary(self) -> bool:
        """Return whether the values are dictionary indices."""
        return self.encoding in DICTIONARY_ENCODINGS


def page_header(data: bytes, start: int = 0) -> PageHeader:
    """Decode the page header at an offset.

    Raises:
        BadPageIndex: if it is invalid.
    """
    reader = Reader(data, start)
    try:
        header = {}
        for number, kind in reader.fields():
            if _KINDS.get(number, kind) != kind:
                raise TypeError(number)  # noqa: TRY301 - like those of the lines around it
            header[number] = reader.field(kind)
        kind, inflated, stored = (typed(header[field], int) for field in (1, 2, 3))
        data_page = kind in DATA_PAGES
        details = header[5 if kind == _V1 else 8] if data_page else {}
        # DataPageHeader.encoding is its field 2, that of DataPageHeaderV2 4.
        encoding = details.get(2 if kind == _V1 else 4)
        values = typed(details.get(1, 0), int)
    except (ThriftError, KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"no page starts there: {error}"
        raise BadPageIndex(message) from error
    if stored < 0 or values < 0 or inflated < 0:
        message = "no page starts there"
        raise BadPageIndex(message)
    size = reader.position - start + stored
    encoding = encoding if isinstance(encoding, int) else None
    levels = details.get(3) if kind == _V1 else None
    return PageHeader(data_page, size, inflated, values, encoding, has_crc=_CRC in header, levels=levels)


def page_headers(data: bytes, num_values: int) -> Iterator[PageHeader]:
    """Yield the headers of consecutive pages until ``num_values`` are complete, as decoders do.

    Raises:
        BadPageIndex: if one is invalid.
    """
    position = values = 0
    while position < len(data) and values < num_values:
        header = page_header(data, position)
        yield header
        values += header.num_values
        position += header.size


def check_headers(headers: Sequence[PageHeader], chunk: ColumnChunk, num_rows: int) -> None:
    """Check page headers against each other and the footer; a page's checksum does not cover its header.

    Args:
        headers: of the pages to decode, in order.
        chunk: their column chunk.
        num_rows: rows in these pages.

    Raises:
        BadPageIndex: if they contradict, or only some pages have a checksum.
    """
    if len({header.has_crc for header in headers}) > 1:
        message = "a page has no checksum, unlike other pages of its column chunk have"
        raise BadPageIndex(message)
    if (values := sum(header.num_values for header in headers)) != num_rows:
        message = f"its page headers count {values:,} values, not {num_rows:,}"
        raise BadPageIndex(message)
    encodings = {None, _PLAIN, *DICTIONARY_ENCODINGS, *chunk.encodings}
    if unknown := {header.encoding for header in headers} - encodings:
        message = f"a page header has encoding {min(filter(None, unknown))}, which the footer does not list"
        raise BadPageIndex(message)
    if chunk.column.optional and not {header.levels for header in headers} <= {None, _RLE}:
        message = "a page header has an encoding of definition levels other than RLE"
        raise BadPageIndex(message)


def check_pages(data: bytes, index: OffsetIndex, pages: range, *, dictionary: bool) -> None:
    """Check consecutive pages against the offset index.

    Args:
        data: bytes of the pages.
        index: of their column.
        pages: their numbers.
        dictionary: whether the dictionary page is available.

    Raises:
        BadPageIndex: if a page has another length or other rows, or needs a missing dictionary.
    """
    base = index.offsets[pages.start]
    for page in pages:
        start = index.offsets[page] - base
        header = page_header(data, start)
        rows = index.first_rows[page + 1] - index.first_rows[page]
        expected = index.offsets[page + 1] - index.offsets[page]
        if not header.data_page or header.size != expected or header.num_values != rows:
            message = f"page {page} is not what the index says of it"
            raise BadPageIndex(message)
        if header.needs_dictionary and not dictionary:
            message = f"page {page} needs a dictionary against what the footer says"
            raise BadPageIndex(message)


def walk(data: bytes, chunk: ColumnChunk) -> OffsetIndex:
    """Derive the offset index of a complete flat column chunk from its page headers.

    Raises:
        BadPageIndex: if they do not cover the chunk and all rows.
    """
    offsets: list[int] = []
    sizes: list[int] = []
    first_rows: list[int] = []
    position = row = 0
    while position < len(data):
        header = page_header(data, position)
        if header.data_page:
            if len(sizes) >= MAX_PAGES:
                message = f"{chunk.column.name} has more than {MAX_PAGES} pages"
                raise BadPageIndex(message)
            offsets.append(chunk.range.start + position)
            sizes.append(header.size)
            first_rows.append(row)
            row += header.num_values
        elif position:
            message = f"{chunk.column.name} has a page that holds no values behind the first"
            raise BadPageIndex(message)
        position += header.size
    if row != chunk.num_values:
        message = f"the pages of {chunk.column.name} hold {row} rows, not {chunk.num_values}"
        raise BadPageIndex(message)
    return tiled([*offsets, chunk.range.end], sizes, [*first_rows, row], chunk)
