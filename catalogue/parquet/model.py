"""The contents of a footer, with the format's names (apache/parquet-format, parquet.thrift)."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from catalogue.parquet.thrift import Reader
from catalogue.source.byte_ranges import ByteRange

CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
DATA_PAGES = (0, 3)
"""Values of ``PageType``: DATA_PAGE and DATA_PAGE_V2."""
DICTIONARY_ENCODINGS = (2, 8)
"""Values of ``Encoding``: PLAIN_DICTIONARY and RLE_DICTIONARY."""
PHYSICAL_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")

_EARLIEST, _LATEST = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 in milliseconds since 1970."""
_SIGNED_INTEGERS = {None, 15, 16, 17, 18}
"""Values of ``ConvertedType``: none, INT_8, INT_16, INT_32, INT_64."""


class Order(enum.Enum):
    """The order in which bounds were compared."""

    UNSIGNED = "unsigned"
    """Bytes are 0 to 255: ``min_value`` and ``max_value``."""
    SIGNED = "signed"
    """Bytes are -128 to 127: the deprecated ``min`` and ``max`` of binary columns."""


@dataclass(slots=True, unsafe_hash=True)
class Bounds:
    """Outer bounds of values, which need not occur; immutable, see ``ByteRange``."""

    min: bytes
    """Plain-encoded: little-endian for numbers."""
    max: bytes
    order: Order = Order.UNSIGNED
    cut: bool = False
    """The writer stated that it shortened them."""


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf of the schema."""

    name: str
    """Path of names, joined by dots."""
    physical_type: str
    optional: bool
    flat: bool
    """Each row has at most one value."""
    element: bytes
    """Its encoded ``SchemaElement``."""
    converted_type: int | None
    """0 is UTF8, 9 TIMESTAMP_MILLIS."""
    timestamp_unit: int | None
    """Unit of a logical timestamp: 1 is MILLIS."""
    utc: bool
    """It is declared an instant."""

    @property
    def plain_integer(self) -> bool:
        """Return whether the values are signed integers and not, for example, decimals."""
        logical = Reader(self.element).struct().get(10)
        integer = logical.get(10) if isinstance(logical, dict) else None
        signed = not logical or (isinstance(integer, dict) and bool(integer.get(2, False)))
        return self.physical_type in {"INT32", "INT64"} and self.converted_type in _SIGNED_INTEGERS and signed


@dataclass(slots=True, unsafe_hash=True)
class ColumnChunk:
    """The values of one column in one row group; immutable, see ``ByteRange``."""

    column: Column
    range: ByteRange
    """Its pages, including the dictionary page."""
    codec: int
    encodings: tuple[int, ...]
    num_values: int
    total_uncompressed_size: int
    data_page_offset: int
    dictionary_page_offset: int | None
    dictionary_coded: int | None
    """Number of data pages, from the first, that need the dictionary page; None if unknown."""
    null_count: int | None
    bounds: Bounds | None
    column_index: ByteRange | None
    offset_index: ByteRange | None

    @property
    def milliseconds(self) -> tuple[int, int] | None:
        """Return inclusive bounds since 1970; None if unknown or outside the years 1 to 9999."""
        # Writers use either TIMESTAMP_MILLIS or a logical type with unit MILLIS.
        declared = self.column.converted_type == 9 or self.column.timestamp_unit == 1  # noqa: PLR2004
        if not (declared and self.bounds):
            return None
        first, last = number("INT64", self.bounds.min), number("INT64", self.bounds.max)
        if first is None or last is None or not _EARLIEST <= first <= last <= _LATEST:
            return None
        return first, last

    @property
    def codec_name(self) -> str:
        return codec_name(self.codec)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A horizontal slice of a file."""

    ordinal: int
    num_rows: int
    total_byte_size: int
    """Uncompressed bytes of all pages."""
    total_compressed_size: int
    start: int
    """Offset of its first page in the file."""
    chunks: Mapping[str, ColumnChunk]
    """In the order of the schema."""
    offset: int = field(compare=False)
    """Offset of its struct in the footer."""


@dataclass(frozen=True, slots=True)
class Footer:
    """A decoded footer."""

    num_rows: int
    created_by: str
    columns: Mapping[str, Column]
    row_groups: tuple[RowGroup, ...]
    """In ascending order, without empty ones."""
    codecs: tuple[str, ...]
    ordered: bool
    """The footer states how ``min_value`` and ``max_value`` were compared."""


def codec_name(codec: int) -> str:
    return CODECS[codec] if 0 <= codec < len(CODECS) else f"UNKNOWN({codec})"


def number(physical_type: str, plain: bytes) -> int | None:
    """Decode a plain INT32 or INT64; None for anything else."""
    width = {"INT32": 4, "INT64": 8}.get(physical_type)
    return int.from_bytes(plain, "little", signed=True) if width == len(plain) else None
