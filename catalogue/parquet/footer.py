"""Decode a Parquet footer, checked against itself and the size of the file.

A file ends with the thrift struct ``FileMetaData``, its length in 4 bytes, little-endian, and ``PAR1``
(apache/parquet-format, README and parquet.thrift). Fields have the format's names. Decoding is bounded in depth,
containers and values, since footers come from outside; pyarrow can abort on such footers, so it never gets one.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from catalogue.errors import BadFooter, Encrypted, NotParquet
from catalogue.parquet.model import (
    DATA_PAGES,
    DICTIONARY_ENCODINGS,
    PHYSICAL_TYPES,
    Bounds,
    Column,
    ColumnChunk,
    Footer,
    Order,
    RowGroup,
    number,
)
from catalogue.parquet.thrift import LIST, STRUCT, Reader, Struct, ThriftError
from catalogue.source.byte_ranges import ByteRange

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TRAILER = 8
"""Bytes after the footer: its length and the magic."""
MAX_FOOTER = 4 << 20
"""Bytes; Common Crawl's footers have 10 to 100 kB, and 15 MB can claim gigabytes of memory."""

MAX_ROWS = 1 << 25
"""Of a row group. Writers use about a million; row numbers take 15 bytes each, and claiming rows is free."""

_DEEPEST_COLUMN = 16
_LONGEST_NAME = 1000
"""Bytes; each column repeats the names of its groups, so a few megabytes could claim gigabytes."""

_REPEATED = 2
_TRUSTWORTHY_DEPRECATED = re.compile(rb"parquet-mr version 1\.(?:[89]|[1-9][0-9])\.")
"""Earlier parquet-mr wrote wrong bounds for binary columns (PARQUET-251)."""


def footer_length(tail: bytes, *, limit: int = MAX_FOOTER) -> int:
    """Return the footer's length in bytes from the file's last 8 bytes or more.

    Raises:
        NotParquet: if the file does not end like a Parquet file.
        Encrypted: if the footer is encrypted.
        BadFooter: if the length is zero or over ``limit``.
    """
    magic = tail[-4:]
    if magic == ENCRYPTED_MAGIC:
        message = "the footer is encrypted"
        raise Encrypted(message)
    if magic != MAGIC or len(tail) < TRAILER:
        message = f"not a Parquet file: it ends with {magic!r}"
        raise NotParquet(message)
    length = int.from_bytes(tail[-TRAILER:-4], "little")
    if not 0 < length <= limit:
        message = f"the footer claims {length:,} bytes; at most {limit:,} are accepted"
        raise BadFooter(message)
    return length


def with_trailer(footer: bytes) -> bytes:
    """Return a footer with its length and the magic."""
    return footer + len(footer).to_bytes(TRAILER - len(MAGIC), "little") + MAGIC


def decode_footer(data: bytes, file_size: int) -> Footer:
    """Decode and check a footer.

    Args:
        data: the footer without length and magic.
        file_size: bytes of the file; every column chunk must be inside.

    Raises:
        BadFooter: if it is invalid.
        Encrypted: if columns are encrypted.
    """
    return _decoded(lambda: _Decoder(data, file_size).footer())


def decode_row_groups(data: bytes, file_size: int, offsets: Mapping[int, int], rest: int) -> Footer:
    """Decode some row groups of a footer that was decoded before, in a fraction of the time.

    Args:
        data: the footer without length and magic.
        file_size: bytes of the file.
        offsets: of these row groups, by ordinal; see ``RowGroup.offset``.
        rest: see ``Footer.rest``.

    Raises:
        BadFooter: if it is invalid.
        Encrypted: if columns are encrypted.
    """
    return _decoded(lambda: _Decoder(data, file_size).some_of_footer(offsets, rest))


def _decoded(decode: Callable[[], Footer]) -> Footer:
    try:
        return decode()
    except (ThriftError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, BadFooter | Encrypted):
            raise
        message = f"the footer cannot be decoded: {type(error).__name__}: {error}"
        raise BadFooter(message) from error


