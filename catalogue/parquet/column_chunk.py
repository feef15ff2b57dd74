"""Decode the ``ColumnChunk`` structs of a footer, and check each against its column and the file.

Decoding has two steps: bounds cannot be interpreted before the end of the footer, which states how they were compared.
"""

import re
from typing import Final

from catalogue.errors import BadFooter, Encrypted
from catalogue.parquet.model import (
    DATA_PAGES,
    DICTIONARY_ENCODINGS,
    PHYSICAL_TYPES,
    Bounds,
    Column,
    ColumnChunk,
    Order,
    number,
)
from catalogue.parquet.thrift import I16, I64, LIST, STRUCT, Reader, Struct, typed
from catalogue.source.byte_ranges import ByteRange

_TRUSTWORTHY_DEPRECATED = re.compile(rb"parquet-mr version 1\.(?:[89]|[1-9][0-9])\.")
"""Earlier parquet-mr wrote wrong bounds for binary columns (PARQUET-251)."""

_FIRST_BYTE: Final = 4
"""Offset of the first page at least: after the magic."""
_MISSING: Final = -(1 << 40)
"""Stands for a number that was not written."""
_NUMBERS: Final = 14
"""Fields of either struct are below it."""

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
_REQUIRED: Final = (_TYPE, _CODEC, _NUM_VALUES, _UNCOMPRESSED_SIZE, _COMPRESSED_SIZE, _DATA_PAGE)


class ChunkFields:
    """The fields of a ``ColumnChunk``, as written."""

    def __init__(self) -> None:
        self.numbers = [_MISSING] * _NUMBERS
        """Of the ``ColumnChunk``, by field."""
        self.meta = [_MISSING] * _NUMBERS
        """Numbers of the ``ColumnMetaData``, by field."""
        self.encodings: list[int] = []
        self.path = b""
        self.elsewhere = False
        """Whether it claims to be in another file."""
        self.encrypted = False
        self.statistics = 0
        """Offset of the struct in the footer; 0 without."""
        self.encoding_stats = 0
        """Offset of the list in the footer; 0 without."""

    @property
    def start(self) -> int:
        """Return the offset of the first page."""
        # Writers before parquet-mr 1.13 leave the dictionary's offset out, or 0, and let data_page_offset point to it.
        data_page = self.meta[_DATA_PAGE]
        dictionary_page = self.meta[_DICTIONARY_PAGE]
        return dictionary_page if 0 < dictionary_page < data_page else data_page

    @property
    def codec(self) -> int:
        return self.meta[_CODEC]

    @property
    def size(self) -> int:
        """Return the bytes of all pages, compressed."""
        return self.meta[_COMPRESSED_SIZE]

    def check(self, column: Column, num_rows: int, data_end: int) -> None:
        """Check it against its column and row group, and the end of the file's data.

        Raises:
            BadFooter: if it contradicts them.
            Encrypted: if the column is encrypted.
        """
        name, meta = column.name, self.meta
        if self.encrypted:
            message = f"column {name} is encrypted"
            raise Encrypted(message)
        for field in _REQUIRED:
            if meta[field] == _MISSING:
                message = f"a column chunk of {name} has no number as field {field} of its ColumnMetaData"
                raise BadFooter(message)
        kind = meta[_TYPE]
        same_type = 0 <= kind < len(PHYSICAL_TYPES) and PHYSICAL_TYPES[kind] == column.physical_type
        if not same_type or self.path != name.encode() or self.elsewhere:
            message = f"a column chunk of {self.path[:100]!r} stands where one of {name!r} should"
            raise BadFooter(message)
        if column.flat and meta[_NUM_VALUES] != num_rows:
            message = f"column {name} has {meta[_NUM_VALUES]} values in {num_rows} rows"
            raise BadFooter(message)
        start, size = self.start, self.size
        if start < _FIRST_BYTE or size < 1 or start + size > data_end:
            message = f"column {name} claims {size} bytes at {start} of a file whose data end at {data_end}"
            raise BadFooter(message)


def read_chunk(reader: Reader) -> ChunkFields:
    """Decode the fields of a ``ColumnChunk``.

    Raises:
        ThriftError: if it is invalid.
    """
    fields = ChunkFields()
    field = 0
    while reader.next_field(field):
        field = reader.number
        kind = reader.kind
        if I16 <= kind <= I64:
            value = reader.integer()
            if 0 < field < _NUMBERS:
                fields.numbers[field] = value
        elif field == _META_DATA and kind == STRUCT:
            _read_metadata(reader, fields)
        else:
            fields.elsewhere |= field == _FILE_PATH
            fields.encrypted |= field in _ENCRYPTED
            reader.skip(kind, 4)
    return fields


