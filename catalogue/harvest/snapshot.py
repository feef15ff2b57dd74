"""The manifest of a snapshot, which lists its files.

::

    snapshot.json                                    the manifest
    crawls/CC-MAIN-2022-05.<contents>.parquet        what is stored of a crawl, see ``snapshot_file``
    crawls/crawls.<contents>.parquet                 the list of crawls
    tables/files.parquet, row_groups.parquet, pages.parquet
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from catalogue.commoncrawl.crawls import check_crawl_name, newest_first, select_crawls
from catalogue.errors import BadSnapshot, UnknownCrawl
from catalogue.formatting import join_first
from catalogue.parquet.thrift import typed

MANIFEST = "snapshot.json"
FORMAT = "catalogue snapshot"
VERSION = 2
CRAWL_LIST = "crawls"
"""Stands for the crawl in the name of the file with the list of crawls."""
TABLES = ("files", "row_groups", "pages")

_MAX_FILE = 4 << 30
_HEX = re.compile("[0-9a-f]{64}")
_CRAWL_FILE = re.compile(r"crawls/([A-Za-z0-9-]+)\.[0-9a-f]{32}\.parquet")
_TABLE_FILE = re.compile(rf"tables/({'|'.join(TABLES)})\.parquet")


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file of a snapshot."""

    name: str
    size: int
    sha256: str
    count: int
    """Footers in the file of a crawl, rows in a table."""

    @property
    def crawl(self) -> str:
        """The crawl, or ``CRAWL_LIST``."""
        return crawl_of(self.name) or ""


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

    @property
    def crawls(self) -> tuple[str, ...]:
        """The crawls, newest first."""
        return tuple(newest_first({file.crawl for file in self.files} - {CRAWL_LIST}))

    def select(self, words: Sequence[str]) -> tuple[SnapshotFile, ...]:
        """Return the files of selected crawls, newest first, after that of the list of crawls.

        Raises:
            UnknownCrawl: if the snapshot does not have a selected crawl.
        """
        selected = select_crawls(words, self.crawls)
        if absent := [crawl for crawl in selected if crawl not in self.crawls]:
            message = f"the snapshot does not have {absent[0]}; it has {join_first(self.crawls) or 'none'}"
            raise UnknownCrawl(message)
        by_crawl = {file.crawl: file for file in self.files}
        return tuple(by_crawl[crawl] for crawl in (CRAWL_LIST, *selected) if crawl in by_crawl)

    def pack(self) -> bytes:
        """Return the text of ``snapshot.json``."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1).encode() + b"\n"


def crawl_of(name: str) -> str | None:
    """Return the crawl of a file by its name; None if no crawl's file has such a name."""
    if found := _CRAWL_FILE.fullmatch(name):
        with suppress(UnknownCrawl):
            return CRAWL_LIST if found[1] == CRAWL_LIST else check_crawl_name(found[1])
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
    if not all(isinstance(fields[name], list) for name in ("missing", "files", "tables")):
        raise TypeError("missing, files or tables is not a list")
    files, tables = (tuple(map(_file, fields[name])) for name in ("files", "tables"))
    snapshot = Snapshot(fields["made_at"], fields["made_by"], tuple(fields["missing"]), files, tables)
    if not all(typed(text, str).isprintable() for text in (snapshot.made_at, snapshot.made_by, *snapshot.missing)):
        raise ValueError("a text has control characters")
    names = [each.name for each in files if not each.crawl]
    if names := [*names, *(each.name for each in tables if not _TABLE_FILE.fullmatch(each.name))]:
        raise ValueError(f"file name {names[0]!r}")
    if len({file.crawl for file in files}) < len(files):
        raise ValueError("a crawl has two files")
    return snapshot


def _file(fields: dict[str, Any]) -> SnapshotFile:
    file = SnapshotFile(fields["name"], fields["size"], fields["sha256"], fields["count"])
    name, sha256 = typed(file.name, str), typed(file.sha256, str)
    if not _HEX.fullmatch(sha256) or not 0 < typed(file.size, int) <= _MAX_FILE or typed(file.count, int) < 0:
        raise ValueError(f"sha256, size or count of {name[:50]!r}")
    return file
