"""Snapshots: a manifest, which lists its files, and a file of entries for each crawl.

::

    snapshot.json                                the manifest
    crawls/CC-MAIN-2022-05.values                what is stored of a crawl

An entry is a line of JSON, ``[key, length, part, ...]``, and a value of that length as the store has them; see
``store/stored_file.py``. The first entry is the manifest of the crawl; the others are its index files. The parts of
their data are the footer, and the page indexes of each row group, with a length of 0 where there are none. Reading
this needs no Parquet library, which a file from outside could crash.
"""

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, get_type_hints

from catalogue.atomic_files import create, named
from catalogue.check.compare_files import written_indexes
from catalogue.commoncrawl.crawls import check_crawl_name, newest_first
from catalogue.commoncrawl.datasets import manifest_path
from catalogue.errors import BadSnapshot, QueryError, StoreDamaged
from catalogue.output.open_output import open_folder
from catalogue.output.targets import Target
from catalogue.parquet.page_index import Indexes
from catalogue.parquet.thrift import typed
from catalogue.session import Session
from catalogue.settings import package_version
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile, decode, encode

MANIFEST = "snapshot.json"
VERSION = 6
_PART = ".growing"
_HEX = re.compile("[0-9a-f]{64}")
_MAX_LINE, _MAX_VALUE, _MAX_FILE = 16 << 10, 64 << 20, 4 << 30


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The file of a crawl in a snapshot."""

    crawl: str
    size: int
    sha256: str
    contents: str
    """A digest of the stored values: with the same, the file is not written again."""
    footers: int

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(SnapshotFile).items():
            typed(getattr(self, name), kind)
        check_crawl_name(self.crawl)
        if not (_HEX.fullmatch(self.sha256) and 0 <= self.size <= _MAX_FILE and self.footers >= 0):
            raise ValueError(f"sha256, size or footers of {self.crawl}")

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


def read_entries(path: Path, accept: Callable[[StoredFile], StoredFile] = lambda stored: stored) -> Iterator[Entry]:
    """Decode the entries in a file from outside, without bounds that a backfill found.

    Raises:
        BadSnapshot: if it is invalid, or ``accept`` raises ValueError for a value.
    """
    try:
        with path.open("rb") as file:
            while line := file.readline(_MAX_LINE):
                key, *lengths = json.loads(line)
                length, *parts = (typed(each, int) for each in lengths)
                if min(length, *parts) < 0 or length > _MAX_VALUE:
                    raise ValueError(f"an entry with {length} bytes")  # noqa: TRY301
                stored = accept(decode(file.read(length)))
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
    """Return the files in a ``snapshot.json`` from outside by crawl, newest first.

    Raises:
        BadSnapshot: if it is invalid or has another version.
    """
    try:
        manifest = json.loads(data)
        if (version := typed(manifest["version"], int)) != VERSION:
            which = "; upgrade this tool" if version > VERSION else ", which a new export has"
            raise ValueError(f"it has version {version}, and this tool reads version {VERSION}{which}")  # noqa: TRY301
        files = {file.crawl: file for file in (SnapshotFile(**fields) for fields in manifest["files"])}
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
    store = session.store
    with open_folder(output, session.settings.cache) as place, named(place.staging):
        part, before = place.staging / _PART, _previous(place, output)
        files = {crawl: file for crawl, file in before.items() if crawl in crawls or not removes}
        try:
            _put_manifest(place, part, files)
            for crawl in before.keys() - files.keys():
                place.remove(before[crawl].name)
            for crawl, paths in crawls.items():
                file, contents = files.get(crawl), _contents(store, crawl, paths)
                if file is None or file.contents != contents or place.size(file.name) != file.size:
                    file = files[crawl] = _write(part, store, crawl, paths, contents)
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


def _contents(store: Store, crawl: str, paths: Sequence[str]) -> str:
    """Return a digest of the digests of a crawl's values."""
    indexes = [key for path in paths for key in store.index_keys(path)]
    keys = {"documents": [manifest_path(crawl)], "files": paths, "indexes": indexes}
    versions = [sorted(store.versions(table, of_table).items()) for table, of_table in keys.items()]
    return hashlib.blake2b(repr(versions).encode(), digest_size=16).hexdigest()


def _write(part: Path, store: Store, crawl: str, paths: Sequence[str], contents: str) -> SnapshotFile:
    footers = 0
    with create(part) as file:
        if manifest := store.get("documents", manifest_path(crawl)):
            file.write(Entry(manifest_path(crawl), manifest).pack())
        for path in sorted(paths):
            if stored := store.get("files", path):
                file.write(Entry(path, stored, written_indexes(store, path, stored)).pack())
                footers += 1
    with part.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    return SnapshotFile(crawl, part.stat().st_size, digest, contents, footers)
