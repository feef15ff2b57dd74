"""Decode a Parquet footer, checked against itself and the size of the file.

A file ends with the thrift struct ``FileMetaData``, its length in 4 bytes, little-endian, and ``PAR1``
(apache/parquet-format, README and parquet.thrift). pyarrow can abort on malicious footers, so it never gets one.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from catalogue.errors import BadFooter, Encrypted, NotParquet
from catalogue.parquet.column_chunk import ChunkContext, ChunkFields, LazyChunks, read_chunk
from catalogue.parquet.model import PHYSICAL_TYPES, Column, Footer, RowGroup, codec_name
from catalogue.parquet.thrift import LIST, STRUCT, Reader, Struct, ThriftError, typed

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TRAILER = 8
"""Bytes of the length and the magic after the footer."""
MAX_FOOTER = 4 << 20
"""Common Crawl's footers have 10 to 100 kB; 15 MB can claim gigabytes of memory."""

MAX_ROWS = 1 << 25
"""Writers use about a million; row numbers take 15 bytes each."""

# Fields of FileMetaData
_SCHEMA: Final = 2
_NUM_ROWS: Final = 3
_ROW_GROUPS: Final = 4
_CREATED_BY: Final = 6
_COLUMN_ORDERS: Final = 7
_ENCRYPTION_ALGORITHM: Final = 8

# Fields of RowGroup, besides _NUM_ROWS
_COLUMNS: Final = 1
_TOTAL_BYTE_SIZE: Final = 2

_DEEPEST_COLUMN = 16
_LONGEST_NAME = 1000
"""Columns repeat the names of their groups, so a few megabytes could claim gigabytes."""

_REPEATED = 2


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
    return footer + len(footer).to_bytes(TRAILER - len(MAGIC), "little") + MAGIC


