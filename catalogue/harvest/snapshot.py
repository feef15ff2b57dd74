"""Snapshots of what is stored: their format, export, and pull.

The file of a crawl has entries: a line of JSON, ``[key, length, part, ...]``, and a value of that length as in the
store; see ``store/layout.py``. The first one is the manifest of the crawl; the others are its index files. The
parts of their data are the footer, and the page indexes of each row group, with a length of 0 where there are none.

Pull checks a file completely before anything of it is stored. A digest shows what its maker wrote, not that it is true.
So footers are decoded here, and some footers and page indexes are compared with the source. A maker who invents the
others can still make results incomplete: pull snapshots of people you trust.
"""

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryFile
from typing import BinaryIO, NamedTuple

from catalogue.atomic_files import create, named
from catalogue.check.compare_files import compare_file, written_indexes
from catalogue.commoncrawl.crawls import CrawlWords, check_crawl_name, newest_first, select_crawls
from catalogue.commoncrawl.datasets import COMMON_CRAWL, index_file, manifest_path, parse_manifest
from catalogue.errors import BadSnapshot, FileChanged, FormatError, NotFound, QueryError, StoreDamaged, UnknownCrawl
from catalogue.formatting import ReprMixin, join_first, plural
from catalogue.harvest.harvest_crawls import update_tables
from catalogue.output.open_output import open_folder
from catalogue.output.targets import Target
from catalogue.parquet.footer import examine_footer
from catalogue.parquet.page_index import Indexes
from catalogue.parquet.thrift import typed
from catalogue.progress import Progress, Report
from catalogue.query.arguments import several
from catalogue.session import Session
from catalogue.settings import address, canonical, package_version
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store, encode_indexes
from catalogue.store.layout import StoredFile, decode, encode, index_key, marker, version_of
from catalogue.store.stored_lists import VALUES
from catalogue.tables.make_table import FooterRows, rows_of_footer

