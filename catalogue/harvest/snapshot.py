"""The format of a snapshot: a manifest, which lists its files, and Parquet files with the stored values of a crawl.

::

    snapshot.json                                    the manifest
    crawls/CC-MAIN-2022-05.<contents>.parquet        what is stored of a crawl
    crawls/crawls.<contents>.parquet                 the list of crawls
    blocks/CC-MAIN-2022-05.<contents>.idx.gz         the list of blocks of the crawl's CDX index; see snapshot_lists
    tables/files.parquet, row_groups.parquet, pages.parquet

The files of crawls have required columns, PLAIN values and ZSTD pages without dictionaries, so that decoding them here
needs no Parquet library: files from outside can crash one.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.cdx.cluster import MAX_LIST
from catalogue.commoncrawl.crawls import check_crawl_name, newest_first, select_crawls
from catalogue.errors import BadSnapshot, FormatError, UnknownCrawl
from catalogue.formatting import join_first
from catalogue.parquet.footer import TRAILER, decode_footer, footer_length
from catalogue.parquet.model import ColumnChunk, Footer
from catalogue.parquet.thrift import Reader, typed
from catalogue.store.stored_file import StoredFile

MANIFEST = "snapshot.json"
FORMAT = "catalogue snapshot"
VERSION = 2
CRAWL_LIST = "crawls"
"""Stands for the crawl in the name of the file with the list of crawls."""
TABLES = ("files", "row_groups", "pages")

_MAX_FILE = 4 << 30
_HEX = re.compile("[0-9a-f]{64}")
_CRAWL_FILE = re.compile(r"crawls/([A-Za-z0-9-]+)\.[0-9a-f]{32}\.parquet")
_LIST_FILE = re.compile(r"blocks/([A-Za-z0-9-]+)\.[0-9a-f]{32}\.idx\.gz")
_TABLE_FILE = re.compile(rf"tables/({'|'.join(TABLES)})\.parquet")

_KINDS = ("manifest", "footer", "page_index")
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


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file of a snapshot."""

    name: str
    size: int
    sha256: str
    count: int
    """Footers in the file of a crawl, blocks in a list of blocks, rows in a table."""

    @property
    def crawl(self) -> str:
        return crawl_of(self.name) or ""


@dataclass(frozen=True, slots=True)
class SnapshotList(SnapshotFile):
    """The complete list of blocks of a crawl's CDX index in a snapshot."""

    file_size: int
    """Bytes of the list at its source, as of the decompressed file."""
    etag: str | None
    last_modified: str | None
    source: str
    harvested_at: str


_AnyFile = TypeVar("_AnyFile", bound=SnapshotFile)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The manifest of a snapshot."""

    made_at: str
    """ISO 8601, UTC."""
    made_by: str
    """Version of the package."""
    missing: tuple[str, ...]
    """What was not harvested of these crawls, in sentences."""
    files: tuple[SnapshotFile, ...]
    tables: tuple[SnapshotFile, ...]
    blocks: tuple[SnapshotList, ...] = ()
    """Earlier versions neither write nor read them."""

    @property
    def crawls(self) -> tuple[str, ...]:
        return tuple(newest_first({file.crawl for file in (*self.files, *self.blocks)} - {CRAWL_LIST}))

    def select(self, words: Sequence[str]) -> tuple[SnapshotFile, ...]:
        """Return the files and lists of selected crawls, newest first, after the file of the list of crawls."""
        selected = select_crawls(words, self.crawls)
        if absent := [crawl for crawl in selected if crawl not in self.crawls]:
            message = f"the snapshot does not have {absent[0]}; it has {join_first(self.crawls) or 'none'}"
            raise UnknownCrawl(message)
        files = (*self.files, *self.blocks)
        return tuple(file for crawl in (CRAWL_LIST, *selected) for file in files if file.crawl == crawl)

    def pack(self) -> bytes:
        """Return the text of ``snapshot.json``."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1).encode() + b"\n"


