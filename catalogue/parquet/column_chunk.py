"""Decode the ``ColumnChunk`` structs of a footer, and check each against its column and the file.

Decoding a footer checks all fields. A chunk is interpreted when it is used: few are, and its bounds depend on the end
of the footer.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from catalogue.errors import BadFooter
from catalogue.parquet.model import (
    DATA_PAGES,
    DICTIONARY_ENCODINGS,
    PHYSICAL_TYPES,
    TRAILER,
    Bounds,
    Column,
    ColumnChunk,
    Order,
)
from catalogue.parquet.thrift import BINARY, BOOLEAN_FALSE, I32, LIST, STRUCT, Reader, ThriftError
from catalogue.source.byte_ranges import ByteRange

_TRUSTWORTHY_DEPRECATED = re.compile(rb"parquet-mr version 1\.(?:[89]|[1-9][0-9])\.")
"""Earlier parquet-mr wrote wrong bounds for binary columns (PARQUET-251)."""
_CUTS_LARGEST = b"github.com/segmentio/parquet-go"
"""It cuts the largest values of pages without raising them (segmentio/parquet-go#495)."""

_PARQUET_MR = re.compile(rb"parquet-mr version (\d+)\.(\d+)\.(\d+)")
_LEFT_OUT: Final = 100
"""Maximum bytes of a header of a dictionary page."""

_FIRST_BYTE: Final = 4
_MISSING: Final = -(1 << 40)
"""A number that was not written."""
_NUMBERS: Final = 14

_COLUMNS: Final = 1
"""The field of ``RowGroup`` with its column chunks."""

# Fields of ColumnChunk
_FILE_PATH: Final = 1
_META_DATA: Final = 3
_OFFSET_INDEX: Final = 4
_OFFSET_INDEX_LENGTH: Final = 5
_COLUMN_INDEX: Final = 6
_COLUMN_INDEX_LENGTH: Final = 7
_ENCRYPTED: Final = (8, 9)

# Fields of ColumnMetaData
_TYPE: Final = 1
_ENCODINGS: Final = 2
_PATH: Final = 3
_CODEC: Final = 4
_NUM_VALUES: Final = 5
_UNCOMPRESSED_SIZE: Final = 6
_COMPRESSED_SIZE: Final = 7
_DATA_PAGE: Final = 9
_DICTIONARY_PAGE: Final = 11
_STATISTICS: Final = 12
_ENCODING_STATS: Final = 13
_NO_NUMBERS: Final = [_MISSING] * (2 * _NUMBERS)
_REQUIRED: Final = (_TYPE, _CODEC, _NUM_VALUES, _UNCOMPRESSED_SIZE, _COMPRESSED_SIZE, _DATA_PAGE)

# Fields of Statistics
_DEPRECATED_MAX: Final = 1
_DEPRECATED_MIN: Final = 2
_NULL_COUNT: Final = 3
_MAX_VALUE: Final = 5
_MIN_VALUE: Final = 6
_IS_EXACT: Final = (7, 8)

# PageEncodingStats in seven bytes: three headers, each followed by its number, and the end of the struct
_HEADER: Final = 1 << 4 | I32
_SHORT_STATS: Final = 7
_SHORT_STATS_HEADERS: Final = bytes([_HEADER, _HEADER, _HEADER, 0])
_SHORT_DICTIONARY_STATS: Final = frozenset(
    bytes([_HEADER, page << 1, _HEADER, encoding << 1]) for page in DATA_PAGES for encoding in DICTIONARY_ENCODINGS
)

_SHORT_DATA_PAGES: Final = tuple(page << 1 for page in DATA_PAGES)


class ChunkFields:
    """The fields of a ``ColumnChunk``, as written."""

    __slots__ = (
        *("dictionary_coded", "encodings", "encrypted", "file_path", "numbers", "otherwise_coded", "path"),
        *("start", "statistics"),
    )

    def __init__(self) -> None:
        self.numbers = _NO_NUMBERS.copy()
        """Numbers of the ``ColumnMetaData``, by field; then of the ``ColumnChunk``."""
        self.encodings = 0
        """Offset in the footer; 0 if missing."""
        self.start = 0
        """Offset of the first page in the file."""
        self.path = b""
        self.file_path = b""
        """The file in which the chunk is. Some writers name the file itself."""
        self.encrypted = False
        self.statistics = 0
        """Offset of the struct in the footer; 0 if missing."""
        self.dictionary_coded: int | None = None
        self.otherwise_coded = 0
        """Number of data pages that are not dictionary-coded."""

    @property
    def codec(self) -> int:
        return self.numbers[_CODEC]

    @property
    def size(self) -> int:
        return self.numbers[_COMPRESSED_SIZE]

    def check(self, column: Column, num_rows: int, data_end: int) -> int:
        """Check a chunk against its column, its row group and the end of the file's data; return ``start``."""
        name, numbers = column.name, self.numbers
        if self.encrypted:
            raise BadFooter(f"column {name} is encrypted")
        for field in _REQUIRED:
            if numbers[field] == _MISSING:
                raise BadFooter(f"a column chunk of {name} has no number as field {field} of its ColumnMetaData")
        kind = numbers[_TYPE]
        same_type = 0 <= kind < len(PHYSICAL_TYPES) and PHYSICAL_TYPES[kind] == column.physical_type
        if not same_type or self.path not in {b"", (column.path or name).encode()}:  # arrow-rs can leave it out
            raise BadFooter(f"found a column chunk of {self.path[:100]!r} in the place of {name!r}")
        if column.flat and numbers[_NUM_VALUES] != num_rows:
            raise BadFooter(f"column {name} has {numbers[_NUM_VALUES]} values in {num_rows} rows")
        start, size = self.start, numbers[_COMPRESSED_SIZE]
        if start < _FIRST_BYTE or size < 1 or start + size > data_end:
            if self.file_path:
                raise BadFooter(f"column {name} is in the file {self.file_path[:200]!r}; name that file instead")
            raise BadFooter(f"column {name} claims {size} bytes at {start} of a file whose data end at {data_end}")
        return start


def read_chunk(reader: Reader) -> ChunkFields:
    fields = ChunkFields()
    field = 0
    while reader.next_other_field(field, fields.numbers, _NUMBERS):
        field, kind = reader.number, reader.kind
        if field == _META_DATA and kind == STRUCT:
            _read_metadata(reader, fields)
        else:
            if field == _FILE_PATH and kind == BINARY:
                fields.file_path = reader.binary()
                continue
            fields.encrypted |= field in _ENCRYPTED
            reader.skip(kind, 4)
    return fields


def _read_metadata(reader: Reader, fields: ChunkFields) -> None:
    meta = _NO_NUMBERS[:_NUMBERS]
    field = 0
    while reader.next_other_field(field, meta):
        field, kind = reader.number, reader.kind
        if field == _ENCODINGS and kind == LIST:
            fields.encodings = reader.position
            reader.integers()
        elif field == _PATH and kind == LIST:
            fields.path = reader.joined_texts()
        elif field == _ENCODING_STATS and kind == LIST:
            fields.dictionary_coded, fields.otherwise_coded = _read_encoding_stats(reader)
        else:
            if field == _STATISTICS and kind == STRUCT:
                fields.statistics = reader.position
            reader.skip(kind, 5)
    fields.numbers[:_NUMBERS] = meta
    # parquet-mr before 1.13 omits the offset of the dictionary, to which data_page_offset then points.
    fields.start = meta[_DICTIONARY_PAGE] if 0 < meta[_DICTIONARY_PAGE] < meta[_DATA_PAGE] else meta[_DATA_PAGE]


def _read_encoding_stats(reader: Reader) -> tuple[int, int]:
    coded = others = 0
    for _ in range(reader.structs()):
        # Nearly always three numbers of a byte each; a third of the time without calls.
        start = reader.position
        short = reader.data[start : start + _SHORT_STATS]
        if short[::2] == _SHORT_STATS_HEADERS and short.isascii():
            reader.position = start + _SHORT_STATS
            number = (short[5] >> 1) ^ -(short[5] & 1)
            if short[:4] in _SHORT_DICTIONARY_STATS:
                coded += number
            elif short[1] in _SHORT_DATA_PAGES:
                others += number
            continue
        stats = [0, _MISSING, _MISSING, _MISSING]  # from field 1 on: page type, encoding, count
        field = 0
        while reader.next_other_field(field, stats):
            field = reader.number
            reader.skip(reader.kind, 7)
        if _MISSING in stats:
            raise ThriftError(f"the encodings of pages before byte {reader.position} are not numbers")
        if stats[1] in DATA_PAGES and stats[2] in DICTIONARY_ENCODINGS:
            coded += stats[3]
        elif stats[1] in DATA_PAGES:
            others += stats[3]
    return coded, others


@dataclass(slots=True)
class ChunkContext:
    """The values that all column chunks of a footer share."""

    data: bytes
    data_end: int
    """The end of the column chunks in the file."""
    columns: Mapping[str, Column]
    created_by: bytes = b""
    ordered: bool = False
    """See ``Footer``."""

    def chunk(self, name: str, offset: int) -> ColumnChunk:
        column, fields = self.columns[name], read_chunk(Reader(self.data, offset))
        numbers, start = fields.numbers, fields.start
        bounds, null_count = None, None
        if fields.statistics:
            bounds, null_count = self._conclusions(column, fields.statistics, numbers[_NUM_VALUES])
        end = start + numbers[_COMPRESSED_SIZE] + (_LEFT_OUT if _leaves_out_headers(self.created_by) else 0)
        return ColumnChunk(
            column=column,
            range=ByteRange(start, min(end, self.data_end)),
            codec=numbers[_CODEC],
            encodings=tuple(Reader(self.data, fields.encodings).integers()) if fields.encodings else (),
            num_values=numbers[_NUM_VALUES],
            total_uncompressed_size=numbers[_UNCOMPRESSED_SIZE],
            data_page_offset=numbers[_DATA_PAGE],
            dictionary_page_offset=start if start != numbers[_DATA_PAGE] else None,
            dictionary_coded=fields.dictionary_coded,
            only_dictionary=bool(fields.dictionary_coded) and fields.otherwise_coded == 0,
            null_count=null_count,
            bounds=bounds,
            # Without a known order, bounds of pages mean nothing, too.
            column_index=self._index(numbers[_NUMBERS + _COLUMN_INDEX], numbers[_NUMBERS + _COLUMN_INDEX_LENGTH])
            if self.ordered and not self.created_by.startswith(_CUTS_LARGEST)
            else None,
            offset_index=self._index(numbers[_NUMBERS + _OFFSET_INDEX], numbers[_NUMBERS + _OFFSET_INDEX_LENGTH]),
        )

    def _index(self, offset: int, length: int) -> ByteRange | None:
        """Treat an invalid page index as missing."""
        if offset < _FIRST_BYTE or not 0 < length <= self.data_end - offset:
            return None
        return ByteRange(offset, offset + length)

    def _conclusions(self, column: Column, offset: int, num_values: int) -> tuple[Bounds | None, int | None]:
        """Return bounds and number of nulls by the statistics at an offset; None for both if they contradict."""
        texts, null_count, cut = _read_statistics(Reader(self.data, offset))
        if null_count is not None:
            # Writers have counted nulls once for each page, or more than there are values. Nothing follows from that.
            most = num_values if column.optional or not column.flat else 0
            if not 0 <= null_count <= most or (null_count == num_values and texts.count(None) < len(texts)):
                return None, None
        order = Order.UNSIGNED
        low, high = texts[_MIN_VALUE], texts[_MAX_VALUE]
        if low is None or high is None or not self.ordered:
            low, high = texts[_DEPRECATED_MIN], texts[_DEPRECATED_MAX]
            if column.physical_type == "BYTE_ARRAY":
                order = Order.SIGNED
                if not _TRUSTWORTHY_DEPRECATED.match(self.created_by):
                    return None, null_count
        if low is None or high is None:
            return None, null_count
        bounds = Bounds(low, high, order, cut=cut)
        ascend = _ascend(column.physical_type, bounds)
        if ascend is None:
            return None, null_count
        return (bounds, null_count) if ascend else (None, None)


@lru_cache(16)
def _leaves_out_headers(created_by: bytes) -> bool:
    """Return whether sizes of column chunks do not include the header of the dictionary page (PARQUET-816)."""
    if not created_by.startswith(b"parquet-mr"):
        return False
    version = _PARQUET_MR.match(created_by)
    return version is None or tuple(map(int, version.groups())) < (1, 2, 9)


def _read_statistics(reader: Reader) -> tuple[list[bytes | None], int | None, bool]:
    """Decode a ``Statistics`` struct that was skipped before, and so is valid.

    Returns:
        Texts by field number, the number of nulls, and whether the writer stated that it shortened bounds.
    """
    numbers = [_MISSING] * (_NULL_COUNT + 1)
    texts: list[bytes | None] = [None] * (_MIN_VALUE + 1)
    cut = False
    field = 0
    while reader.next_other_field(field, numbers):
        field, kind = reader.number, reader.kind
        if kind == BINARY and 0 < field <= _MIN_VALUE:
            texts[field] = reader.binary()
        else:
            cut |= field in _IS_EXACT and kind == BOOLEAN_FALSE
            reader.skip(kind)
    nulls = numbers[_NULL_COUNT]
    return texts, None if nulls == _MISSING else nulls, cut


class LazyChunks(Mapping[str, ColumnChunk]):
    """The column chunks of a row group, each made at first use."""

    def __init__(self, places: Mapping[str, Any], make: Callable[[str, Any], ColumnChunk]) -> None:
        """``make`` is called with a name and its value in ``places``."""
        self._places = places
        self._make = make
        self._chunks: dict[str, ColumnChunk] = {}

    def __getitem__(self, name: str) -> ColumnChunk:
        if (chunk := self._chunks.get(name)) is None:
            chunk = self._chunks[name] = self._make(name, self._places[name])
        return chunk

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places


def _ascend(physical_type: str, bounds: Bounds) -> bool | None:
    """Return whether bounds ascend; None if their order is not known here."""
    if physical_type == "BYTE_ARRAY":
        try:
            bounds.min.decode()
            bounds.max.decode()
        except UnicodeDecodeError:
            return None
        # Only ASCII has the same order signed and unsigned; keys are ASCII in practice.
        if bounds.order is Order.SIGNED and not (bounds.min.isascii() and bounds.max.isascii()):
            return None
        return bounds.min <= bounds.max
    low, high = number(physical_type, bounds.min), number(physical_type, bounds.max)
    return None if low is None or high is None else low <= high


def number(physical_type: str, plain: bytes) -> int | None:
    """Decode a plain INT32 or INT64; None for anything else."""
    width = {"INT32": 4, "INT64": 8}.get(physical_type)
    return int.from_bytes(plain, "little", signed=True) if width == len(plain) else None


def decode_chunks(
    data: bytes, file_size: int, *, offset: int, columns: Mapping[str, Column], created_by: str, ordered: bool
) -> LazyChunks:
    """Decode the column chunks of one row group of a footer, without length and magic, that was checked before.

    ``offset`` is that of ``RowGroup``; ``columns`` and ``ordered`` are those of ``Footer``.

    Raises:
        BadFooter: if another footer was decoded.
    """
    reader = Reader(data, offset)
    field = 0
    try:
        while reader.next_field(field):
            field = reader.number
            if field == _COLUMNS and reader.kind == LIST:
                offsets: list[int] = []
                for _ in range(reader.structs()):
                    offsets.append(reader.position)
                    reader.skip(STRUCT, 3)
                context = ChunkContext(data, file_size - TRAILER - len(data), columns, created_by.encode(), ordered)
                return LazyChunks(dict(zip(columns, offsets, strict=True)), context.chunk)
            reader.skip(reader.kind, 2)
    except (ThriftError, ValueError, IndexError) as error:
        raise BadFooter(f"the row group at byte {offset} of the footer cannot be decoded: {error}") from error
    raise BadFooter(f"the row group at byte {offset} of the footer has no columns")
