"""Snapshots: a manifest, which lists its files, and a file with the stored values of each crawl.

::

    snapshot.json                                the manifest
    crawls/CC-MAIN-2022-05.values                what is stored of a crawl

The file of a crawl is a stream of values: a line of JSON with table, key and length, then so many bytes as the store
has them; see ``store/stored_file.py``. First is the manifest of the crawl. Its footers follow in the order of their
paths, each with its page indexes. Last are the lines of the list of blocks, in pieces of ``PIECE`` bytes. The stream
needs no Parquet library, which a file from outside could crash.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_type_hints

from catalogue.atomic_files import create, named
from catalogue.cdx.block_file import StoredList
from catalogue.cdx.cluster import format_blocks, list_path
from catalogue.commoncrawl.crawls import check_crawl_name, newest_first
from catalogue.commoncrawl.manifests import manifest_path
from catalogue.errors import BadSnapshot, QueryError, StoreDamaged
from catalogue.output.open_output import open_folder
from catalogue.output.targets import Target
from catalogue.parquet.thrift import typed
from catalogue.settings import package_version
from catalogue.store.database import Store, encode_indexes
from catalogue.store.schema import index_key, row_group_of
from catalogue.store.stored_file import encode
from catalogue.store.stored_lists import LISTS, open_list

MANIFEST = "snapshot.json"
FORMAT, VERSION = "catalogue snapshot", 4
BLOCKS = "blocks"
"""Stands for a table in the lines before pieces of a list."""
PIECE = 64 << 10
_PART = ".growing"
_HEX = re.compile("[0-9a-f]{64}")
_MAX_FILE = 4 << 30


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The file of a crawl in a snapshot."""

    crawl: str
    size: int
    sha256: str
    contents: str
    """A digest of the stored values: with the same, the file is not written again."""
    footers: int
    indexed: int
    """Footers with page indexes."""
    blocks: int
    """Blocks in the list of the CDX index; 0 without a list."""

    @property
    def name(self) -> str:
        return f"crawls/{self.crawl}.values"


def pack_manifest(files: Iterable[SnapshotFile], missing: Sequence[str] = ()) -> bytes:
    """Return the text of ``snapshot.json``; ``missing`` says in sentences what was not harvested."""
    made = {"made_at": datetime.now(UTC).isoformat(timespec="seconds"), "made_by": package_version()}
    about = {"format": FORMAT, "version": VERSION, **made, "missing": missing, "files": [*map(asdict, files)]}
    return json.dumps(about, indent=1).encode() + b"\n"


def unpack_manifest(data: bytes) -> dict[str, SnapshotFile]:
    """Return the files in a ``snapshot.json`` from outside by crawl, newest first.

    Raises:
        BadSnapshot: if it is invalid or has another version.
    """
    try:
        manifest = json.loads(data)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ValueError("it has another format")  # noqa: TRY301
        version = manifest["version"]
        files = {file.crawl: file for file in map(_file, manifest["files"])} if version == VERSION else {}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadSnapshot(f"its {MANIFEST} is invalid: {str(error)[:100]}") from error
    if version != VERSION:
        next_step = "upgrade this tool" if isinstance(version, int) and version > VERSION else "export it again"
        message = f"it has version {repr(version)[:100]}, and this tool reads version {VERSION}; {next_step}"
        raise BadSnapshot(message)
    return {crawl: files[crawl] for crawl in newest_first(files)}


def _file(fields: dict[str, object]) -> SnapshotFile:
    file = SnapshotFile(**fields)  # type: ignore[arg-type]
    for name, kind in get_type_hints(SnapshotFile).items():
        typed(getattr(file, name), kind)
    check_crawl_name(file.crawl)
    numbers_fit = 0 < file.size <= _MAX_FILE and 0 <= file.indexed <= file.footers and file.blocks >= 0
    if not _HEX.fullmatch(file.sha256) or not numbers_fit:
        raise ValueError(f"sha256, size or a count of {file.crawl}")
    return file


