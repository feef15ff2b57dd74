"""Parquet files with the stored values of a crawl.

They have required columns, PLAIN values and ZSTD pages without dictionaries, so that decoding them here needs no
Parquet library: files from outside can crash one.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.errors import BadSnapshot, FormatError
from catalogue.parquet.footer import TRAILER, decode_footer, footer_length
from catalogue.parquet.model import ColumnChunk, Footer
from catalogue.parquet.thrift import Reader
from catalogue.store.stored_file import StoredFile

KINDS = ("manifest", "footer", "page_index")
NO_ROW_GROUP = -1
_INTEGERS = ("row_group", "file_size")
_TEXTS = ("kind", "path", *_INTEGERS, "etag", "last_modified", "source", "harvested_at")
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64() if name in _INTEGERS else pa.string(), nullable=False) for name in _TEXTS),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
    ]
)
_COLUMNS = [(name, "INT64" if name in _INTEGERS else "BYTE_ARRAY", False, True) for name in SCHEMA.names]

_ROW_GROUP_BYTES, _ROW_GROUP_ROWS = 16 << 20, 10_000
_MAX_BYTES, _MAX_ROWS = 256 << 20, 100_000
"""Of a decompressed row group from outside, which is in memory at once."""
_ZSTD, _LEVEL = 6, 3
_DATA_PAGE = _PLAIN = 0


class Row(NamedTuple):
    """One stored value."""

    kind: str
    path: str
    row_group: int
    stored: StoredFile

    def fields(self) -> tuple[str | int | bytes, ...]:
        """Return the values of the columns."""
        stored, digest = self.stored, hashlib.sha256(self.stored.data).hexdigest()
        about = (stored.size, stored.etag or "", stored.last_modified or "", stored.source, stored.taken)
        return (self.kind, self.path, self.row_group, *about, stored.data, digest)


def write_rows(path: Path, files: Iterable[list[Row]]) -> tuple[str, int]:
    """Write a file; rows of one list stay in one row group.

    Returns:
        A digest of the rows, and the number of footers.
    """
    digest, footers = hashlib.blake2b(digest_size=16), 0
    options: dict[str, Any] = {"compression": "zstd", "compression_level": _LEVEL, "data_page_size": _ROW_GROUP_BYTES}
    with pq.ParquetWriter(path, SCHEMA, use_dictionary=False, store_schema=False, **options) as writer:
        pending: list[tuple[Any, ...]] = []
        size = 0
        for rows in files:
            more = sum(len(row.stored.data) for row in rows)
            if pending and (size + more > _ROW_GROUP_BYTES or len(pending) + len(rows) > _ROW_GROUP_ROWS):
                writer.write_table(_table(pending))
                pending, size = [], 0
            size += more
            for row in rows:
                *about, data, data_digest = row.fields()
                pending.append((*about, data, data_digest))
                digest.update(repr((about, data_digest)).encode())
                footers += row.kind == "footer"
        writer.write_table(_table(pending))
    return digest.hexdigest(), footers


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def read_rows(path: Path) -> Iterator[list[Row]]:
    """Decode a file from outside, one row group after the other.

    Raises:
        BadSnapshot: if it is damaged or has another form.
    """
    try:
        with path.open("rb") as file:
            for group in _footer(file).row_groups:
                left, columns = _MAX_BYTES, []
                for chunk in group.chunks.values():
                    values, size = _values(file, chunk, left)
                    left -= size
                    columns.append(values)
                yield [_row(*fields) for fields in zip(*columns, strict=True)]
    except (FormatError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        message = f"is damaged or has another form: {str(error)[:200]}"
        raise BadSnapshot(message) from error


def _footer(file: BinaryIO) -> Footer:
    size = file.seek(0, 2)
    file.seek(max(0, size - TRAILER))
    length = footer_length(file.read())
    file.seek(max(0, size - TRAILER - length))
    footer = decode_footer(file.read(length), size)
    columns = [(each.name, each.physical_type, each.optional, each.flat) for each in footer.columns.values()]
    if columns != _COLUMNS or any(group.num_rows > _MAX_ROWS for group in footer.row_groups):
        raise ValueError("it has other columns, or a row group has too many rows")
    return footer


def _values(file: BinaryIO, chunk: ColumnChunk, limit: int) -> tuple[list[Any], int]:
    """Decode a column chunk; returns its values and the bytes of its decompressed pages."""
    if len(chunk.range) > _MAX_BYTES or chunk.codec != _ZSTD:
        raise ValueError(f"a column chunk of {chunk.column.name} with codec {chunk.codec}")
    file.seek(chunk.range.start)
    reader = Reader(file.read(len(chunk.range)))
    values: list[Any] = []
    size = 0
    while reader.position < len(reader.data):
        header = reader.struct()  # PageHeader: 1 type, 2 size, 3 compressed size, 5 DataPageHeader with 2 encoding
        body = reader.data[reader.position : reader.position + header[3]]
        reader.position += header[3]
        size += header[2]
        is_plain = (header[1], header.get(5, {}).get(2)) == (_DATA_PAGE, _PLAIN)
        if not is_plain or header[2] < 0 or size > limit or header[3] != len(body):
            raise ValueError(f"a page of {chunk.column.name}")
        try:
            page = pa.decompress(body, header[2], "zstd", asbytes=True)
        except OSError as error:
            raise ValueError(str(error)) from error
        values += memoryview(page).cast("q") if chunk.column.physical_type == "INT64" else _byte_arrays(page)
    if len(values) != chunk.num_values:
        raise ValueError(f"{len(values):,} values of {chunk.column.name}")
    return values, size


def _byte_arrays(page: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(page):
        start = position + 4
        position = start + int.from_bytes(page[position:start], "little")
        if position > len(page):
            raise ValueError("a value does not fit into its page")
        yield page[start:position]


def _row(kind: bytes, path: bytes, row_group: int, size: int, *rest: bytes) -> Row:
    etag, last_modified, source, harvested_at = (text.decode() for text in rest[:4])
    data, digest = rest[4:]
    if kind.decode() not in KINDS or hashlib.sha256(data).hexdigest().encode() != digest:
        raise ValueError(f"unknown kind {kind[:20]!r}, or another digest of {path[:100]!r}")
    stored = StoredFile(data, size, etag or None, last_modified or None, source, harvested_at)
    return Row(kind.decode(), path.decode(), row_group, stored)
