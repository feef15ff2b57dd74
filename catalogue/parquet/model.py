"""The contents of a footer, with the format's names (apache/parquet-format, parquet.thrift), and types of columns."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from catalogue.parquet.thrift import Reader, Struct
from catalogue.source.byte_ranges import ByteRange

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"PAR1"
TRAILER = 8
"""Bytes of the length and the magic after the footer."""
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
DATA_PAGES = (0, 3)
"""Values of ``PageType``: DATA_PAGE and DATA_PAGE_V2."""
DICTIONARY_ENCODINGS = (2, 8)
"""Values of ``Encoding``: PLAIN_DICTIONARY and RLE_DICTIONARY."""
PHYSICAL_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")

_LONGEST_DICTIONARY = 16 << 10
"""Bytes to read of a dictionary page whose length is unknown; few columns of Common Crawl's index have longer ones."""
_SIGNED_INTEGERS = {None, 15, 16, 17, 18}
"""Values of ``ConvertedType``: none, INT_8, INT_16, INT_32, INT_64."""


class Order(enum.Enum):
    """The order in which bounds were compared."""

    UNSIGNED = "unsigned"
    """Bytes are 0 to 255: ``min_value`` and ``max_value``."""
    SIGNED = "signed"
    """Bytes are -128 to 127: the deprecated ``min`` and ``max`` of binary columns."""


UNSIGNED, SIGNED = "footer", "footer (signed)"
"""Origins of bounds of footers, by the order of bytes."""


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
    path: str = ""
    """Its path, if ``name`` has another ending because a flat column has this name."""

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
    only_dictionary: bool
    """The footer states that all data pages need it, so that it has all values."""
    null_count: int | None
    bounds: Bounds | None
    column_index: ByteRange | None
    offset_index: ByteRange | None

    @property
    def dictionary_page(self) -> ByteRange | None:
        """The dictionary page if it has all values; of unknown length where the footer has no offset of it."""
        if not self.only_dictionary:
            return None
        if self.dictionary_page_offset is not None:
            return ByteRange(self.dictionary_page_offset, self.data_page_offset)
        return ByteRange(self.range.start, min(self.range.end, self.range.start + _LONGEST_DICTIONARY))

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
    """Sorted like the schema."""
    offset: int = field(compare=False)
    """Offset of its struct in the footer."""


@dataclass(frozen=True, slots=True)
class Footer:
    """A decoded footer."""

    num_rows: int
    created_by: str
    columns: Mapping[str, Column]
    row_groups: tuple[RowGroup, ...]
    """Ascending, without empty ones."""
    codecs: tuple[str, ...]
    ordered: bool
    """The footer states how ``min_value`` and ``max_value`` were compared."""


def codec_name(codec: int) -> str:
    return CODECS[codec] if 0 <= codec < len(CODECS) else f"UNKNOWN({codec})"


NESTED = "nested"
_NULL = "null"

_DECIMAL, _DATE, _TIME, _TIMESTAMP, _INTEGER, _UNKNOWN, _FLOAT16 = 5, 6, 7, 8, 10, 11, 15
"""Fields of ``LogicalType``; the first two have the same numbers as ``ConvertedType``."""
_TEXTS, _CONVERTED_TEXTS = {1, 4, 12}, {0, 4, 19}
"""STRING, ENUM and JSON."""
_CONVERTED_TIMES, _CONVERTED_MILLIS, _CONVERTED_MICROS = {7, 8}, 9, 10
_CONVERTED_UINT_64 = 14
_UNITS = {1: "ms", 2: "us", 3: "ns"}
_WHOLE = {"int64", "uint64"}
_PARAMETERS = re.compile(r"(decimal|timestamp)\((\w+)(?:,(\w+))?\)")
_MOST_DIGITS = 38


