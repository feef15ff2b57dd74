"""Decode a Parquet footer, checked against itself and the size of the file.

A file ends with the thrift struct ``FileMetaData``, its length in 4 bytes, little-endian, and ``PAR1``
(apache/parquet-format, README and parquet.thrift). pyarrow can abort on malicious footers, so it never gets one.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from catalogue.commoncrawl.columns import KEY_COLUMN
from catalogue.errors import BadFooter, Encrypted, NotParquet
from catalogue.parquet.column_chunk import ChunkContext, ChunkFields, LazyChunks, read_chunk
from catalogue.parquet.column_types import kind_of
from catalogue.parquet.model import PHYSICAL_TYPES, Column, Footer, Order, RowGroup, codec_name
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

# Field of ColumnOrder
_TYPE_DEFINED_ORDER: Final = 1

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
        return _FooterDecoder(ChunkContext(data, file_size - TRAILER - len(data))).footer()
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
                context = ChunkContext(data, file_size - TRAILER - len(data))
                context.columns, context.created_by, context.ordered = columns, created_by.encode(), ordered
                return LazyChunks(dict(zip(columns, offsets, strict=True)), context.chunk)
            reader.skip(reader.kind, 2)
    except (ThriftError, ValueError, IndexError) as error:
        message = f"the row group at byte {offset} of the footer cannot be decoded: {error}"
        raise BadFooter(message) from error
    message = f"the row group at byte {offset} of the footer has no columns"
    raise BadFooter(message)


class _FooterDecoder:
    def __init__(self, context: ChunkContext) -> None:
        self.context = context
        self.extents: list[tuple[int, int]] = []
        """Start and end of each column chunk."""
        self.codecs: dict[int, None] = {}
        """Codecs of column chunks, in the order of their first use."""

    def footer(self) -> Footer:
        data, context = self.context.data, self.context
        if context.data_end < len(MAGIC):
            message = f"a footer of {len(data):,} bytes does not fit into the file"
            raise BadFooter(message)
        reader = Reader(data)
        top: Struct = {}
        groups: list[RowGroup] | None = None
        row_groups = field = 0
        while reader.next_field(field):
            field = reader.number
            if field == _ROW_GROUPS and reader.kind == LIST:
                row_groups = reader.position
                if context.columns:
                    groups = self._row_groups(reader)
                else:
                    reader.skip(LIST, 1)
            elif field == _SCHEMA and reader.kind == LIST:
                start = reader.position
                reader.skip(LIST, 1)
                context.columns = _schema(data[start : reader.position])
            elif field in (_NUM_ROWS, _CREATED_BY, _COLUMN_ORDERS):
                top[field] = reader.field(reader.kind, 1)
            else:  # its presence is enough to know
                top[field] = None
                reader.skip(reader.kind, 1)
        if not row_groups:
            message = "the footer has no list of row groups"
            raise BadFooter(message)
        if groups is None:  # they precede the schema
            groups = self._row_groups(Reader(data, row_groups))
        return self._footer(top, groups)

    def _footer(self, top: Struct, groups: list[RowGroup]) -> Footer:
        if _ENCRYPTION_ALGORITHM in top:
            message = "columns are encrypted"
            raise Encrypted(message)
        num_rows = typed(top[_NUM_ROWS], int)
        if num_rows != sum(group.num_rows for group in groups):
            message = "the row groups' rows do not add up"
            raise BadFooter(message)
        last = 0
        for start, end in sorted(self.extents):
            if start < last:
                message = f"two column chunks overlap at byte {start}"
                raise BadFooter(message)
            last = end
        context = self.context
        context.created_by = typed(top.get(_CREATED_BY, b""), bytes)
        context.ordered = _are_ordered(top.get(_COLUMN_ORDERS), context.columns)
        return Footer(
            num_rows,
            context.created_by.decode("utf-8", "replace"),
            context.columns,
            tuple(group for group in groups if group.num_rows),
            codecs=tuple(codec_name(codec) for codec in self.codecs),
            ordered=context.ordered,
        )

    def _row_groups(self, reader: Reader) -> list[RowGroup]:
        kind, count = reader.list_header()
        if kind != STRUCT:
            message = "the list of row groups is invalid"
            raise BadFooter(message)
        return [self._row_group(reader, ordinal) for ordinal in range(count)]

    def _row_group(self, reader: Reader, ordinal: int) -> RowGroup:
        offset = reader.position
        num_rows, uncompressed = -1, 0
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
                uncompressed = reader.integer()
            elif field == _NUM_ROWS:
                num_rows = reader.integer()
            else:
                reader.skip(reader.kind, 2)
        # pyarrow writes chunks without a place for empty row groups.
        start, compressed = self._check_chunks(chunks, ordinal, num_rows) if num_rows else (0, 0)
        places = dict(zip(self.context.columns, offsets, strict=True)) if num_rows else {}
        lazy = LazyChunks(places, self.context.chunk)
        return RowGroup(ordinal, num_rows, uncompressed, compressed, start, lazy, offset)

    def _check_chunks(self, chunks: list[ChunkFields], ordinal: int, num_rows: int) -> tuple[int, int]:
        """Return the start of a row group and its compressed bytes."""
        columns, data_end = self.context.columns, self.context.data_end
        if not 0 < num_rows <= MAX_ROWS or len(chunks) != len(columns):
            message = f"row group {ordinal} has {num_rows:,} rows and {len(chunks)} of {len(columns)} columns"
            raise BadFooter(message)
        first = compressed = 0
        for column, chunk in zip(columns.values(), chunks, strict=True):
            start, length = chunk.check(column, num_rows, data_end), chunk.size
            self.extents.append((start, start + length))
            self.codecs[chunk.codec] = None
            first = start if not first or start < first else first
            compressed += length
        return first, compressed


def _are_ordered(orders: object, columns: Mapping[str, Column]) -> bool:
    """Return whether column_orders gives each column the order of its type; others leave undefined what bounds mean.

    Floating-point columns may have another order: their bounds are not used.
    """
    return (
        isinstance(orders, list)
        and len(orders) == len(columns)
        and all(
            isinstance(order, dict) and (_TYPE_DEFINED_ORDER in order or column.physical_type in {"FLOAT", "DOUBLE"})
            for order, column in zip(orders, columns.values(), strict=True)
        )
    )


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
        elif element[1] < 0:  # an index from the end
            raise IndexError(element[1])
        else:
            yield Column(
                name=".".join(name),
                physical_type=PHYSICAL_TYPES[element[1]],
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


SIGNED = "footer (signed)"
"""Origin of bounds in the order of signed bytes."""


def examine_footer(data: bytes, file_size: int, key: str = KEY_COLUMN) -> Footer:
    """Decode a footer from outside, and check its key column.

    Raises:
        BadFooter: if it is invalid, or the key column is not text.
        Encrypted: if it or a column is encrypted.
    """
    footer = decode_footer(data, file_size)
    # Not all files of Common Crawl declare that keys are text.
    texts = {"string", "binary"} if key == KEY_COLUMN else {"string"}
    if (column := footer.columns.get(key)) and kind_of(column) not in texts:
        message = f"the column {key} holds {kind_of(column)} and not text, which keys must be"
        raise BadFooter(message)
    return footer


def key_bounds(group: RowGroup, key: str = KEY_COLUMN) -> tuple[str | None, str | None, str]:
    """Return the least and greatest key of a row group by its footer, and ``footer``, ``SIGNED`` or ``missing``."""
    chunk = group.chunks.get(key)
    bounds = chunk.bounds if chunk else None
    if bounds is None:
        return None, None, "missing"
    return bounds.min.decode(), bounds.max.decode(), SIGNED if bounds.order is Order.SIGNED else "footer"


def has_page_index(footer: Footer, key: str = KEY_COLUMN) -> bool:
    """Return whether the key column has a page index in each row group."""
    keys = [group.chunks.get(key) for group in footer.row_groups]
    return bool(keys) and all(each and each.column_index and each.offset_index for each in keys)
