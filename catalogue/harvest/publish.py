"""Write a snapshot: a file and a list of blocks for each crawl, plain tables, and the manifest."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from catalogue.atomic_files import named
from catalogue.commoncrawl.manifests import COLLINFO, manifest_path
from catalogue.errors import BadSnapshot, QueryError
from catalogue.formatting import join_first
from catalogue.harvest.snapshot import (
    CRAWL_LIST,
    MANIFEST,
    NO_ROW_GROUP,
    Row,
    Snapshot,
    SnapshotFile,
    SnapshotList,
    crawl_of,
    unpack_snapshot,
    write_rows,
)
from catalogue.harvest.snapshot_lists import write_list
from catalogue.output.open_output import open_folder
from catalogue.output.targets import LocalTarget, RemoteTarget
from catalogue.plan.block_lists import open_list
from catalogue.settings import package_version
from catalogue.store.database import Store
from catalogue.store.schema import row_group_of
from catalogue.store.stored_lists import LISTS

_TEMPORARY = ".growing-"
_STARTED = "snapshot.begun"
"""Exists until the first manifest does: the other files are those of an unfinished export."""


def publish(  # noqa: PLR0913 - one parameter for each part
    output: str | Path,
    store: Store,
    crawls: Mapping[str, Sequence[str]],
    tables: Mapping[str, Callable[[Path], int]],
    *,
    lists: Sequence[str] = (),
    removes: bool = True,
    missing: tuple[str, ...],
    cache: Path,
    report: Callable[[SnapshotFile], None] = lambda _: None,
) -> Snapshot:
    """Write a snapshot of ``crawls``, or update one: files of crawls without changes are kept.

    The manifest is replaced last. Files of an export that was killed are used or removed.

    ``crawls`` has the paths of the files of each crawl. ``lists`` are the crawls whose lists of blocks are written.
    Other crawls of an earlier snapshot are removed, or refused without ``removes``. ``tables`` has functions that write
    a Parquet file and return its number of rows. ``missing`` says in sentences what was not harvested. ``report`` is
    called with each file and list.

    Raises:
        QueryError: if the folder has other files, or crawls that would be removed.
        StoreLocked: if another process writes to it.
        OutputFailed: if it cannot be written to.
        DiskFailed: if this machine's disk cannot be written to.
        StoreDamaged: if a stored value or list is damaged.
    """
    with open_folder(output, cache) as place:
        for left in place.staging.glob(f"{_TEMPORARY}*"):
            rmtree(left, ignore_errors=True)
        before = _previous(place, output)
        _check_crawls(before, {*crawls, *lists}, output, removes=removes)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with (
            named(place.staging),
            TemporaryDirectory(prefix=_TEMPORARY, dir=place.staging, ignore_cleanup_errors=True) as temporary,
        ):
            part = Path(temporary) / "part"
            if before is None:
                part.touch()
                _put(place, part, _STARTED, 0)
            existing = {file.name: file for file in (*before.files, *before.blocks)} if before else {}
            files = []
            with_list = {CRAWL_LIST: [], **crawls} if store.get("documents", COLLINFO) else crawls
            for crawl, paths in with_list.items():
                digest, footers = write_rows(part, _rows(store, crawl, paths))
                file = existing.get(f"crawls/{crawl}.{digest}.zst")
                if file is None or place.size(file.name) != file.size:
                    file = _put(place, part, f"crawls/{crawl}.{digest}.zst", footers)
                files.append(file)
                report(file)
            blocks = []
            for crawl in lists:
                if listed := _list(place, part, store, crawl, existing):
                    blocks.append(listed)
                    report(listed)
            written = [_put(place, part, f"tables/{table}.parquet", write(part)) for table, write in tables.items()]
            snapshot = Snapshot(now, package_version(), missing, tuple(files), tuple(written), tuple(blocks))
            part.write_bytes(snapshot.pack())
            _put(place, part, MANIFEST, 0)
        for name in place.names() - {file.name for file in (*files, *blocks)}:
            if crawl_of(name):
                place.remove(name)
        if place.size(_STARTED) is not None:
            place.remove(_STARTED)
    return snapshot


def _previous(place: LocalTarget | RemoteTarget, output: str | Path) -> Snapshot | None:
    """Return the snapshot in a folder; None if the folder is empty or has an unfinished first export."""
    if place.size(MANIFEST) is None:
        if place.exists("") and place.size(_STARTED) is None:
            raise QueryError(f"{output} has other files; choose another name for the snapshot")
        return None
    with suppress(BadSnapshot):
        return unpack_snapshot(place.download(MANIFEST).read_bytes())
    raise QueryError(
        f"{place.label(MANIFEST)} is not the manifest of a snapshot, or has another version; choose another name"
    )


def _check_crawls(before: Snapshot | None, crawls: Collection[str], output: str | Path, *, removes: bool) -> None:
    others = [crawl for crawl in (before.crawls if before else ()) if crawl not in crawls]
    if others and not removes:
        instead = "add them to the crawls, select all, or choose another name"
        raise QueryError(f"{output} also has {join_first(others)}, which would be removed; {instead}")


def _rows(store: Store, crawl: str, paths: Sequence[str]) -> Iterator[list[Row]]:
    document = COLLINFO if crawl == CRAWL_LIST else manifest_path(crawl)
    if value := store.get("documents", document):
        yield [Row("manifest", document, NO_ROW_GROUP, value)]
    for path in paths:
        if value := store.get("files", path):
            ordinals = [of[1] for key in store.index_keys(path) if (of := row_group_of(key))]
            indexes = sorted(store.indexes(path, ordinals, value).items())
            written = [(ordinal, part) for ordinal, each in indexes if (part := each.written)]
            rows = [Row("page_index", path, ordinal, replace(value, data=part.pack())) for ordinal, part in written]
            yield [Row("footer", path, NO_ROW_GROUP, value), *rows]


def _list(
    place: LocalTarget | RemoteTarget, part: Path, store: Store, crawl: str, existing: Mapping[str, SnapshotFile]
) -> SnapshotList | None:
    stored, blocks = store.get("documents", LISTS + crawl), open_list(store, crawl)
    if stored is None or blocks is None:
        return None
    name = f"blocks/{crawl}.{blocks.digest()}.idx.gz"
    file = existing.get(name)
    if file is None or place.size(name) != file.size:
        write_list(part, blocks, stored.size)
        file = _put(place, part, name, len(blocks))
    version = (stored.size, stored.etag, stored.last_modified, stored.source, stored.taken)
    return SnapshotList(name, file.size, file.sha256, file.count, *version)


def _put(place: LocalTarget | RemoteTarget, path: Path, name: str, count: int) -> SnapshotFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    place.put(path, name)
    path.unlink(missing_ok=True)
    return SnapshotFile(name, size, digest, count)