@lru_cache(1024)  # the files of a crawl have the same columns
def kind_of(column: Column) -> str:
    """Return the type of a column as a word, for columns that are not in a dataset's schema.

    ``int64``, ``uint64``, ``float``, ``double``, ``bool``, ``string``, ``binary``, ``date``,
    ``decimal(precision,scale)``, ``timestamp(unit)``, ``timestamp(unit,utc)``, ``null`` and ``nested``. Narrow integers
    are widened, since files of one dataset differ; floats are not, as they would equal other literals
    (apache/parquet-format, LogicalTypes.md).
    """
    if not column.flat:
        return NESTED
    element: Struct = Reader(column.element).struct()
    logical, converted = _struct(element.get(10)), column.converted_type
    if _UNKNOWN in logical:
        return _NULL
    match column.physical_type:
        case "BOOLEAN":
            return "bool"
        case "FLOAT" | "DOUBLE":
            return column.physical_type.lower()
        case "INT96":
            return "timestamp(us)"  # what Spark and DuckDB use; a value with nanoseconds is an error
    if _DECIMAL in logical or converted == _DECIMAL:
        logical_type = _struct(logical.get(_DECIMAL))
        scale, precision = logical_type.get(1, element.get(7, 0)), logical_type.get(2, element.get(8, 0))
        if not (isinstance(scale, int) and isinstance(precision, int)):
            return "string"
        return f"decimal({precision},{scale})" if 0 <= scale <= precision <= _MOST_DIGITS and precision else "string"
    if column.physical_type in {"INT32", "INT64"}:
        return _of_integers(column, logical)
    if _FLOAT16 in logical:
        return "float"
    is_text = bool(_TEXTS & logical.keys()) or converted in _CONVERTED_TEXTS
    return "string" if is_text else "binary"


def is_stored_as_text(column: Column) -> bool:
    """Return whether the bytes of values are text; the kind ``string`` also contains what has no other type here."""
    logical = _struct(Reader(column.element).struct().get(10))
    is_text = bool(_TEXTS & logical.keys()) or column.converted_type in _CONVERTED_TEXTS
    return is_text and column.physical_type == "BYTE_ARRAY"


def _of_integers(column: Column, logical: Struct) -> str:
    converted = column.converted_type
    if _TIMESTAMP in logical or converted in {_CONVERTED_MILLIS, _CONVERTED_MICROS}:
        unit = _UNITS.get(column.timestamp_unit or 0) or ("us" if converted == _CONVERTED_MICROS else "ms")
        # Where only the older way is used, an instant is meant.
        return f"timestamp({unit},utc)" if column.utc or _TIMESTAMP not in logical else f"timestamp({unit})"
    if _DATE in logical or converted == _DATE:
        return "date"
    if _TIME in logical or converted in _CONVERTED_TIMES:
        return "string"
    logical_type = _struct(logical.get(_INTEGER))
    is_wide = logical_type.get(1) == 64 and not logical_type.get(2, False)  # noqa: PLR2004 - bits
    return "uint64" if converted == _CONVERTED_UINT_64 or is_wide else "int64"


def _struct(value: object) -> Struct:
    return value if isinstance(value, dict) else {}


def wider(one: str, other: str) -> str:
    """Return a type for the values of both, text if necessary."""
    if one == other:
        return one
    both = {one, other}
    if NESTED in both:
        return NESTED
    if _NULL in both:
        return other if one == _NULL else one
    if both == _WHOLE:
        return "decimal(20,0)"
    if both <= _WHOLE | {"float", "double"}:
        return "double"
    if both == {"string", "binary"}:
        return "binary"
    first, second = _PARAMETERS.fullmatch(one), _PARAMETERS.fullmatch(other)
    if first and second and first[1] == second[1]:
        if first[1] == "timestamp":
            if first[3] == second[3]:
                units = list(_UNITS.values())
                unit = max(first[2], second[2], key=units.index)
                return f"timestamp({unit},{first[3]})" if first[3] else f"timestamp({unit})"
            return "string"
        scale = max(int(first[3]), int(second[3]))
        digits = max(int(each[2]) - int(each[3]) for each in (first, second))
        return f"decimal({digits + scale},{scale})" if digits + scale <= _MOST_DIGITS else "string"
    return "string"


def arrow_type(kind: str) -> "pa.DataType":
    """Return the Arrow type of a word, text if unknown."""
    import pyarrow as pa

    plain = {
        "int64": pa.int64(),
        "uint64": pa.uint64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        "binary": pa.binary(),
        "date": pa.date32(),
    }
    if kind in plain:
        return plain[kind]
    if matched := _PARAMETERS.fullmatch(kind):
        if matched[1] == "timestamp":
            return pa.timestamp(matched[2], "UTC" if matched[3] else None)
        return pa.decimal128(int(matched[2]), int(matched[3]))
    return pa.string()