MANIFEST = "snapshot.json"
VERSION = 7  # manifests of version 6 have more fields, which need not be read
_PART = ".growing"
_MAX_LINE, _MAX_VALUE, _MAX_FILE = 16 << 10, 64 << 20, 4 << 30
_MAX_TEXT, _MAX_SIZE = 1000, 1 << 50
_AGAIN = "an export may be running: run the same command again"


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The file of a crawl in a snapshot."""

    crawl: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        check_crawl_name(typed(self.crawl, str))
        if not (bytes.fromhex(self.sha256) and 0 <= typed(self.size, int) <= _MAX_FILE):
            raise ValueError(f"sha256 or size of {self.crawl}")

    @classmethod
    def of(cls, crawl: str, file: BinaryIO) -> "SnapshotFile":
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type] # it has readinto
        return cls(crawl, file.tell(), digest)

    @property
    def name(self) -> str:
        return f"crawls/{self.crawl}.values"


class Entry(NamedTuple):
    """What is stored of a file of the source."""

    key: str
    stored: StoredFile
    indexes: Mapping[int, Indexes] = {}
    """The page indexes of an index file by row group."""

    def pack(self) -> bytes:
        indexes = [self.indexes.get(ordinal) for ordinal in range(max(self.indexes, default=-1) + 1)]
        parts = [self.stored.data, *(each.pack() if each else b"" for each in indexes)]
        if indexes and sum(map(len, parts)) > _MAX_VALUE:  # queries fetch page indexes that are not stored
            return self._replace(indexes={}).pack()
        value = encode(replace(self.stored, data=b"".join(parts)))
        return json.dumps([self.key, len(value), *map(len, parts)]).encode() + b"\n" + value


def read_entries(file: BinaryIO) -> Iterator[Entry]:
    """Decode the entries in a file from outside, without bounds of a backfill; raise BadSnapshot if it is invalid."""
    file.seek(0)
    try:
        while line := file.readline(_MAX_LINE):
            key, *lengths = json.loads(line)
            length, *parts = (typed(each, int) for each in lengths)
            if min(length, *parts) < 0 or length > _MAX_VALUE:
                raise ValueError(f"an entry with {length} bytes")  # noqa: TRY301
            stored = decode(file.read(length))
            data = io.BytesIO(stored.data)
            first, *packed = map(data.read, parts)
            indexes = ((ordinal, Indexes.unpack(each).written) for ordinal, each in enumerate(packed) if each)
            if sum(parts) != len(stored.data):
                raise ValueError(f"parts of {sum(parts)} bytes")  # noqa: TRY301
            yield Entry(typed(key, str), replace(stored, data=first), {n: each for n, each in indexes if each})
    except (ValueError, TypeError, RecursionError, StoreDamaged) as error:
        raise BadSnapshot(f"it is damaged or has another form: {str(error)[:200]}") from error


def pack_manifest(files: Iterable[SnapshotFile]) -> bytes:
    about = {"format": "catalogue snapshot", "version": VERSION, "made_by": package_version()}
    return json.dumps(about | {"files": [*map(asdict, files)]}, indent=1).encode() + b"\n"


def unpack_manifest(data: bytes, place: str) -> dict[str, SnapshotFile]:
    """Return the files in a manifest from outside by crawl, newest first; raise BadSnapshot if it is invalid."""
    try:
        manifest = json.loads(data)
        if (version := typed(manifest["version"], int)) not in {6, VERSION}:
            which = "; upgrade this tool" if version > VERSION else ", which a new export has"
            raise ValueError(f"it has version {version}, and this tool reads version {VERSION}{which}")  # noqa: TRY301
        files = {each["crawl"]: SnapshotFile(each["crawl"], each["size"], each["sha256"]) for each in manifest["files"]}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadSnapshot(f"the snapshot at {place} cannot be used: {MANIFEST}: {str(error)[:100]}") from error
    return {crawl: files[crawl] for crawl in newest_first(files)}


def export(
    output: str | Path, session: Session, crawls: Mapping[str, Sequence[str]], *, removes: bool
) -> Iterator[SnapshotFile]:
    """Write or update a snapshot; see ``Catalogue.export_snapshot``. Yield the file of each crawl.

    ``crawls`` has the paths of the files of each crawl. Files of crawls without changes are kept. The manifest is
    replaced after each crawl, so that an export that was killed continues. With ``removes``, other crawls are removed.
    """
    with open_folder(output, session.settings.cache) as place, named(place.staging):
        part, before = place.staging / _PART, _previous(place, output)
        files = {crawl: file for crawl, file in before.items() if crawl in crawls or not removes}
        try:
            _put_manifest(place, part, files)
            for name in place.names() - {file.name for file in files.values()}:
                if name.startswith("crawls/") and name.endswith(".values"):  # a killed export may have left some
                    place.remove(name)
            for crawl, paths in crawls.items():
                file = _write(part, session.store, crawl, paths)
                if file != files.get(crawl) or place.size(file.name) != file.size:
                    files[crawl] = file
                    place.put(part, file.name)
                    _put_manifest(place, part, files)
                yield file
        finally:
            part.unlink(missing_ok=True)


def _previous(place: Target, output: str | Path) -> dict[str, SnapshotFile]:
    if place.size(MANIFEST) is None:
        if place.exists("") and not (place.staging / _PART).exists():
            raise QueryError(f"{output} has other files; choose another name for the snapshot")
        return {}
    try:
        return unpack_manifest(place.download(MANIFEST).read_bytes(), str(output))
    except BadSnapshot as error:
        raise QueryError(f"{error}; choose another name to keep it") from error


def _put_manifest(place: Target, part: Path, files: Mapping[str, SnapshotFile]) -> None:
    with create(part) as file:
        file.write(pack_manifest(files.values()))
    place.put(part, MANIFEST)


def _write(part: Path, store: Store, crawl: str, paths: Sequence[str]) -> SnapshotFile:
    with create(part) as file:
        for table, key in [("documents", manifest_path(crawl)), *(("files", path) for path in sorted(paths))]:
            if stored := store.get(table, key):
                file.write(Entry(key, stored, written_indexes(store, key, stored)).pack())
        return SnapshotFile.of(crawl, file)


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
    session: Session, place: str | Path, crawls: CrawlWords, compare: int, report: Report | None
) -> Pulled:
    if session.dataset != COMMON_CRAWL:
        raise QueryError(f"snapshots are of Common Crawl's index, and this is {session.dataset.name}")
    address(str(place))  # messages contain it, so it must not contain a secret
    session.check_writable()  # before any request
    with closing(session.open_source(str(place))) as there, session.reporting(report, "crawls") as bar:
        listed = _fetch_manifest(there)
        selected = select_crawls(several(crawls, "crawls"), [*listed])
        if absent := [crawl for crawl in selected if crawl not in listed]:
            raise UnknownCrawl(f"the snapshot does not have {absent[0]}; it has {join_first([*listed])}")
        pulled = Pulled(there.url, tuple(selected))
        for done, crawl in enumerate(selected, 1):
            _pull_file(session, there, listed[crawl], compare, pulled)
            bar(Progress("pull", listed=len(selected), done=done, bytes=there.bytes))
    shown = session.metadata()
    pulled.missing = tuple(each for crawl in sorted(selected) for each in shown.missing(crawl))
    return pulled


def _fetch_manifest(place: PoliteSource) -> dict[str, SnapshotFile]:
    try:
        files = unpack_manifest(place.get(MANIFEST).body, place.url)
    except NotFound as error:
        raise BadSnapshot(
            f"there is no snapshot at {place.url}: {MANIFEST} is missing; if it is being exported, wait; if these are "
            "copies of Common Crawl's files, use the place as the source"
        ) from error
    if not files:
        raise BadSnapshot(f"the snapshot at {place.url} has no crawls yet; if it is being exported, wait")
    return files


def _fetch(place: PoliteSource, file: SnapshotFile, output: BinaryIO) -> None:
    pin = FileVersion(file.size, None)
    for start in range(0, file.size, MAX_DOCUMENT):
        part = ByteRange(start, min(start + MAX_DOCUMENT, file.size))
        try:  # a small file is requested without a range, which every server can answer
            answer = place.get(file.name, None if len(part) == file.size else part, pin=pin)
        except (NotFound, FileChanged) as error:
            raise BadSnapshot(f"it is not the file of the manifest ({error}); {_AGAIN}") from error
        pin = answer.version
        output.write(answer.body)
    if SnapshotFile.of(file.crawl, output) != file:
        raise BadSnapshot(f"it has another digest than in the manifest; {_AGAIN}")


def _pull_file(session: Session, place: PoliteSource, file: SnapshotFile, compare: int, pulled: Pulled) -> None:
    store, note = session.create_store(), f"snapshots/{file.crawl}/{file.sha256}"
    if store.get("documents", note):
        pulled.unchanged += 1
        return
    with store.harvesting(file.crawl), named(session.data), TemporaryFile(dir=session.data) as copy:
        try:
            _fetch(place, file, copy)
            decoded, files, compared = _check(file.crawl, copy, session.source, compare)
        except (FormatError, NotFound, FileChanged) as error:
            why = "" if isinstance(error, FormatError) else "it has a file that the source does not have as it is: "
            raise BadSnapshot(f"{place.url}{file.name}: {why}{error}; nothing of it was stored") from error
        added = Counter(table for table, _ in store.add_missing(_rows(file.crawl, copy, store, session.source.url)))
        store.put("documents", [(note, marker(source=place.url))])
    pulled.files += added["files"]
    pulled.kept += files - added["files"]
    pulled.row_groups += added["indexes"]
    pulled.compared += compared
    update_tables(session, decoded, values=[file.crawl])


def _check(crawl: str, copy: BinaryIO, source: PoliteSource, compare: int) -> tuple[dict[str, FooterRows], int, int]:
    decoded: dict[str, FooterRows] = {}
    paths: dict[bool, list[str]] = {False: [], True: []}  # by whether there are page indexes
    last = ""
    for entry in read_entries(copy):
        try:
            rows = _check_entry(crawl, entry, last, source.url)
        except (FormatError, StoreDamaged) as error:
            raise BadSnapshot(f"{entry.key[:200]!r} is invalid: {error}") from error
        if entry.key != manifest_path(crawl):
            paths[bool(entry.indexes)].append(last := entry.key)
            decoded |= {entry.key: rows} if rows else {}
    sample = {key for keys in paths.values() for key in SystemRandom().sample(keys, min(compare, len(keys)))}
    for key, stored, indexes in read_entries(copy) if sample else ():
        if key in sample:
            pin = FileVersion(stored.size, None)
            same, different = compare_file(key, stored, indexes, source, COMMON_CRAWL.key, pin)
            if different or not same:
                what = f"{'page index' if same else 'footer'} of {key} than {source.url}"
                why = "it is wrong, or was made from another source or before the file was replaced"
                raise BadSnapshot(f"it has another {what}; {why}")
    return decoded, sum(map(len, paths.values())), len(sample)


def _check_entry(crawl: str, entry: Entry, last: str, source: str) -> FooterRows | None:
    stored, file = entry.stored, index_file(entry.key)
    texts = (stored.etag or "", stored.last_modified or "", stored.source, stored.taken)
    is_plain = all(len(text) <= _MAX_TEXT and text.isascii() and text.isprintable() for text in texts)
    if not is_plain or not 0 <= stored.size <= _MAX_SIZE:
        raise FormatError("invalid time, size or text")
    if stored.fetched_at > datetime.now(UTC) + timedelta(days=1):
        raise FormatError(f"its time {stored.taken} is in the future; check the clock of this machine")
    if entry.key == manifest_path(crawl) and not last:
        parse_manifest(crawl, stored.data)
        return None
    if file is None or file.crawl != crawl:
        raise FormatError(f"it is not a file of {crawl}")
    footer = examine_footer(stored.data, stored.size, COMMON_CRAWL.key)
    if entry.key <= last:
        raise FormatError("it is there twice, or not in the order of paths")
    if not entry.indexes.keys() <= {group.ordinal for group in footer.row_groups}:
        raise FormatError("it has a page index of a row group that its footer does not have")
    with suppress(OverflowError):  # reported when the table is made
        stored = _of_source(stored, source)
        return rows_of_footer(COMMON_CRAWL.key, file, stored, version_of(encode(stored)), footer)
    return None


def _of_source(given: StoredFile, source: str) -> StoredFile:
    etag = given.etag if canonical(given.source) == canonical(source) else None  # another source's has no meaning
    return replace(given, source=source, etag=etag, note="")


def _rows(crawl: str, copy: BinaryIO, store: Store, source: str) -> Iterator[tuple[str, str, bytes]]:
    for key, given, indexes in read_entries(copy):
        stored = _of_source(given, source)
        yield "documents" if key == manifest_path(crawl) else "files", key, encode(stored)
        ours = store.undamaged("files", key)
        if ours and (ours.version, ours.data) == (stored.version, stored.data):
            yield from (("indexes", index_key(key, n), value) for n, value in encode_indexes(indexes, stored).items())
            if any(each.dictionaries for each in indexes.values()):
                yield "documents", f"{VALUES}{crawl}", encode(marker())