def export(
    output: str | Path,
    store: Store,
    crawls: Mapping[str, Sequence[str]],
    *,
    removes: bool,
    missing: Sequence[str],
    cache: Path,
    report: Callable[[SnapshotFile], None] = lambda _: None,
) -> list[SnapshotFile]:
    """Write a snapshot, or update one: files of crawls without changes are kept.

    After each crawl the manifest is replaced, so an export that was killed continues.

    ``crawls`` has the paths of the files of each crawl; its list of blocks is written if it is stored. Other crawls of
    an existing snapshot stay, or with ``removes`` they are removed. ``missing`` says in sentences what was not
    harvested.

    Raises:
        QueryError: if the folder has other files.
        StoreLocked: if another process writes to it.
        OutputFailed: if it cannot be written to.
        DiskFailed: if this machine's disk cannot be written to.
        StoreDamaged: if a stored value or list is damaged.
    """
    with open_folder(output, cache) as place, named(place.staging):
        part, before = place.staging / _PART, _previous(place, output)
        files = {crawl: file for crawl, file in before.items() if crawl in crawls or not removes}
        try:
            _put_manifest(place, part, files, missing)
            for crawl in before.keys() - files.keys():
                place.remove(before[crawl].name)
            for crawl, paths in crawls.items():
                file, contents = files.get(crawl), _contents(store, crawl, paths)
                if file is None or file.contents != contents or place.size(file.name) != file.size:
                    counts = _write(part, store, crawl, paths)
                    if not any(counts):
                        continue
                    with part.open("rb") as written:
                        digest = hashlib.file_digest(written, "sha256").hexdigest()
                    file = files[crawl] = SnapshotFile(crawl, part.stat().st_size, digest, contents, *counts)
                    place.put(part, file.name)
                    _put_manifest(place, part, files, missing)
                report(file)
        finally:
            part.unlink(missing_ok=True)
    return [file for crawl, file in files.items() if crawl in crawls]


def _previous(place: Target, output: str | Path) -> dict[str, SnapshotFile]:
    if place.size(MANIFEST) is None:
        if place.exists("") and not (place.staging / _PART).exists():
            raise QueryError(f"{output} has other files; choose another name for the snapshot")
        return {}
    try:
        return unpack_manifest(place.download(MANIFEST).read_bytes())
    except BadSnapshot as error:
        what = "is not the manifest of a snapshot, or has another version; choose another name"
        raise QueryError(f"{place.label(MANIFEST)} {what}") from error


def _put_manifest(place: Target, part: Path, files: Mapping[str, SnapshotFile], missing: Sequence[str]) -> None:
    with create(part) as file:
        file.write(pack_manifest(files.values(), missing))
    place.put(part, MANIFEST)


def _contents(store: Store, crawl: str, paths: Sequence[str]) -> str:
    """Return a digest of the digests of a crawl's values."""
    keys = {
        "documents": [manifest_path(crawl), LISTS + crawl],
        "files": paths,
        "indexes": [key for path in paths for key in store.index_keys(path)],
    }
    versions = [sorted(store.versions(table, of_table).items()) for table, of_table in keys.items()]
    return hashlib.blake2b(repr(versions).encode(), digest_size=16).hexdigest()


def _write(part: Path, store: Store, crawl: str, paths: Sequence[str]) -> tuple[int, int, int]:
    """Write the file; return the numbers of footers, of those with page indexes, and of blocks."""
    footers, indexed, blocks = set(), set(), open_list(store, crawl)
    with create(part) as file:
        for table, key, value in _values(store, crawl, paths, blocks):
            file.write(json.dumps([table, key, len(value)]).encode() + b"\n" + value)
            if table == "files":
                footers.add(key)
            elif of := row_group_of(key):
                indexed.add(of[0])
    return len(footers), len(indexed), len(blocks or ())


def _values(
    store: Store, crawl: str, paths: Sequence[str], blocks: StoredList | None
) -> Iterator[tuple[str, str, bytes]]:
    manifest = manifest_path(crawl)
    if paths and (document := store.get("documents", manifest)):
        yield "documents", manifest, encode(document)
    for path in sorted(paths):
        if stored := store.get("files", path):
            yield "files", path, encode(stored)
            ordinals = [of[1] for key in store.index_keys(path) if (of := row_group_of(key))]
            found = sorted(store.indexes(path, ordinals, stored).items())
            indexes = {ordinal: written for ordinal, each in found if (written := each.written)}
            for ordinal, value in encode_indexes(indexes, stored).items():
                yield "indexes", index_key(path, ordinal), value
    if blocks and (listed := store.get("documents", LISTS + crawl)):
        for piece in _pieces(blocks, listed.size):
            yield BLOCKS, list_path(crawl), encode(replace(listed, data=piece))


def _pieces(blocks: StoredList, size: int) -> Iterator[bytes]:
    """Yield the lines of a stored list, as they are in ``cluster.idx``."""
    rest, written = b"", 0
    for part in blocks.parts():
        rest += format_blocks(part)
        complete = len(rest) - len(rest) % PIECE
        yield from (rest[start : start + PIECE] for start in range(0, complete, PIECE))
        rest, written = rest[complete:], written + complete
    if written + len(rest) != size:
        raise StoreDamaged(
            f"the stored list of blocks of {blocks.crawl} has {written + len(rest):,} bytes instead of {size:,}; "
            f"run: catalogue harvest --crawl {blocks.crawl} --index cdx --refresh"
        )
    if rest:
        yield rest
