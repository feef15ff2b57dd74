"""Pull a snapshot: each file of a crawl is checked completely before anything of it is stored.

A digest shows that a file is what its maker wrote, not that it is true. So footers are decoded here, and some footers
and page indexes are compared with the source. A maker who invents everything except what happens to be compared can
still make results incomplete: pull snapshots of people you trust.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from random import SystemRandom

from catalogue.atomic_files import create, named
from catalogue.check.compare_files import compare_file
from catalogue.commoncrawl.crawls import CrawlWords, select_crawls
from catalogue.commoncrawl.datasets import COMMON_CRAWL, index_file, manifest_path, parse_manifest
from catalogue.errors import BadSnapshot, FileChanged, FormatError, NotFound, QueryError, UnknownCrawl
from catalogue.formatting import ReprMixin, join_first, plural, several
from catalogue.harvest.snapshot import MANIFEST, Entry, SnapshotFile, read_entries, unpack_manifest
from catalogue.parquet.footer import examine_footer
from catalogue.parquet.model import MAGIC, with_trailer
from catalogue.progress import Progress
from catalogue.session import Session
from catalogue.settings import canonical
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store, encode_indexes
from catalogue.store.locks import locked
from catalogue.store.schema import index_key
from catalogue.store.stored_file import StoredFile, encode, marker
from catalogue.store.stored_lists import note_values
from catalogue.tables.table_file import TABLES_FOLDER
from catalogue.tables.update_tables import update_tables

_MAX_TEXT, _MAX_FILE = 1000, 1 << 50
_AGAIN = "an export may be running: run the same command again"
_REASONS = "it is wrong, or was made from another source or before the file was replaced"


@dataclass(slots=True, repr=False)
class Pulled(ReprMixin):
    """The result of a pull."""

    place: str
    crawls: tuple[str, ...]
    """Selected crawls of the snapshot, newest first."""
    unchanged: int = 0
    """Crawls among them of which an earlier pull has stored the same."""
    files: int = 0
    """Footers that were added."""
    kept: int = 0
    """Footers that were stored already, in any version, and stay."""
    row_groups: int = 0
    """Row groups whose page indexes were added."""
    compared: int = 0
    """Files that were compared with the source."""
    missing: tuple[str, ...] = ()
    """What is not stored of these crawls now, in sentences."""

    def _line(self) -> str:
        added = f"{plural(self.files, 'footer')} added, {self.kept:,} stored already"
        return f"from {self.place}: {added}; {plural(self.compared, 'file')} compared with the source"

    def _notes(self) -> Iterator[str]:
        yield from self.missing


def pull_snapshot(
    session: Session,
    place: str | Path,
    *,
    crawls: CrawlWords,
    compare: int,
    report: Callable[[Progress], None] | None,
) -> Pulled:
    """Store a snapshot; see ``Catalogue.pull``."""
    if session.dataset != COMMON_CRAWL:
        raise QueryError(f"snapshots are of Common Crawl's index, and this is {session.dataset.name}")
    session.check_writable()  # before any request
    with closing(session.open_source(str(place))) as there, session.reporting(report, "crawls") as bar:
        there_are = _fetch_manifest(there)
        selected = select_crawls(several(crawls, "crawls"), [*there_are])
        if absent := [crawl for crawl in selected if crawl not in there_are]:
            raise UnknownCrawl(f"the snapshot does not have {absent[0]}; it has {join_first([*there_are])}")
        new, pulled = set(), Pulled(there.url, tuple(selected))
        pull = _Pull(there, session.create_store(), session.source, compare, pulled)
        with locked(session.data / "pull.lock", session.data):
            for done, crawl in enumerate(selected, 1):
                if pull.add(there_are[crawl], session.data / "pulling.part"):
                    new.add(crawl)
                bar(Progress("pull", listed=len(selected), done=done, bytes=there.bytes))
    if new:
        tables = session.data / TABLES_FOLDER
        update_tables(tables, session.store, session.dataset, values=new, notify=session.notify)
    pulled.unchanged = len(selected) - len(new)
    shown = session.metadata()
    pulled.missing = tuple(each for crawl in sorted(selected) for each in shown.missing(crawl))
    return pulled


def _fetch_manifest(place: PoliteSource) -> dict[str, SnapshotFile]:
    try:
        files = unpack_manifest(place.get(MANIFEST).body, place.url)
    except NotFound as error:
        reasons = (
            "if it is being exported, wait; if these are copies of Common Crawl's files, use the place as the source"
        )
        raise BadSnapshot(f"there is no snapshot at {place.url}: {MANIFEST} is missing; {reasons}") from error
    if not files:
        raise BadSnapshot(f"the snapshot at {place.url} has no crawls yet; if it is being exported, wait")
    return files


def _fetch(place: PoliteSource, file: SnapshotFile, path: Path) -> None:
    digest, pin = hashlib.sha256(), FileVersion(file.size, None)
    with create(path) as output:
        for start in range(0, file.size, MAX_DOCUMENT):
            part = ByteRange(start, min(start + MAX_DOCUMENT, file.size))
            try:  # a small file is requested without a range, which every server can answer
                answer = place.get(file.name, None if len(part) == file.size else part, pin=pin)
            except (NotFound, FileChanged) as error:
                raise BadSnapshot(f"it is not the file of the manifest ({error}); {_AGAIN}") from error
            pin = answer.version
            digest.update(answer.body)
            output.write(answer.body)
    if digest.hexdigest() != file.sha256:
        raise BadSnapshot(f"it has another digest than in the manifest; {_AGAIN}")


@dataclass(slots=True)
class _Pull:
    place: PoliteSource
    store: Store
    source: PoliteSource
    compare: int
    pulled: Pulled

    def add(self, file: SnapshotFile, path: Path) -> bool:
        """Check and store a file, completely or not at all; return whether it is new."""
        store, crawl, note = self.store, file.crawl, f"snapshots/{file.crawl}/{file.sha256}"
        if store.get("documents", note):
            return False
        with store.harvesting(crawl), named(path):
            try:
                _fetch(self.place, file, path)
                has_values = self._check(crawl, path)
            except (FormatError, NotFound, FileChanged) as error:
                why = "" if isinstance(error, FormatError) else "it has a file that the source does not have as it is: "
                raise BadSnapshot(f"{self.place.url}{file.name}: {why}{error}; nothing of it was stored") from error
            else:
                self._store_footers(file, path)
                if has_values:
                    note_values(store, crawl)
                store.put("documents", [(note, marker(source=self.place.url))])
            finally:
                path.unlink(missing_ok=True)
        return True

    def _entries(self, path: Path) -> Iterator[Entry]:
        return read_entries(path, partial(_attributed, source=self.source.url))

    def _check(self, crawl: str, path: Path) -> bool:
        """Check all footers, and compare some with the source; return whether there are values of columns."""
        paths: dict[bool, list[str]] = {False: [], True: []}  # by whether there are page indexes
        has_values, last = False, ""
        for entry in self._entries(path):
            try:
                _check_entry(crawl, entry, last)
            except FormatError as error:
                raise BadSnapshot(f"{entry.key[:200]!r} is invalid: {error}") from error
            if entry.key != manifest_path(crawl):
                paths[bool(entry.indexes)].append(last := entry.key)
            has_values |= any(each.dictionaries for each in entry.indexes.values())
        sample = {key for keys in paths.values() for key in SystemRandom().sample(keys, min(self.compare, len(keys)))}
        for key, stored, indexes in self._entries(path) if sample else ():
            if key in sample:
                pin = FileVersion(stored.size, None)
                same, different = compare_file(key, stored, indexes, self.source, COMMON_CRAWL.key, pin)
                if different or not same:
                    what = "page index" if same else "footer"
                    raise BadSnapshot(f"it has another {what} of {key} than {self.source.url}; {_REASONS}")
        self.pulled.compared += len(sample)
        return has_values

    def _store_footers(self, file: SnapshotFile, path: Path) -> None:
        store, pulled, manifest = self.store, self.pulled, manifest_path(file.crawl)
        first = islice(self._entries(path), 1)
        store.add_missing("documents", ((key, encode(stored)) for key, stored, _ in first if key == manifest))
        files = ((key, encode(stored)) for key, stored, _ in self._entries(path) if key != manifest)
        added = store.add_missing("files", files)
        pulled.files, pulled.kept = pulled.files + len(added), pulled.kept + file.footers - len(added)

        def rows() -> Iterator[tuple[str, bytes]]:
            for key, stored, indexes in self._entries(path):
                ours = store.undamaged("files", key)
                if ours and (ours.version, ours.data) == (stored.version, stored.data):
                    yield from ((index_key(key, n), value) for n, value in encode_indexes(indexes, stored).items())

        pulled.row_groups += len(store.add_missing("indexes", rows()))


def _attributed(stored: StoredFile, source: str) -> StoredFile:
    """Check the fields of a value, and attribute it to the source with which it is compared."""
    texts = (stored.etag or "", stored.last_modified or "", stored.source, stored.taken)
    is_plain = all(len(text) <= _MAX_TEXT and text.isascii() and text.isprintable() for text in texts)
    if not is_plain or not 0 <= stored.size <= _MAX_FILE or stored.fetched_at > datetime.now(UTC) + timedelta(days=1):
        raise ValueError("invalid time, size or text")
    # An ETag of another source has no meaning.
    etag = stored.etag if canonical(stored.source) == canonical(source) else None
    return replace(stored, source=source, etag=etag, note="")


def _check_entry(crawl: str, entry: Entry, last: str) -> None:
    stored, file = entry.stored, index_file(entry.key)
    if entry.key == manifest_path(crawl) and not last:
        parse_manifest(crawl, stored.data)
    elif file and file.crawl == crawl:
        footer = examine_footer(stored.data, stored.size, COMMON_CRAWL.key)
        if entry.key <= last or stored.size < len(MAGIC) + len(with_trailer(stored.data)):
            raise FormatError("it is there twice, not in the order of paths, or smaller than its footer")
        if not entry.indexes.keys() <= {group.ordinal for group in footer.row_groups}:
            raise FormatError("it has a page index of a row group that its footer does not have")
    else:
        raise FormatError(f"it is not a file of {crawl}")