def decode_footer(data: bytes, file_size: int) -> Footer:
    """Decode and check a footer, without length and magic; all column chunks must be inside the file.

    Raises:
        BadFooter: if it is invalid.
        Encrypted: if columns are encrypted.
    """
    try:
        return _FooterDecoder(data, file_size).footer()
    except (ThriftError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        if isinstance(error, BadFooter | Encrypted):
            raise
        message = f"the footer cannot be decoded: {type(error).__name__}: {error}"
        raise BadFooter(message) from error


def decode_chunks(
    data: bytes, file_size: int, *, offset: int, columns: Mapping[str, Column], created_by: str, ordered: bool
) -> LazyChunks:
    """Decode the column chunks of one row group of a footer that was checked before.

    Args:
        data: the footer without length and magic.
        file_size: bytes of the file.
        offset: see ``RowGroup``.
        columns: see ``Footer``.
        created_by: the writer of the file.
        ordered: see ``Footer``.

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
                for _ in range(reader.list_header()[1]):
                    offsets.append(reader.position)
                    read_chunk(reader)
                data_end = file_size - TRAILER - len(data)
                context = ChunkContext(data, data_end, columns, created_by.encode(), ordered=ordered)
                return LazyChunks(dict(zip(columns, offsets, strict=True)), context.chunk)
            reader.skip(reader.kind, 2)
    except (ThriftError, ValueError, IndexError) as error:
        message = f"the row group at byte {offset} of the footer cannot be decoded: {error}"
        raise BadFooter(message) from error
    message = f"the row group at byte {offset} of the footer has no columns"
    raise BadFooter(message)


class _RowGroup:
    """A row group without what only the end of the footer states."""

    __slots__ = ("chunks", "compressed", "num_rows", "offset", "ordinal", "start", "uncompressed")

    def __init__(self, ordinal: int, offset: int) -> None:
        self.ordinal = ordinal
        self.offset = offset
        self.num_rows = -1
        self.uncompressed = 0
        self.compressed = 0
        self.start = 0
        self.chunks: dict[str, int] = {}
        """Offsets in the footer by column."""


class _FooterDecoder:
    def __init__(self, data: bytes, file_size: int) -> None:
        self.data = data
        self.data_end = file_size - TRAILER - len(data)
        self.columns: Mapping[str, Column] = {}
        self.top: Struct = {}
        """Fields of ``FileMetaData``; None where presence is enough."""
        self.extents: list[tuple[int, int]] = []
        """Start and end of each column chunk."""
        self.codecs: dict[int, None] = {}
        """Codecs of column chunks, in the order of their first use."""

    def footer(self) -> Footer:
        reader = self._reader()
        groups: list[_RowGroup] = []
        row_groups = field = 0
        decoded = False
        while reader.next_field(field):
            field = reader.number
            if field == _ROW_GROUPS and reader.kind == LIST:
                row_groups = reader.position
                if self.columns and _NUM_ROWS in self.top:
                    groups = self._row_groups(reader)
                    decoded = True
                else:
                    reader.skip(LIST, 1)
            else:
                self._read_field(reader)
        if not row_groups:
            message = "the footer has no list of row groups"
            raise BadFooter(message)
        if not decoded:  # they precede the schema
            groups = self._row_groups(Reader(self.data, row_groups))
        return self._footer(groups)

    def _read_field(self, reader: Reader) -> None:
        if reader.number == _SCHEMA and reader.kind == LIST:
            start = reader.position
            reader.skip(LIST, 1)
            self.columns = _schema(self.data[start : reader.position])
        elif reader.number in (_NUM_ROWS, _CREATED_BY):
            self.top[reader.number] = reader.field(reader.kind, 1)
        else:
            self.top[reader.number] = None
            reader.skip(reader.kind, 1)

    def _reader(self) -> Reader:
        if self.data_end < len(MAGIC):
            message = f"a footer of {len(self.data):,} bytes does not fit into the file"
            raise BadFooter(message)
        return Reader(self.data)

    def _footer(self, groups: list[_RowGroup]) -> Footer:
        if _ENCRYPTION_ALGORITHM in self.top:
            message = "columns are encrypted"
            raise Encrypted(message)
        num_rows = typed(self.top[_NUM_ROWS], int)
        if num_rows != sum(group.num_rows for group in groups):
            message = "the row groups' rows do not add up"
            raise BadFooter(message)
        self._check_extents()
        created_by = typed(self.top.get(_CREATED_BY, b""), bytes)
        # Without column_orders, parquet.thrift leaves undefined what min_value and max_value mean.
        ordered = _COLUMN_ORDERS in self.top
        context = ChunkContext(self.data, self.data_end, self.columns, created_by, ordered=ordered)
        return Footer(
            num_rows,
            created_by.decode("utf-8", "replace"),
            self.columns,
            tuple(
                RowGroup(
                    ordinal=group.ordinal,
                    num_rows=group.num_rows,
                    total_byte_size=group.uncompressed,
                    total_compressed_size=group.compressed,
                    start=group.start,
                    offset=group.offset,
                    chunks=LazyChunks(group.chunks, context.chunk),
                )
                for group in groups
                if group.num_rows
            ),
            codecs=tuple(codec_name(codec) for codec in self.codecs),
            ordered=ordered,
        )

    def _row_groups(self, reader: Reader) -> list[_RowGroup]:
        kind, count = reader.list_header()
        if kind != STRUCT:
            message = "the list of row groups is invalid"
            raise BadFooter(message)
        return [self._row_group(reader, ordinal) for ordinal in range(count)]

    def _row_group(self, reader: Reader, ordinal: int) -> _RowGroup:
        group = _RowGroup(ordinal, reader.position)
        chunks: list[ChunkFields] = []
        offsets: list[int] = []
        field = 0
        while reader.next_field(field):
            field = reader.number
            if field == _COLUMNS and reader.kind == LIST:
                kind, count = reader.list_header()
                if kind != STRUCT:
                    message = f"the list of columns of row group {ordinal} is invalid"
                    raise BadFooter(message)
                chunks, offsets = [], []
                for _ in range(count):
                    offsets.append(reader.position)
                    chunks.append(read_chunk(reader))
            elif field == _TOTAL_BYTE_SIZE:
                group.uncompressed = reader.integer()
            elif field == _NUM_ROWS:
                group.num_rows = reader.integer()
            else:
                reader.skip(reader.kind, 2)
        if group.num_rows:  # pyarrow writes chunks without a place for empty row groups
            self._check_row_group(group, chunks)
            group.chunks = dict(zip(self.columns, offsets, strict=True))
        return group

    def _check_row_group(self, group: _RowGroup, chunks: list[ChunkFields]) -> None:
        if not 0 < group.num_rows <= MAX_ROWS or len(chunks) != len(self.columns):
            rows = f"{group.num_rows:,} rows and {len(chunks)} of {len(self.columns)} columns"
            message = f"row group {group.ordinal} has {rows}"
            raise BadFooter(message)
        for column, chunk in zip(self.columns.values(), chunks, strict=True):
            start, length = chunk.check(column, group.num_rows, self.data_end), chunk.size
            self.extents.append((start, start + length))
            self.codecs[chunk.codec] = None
            group.start = start if not group.start or start < group.start else group.start
            group.compressed += length

    def _check_extents(self) -> None:
        last = 0
        for start, end in sorted(self.extents):
            if start < last:
                message = f"two column chunks overlap at byte {start}"
                raise BadFooter(message)
            last = end


@lru_cache(maxsize=4)  # files of a crawl have the same one
def _schema(data: bytes) -> Mapping[str, Column]:
    reader = Reader(data)
    kind, count = reader.list_header()
    if kind != STRUCT or not count:
        message = "the schema is not a tree"
        raise BadFooter(message)
    elements: list[tuple[Struct, bytes]] = []
    for _ in range(count):
        start = reader.position
        element = reader.struct(1)
        elements.append((element, data[start : reader.position]))
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


def _known(value: object) -> int | None:
    """Treat anything but a number as missing, like pyarrow."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _physical_type(number: int) -> str:
    if number < 0:  # an index from the end
        raise IndexError(number)
    return PHYSICAL_TYPES[number]
