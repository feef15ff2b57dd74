"""Pull a snapshot into the store: each file of a crawl is checked completely before anything of it is stored.

A digest shows that a file is what its maker wrote, not that it is true. So footers are decoded and summarized here,
and some footers, page indexes and parts of lists of blocks are compared with the source. Bounds that a backfill found
cannot be compared and are not stored. A maker who invents everything except what happens to be compared can
still make results incomplete: pull snapshots of people you trust.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from catalogue.atomic_files import create, named
from catalogue.check.compare_files import compare_file
from catalogue.commoncrawl.crawls import CrawlWords
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.commoncrawl.manifests import COLLINFO, index_file, manifest_path, parse_collinfo, parse_manifest
from catalogue.errors import BadSnapshot, FileChanged, FormatError, NotFound, QueryError, StoreDamaged
from catalogue.formatting import ReprMixin, plural, several
from catalogue.harvest.harvest_blocks import usable_list
from catalogue.harvest.snapshot import (
    CRAWL_LIST,
    MANIFEST,
    Row,
    Snapshot,
    SnapshotFile,
    SnapshotList,
    read_rows,
    unpack_snapshot,
)
from catalogue.harvest.snapshot_lists import store_list
from catalogue.harvest.tails import undamaged
from catalogue.parquet.footer import MAGIC, TRAILER, examine_footer
from catalogue.parquet.page_index import Indexes
from catalogue.progress import Progress
from catalogue.session import Session
from catalogue.settings import canonical
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.locks import locked
from catalogue.store.schema import index_key
from catalogue.store.stored_file import StoredFile, encode, marker
from catalogue.store.stored_lists import note_values
from catalogue.tables.tables_state import TABLES_FOLDER
from catalogue.tables.update_tables import update_tables

_MAX_TEXT = 1000
_MAX_FILE = 1 << 50
_MAX_ROW_GROUP = 999_999
"""The largest number that a key of the store can have."""


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
        added = f"{plural(self.files, 'footer')} added, {self.kept:,} stored already{self._lists()}"
        return f"from {self.place}: {added}; {plural(self.compared, 'file')} compared with the source"

    def _lists(self) -> str:
        return f"; {plural(self.lists, 'list')} of blocks added" if self.lists else ""

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
        files = _fetch_manifest(there).select(tuple(several(crawls)))
        names = tuple(dict.fromkeys(file.crawl for file in files if file.crawl != CRAWL_LIST))
        pulled = Pulled(there.url, names)
        pull = _Pull(there, session.create_store(), session.source, compare, pulled)
        with locked(session.data / "pull.lock", session.data):
            new = set()
            for done, file in enumerate(files, 1):
                if pull.add(file, session.data / "pulling.part"):
                    new.add(file.crawl)
                bar(Progress("pull", listed=len(files), done=done, bytes=there.bytes))
    if new:
        tables, crawls_with_news = session.data / TABLES_FOLDER, new - {CRAWL_LIST}
        update_tables(tables, session.store, session.dataset, values=crawls_with_news, notify=session.notify)
    pulled.unchanged = len(names) - len(new - {CRAWL_LIST})
    if with_footers := [file.crawl for file in files if file.crawl in names and not isinstance(file, SnapshotList)]:
        shown = session.metadata()
        pulled.missing = tuple(each for crawl in sorted({*with_footers}) for each in shown.missing(crawl))
    return pulled


def _fetch_manifest(place: PoliteSource) -> Snapshot:
    try:
        return unpack_snapshot(place.get(MANIFEST).body)
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
            except NotFound as error:
                raise BadSnapshot("was not found; an export may be running: run the same command again") from error
            pin = answer.version
            digest.update(answer.body)
            output.write(answer.body)
    if digest.hexdigest() != file.sha256:
        raise BadSnapshot("has another digest than in the manifest")


@dataclass(slots=True)
class _Pull:
    place: PoliteSource
    store: Store
    source: PoliteSource
    compare: int
    pulled: Pulled

    def add(self, file: SnapshotFile, path: Path) -> bool:
        """Check and store a file, completely or not at all; return whether it is new."""
        note = f"snapshots/{file.crawl}/{file.sha256}"
        is_list = isinstance(file, SnapshotList)
        if usable_list(self.store, file.crawl) if is_list else self.store.get("documents", note):
            return False
        with named(path):
            try:
                _fetch(self.place, file, path)
                if isinstance(file, SnapshotList):
                    self._store_list(file, path)
                else:
                    self._store_file(file, path, note)
            except BadSnapshot as error:
                raise BadSnapshot(f"{self.place.url}{file.name} {error}; nothing of it was stored") from error
            finally:
                path.unlink(missing_ok=True)
        return True

    def _store_file(self, file: SnapshotFile, path: Path, note: str) -> None:
        paths: dict[str, None] = {}
        indexed: set[str] = set()
        for part in self._parts(file, path):
            part.check_footers()
            _add_new(paths, dict.fromkeys(part.files))
            indexed |= {of for of, _ in part.indexes}
        self._compare_some(self._parts(file, path), sorted(paths), sorted(indexed))
        with self.store.harvesting(file.crawl):
            for part in self._parts(file, path):
                self._merge(part)
            self.store.put("documents", [(note, marker(source=self.place.url))])

    def _store_list(self, file: SnapshotList, path: Path) -> None:
        version = StoredFile(b"", file.file_size, file.etag, file.last_modified, file.source, file.harvested_at)
        value = _attributed(version, self.source.url)
        with self.store.harvesting(file.crawl):
            if not usable_list(self.store, file.crawl):  # it may have been stored since the first check
                compared = store_list(file, path, value, store=self.store, source=self.source, compare=self.compare)
                self.pulled.lists += 1
                self.pulled.compared += compared

    def _parts(self, file: SnapshotFile, path: Path) -> Iterator["_Part"]:
        return (_Part(file.crawl, rows, self.source.url) for rows in read_rows(path))

    def _compare_some(self, parts: Iterator["_Part"], paths: Sequence[str], indexed: Sequence[str]) -> None:
        """Compare random files with the source, and as many that have page indexes."""
        chance = random.SystemRandom()
        chosen = set(chance.sample(paths, min(self.compare, len(paths))))
        needed = max(0, self.compare - len(chosen.intersection(indexed)))
        others = [path for path in indexed if path not in chosen]
        chosen |= {*chance.sample(others, min(needed, len(others)))}
        for part in parts if chosen else ():
            for path in chosen & part.files.keys():
                indexes = {n: Indexes.unpack(each.data) for (of, n), each in part.indexes.items() if of == path}
                self._compare_file(path, part.files[path], indexes)
        self.pulled.compared += len(chosen)

    def _compare_file(self, path: str, stored: StoredFile, indexes: dict[int, Indexes]) -> None:
        pin = FileVersion(stored.size, None)
        try:
            has_footer, different = compare_file(path, stored, indexes, self.source, COMMON_CRAWL.key, pin)
        except (FormatError, NotFound, FileChanged) as error:
            raise BadSnapshot(f"has {path}, which the source does not have, or not in this version: {error}") from error
        if different or not has_footer:
            what = "page index" if has_footer else "footer"
            raise BadSnapshot(
                f"has another {what} of {path} than {self.source.url}; it is wrong, or was made from another source or "
                "before the file was replaced"
            )

    def _merge(self, part: "_Part") -> None:
        """Add values that are not stored yet; page indexes also to the same version of a stored file."""
        store = self.store
        store.add_missing("documents", ((path, encode(each)) for path, each in part.documents.items()))
        values = {path: encode(each) for path, each in part.files.items()}
        added = store.add_missing("files", values.items())
        same = {path for path, each in part.files.items() if path in added or self._has(path, each)}
        indexes = ((index_key(*key), encode(each)) for key, each in part.indexes.items() if key[0] in same)
        self.pulled.row_groups += len(store.add_missing("indexes", indexes))
        for crawl in part.crawls_with_values:
            note_values(store, crawl)
        self.pulled.files += len(added)
        self.pulled.kept += len(values) - len(added)

    def _has(self, path: str, theirs: StoredFile) -> bool:
        ours = undamaged(self.store, path)
        return ours is not None and (ours.version, ours.data) == (theirs.version, theirs.data)


class _Part:
    """The values of a row group, checked, and attributed to the source with which they are compared."""

    def __init__(self, crawl: str, rows: Sequence[Row], source: str) -> None:
        self.documents: dict[str, StoredFile] = {}
        self.files: dict[str, StoredFile] = {}
        self.indexes: dict[tuple[str, int], StoredFile] = {}
        self.crawls_with_values: set[str] = set()
        for kind, path, row_group, stored in sorted(rows, key=lambda row: row.kind):  # footers before page indexes
            with _invalid(path):
                value = _attributed(stored, source)
                if kind == "page_index":
                    self._add_index(path, row_group, value)
                elif kind == "footer":
                    file = index_file(path)
                    if file is None or file.crawl != crawl or stored.size < len(MAGIC) + len(stored.data) + TRAILER:
                        raise BadSnapshot(f"not an index file of {crawl}")
                    _add_new(self.files, {path: value})
                else:
                    if path != (COLLINFO if crawl == CRAWL_LIST else manifest_path(crawl)):
                        raise BadSnapshot("unknown document")
                    parse_collinfo(stored.data) if path == COLLINFO else parse_manifest(crawl, stored.data)
                    _add_new(self.documents, {path: value})

    def _add_index(self, path: str, row_group: int, value: StoredFile) -> None:
        file = self.files.get(path)
        if file is None or value.version != file.version or not 0 <= row_group <= _MAX_ROW_GROUP:
            raise BadSnapshot("page index without its footer")
        if written := Indexes.unpack(value.data).written:
            self.indexes[path, row_group] = replace(value, data=written.pack())
            if written.dictionaries and (at := index_file(path)):
                self.crawls_with_values.add(at.crawl)

    def check_footers(self) -> None:
        for path, stored in self.files.items():
            with _invalid(path):
                examine_footer(stored.data, stored.size, COMMON_CRAWL.key)


def _add_new(found: dict[str, Any], more: Mapping[str, Any]) -> None:
    if twice := found.keys() & more.keys():
        raise BadSnapshot(f"has {min(twice)!r} twice")
    found |= more


@contextmanager
def _invalid(path: str) -> Iterator[None]:
    try:
        yield
    except (FormatError, StoreDamaged) as error:
        raise BadSnapshot(f"has {path[:200]!r}, which is invalid: {error}") from error


def _attributed(stored: StoredFile, source: str) -> StoredFile:
    _check_value(stored)
    # An ETag of another source has no meaning.
    etag = stored.etag if canonical(stored.source) == canonical(source) else None
    return replace(stored, source=source, etag=etag)


def _check_value(stored: StoredFile) -> None:
    latest = datetime.now(UTC) + timedelta(days=1)
    texts = (stored.etag or "", stored.last_modified or "", stored.source, stored.taken)
    is_plain = all(len(text) <= _MAX_TEXT and text.isascii() and text.isprintable() for text in texts)
    try:
        is_past = datetime.fromisoformat(stored.taken) <= latest
    except (ValueError, OverflowError, TypeError):  # TypeError: without a zone
        is_past = False
    if not is_past or not is_plain or not 0 <= stored.size <= _MAX_FILE:
        raise BadSnapshot("invalid time, size or text")