class _Decoder:
    """The state for decoding one footer."""

    def __init__(self, data: bytes, file_size: int) -> None:
        self.data = data
        self.data_end = file_size - TRAILER - len(data)
        self.columns: dict[str, Column] = {}
        self.created_by = b""
        self.ordered = False

    def footer(self) -> Footer:
        reader = self._reader()
        top: Struct = {}
        offsets: list[int] = []
        rest: int | None = None
        for field, kind in reader.fields():
            if field == 2 and kind == LIST:  # noqa: PLR2004 - FileMetaData.schema: its elements are wanted as bytes too
                self.columns = self._schema(reader)
            elif field == 4 and kind == LIST:  # noqa: PLR2004 - FileMetaData.row_groups: and where these stand
                of, count = reader.list_header()
                if of != STRUCT:
                    message = "the list of row groups is invalid"
                    raise BadFooter(message)
                top[field] = []
                for _ in range(count):
                    offsets.append(reader.position)
                    top[field].append(reader.struct(2))
                rest = reader.position if self.columns and 3 in top else None  # noqa: PLR2004 - FileMetaData.num_rows
            else:
                top[field] = reader.field(kind, 1)
        # pyarrow gives row groups without rows chunks that lie nowhere; nothing is lost with them.
        filled = [(ordinal, group) for ordinal, group in enumerate(top[4]) if _integer(group[3])]
        self._about_all(top)
        groups = tuple(self._row_group(ordinal, group, offsets[ordinal]) for ordinal, group in filled)
        num_rows = _integer(top[3])
        if num_rows != sum(group.num_rows for group in groups):
            message = "the row groups' rows do not add up"
            raise BadFooter(message)
        return self._footer(num_rows, groups, rest)

    def some_of_footer(self, offsets: Mapping[int, int], rest: int) -> Footer:
        reader = self._reader()
        top: Struct = {}
        for field, kind in reader.fields():
            if field == 4:  # noqa: PLR2004 - FileMetaData.row_groups
                break
            if field == 2:  # noqa: PLR2004
                self.columns = self._schema(reader)
            else:
                top[field] = reader.field(kind, 1)
        reader = Reader(self.data, rest)
        for field, kind in reader.fields(after=4):
            top[field] = reader.field(kind, 1)
        self._about_all(top)
        groups = tuple(
            self._row_group(ordinal, Reader(self.data, offset).struct(2), offset)
            for ordinal, offset in sorted(offsets.items())
        )
        return self._footer(_integer(top[3]), groups, rest)

    def _reader(self) -> Reader:
        if self.data_end < len(MAGIC):
            message = f"a footer of {len(self.data):,} bytes does not fit into the file"
            raise BadFooter(message)
        return Reader(self.data)

    def _about_all(self, top: Struct) -> None:
        if 8 in top:  # noqa: PLR2004 - FileMetaData.encryption_algorithm
            message = "columns are encrypted"
            raise Encrypted(message)
        self.created_by = top.get(6, b"")
        # Without column_orders, parquet.thrift leaves undefined what min_value and max_value mean.
        self.ordered = 7 in top  # noqa: PLR2004 - FileMetaData.column_orders

    def _footer(self, num_rows: int, groups: tuple[RowGroup, ...], rest: int | None) -> Footer:
        self._check_extents(groups)
        return Footer(num_rows, self.created_by.decode("utf-8", "replace"), self.columns, groups, rest)

    def _schema(self, reader: Reader) -> dict[str, Column]:
        kind, count = reader.list_header()
        if kind != STRUCT or not count:
            message = "the schema is not a tree"
            raise BadFooter(message)
        elements: list[tuple[Struct, bytes]] = []
        for _ in range(count):
            start = reader.position
            element = reader.struct(1)
            elements.append((element, self.data[start : reader.position]))
        columns: dict[str, Column] = {}
        walk = iter(elements)
        root, _ = next(walk)
        for column in _leaves(walk, root[5], (), flat=True):
            if column.name in columns:
                message = f"two columns are named {column.name!r}"
                raise BadFooter(message)
            columns[column.name] = column
        if not columns or next(walk, None) is not None:
            message = "the schema is not a tree"
            raise BadFooter(message)
        return columns

    def _row_group(self, ordinal: int, group: Struct, offset: int) -> RowGroup:
        num_rows = _integer(group[3])
        if not 0 <= num_rows <= MAX_ROWS or len(group[1]) != len(self.columns):
            message = f"row group {ordinal} has {num_rows:,} rows and {len(group[1])} of {len(self.columns)} columns"
            raise BadFooter(message)
        chunks = {
            column.name: self._chunk(column, chunk, num_rows)
            for column, chunk in zip(self.columns.values(), group[1], strict=True)
        }
        return RowGroup(ordinal, num_rows, _integer(group[2]), chunks, offset)

    def _chunk(self, column: Column, chunk: Struct, num_rows: int) -> ColumnChunk:
        if 8 in chunk or 9 in chunk:  # noqa: PLR2004 - ColumnChunk.crypto_metadata, .encrypted_column_metadata
            message = f"column {column.name} is encrypted"
            raise Encrypted(message)
        meta = chunk[3]
        path = b".".join(meta[3])
        if path != column.name.encode() or _physical_type(meta[1]) != column.physical_type or chunk.get(1):
            message = f"a column chunk of {path[:100]!r} stands where one of {column.name!r} should"
            raise BadFooter(message)
        num_values = _integer(meta[5])
        if column.flat and num_values != num_rows:
            message = f"column {column.name} has {num_values} values in {num_rows} rows"
            raise BadFooter(message)
        data_page, dictionary_page = _integer(meta[9]), _integer(meta.get(11, 0))
        # Writers before parquet-mr 1.13 leave the dictionary's offset out, or 0, and let data_page_offset point to it.
        has_dictionary = 0 != dictionary_page < data_page
        start = dictionary_page if has_dictionary else data_page
        statistics = meta.get(12, {})
        return ColumnChunk(
            column=column,
            range=self._extent(start, _integer(meta[7]), f"column {column.name}"),
            codec=_integer(meta[4]),
            encodings=tuple(map(_integer, meta[2])),
            num_values=num_values,
            total_uncompressed_size=_integer(meta[6]),
            data_page_offset=data_page,
            dictionary_page_offset=dictionary_page if has_dictionary else None,
            dictionary_coded=_dictionary_coded(meta.get(13)),
            null_count=_null_count(statistics, num_values),
            bounds=self._bounds(column, statistics),
            column_index=self._index(chunk.get(6), chunk.get(7)),
            offset_index=self._index(chunk.get(4), chunk.get(5)),
        )

    def _extent(self, start: int, length: int, what: str) -> ByteRange:
        if start < len(MAGIC) or length < 1 or start + length > self.data_end:
            message = f"{what} claims {length} bytes at {start} of a file whose data end at {self.data_end}"
            raise BadFooter(message)
        return ByteRange(start, start + length)

    def _index(self, offset: int | None, length: int | None) -> ByteRange | None:
        """Return where a page index is; an invalid one counts as missing, since it is only a shortcut."""
        if offset is None or length is None or not (len(MAGIC) <= offset and 0 < length <= self.data_end - offset):
            return None
        return ByteRange(offset, offset + length)

    def _bounds(self, column: Column, statistics: Struct) -> Bounds | None:
        low, high, order = statistics.get(6), statistics.get(5), Order.UNSIGNED
        if low is None or high is None or not self.ordered:
            low, high = statistics.get(2), statistics.get(1)
            if column.physical_type == "BYTE_ARRAY":
                order = Order.SIGNED
                if not _TRUSTWORTHY_DEPRECATED.match(self.created_by):
                    return None
        if not isinstance(low, bytes) or not isinstance(high, bytes):
            return None
        # Statistics.is_max_value_exact and .is_min_value_exact
        bounds = Bounds(low, high, order, cut=statistics.get(7) is False or statistics.get(8) is False)
        return bounds if _plausible(column.physical_type, bounds) else None

    def _check_extents(self, groups: tuple[RowGroup, ...]) -> None:
        end = 0
        for extent in sorted(chunk.range for group in groups for chunk in group.chunks.values()):
            if extent.start < end:
                message = f"two column chunks overlap at byte {extent.start}"
                raise BadFooter(message)
            end = extent.end


