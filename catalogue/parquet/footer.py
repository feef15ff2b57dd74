"""Decode a Parquet footer, checked against itself and the size of the file.

A file ends with the thrift struct ``FileMetaData``, its length in 4 bytes, little-endian, and ``PAR1``
(apache/parquet-format, README and parquet.thrift). pyarrow can abort on malicious footers, so it never gets one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.errors import BadFooter, NotParquet
from catalogue.parquet.column_chunk import ChunkContext, ChunkFields, LazyChunks, read_chunk
from catalogue.parquet.model import (
    MAGIC,
    PHYSICAL_TYPES,
    SIGNED,
    TRAILER,
    UNSIGNED,
    Column,
    Footer,
    Order,
    RowGroup,
    codec_name,
    is_stored_as_text,
    kind_of,
)
from catalogue.parquet.thrift import BINARY, LIST, STRUCT, Reader, Struct, ThriftError, typed
from catalogue.settings import limits

ENCRYPTED_MAGIC = b"PARE"
USUAL_TAIL = 128 << 10
"""Bytes at the end of a file that nearly always have the footer."""
_MAX_ELEMENT = 1 << 20
"""Bytes of a ``SchemaElement``, whose unknown fields are decoded, too."""

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

_DEEPEST_COLUMN = 100
_NAMES = 16 << 20
"""Maximum bytes of all names. Columns repeat the names of their groups, so a few megabytes could claim gigabytes."""

_REPEATED = 2


def footer_length(tail: bytes, file_size: int | None = None) -> int:
    """Return the footer's length in bytes from the file's last 8 bytes or more.

    Raises:
        NotParquet: if the file does not end like a Parquet file.
        BadFooter: if the footer is encrypted, or its length is zero, or over that of the file or the limit.
    """
    magic = tail[-4:]
    if magic == ENCRYPTED_MAGIC:
        raise BadFooter("the footer is encrypted")
    if magic != MAGIC or len(tail) < TRAILER:
        raise NotParquet(f"not a Parquet file: it ends with {magic!r}")
    length = int.from_bytes(tail[-TRAILER:-4], "little")
    if not length:
        raise BadFooter("the footer claims 0 bytes")
    if file_size is not None and length + TRAILER + len(MAGIC) > file_size:
        raise BadFooter(f"the footer claims {length:,} of the file's {file_size:,} bytes")
    if length > limits().max_footer:
        raise BadFooter(limits().exceeded("max_footer", f"the footer claims {length:,} bytes"))
    return length


def decode_footer(data: bytes, file_size: int) -> Footer:
    """Decode and check a footer, without length and magic; all column chunks must be inside the file.

    Raises:
        BadFooter: if it is invalid, or columns are encrypted.
    """
    try:
        return _FooterDecoder(ChunkContext(data, file_size - TRAILER - len(data), {})).footer()
    except (ThriftError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        if isinstance(error, BadFooter):
            raise
        raise BadFooter(f"the footer cannot be decoded: {type(error).__name__}: {error}") from error


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
            raise BadFooter(f"a footer of {len(data):,} bytes does not fit into the file")
        reader = Reader(data, 0, len(data))
        top: Struct = {}
        groups: list[RowGroup] | None = None
        orders: list[bool] = []
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
            elif field == _CREATED_BY and reader.kind == BINARY:
                top[field] = reader.binary()
            elif field == _COLUMN_ORDERS and reader.kind == LIST:
                orders = [*_orders(reader)]
            else:  # its presence is enough to know
                top[field] = None
                reader.skip(reader.kind, 1)
        if not row_groups:
            raise BadFooter("the footer has no list of row groups")
        if groups is None:  # they precede the schema
            groups = self._row_groups(Reader(data, row_groups, len(data)))
        # Without an order, parquet.thrift leaves undefined what bounds mean. Those of other types are not used.
        context.ordered = len(orders) == len(context.columns) and all(
            is_known or column.physical_type not in {"BYTE_ARRAY", "INT32", "INT64"}
            for is_known, column in zip(orders, context.columns.values(), strict=True)
        )
        return self._footer(top, groups)

    def _footer(self, top: Struct, groups: list[RowGroup]) -> Footer:
        if _ENCRYPTION_ALGORITHM in top:
            raise BadFooter("columns are encrypted")
        num_rows = sum(group.num_rows for group in groups)  # some writers state another number for the file
        last = 0
        for start, end in sorted(self.extents):
            if start < last:
                raise BadFooter(f"two column chunks overlap at byte {start}")
            last = end
        context = self.context
        context.created_by = typed(top.get(_CREATED_BY, b""), bytes)
        return Footer(
            num_rows,
            context.created_by.decode("utf-8", "replace"),
            context.columns,
            tuple(group for group in groups if group.num_rows),
            codecs=tuple(codec_name(codec) for codec in self.codecs),
            ordered=context.ordered,
        )

    def _row_groups(self, reader: Reader) -> list[RowGroup]:
        return [self._row_group(reader, ordinal) for ordinal in range(reader.structs())]

    def _row_group(self, reader: Reader, ordinal: int) -> RowGroup:
        offset = reader.position
        num_rows, uncompressed = -1, 0
        chunks: list[ChunkFields] = []
        offsets: list[int] = []
        field = 0
        while reader.next_field(field):
            field = reader.number
            if field == _COLUMNS and reader.kind == LIST:
                chunks, offsets = [], []
                for _ in range(reader.structs()):
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
        if num_rows > limits().max_rows:
            raise BadFooter(limits().exceeded("max_rows", f"row group {ordinal} has {num_rows:,} rows"))
        if num_rows < 1 or len(chunks) != len(columns):
            raise BadFooter(f"row group {ordinal} has {num_rows:,} rows and {len(chunks)} of {len(columns)} columns")
        first = compressed = 0
        for column, chunk in zip(columns.values(), chunks, strict=True):
            start, length = chunk.check(column, num_rows, data_end), chunk.size
            self.extents.append((start, start + length))
            self.codecs[chunk.codec] = None
            first = start if not first or start < first else first
            compressed += length
        return first, compressed


def _orders(reader: Reader) -> Iterator[bool]:
    for _ in range(reader.structs()):
        is_known = False
        field = 0
        while reader.next_field(field):
            field = reader.number
            is_known |= field == _TYPE_DEFINED_ORDER
            reader.skip(reader.kind, 2)
        yield is_known


@lru_cache(maxsize=4)  # files of a crawl have the same one
def _schema(data: bytes) -> Mapping[str, Column]:
    reader = Reader(data, 0, len(data))
    elements: list[tuple[Struct, bytes]] = []
    for _ in range(reader.structs()):
        start = reader.position
        reader.skip(STRUCT, 1)
        raw = data[start : reader.position]
        if len(raw) > _MAX_ELEMENT:
            raise BadFooter(f"an element of the schema takes {len(raw):,} bytes")
        elements.append((Reader(raw).struct(1), raw))
    if not elements:
        raise BadFooter("the schema is not a tree")
    columns: dict[str, Column] = {}
    walk = iter(elements)
    root, _ = next(walk)
    leaves, size = [], 0
    for column in _leaves(walk, root[5], (), flat=True):
        leaves.append(column)
        size += len(column.name)
        if size > _NAMES:
            raise BadFooter(f"the names of its columns take more than {_NAMES:,} bytes")
    flat = {column.name for column in leaves if column.flat}
    for column in leaves:
        name = column.name
        while name in columns or (name in flat and not column.flat):
            if column.flat:
                raise BadFooter(f"two columns are named {column.name!r}")
            name += "#"  # a column s.x next to a struct s with a field x
        columns[name] = column if name == column.name else replace(column, name=name, path=column.name)
    if not columns or next(walk, None) is not None:
        raise BadFooter("the schema is not a tree")
    return columns


def _leaves(
    walk: Iterator[tuple[Struct, bytes]], children: int, path: tuple[str, ...], *, flat: bool
) -> Iterator[Column]:
    """Yield the leaves of the schema, depth first, as parquet.thrift flattens the tree."""
    for _ in range(children):
        element, raw = next(walk, ({}, b""))
        name = (*path, element[4].decode())
        if len(name) > _DEEPEST_COLUMN:
            raise BadFooter(f"a column is below more than {_DEEPEST_COLUMN} groups: {'.'.join(name)[:100]}")
        repetition = element.get(3, 0)
        timestamp = element.get(10, {}).get(8, {})
        if element.get(5):
            yield from _leaves(walk, element[5], name, flat=False)
        elif 5 in element and 1 not in element:  # noqa: PLR2004 - a group without columns
            continue
        elif not 0 <= element.get(1, -1) < len(PHYSICAL_TYPES):
            raise BadFooter(f"the column {'.'.join(name)} has the unknown type {element.get(1)}")
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
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def examine_footer(data: bytes, file_size: int, key: str = KEY_COLUMN) -> Footer:
    """Decode a footer from outside, and check its key column.

    Raises:
        BadFooter: if it is invalid or encrypted, or has no key column of texts.
    """
    footer = decode_footer(data, file_size)
    if (column := footer.columns.get(key)) is None:
        raise BadFooter(f"has no column {key} to find rows by, but {', '.join(footer.columns)}")
    # Not all files of Common Crawl declare that keys are text.
    if not is_stored_as_text(column) and (key, kind_of(column)) != (KEY_COLUMN, "binary"):
        kind = kind_of(column) if kind_of(column) != "string" else column.physical_type.lower()
        raise BadFooter(f"the column {key} holds {kind} and not text, which keys must be")
    return footer


def key_bounds(group: RowGroup, key: str = KEY_COLUMN) -> tuple[str | None, str | None, str]:
    """Return the least and greatest key of a row group by its footer, and ``footer``, ``SIGNED`` or ``missing``."""
    chunk = group.chunks.get(key)
    bounds = chunk.bounds if chunk else None
    if bounds is None:
        return None, None, "missing"
    return bounds.min.decode(), bounds.max.decode(), SIGNED if bounds.order is Order.SIGNED else UNSIGNED


def has_page_index(footer: Footer, key: str = KEY_COLUMN) -> bool:
    keys = [group.chunks.get(key) for group in footer.row_groups]
    return bool(keys) and all(each and each.column_index and each.offset_index for each in keys)