def crawl_of(name: str) -> str | None:
    """Return the crawl of a file or list by its name; None if none has such a name."""
    if found := _CRAWL_FILE.fullmatch(name) or _LIST_FILE.fullmatch(name):
        with suppress(UnknownCrawl):
            is_crawl_list = found[1] == CRAWL_LIST and found.re == _CRAWL_FILE
            return CRAWL_LIST if is_crawl_list else check_crawl_name(found[1])
    return None


def unpack_snapshot(data: bytes) -> Snapshot:
    """Decode a ``snapshot.json`` from outside.

    Raises:
        BadSnapshot: if it is invalid or has another version.
    """
    try:
        fields = json.loads(data)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise ValueError("it has another format")  # noqa: TRY301
        version = fields["version"]
        if version != VERSION:
            next_step = "upgrade this tool" if isinstance(version, int) and version > VERSION else "export it again"
            message = f"it has version {repr(version)[:100]}, and this tool reads version {VERSION}; {next_step}"
            raise BadSnapshot(message)
        return _checked(fields)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, BadSnapshot):
            raise
        message = f"its {MANIFEST} is invalid: {str(error)[:100]}"
        raise BadSnapshot(message) from error


def _checked(fields: dict[str, Any]) -> Snapshot:
    fields = {"blocks": []} | fields
    if not all(isinstance(fields[name], list) for name in ("missing", "files", "tables", "blocks")):
        raise TypeError("missing, files, tables or blocks is not a list")
    files, tables = (tuple(map(_file, fields[name])) for name in ("files", "tables"))
    blocks = tuple(map(_list, fields["blocks"]))
    snapshot = Snapshot(fields["made_at"], fields["made_by"], tuple(fields["missing"]), files, tables, blocks)
    if not all(typed(text, str).isprintable() for text in (snapshot.made_at, snapshot.made_by, *snapshot.missing)):
        raise ValueError("a text has control characters")
    names = [each.name for each in files if not (each.crawl and _CRAWL_FILE.fullmatch(each.name))]
    names += [each.name for each in blocks if not (each.crawl and _LIST_FILE.fullmatch(each.name))]
    if names := [*names, *(each.name for each in tables if not _TABLE_FILE.fullmatch(each.name))]:
        raise ValueError(f"file name {names[0]!r}")
    if any(len({each.crawl for each in kind}) < len(kind) for kind in (files, blocks)):
        raise ValueError("a crawl has two files, or two lists")
    return snapshot


def _file(fields: dict[str, Any]) -> SnapshotFile:
    return _valid(SnapshotFile(fields["name"], fields["size"], fields["sha256"], fields["count"]))


def _list(fields: dict[str, Any]) -> SnapshotList:
    found = _valid(SnapshotList(**{name: fields[name] for name in get_type_hints(SnapshotList)}))
    texts = [text for text in (found.etag, found.last_modified) if text is not None]
    for text in (found.source, found.harvested_at, *texts):
        typed(text, str)
    if not 0 < typed(found.file_size, int) <= MAX_LIST:
        raise ValueError(f"file_size of {found.name[:50]!r}")
    return found


def _valid(file: _AnyFile) -> _AnyFile:
    name, sha256 = typed(file.name, str), typed(file.sha256, str)
    if not _HEX.fullmatch(sha256) or not 0 < typed(file.size, int) <= _MAX_FILE or typed(file.count, int) < 0:
        raise ValueError(f"sha256, size or count of {name[:50]!r}")
    return file


class Row(NamedTuple):
    """One stored value."""

    kind: str
    path: str
    row_group: int
    stored: StoredFile

    def fields(self) -> tuple[str | int | bytes, ...]:
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
    """Decode a file from outside, one row group after the other."""
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
    if kind.decode() not in _KINDS or hashlib.sha256(data).hexdigest().encode() != digest:
        raise ValueError(f"unknown kind {kind[:20]!r}, or another digest of {path[:100]!r}")
    stored = StoredFile(data, size, etag or None, last_modified or None, source, harvested_at)
    return Row(kind.decode(), path.decode(), row_group, stored)
