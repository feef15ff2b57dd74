"""Pull a snapshot: each file of a crawl is checked completely before anything of it is stored.

A digest shows that a file is what its maker wrote, not that it is true. So footers and lines of lists of blocks are
decoded here, and some footers, page indexes and parts of lists are compared with the source. Bounds that a backfill
found cannot be compared and are not stored. A maker who invents everything except what happens to be compared can still
make results incomplete: pull snapshots of people you trust.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, takewhile
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

from catalogue.atomic_files import create, named
from catalogue.cdx.cluster import MAX_LIST, count_shards, list_path, shards_path
from catalogue.check.compare_files import compare_file
from catalogue.commoncrawl.crawls import CrawlWords, select_crawls
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.commoncrawl.manifests import index_file, manifest_path, parse_manifest
from catalogue.errors import (
    BadSnapshot,
    FileChanged,
    FormatError,
    NotFound,
    QueryError,
    StoreDamaged,
    UnknownCrawl,
)
from catalogue.formatting import ReprMixin, join_first, plural, several
from catalogue.harvest.harvest_blocks import put_list, usable_list, write_list
from catalogue.harvest.snapshot import BLOCKS, MANIFEST, PIECE, SnapshotFile, unpack_manifest
from catalogue.harvest.tails import undamaged
from catalogue.parquet.footer import examine_footer
from catalogue.parquet.model import MAGIC, with_trailer
from catalogue.parquet.page_index import Indexes
from catalogue.parquet.thrift import typed
from catalogue.progress import Progress
from catalogue.session import Session
from catalogue.settings import canonical
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store, encode_indexes
from catalogue.store.locks import locked
from catalogue.store.schema import index_key, row_group_of
from catalogue.store.stored_file import StoredFile, decode, encode, marker
from catalogue.store.stored_lists import VALUES
from catalogue.tables.tables_state import TABLES_FOLDER
from catalogue.tables.update_tables import update_tables

_MAX_LINE, _MAX_TEXT = 16 << 10, 1000
_MAX_VALUE, _MAX_FILE = 64 << 20, 1 << 50
_MAX_INDEXES = 256 << 20
"""Bytes of the page indexes of a file, which are in memory at once."""
_OVERHEAD = 1000
"""Bytes that a small one takes."""
_AGAIN = "an export may be running: run the same command again"
_REASONS = "it is wrong, or was made from another source or before the file was replaced"


@dataclass(slots=True, repr=False)
class Pulled(ReprMixin):
    """The result of a pull."""

    place: str
    crawls: tuple[str, ...]
    """Selected crawls of the snapshot, newest first."""
    unchanged: int = 0
    """Crawls among them without anything new: an earlier pull has stored the same, or a list of blocks is stored."""
    files: int = 0
    """Footers that were added."""
    kept: int = 0
    """Footers that were stored already, in any version, and stay."""
    row_groups: int = 0
    """Row groups whose page indexes were added."""
    lists: int = 0
    """Lists of blocks of the CDX index that were added; one that is stored already stays."""
    compared: int = 0
    """Files and lists that were compared with the source."""
    missing: tuple[str, ...] = ()
    """What is not stored of these crawls now, in sentences."""

    def _line(self) -> str:
        lists = f"; {plural(self.lists, 'list')} of blocks added" if self.lists else ""
        added = f"{plural(self.files, 'footer')} added, {self.kept:,} stored already{lists}"
        return f"from {self.place}: {added}; {plural(self.compared, 'file')} compared with the source"

    def _notes(self) -> Iterator[str]:
        yield from self.missing


def pull_snapshot(
    session: Session,
    place: str,
    *,
    crawls: CrawlWords = "all",
    compare: int = 3,
    report: Callable[[Progress], None] | None = None,
) -> Pulled:
    """Store a snapshot; see ``Catalogue.pull``."""
    if session.dataset != COMMON_CRAWL:
        raise QueryError(f"snapshots are of Common Crawl's index, and this is {session.dataset.name}")
    session.check_writable()  # before any request
    with closing(session.open_source(place)) as there, session.reporting(report, "crawls") as bar:
        there_are = _fetch_manifest(there)
        selected = select_crawls(several(crawls), [*there_are])
        if absent := [crawl for crawl in selected if crawl not in there_are]:
            raise UnknownCrawl(f"the snapshot does not have {absent[0]}; it has {join_first([*there_are])}")
        files = [there_are[crawl] for crawl in selected]
        pulled = Pulled(there.url, tuple(selected))
        pull = _Pull(there, session.create_store(), session.source, compare, pulled)
        new = set()
        with locked(session.data / "pull.lock", session.data):
            for done, file in enumerate(files, 1):
                if pull.add(file, session.data / "pulling.part"):
                    new.add(file.crawl)
                bar(Progress("pull", listed=len(files), done=done, bytes=there.bytes))
    if new:
        tables = session.data / TABLES_FOLDER
        update_tables(tables, session.store, session.dataset, values=new, notify=session.notify)
    pulled.unchanged = len(files) - len(new)
    if with_footers := sorted(file.crawl for file in files if file.footers):
        shown = session.metadata()
        pulled.missing = tuple(each for crawl in with_footers for each in shown.missing(crawl))
    return pulled


def _fetch_manifest(place: PoliteSource) -> dict[str, SnapshotFile]:
    try:
        if files := unpack_manifest(place.get(MANIFEST).body):
            return files
        raise BadSnapshot("it has no crawls yet; if it is being exported, wait")  # noqa: TRY301
    except NotFound as error:
        message = (
            f"there is no snapshot at {place.url}: {MANIFEST} is missing; if it is being exported, wait; "
            "if these are copies of Common Crawl's files, use the place as the source"
        )
        raise BadSnapshot(message) from error
    except BadSnapshot as error:
        raise BadSnapshot(f"the snapshot at {place.url} cannot be used: {error}") from error


def _fetch(place: PoliteSource, file: SnapshotFile, path: Path) -> None:
    digest, pin = hashlib.sha256(), FileVersion(file.size, None)
    with create(path) as output:
        for start in range(0, file.size, MAX_DOCUMENT):
            part = ByteRange(start, min(start + MAX_DOCUMENT, file.size))
            try:  # a small file is requested without a range, which every server can answer
                answer = place.get(file.name, None if len(part) == file.size else part, pin=pin)
            except (NotFound, FileChanged) as error:
                raise BadSnapshot(f"is not the file of the manifest ({error}); {_AGAIN}") from error
            pin = answer.version
            digest.update(answer.body)
            output.write(answer.body)
    if digest.hexdigest() != file.sha256:
        raise BadSnapshot(f"has another digest than in the manifest; {_AGAIN}")


@dataclass(slots=True)
class _Pull:
    place: PoliteSource
    store: Store
    source: PoliteSource
    compare: int
    pulled: Pulled

    def add(self, file: SnapshotFile, path: Path) -> bool:
        """Check and store a file, completely or not at all; return whether it is new."""
        store, note = self.store, f"snapshots/{file.crawl}/{file.sha256}"
        if self._has_list(file) and (not file.footers or store.get("documents", note)):
            return False
        with store.harvesting(file.crawl), named(path):
            try:
                _fetch(self.place, file, path)
                documents, listed = self._check(file, path)
            except BadSnapshot as error:
                raise BadSnapshot(f"{self.place.url}{file.name} {error}; nothing of it was stored") from error
            else:
                store.add_missing("documents", documents.items())
                self._store_footers(file, path)
                if listed:
                    put_list(store, file.crawl, *listed)
                store.put("documents", [(note, marker(source=self.place.url))])
            finally:
                path.unlink(missing_ok=True)
        return True

    def _has_list(self, file: SnapshotFile) -> bool:
        return not file.blocks or usable_list(self.store, file.crawl) is not None

    def _check(self, file: SnapshotFile, path: Path) -> tuple[dict[str, bytes], tuple[StoredFile, bytes] | None]:
        """Check a fetched file, compare some of it with the source, and write its list of blocks.

        The result has documents, and version and directory of the list, without which its file is not used.
        """
        counts = [file.footers - file.indexed, file.indexed]
        chosen = [SystemRandom().sample(range(count), min(self.compare, count)) for count in counts]
        seen, last = [0, 0], ""
        documents: dict[str, bytes] = {}
        values = self._values(path)
        for value in values:
            with _invalid(value.key):
                _check_value(file.crawl, value, last)
                if value.table == "files":
                    has_indexes, last = bool(value.indexes), value.key
                    if seen[has_indexes] in chosen[has_indexes]:
                        self._compare_file(value)
                    seen[has_indexes] += 1
                    if any(each.dictionaries for each in value.indexes.values()):
                        documents[VALUES + file.crawl] = encode(marker())
                elif value.table == "documents":
                    documents[value.key] = encode(value.stored)
                elif seen != counts or self._has_list(file):
                    break
                else:
                    return documents, (value.stored, self._write_list(file.crawl, value.stored, chain([value], values)))
        if seen != counts or not self._has_list(file):
            raise BadSnapshot("does not have the footers, page indexes or blocks that the manifest says")
        return documents, None

    def _values(self, path: Path) -> Iterator["_Value"]:
        """Decode a fetched file: page indexes come with their footer, without bounds that a backfill found.

        Raises:
            BadSnapshot: if it is invalid.
        """
        last, size = None, 0
        for table, key, stored in _read(path, self.source.url):
            if table != "indexes":
                if last:
                    yield last
                last, size = _Value(table, key, stored, {}), 0
                continue
            of, size = row_group_of(key), size + len(stored.data) + _OVERHEAD
            if not last or not of or (last.table, last.key, last.stored.version) != ("files", of[0], stored.version):
                raise BadSnapshot(f"has a page index without its footer: {key[:200]!r}")
            if size > _MAX_INDEXES:
                raise BadSnapshot(f"has too many page indexes of {of[0][:200]!r}")
            with _invalid(key):
                if written := Indexes.unpack(stored.data).written:
                    last.indexes[of[1]] = written
        if last:
            yield last

    def _compare_file(self, value: "_Value") -> None:
        path, pin = value.key, FileVersion(value.stored.size, None)
        same, different = compare_file(path, value.stored, value.indexes, self.source, COMMON_CRAWL.key, pin)
        if different or not same:
            what = "page index" if same else "footer"
            raise BadSnapshot(f"has another {what} of {path} than {self.source.url}; {_REASONS}")
        self.pulled.compared += 1

    def _write_list(self, crawl: str, version: StoredFile, values: Iterator["_Value"]) -> bytes:
        """Check a list of blocks, compare some pieces with the source, and write it."""
        shards = count_shards(crawl, self.source.get(shards_path(crawl)).body) if self.compare else None
        directory = write_list(self.store, crawl, self._pieces(crawl, version, values), version.size, shards)
        self.pulled.lists += 1
        self.pulled.compared += self.compare > 0
        return directory

    def _pieces(self, crawl: str, version: StoredFile, values: Iterator["_Value"]) -> Iterator[bytes]:
        starts, at, pin = range(0, version.size, PIECE), 0, FileVersion(version.size, None)
        chosen = SystemRandom().sample(starts, min(self.compare, len(starts)))
        for value in values:
            data, end = value.stored.data, min(at + PIECE, version.size)
            if (value.table, value.key, value.stored.version) != (BLOCKS, list_path(crawl), version.version):
                raise BadSnapshot(f"has {value.key[:200]!r} in its list of blocks")
            if not data or len(data) != end - at:
                raise BadSnapshot(f"has a list of blocks of other than {version.size:,} bytes")
            if at in chosen and self.source.get(list_path(crawl), ByteRange(at, end), pin=pin).body != data:
                raise BadSnapshot(f"has another list of blocks than {self.source.url} from byte {at:,} on; {_REASONS}")
            at = end
            yield data

    def _store_footers(self, file: SnapshotFile, path: Path) -> None:
        """Add footers that are not stored yet; page indexes also to the same version of a stored file."""
        store, pulled = self.store, self.pulled
        added = store.add_missing("files", ((each.key, encode(each.stored)) for each in self._footers(path)))
        same = (each for each in self._footers(path) if each.key in added or self._has(each))
        indexes = ((each.key, encode_indexes(each.indexes, each.stored)) for each in same)
        keys = ((index_key(path, ordinal), data) for path, of_path in indexes for ordinal, data in of_path.items())
        pulled.row_groups += len(store.add_missing("indexes", keys))
        pulled.files += len(added)
        pulled.kept += file.footers - len(added)

    def _footers(self, path: Path) -> Iterator["_Value"]:
        values = takewhile(lambda value: value.table != BLOCKS, self._values(path))
        return (value for value in values if value.table == "files")

    def _has(self, value: "_Value") -> bool:
        ours = undamaged(self.store, value.key)
        return ours is not None and (ours.version, ours.data) == (value.stored.version, value.stored.data)


class _Value(NamedTuple):
    """A stored value, with the page indexes of a footer by row group."""

    table: str
    key: str
    stored: StoredFile
    indexes: dict[int, Indexes]


def _read(path: Path, source: str) -> Iterator[tuple[str, str, StoredFile]]:
    """Decode a file value by value, attributed to the source with which they are compared."""
    try:
        with path.open("rb") as file:
            while line := file.readline(_MAX_LINE):
                table, key, length = json.loads(line)
                if not 0 < typed(length, int) <= _MAX_VALUE:
                    raise ValueError(f"a length of {length}")  # noqa: TRY301
                yield typed(table, str), typed(key, str), _attributed(decode(file.read(length)), source)
    except (ValueError, TypeError, RecursionError, StoreDamaged) as error:
        raise BadSnapshot(f"is damaged or has another form: {str(error)[:200]}") from error


def _attributed(stored: StoredFile, source: str) -> StoredFile:
    texts = (stored.etag or "", stored.last_modified or "", stored.source, stored.taken)
    is_plain = all(len(text) <= _MAX_TEXT and text.isascii() and text.isprintable() for text in texts)
    try:
        is_past = datetime.fromisoformat(stored.taken) <= datetime.now(UTC) + timedelta(days=1)
    except (ValueError, OverflowError, TypeError):  # TypeError: without a zone
        is_past = False
    if not is_past or not is_plain or not 0 <= stored.size <= _MAX_FILE:
        raise ValueError("invalid time, size or text")
    # An ETag of another source has no meaning.
    etag = stored.etag if canonical(stored.source) == canonical(source) else None
    return replace(stored, source=source, etag=etag, note="")


def _check_value(crawl: str, value: _Value, last: str) -> None:
    path, stored = value.key, value.stored
    if value.table == "documents" and path == manifest_path(crawl):
        parse_manifest(crawl, stored.data)
    elif value.table == BLOCKS and 0 < stored.size <= MAX_LIST:
        pass
    elif value.table == "files" and (file := index_file(path)) and file.crawl == crawl:
        footer = examine_footer(stored.data, stored.size, COMMON_CRAWL.key)
        if path <= last or stored.size < len(MAGIC) + len(with_trailer(stored.data)):
            raise FormatError("it is there twice, not in the order of paths, or smaller than its footer")
        if not value.indexes.keys() <= {group.ordinal for group in footer.row_groups}:
            raise FormatError("it has a page index of a row group that its footer does not have")
    else:
        raise FormatError(f"it is not a file of {crawl}, or too large")


@contextmanager
def _invalid(path: str) -> Iterator[None]:
    try:
        yield
    except BadSnapshot:
        raise
    except FormatError as error:
        raise BadSnapshot(f"has {path[:200]!r}, which is invalid: {error}") from error
    except (NotFound, FileChanged) as error:
        what = "which the source does not have, or not in this version"
        raise BadSnapshot(f"has {path[:200]!r}, {what}: {error}") from error