def _read_metadata(reader: Reader, fields: ChunkFields) -> None:
    field = 0
    while reader.next_field(field):
        field = reader.number
        kind = reader.kind
        if I16 <= kind <= I64:
            value = reader.integer()
            if 0 < field < _NUMBERS:
                fields.meta[field] = value
        elif field == _ENCODINGS and kind == LIST:
            fields.encodings = reader.integers()
        elif field == _PATH and kind == LIST:
            fields.path = reader.joined_texts()
        else:
            if field == _STATISTICS and kind == STRUCT:
                fields.statistics = reader.position
            elif field == _ENCODING_STATS and kind == LIST:
                fields.encoding_stats = reader.position
            reader.skip(kind, 5)


class ChunkContext:
    """What is the same for all column chunks of a footer."""

    def __init__(self, data: bytes, data_end: int, created_by: bytes, *, ordered: bool) -> None:
        self._data = data
        self._data_end = data_end
        self._trusted = _TRUSTWORTHY_DEPRECATED.match(created_by) is not None
        self._ordered = ordered

    def chunk(self, column: Column, fields: ChunkFields) -> ColumnChunk:
        """Interpret the fields of a chunk, which were checked."""
        statistics: Struct = Reader(self._data, fields.statistics).struct(6) if fields.statistics else {}
        meta, numbers, start = fields.meta, fields.numbers, fields.start
        return ColumnChunk(
            column=column,
            range=ByteRange(start, start + fields.size),
            codec=fields.codec,
            encodings=tuple(fields.encodings),
            num_values=meta[_NUM_VALUES],
            total_uncompressed_size=meta[_UNCOMPRESSED_SIZE],
            data_page_offset=meta[_DATA_PAGE],
            dictionary_page_offset=start if start != meta[_DATA_PAGE] else None,
            dictionary_coded=self._dictionary_coded(fields.encoding_stats),
            null_count=_null_count(statistics, meta[_NUM_VALUES]),
            bounds=self._bounds(column, statistics),
            column_index=self._index(numbers[_COLUMN_INDEX], numbers[_COLUMN_INDEX_LENGTH]),
            offset_index=self._index(numbers[_OFFSET_INDEX], numbers[_OFFSET_INDEX_LENGTH]),
        )

    def _dictionary_coded(self, encoding_stats: int) -> int | None:
        """Return the number of data pages with dictionary indices.

        Writers that give up a dictionary never return to it.
        """
        if not encoding_stats:
            return None
        stats = Reader(self._data, encoding_stats).value(LIST, 6)
        coded = (s for s in stats if s[1] in DATA_PAGES and s[2] in DICTIONARY_ENCODINGS)
        return sum(typed(each[3], int) for each in coded)

    def _index(self, offset: int, length: int) -> ByteRange | None:
        """Return where a page index is; an invalid one counts as missing, since it is only a shortcut."""
        if offset < _FIRST_BYTE or not 0 < length <= self._data_end - offset:
            return None
        return ByteRange(offset, offset + length)

    def _bounds(self, column: Column, statistics: Struct) -> Bounds | None:
        low, high, order = statistics.get(6), statistics.get(5), Order.UNSIGNED
        if low is None or high is None or not self._ordered:
            low, high = statistics.get(2), statistics.get(1)
            if column.physical_type == "BYTE_ARRAY":
                order = Order.SIGNED
                if not self._trusted:
                    return None
        if not isinstance(low, bytes) or not isinstance(high, bytes):
            return None
        # Statistics.is_max_value_exact and .is_min_value_exact
        bounds = Bounds(low, high, order, cut=statistics.get(7) is False or statistics.get(8) is False)
        return bounds if _plausible(column.physical_type, bounds) else None


def _null_count(statistics: Struct, num_values: int) -> int | None:
    count = statistics.get(3)
    if isinstance(count, bool) or not isinstance(count, int):  # like pyarrow, treat it as missing
        return None
    return count if 0 <= count <= num_values else None


def _plausible(physical_type: str, bounds: Bounds) -> bool:
    """Return whether bounds are valid; invalid ones count as missing."""
    if physical_type == "BYTE_ARRAY":
        try:
            bounds.min.decode()
            bounds.max.decode()
        except UnicodeDecodeError:
            return False
        # In signed order only ASCII compares as everything else here does, and keys are ASCII in practice.
        if bounds.order is Order.SIGNED and not (bounds.min.isascii() and bounds.max.isascii()):
            return False
        return bounds.min <= bounds.max
    low, high = number(physical_type, bounds.min), number(physical_type, bounds.max)
    return low is not None and high is not None and low <= high
