"""What a store holds → a snapshot that others can take over: pieces of the store, plain tables, and what they are."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from catalogue.atomic_files import named
from catalogue.commoncrawl.manifests import COLLINFO, index_file, manifest_path
from catalogue.errors import BadSnapshot, QueryError
from catalogue.harvest.snapshot import (
    LIST_OF_CRAWLS,
    MANIFEST,
    Piece,
    Snapshot,
    TableFile,
    contents_of,
    is_piece,
    unpack_snapshot,
)
from catalogue.output.open_output import open_folder
from catalogue.output.targets import LocalTarget, RemoteTarget
from catalogue.settings import package_version
from catalogue.store.database import Store
from catalogue.store.pieces import Frozen, Row, frozen, write_piece

PIECE_SIZE = 12 << 20
"""Bytes of values after which another piece is begun: what is fetched again if a pull is broken off, and small enough
to be asked for whole, so that any web server will do."""

_GROWING = ".growing-"
_BEGUN = "snapshot.begun"
"""There until the first snapshot is: it says that what is beside it is ours, and not somebody's who is to be spared."""


def publish(
    output: str | Path,
    store: Store,
    crawls: Sequence[str],
    tables: Mapping[str, Callable[[Path], int]],
    *,
    missing: tuple[str, ...],
    cache: Path,
    report: Callable[[Piece], None] = lambda _: None,
) -> Snapshot:
    """Write a snapshot, or bring one up to date: of pieces only those are written that are new.

    Somebody who reads it meanwhile finds the old one or the new one whole, or that a piece of the old one is gone; of
    the first one, none. One that was killed is gone on with, and what it left is removed.

    Args:
        output: a folder, or the URL of one that fsspec can write to.
        store: as it is now; what is written into it meanwhile is not in it.
        crawls: of which all that is held is in it.
        tables: by name, what writes each as a Parquet file and returns its number of rows.
        missing: of these crawls, a sentence each.
        cache: see ``open_folder``.
        report: told of each piece that is there.

    Raises:
        QueryError: if there is something else.
        StoreLocked: if another process writes to it.
        OutputFailed: if it cannot be written to.
        DiskFailed: likewise, of this machine.
    """
    with open_folder(output, cache) as place:
        for left in place.staging.glob(f"{_GROWING}*"):  # of an export that was killed
            rmtree(left, ignore_errors=True)
        before = _before(place, output)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with (
            named(place.staging),
            TemporaryDirectory(prefix=_GROWING, dir=place.staging, ignore_cleanup_errors=True) as name,
            frozen(store) as held,
        ):
            growing = Path(name) / "part"
            if before is None:
                growing.touch()
                _put(place, growing, _BEGUN)
            there = {piece.name: piece for piece in before.pieces} if before else {}
            pieces = []
            for crawl, rows in _cut(held, crawls):
                known = Piece(crawl, contents_of(rows), 0, "", sum(table == "files" for table, _, _ in rows))
                piece = there.get(known.name)
                if piece is None or place.size(piece.name) != piece.size:
                    write_piece(growing, rows)
                    piece = Piece(crawl, known.contents, *_put(place, growing, known.name), known.files)
                pieces.append(piece)
                report(piece)
            written = []
            for table, write in tables.items():
                rows_in_it = write(growing)
                as_if = TableFile(table, 0, "", rows_in_it)
                written.append(TableFile(table, *_put(place, growing, as_if.name), rows_in_it))
            snapshot = Snapshot(now, package_version(), missing, tuple(pieces), tuple(written))
            growing.write_bytes(snapshot.pack())
            _put(place, growing, MANIFEST)
        # Not only those that the old one named: one that was broken off left some that nothing names.
        for name in place.names() - {piece.name for piece in pieces}:
            if is_piece(name):
                place.remove(name)
        if place.size(_BEGUN) is not None:
            place.remove(_BEGUN)
    return snapshot


def _before(place: LocalTarget | RemoteTarget, output: str | Path) -> Snapshot | None:
    """The snapshot that is there already; None if there is none, or only what was broken off before it was one.

    Raises:
        QueryError: if there is something else.
    """
    if place.size(MANIFEST) is None:
        if place.exists("") and place.size(_BEGUN) is None:
            message = f"{output} holds something else; choose another name for the snapshot"
            raise QueryError(message)
        return None
    brought = place.download(MANIFEST)
    with suppress(BadSnapshot):
        return unpack_snapshot(brought.read_bytes())
    message = f"{place.label(MANIFEST)} is of something else, or of another version; choose another name"
    raise QueryError(message)


def _cut(held: Frozen, crawls: Sequence[str]) -> Iterator[tuple[str, list[Row]]]:
    """Rows for one piece after the other, and of which crawl they are."""
    if rows := held.document(COLLINFO):
        yield LIST_OF_CRAWLS, rows
    paths: dict[str, list[str]] = {}
    for path in held.paths():
        if file := index_file(path):
            paths.setdefault(file.crawl, []).append(path)
    for crawl in crawls:
        rows = held.document(manifest_path(crawl))
        size = 0
        for path in paths.get(crawl, []):
            of_file = held.file(path)
            more = sum(len(value) for _, _, value in of_file)
            if size and size + more > PIECE_SIZE:
                yield crawl, rows
                rows, size = [], 0
            rows += of_file
            size += more
        if rows:
            yield crawl, rows


def _put(place: LocalTarget | RemoteTarget, path: Path, name: str) -> tuple[int, str]:
    """Give a file its name in the snapshot; returns its bytes and its digest."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    place.put(path, name)
    path.unlink(missing_ok=True)
    return size, digest
