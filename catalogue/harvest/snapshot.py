"""The format of a snapshot: a manifest, which lists its files, and files with the stored values of a crawl.

::

    snapshot.json                                    the manifest
    crawls/CC-MAIN-2022-05.<contents>.zst            what is stored of a crawl
    crawls/crawls.<contents>.zst                     the list of crawls
    blocks/CC-MAIN-2022-05.<contents>.idx.gz         the list of blocks of the crawl's CDX index; see snapshot_lists
    tables/files.parquet, row_groups.parquet, pages.parquet

The file of a crawl is a stream of values: a line of JSON with ``length`` and ``digest``, then so many bytes. It needs
no Parquet library, which a file from outside could crash.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

from catalogue.cdx.cluster import MAX_LIST
from catalogue.commoncrawl.crawls import check_crawl_name, newest_first, select_crawls
from catalogue.errors import BadSnapshot, UnknownCrawl
from catalogue.formatting import join_first
from catalogue.parquet.thrift import typed
from catalogue.store.stored_file import StoredFile

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MANIFEST = "snapshot.json"
FORMAT = "catalogue snapshot"
VERSION = 3
CRAWL_LIST = "crawls"
"""Stands for the crawl in the name of the file with the list of crawls."""
TABLES = ("files", "row_groups", "pages")

_MAX_FILE = 4 << 30
_HEX = re.compile("[0-9a-f]{64}")
_CRAWL_FILE = re.compile(r"crawls/([A-Za-z0-9-]+)\.[0-9a-f]{32}\.zst")
_LIST_FILE = re.compile(r"blocks/([A-Za-z0-9-]+)\.[0-9a-f]{32}\.idx\.gz")
_TABLE_FILE = re.compile(rf"tables/({'|'.join(TABLES)})\.parquet")

_KINDS = ("manifest", "footer", "page_index")
NO_ROW_GROUP = -1
_PART_BYTES, _PART_ROWS = 16 << 20, 10_000
"""Values that are read at a time, and somewhat more: those of a file stay together."""
_MAX_BYTES, _MAX_ROWS = 256 << 20, 100_000
"""Values of a file of the source, which are in memory at once."""
_MAX_LINE, _PIECE = 16 << 10, 1 << 20
_LEVEL = 3
_LARGEST_WINDOW = {int(zstd.DecompressionParameter.window_log_max): 23}
"""8 MB, what the level has."""


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
            raise UnknownCrawl(f"the snapshot does not have {absent[0]}; it has {join_first(self.crawls) or 'none'}")
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
        raise BadSnapshot(f"its {MANIFEST} is invalid: {str(error)[:100]}") from error


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

    def line(self) -> bytes:
        """Return the line before the bytes of the value."""
        stored = self.stored
        fields = {
            "kind": self.kind,
            "path": self.path,
            "row_group": self.row_group,
            "file_size": stored.size,
            "etag": stored.etag,
            "last_modified": stored.last_modified,
            "source": stored.source,
            "harvested_at": stored.taken,
            "length": len(stored.data),
            "digest": hashlib.sha256(stored.data).hexdigest(),
        }
        return json.dumps(fields).encode() + b"\n"


def write_rows(path: Path, files: Iterable[list[Row]]) -> tuple[str, int]:
    """Write a file; rows of one file of the source are together, its footer first.

    Returns:
        A digest of the rows, and the number of footers.
    """
    digest, footers = hashlib.blake2b(digest_size=16), 0
    with zstd.open(path, "wb", level=_LEVEL) as output:
        for row in chain.from_iterable(files):
            line = row.line()
            output.write(line + row.stored.data)
            digest.update(line)
            footers += row.kind == "footer"
    return digest.hexdigest(), footers


def read_rows(path: Path) -> Iterator[list[Row]]:
    """Decode a file from outside, some megabytes at a time.

    Raises:
        BadSnapshot: if it is invalid.
    """
    try:
        with zstd.open(path, options=_LARGEST_WINDOW) as file:
            yield from _parts(file)
    except (zstd.ZstdError, EOFError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadSnapshot(f"is damaged or has another form: {str(error)[:200]}") from error


def _parts(file: zstd.ZstdFile) -> Iterator[list[Row]]:
    rows: list[Row] = []
    size = 0
    while line := file.readline(_MAX_LINE):
        row = _row(json.loads(line), file)
        if row.kind != "page_index" and (size >= _PART_BYTES or len(rows) >= _PART_ROWS):
            yield rows
            rows, size = [], 0
        rows.append(row)
        size += len(row.stored.data)
        if size > _MAX_BYTES or len(rows) > _MAX_ROWS:
            raise ValueError(f"too many page indexes of {row.path[:100]!r}")
    yield rows


def _row(fields: dict[str, Any], file: zstd.ZstdFile) -> Row:
    kind, path, length = typed(fields["kind"], str), typed(fields["path"], str), typed(fields["length"], int)
    etag, last_modified = (each and typed(each, str) for each in (fields["etag"], fields["last_modified"]))
    source, taken = (typed(fields[name], str) for name in ("source", "harvested_at"))
    if kind not in _KINDS or not 0 <= length <= _MAX_BYTES:
        raise ValueError(f"unknown kind {kind[:20]!r}, or a length of {length}")
    data = _read(file, length)
    if hashlib.sha256(data).hexdigest() != fields["digest"]:
        raise ValueError(f"another digest of {path[:100]!r}")
    stored = StoredFile(data, typed(fields["file_size"], int), etag or None, last_modified or None, source, taken)
    return Row(kind, path, typed(fields["row_group"], int), stored)


def _read(file: zstd.ZstdFile, length: int) -> bytes:
    """Return the next bytes, read in pieces, since a false length would demand any amount of memory."""
    data = bytearray()
    while len(data) < length and (piece := file.read(min(length - len(data), _PIECE))):
        data += piece
    return bytes(data)