def _leaves(
    walk: Iterator[tuple[Struct, bytes]], children: int, path: tuple[str, ...], *, flat: bool
) -> Iterator[Column]:
    """Yield the leaves of the schema, depth first, as parquet.thrift flattens the tree."""
    for _ in range(children):
        element, raw = next(walk, ({}, b""))
        name = (*path, element[4].decode())
        if len(name) > _DEEPEST_COLUMN or sum(map(len, name)) > _LONGEST_NAME:
            message = f"a column's name is too long: {'.'.join(name)[:100]}"
            raise BadFooter(message)
        repetition = element.get(3, 0)
        timestamp = element.get(10, {}).get(8, {})
        if element.get(5):
            yield from _leaves(walk, element[5], name, flat=False)
        else:
            yield Column(
                name=".".join(name),
                physical_type=_physical_type(element[1]),
                optional=repetition == 1,
                flat=flat and repetition != _REPEATED,
                element=raw,
                converted_type=_known(element.get(6)),
                timestamp_unit=_known(next(iter(timestamp.get(2, {})), None)),
                utc=bool(timestamp.get(1, False)),
            )


def _dictionary_coded(encoding_stats: list[Struct] | None) -> int | None:
    """Return the number of data pages with dictionary indices. Writers that give up a dictionary never return to it."""
    if encoding_stats is None:
        return None
    coded = (s for s in encoding_stats if s[1] in DATA_PAGES and s[2] in DICTIONARY_ENCODINGS)
    return sum(_integer(stats[3]) for stats in coded)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{type(value).__name__} instead of a number"
        raise TypeError(message)
    return value


def _known(value: object) -> int | None:
    """Return a number if it is one; like pyarrow, treat anything else as missing."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _physical_type(number: int) -> str:
    if number < 0:  # which would count from the end
        raise IndexError(number)
    return PHYSICAL_TYPES[number]


def _null_count(statistics: Struct, num_values: int) -> int | None:
    count = _known(statistics.get(3))
    return count if count is not None and 0 <= count <= num_values else None


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
