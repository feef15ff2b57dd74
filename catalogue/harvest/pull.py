"""A snapshot of somebody's store → our own store, piece by piece, each checked before anything of it is taken.

A digest says that a piece is what its maker wrote, and not that it is true. So footers are examined as any stranger's
are, facts are derived, and some footers and page indexes are compared with the source's own. Page indexes that were
derived from reading cannot be compared, and are not taken. Whoever made all of it up but for those that happen to be
compared can still make answers lack rows: take snapshots from people you trust.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from catalogue import metadata_db
from catalogue.atomic_files import create, named
from catalogue.check.compare_files import differing, start_of
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.commoncrawl.manifests import COLLINFO, index_file, manifest_path, parse_collinfo, parse_manifest
from catalogue.errors import BadSnapshot, FileChanged, FormatError, NotFound, QueryError, StoreDamaged
from catalogue.formatting import ReprMixin, plural
from catalogue.harvest.snapshot import LIST_OF_CRAWLS, MANIFEST, Piece, Snapshot, contents_of, unpack_snapshot
from catalogue.parquet.footer import MAGIC, TRAILER, with_trailer
from catalogue.parquet.stored_indexes import Indexes
from catalogue.parquet.summary import examine_footer
from catalogue.progress import Progress
from catalogue.selection import several
from catalogue.session import Session
from catalogue.settings import canonical
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.locks import locked
from catalogue.store.pieces import Row, read_piece
from catalogue.store.schema import row_group_of
from catalogue.store.stored_file import StoredFile, decode, encode, version_of

_LONGEST_TEXT = 1000
_MOST_FILE = 1 << 50


@dataclass(slots=True, repr=False)
class Pulled(ReprMixin):
    """What was taken of a snapshot."""

    place: str
    crawls: tuple[str, ...]
    """Of which pieces were looked at, newest first."""
    pieces: int = 0
    """Those that are ours now, whenever they were taken."""
    old: int = 0
    """Of these, those that an earlier pull took; they were not looked at again."""
    files: int = 0
    """Footers that were added."""
    kept: int = 0
    """Footers of new pieces that we held already, in whatever version; they stay."""
    row_groups: int = 0
    """Whose page indexes were added."""
    compared: int = 0
    """Files whose footers and page indexes were compared with the source's own."""
    missing: tuple[str, ...] = ()
    """Of these crawls, what is not held now: a sentence each."""

    def _line(self) -> str:
        added = f"{plural(self.files, 'footer')} added, {self.kept:,} held already"
        return f"from {self.place}: {added}; {plural(self.compared, 'file')} compared with the source"

    def _notes(self) -> Iterator[str]:
        yield from self.missing


class Pull:
    """Takes pieces of a snapshot over."""

    def __init__(
        self,
        place: PoliteSource,
        store: Store,
        source: PoliteSource,
        *,
        compare: int,
        folder: Path,
    ) -> None:
        """Prepare to.

        Args:
            place: where the snapshot is.
            store: takes it.
            source: of the files that it tells of.
            compare: how many files of each piece are compared with the source, and how many with page indexes; a
                request each.
            folder: where a piece may lie while it is looked into.
        """
        self._place = place
        self._store = store
        self._source = source
        self._compare = compare
        self._folder = folder

    def snapshot(self) -> Snapshot:
        """What is in it.

        Raises:
            BadSnapshot: if there is none, or it is not as it should be.
        """
        try:
            return unpack_snapshot(self._place.get(MANIFEST).body)
        except NotFound as error:
            message = f"there is no snapshot at {self._place.url}: no {MANIFEST}; or somebody is exporting the first"
            raise BadSnapshot(message) from error
        except BadSnapshot as error:
            message = f"the snapshot at {self._place.url} is not taken: {error}"
            raise BadSnapshot(message) from error

    def take(self, pieces: Sequence[Piece], pulled: Pulled, report: Callable[[Pulled], None]) -> None:
        """Take those pieces that were not taken before; each wholly, or nothing of it.

        Raises:
            BadSnapshot: at the first that is not as it should be; those before it are taken.
            SourceError: if the snapshot, or the source to compare with, cannot be read.
            StoreLocked: if another process is at it.
        """
        with locked(self._folder / "pull.lock", self._folder):
            taken = set(self._store.keys("documents", "snapshots/"))
            for piece in pieces:
                if _note(piece) in taken:
                    pulled.old += 1
                else:
                    self._take(piece, self._folder / "pulling.part", pulled)
                pulled.pieces += 1
                report(pulled)

    def _take(self, piece: Piece, path: Path, pulled: Pulled) -> None:
        try:
            self._fetch(piece, path)
            content = _Content(piece, read_piece(path))
            content.attribute_to(self._source.url)
            facts = content.examined()
        except NotFound as error:
            message = f"{error}; whoever exports the snapshot may be at it: run the same command again"
            raise BadSnapshot(message) from error
        except BadSnapshot as error:
            message = f"{self._place.url}{piece.name} {error}; nothing of it was taken"
            raise BadSnapshot(message) from error
        finally:
            path.unlink(missing_ok=True)
        pulled.compared += self._compared(content)
        with self._store.harvesting(piece.crawl):
            self._merge(piece, content, facts, pulled)

    def _fetch(self, piece: Piece, path: Path) -> None:
        digest = hashlib.sha256()
        with named(path), create(path) as file:
            pin = FileVersion(piece.size, None)
            for start in range(0, piece.size, MAX_DOCUMENT):
                part = ByteRange(start, min(start + MAX_DOCUMENT, piece.size))
                # Not every server knows ranges, but every one knows files.
                answer = self._place.get(piece.name, None if len(part) == piece.size else part, pin=pin)
                pin = FileVersion(piece.size, answer.etag)
                digest.update(answer.body)
                file.write(answer.body)
        if digest.hexdigest() != piece.sha256:
            message = "has another digest than the snapshot says"
            raise BadSnapshot(message)

    def _compared(self, content: "_Content") -> int:
        """Compare the footers and page indexes of some files with those of the source itself."""
        chance = random.SystemRandom()
        paths = set(chance.sample(sorted(content.files), min(self._compare, len(content.files))))
        written = content.written()
        lacking = max(0, self._compare - len(paths & written.keys()))
        others = sorted(written.keys() - paths)
        paths |= {*chance.sample(others, min(lacking, len(others)))}
        for path in sorted(paths):
            self._compare_file(path, decode(content.files[path]), written.get(path, {}))
        return len(paths)

    def _compare_file(self, path: str, held: StoredFile, indexes: dict[int, Indexes]) -> None:
        start = start_of(held, indexes, COMMON_CRAWL.key)
        try:
            body = self._source.get(path, ByteRange(start, held.size), pin=FileVersion(held.size, None)).body
        except (FormatError, NotFound, FileChanged) as error:
            message = f"the snapshot tells of {path}, which the source has not, or not so: {error}"
            raise BadSnapshot(message) from error
        what = "" if body.endswith(with_trailer(held.data)) else "footer"
        if what or [*differing(held, indexes, COMMON_CRAWL.key, body)]:
            message = (
                f"the {what or 'page index'} of {path} is not the one that {self._source.url} has; the snapshot is "
                "wrong, or was made of another source or before the file was replaced"
            )
            raise BadSnapshot(message)

    def _merge(self, piece: Piece, content: "_Content", facts: dict[str, bytes], pulled: Pulled) -> None:
        """Add what is not held; that comes last of which it says that all is there."""
        store = self._store
        store.add_missing("documents", content.documents.items())
        added = store.add_missing("files", content.files.items())
        versions = store.versions("files", added)
        same_still = [path for path, version in versions.items() if version == version_of(content.files[path])]
        store.add_facts((path, decode(facts[path])) for path in same_still)
        same = {path for path, value in content.files.items() if path in added or self._is_held(path, value)}
        indexes = [
            (key, value) for key, value in content.indexes.items() if (of := row_group_of(key)) and of[0] in same
        ]
        pulled.row_groups += len(store.add_missing("indexes", indexes))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        store.put("documents", [(_note(piece), StoredFile(b"", 0, None, None, self._place.url, now))])
        pulled.files += len(added)
        pulled.kept += len(content.files) - len(added)

    def _is_held(self, path: str, value: bytes) -> bool:
        """Whether we hold the very same file, of which the same page indexes are true."""
        with suppress(StoreDamaged):
            ours, theirs = self._store.get("files", path), decode(value)
            return ours is not None and (ours.version, ours.data) == (theirs.version, theirs.data)
        return False


class _Content:
    """The rows of a piece, each of a form that our store could have."""

    def __init__(self, piece: Piece, rows: Sequence[Row]) -> None:
        """Look at them.

        Raises:
            BadSnapshot: if they are not.
        """
        if contents_of(rows) != piece.contents:
            message = "has other contents than its name says"
            raise BadSnapshot(message)
        tables: dict[str, dict[str, bytes]] = {"documents": {}, "files": {}, "indexes": {}}
        for table, key, value in rows:
            tables[table][key] = value
        self.documents, self.files, self.indexes = tables.values()
        known = {}
        for path, held in _decoded(self.files):
            file = index_file(path)
            if file is None or file.crawl != piece.crawl or held.size < len(MAGIC) + len(held.data) + TRAILER:
                message = f"tells of {path!r}, which is no index file of {piece.crawl}"
                raise BadSnapshot(message)
            known[path] = held.version
        for path, held in _decoded(self.documents):
            if path != (COLLINFO if piece.crawl == LIST_OF_CRAWLS else manifest_path(piece.crawl)):
                message = f"has a document {path!r}"
                raise BadSnapshot(message)
            with _as_bad(path):
                parse_collinfo(held.data) if path == COLLINFO else parse_manifest(piece.crawl, held.data)
        given, self.indexes = self.indexes, {}
        for key, held in _decoded(given):
            path, _ = row_group_of(key) or ("", 0)
            if path not in known or held.version != known[path]:
                message = f"has a page index of {key!r}, which is not in it so"
                raise BadSnapshot(message)
            with _as_bad(key):
                if written := Indexes.unpack(held.data).written:
                    self.indexes[key] = encode(replace(held, data=written.pack()))

    def written(self) -> dict[str, dict[int, Indexes]]:
        """The page indexes by path and row group."""
        found: dict[str, dict[int, Indexes]] = {}
        for key, value in self.indexes.items():
            if of := row_group_of(key):
                found.setdefault(of[0], {})[of[1]] = Indexes.unpack(decode(value).data)
        return found

    def attribute_to(self, source: str) -> None:
        """Have the values say that they came from a source, with which they are compared.

        ETags of another source mean nothing to it.
        """
        for values in (self.files, self.indexes):
            for key, value in values.items():
                held = decode(value)
                if held.source != source:
                    etag = held.etag if canonical(held.source) == canonical(source) else None
                    values[key] = encode(replace(held, source=source, etag=etag))

    def examined(self) -> dict[str, bytes]:
        """What the footers say, by path, as our store keeps it: a small piece may have footers that say very much.

        Raises:
            BadSnapshot: if one is none.
        """

        def look(item: tuple[str, bytes]) -> tuple[str, bytes]:
            path, value = item
            held = decode(value)
            with _as_bad(path):
                facts = examine_footer(held.data, held.size)
            return path, encode(metadata_db.packed(facts, held, version_of(value)))

        return dict(map(look, self.files.items()))


@contextmanager
def _as_bad(key: str) -> Iterator[None]:
    try:
        yield
    except (FormatError, StoreDamaged) as error:
        message = f"has {key!r}, which is damaged: {error}"
        raise BadSnapshot(message) from error


def _decoded(values: dict[str, bytes]) -> Iterator[tuple[str, StoredFile]]:
    """Values that our store could have written until now."""
    latest = datetime.now(UTC) + timedelta(days=1)
    for key, value in values.items():
        with _as_bad(key):
            held = decode(value)
        texts = (held.etag or "", held.last_modified or "", held.source, held.note, held.taken)
        try:
            is_past = datetime.fromisoformat(held.taken) <= latest
        except (ValueError, OverflowError, TypeError):  # the last without a zone
            is_past = False
        if not is_past or not 0 <= held.size <= _MOST_FILE or not all(map(_is_plain, texts)):
            message = f"has {key!r} with what no store notes of a file"
            raise BadSnapshot(message)
        yield key, held


def _is_plain(text: str) -> bool:
    return len(text) <= _LONGEST_TEXT and text.isascii() and text.isprintable()


def _note(piece: Piece) -> str:
    """The document that says that a piece was taken."""
    return f"snapshots/{piece.crawl}/{piece.contents}"


COMPARED = 3
"""Files of each piece that are compared with the source."""


def pull_snapshot(
    session: Session,
    place: str,
    *,
    crawls: str | Iterable[str] = "all",
    compare: int = COMPARED,
    report: Callable[[Progress], None] | None = None,
) -> Pulled:
    """Store what a snapshot has; see ``Catalogue.pull``."""
    if session.dataset != COMMON_CRAWL:
        message = f"snapshots are of Common Crawl's index, and this is {session.dataset.name}"
        raise QueryError(message)
    with (
        closing(session.open_source(place)) as there,
        session.reporting(report, "pieces") as told,
    ):
        pull = Pull(there, session.create_store(), session.source, compare=compare, folder=session.data)
        snapshot = pull.snapshot()
        pieces = snapshot.of(tuple(several(crawls)))
        names = tuple(crawl for crawl in snapshot.crawls if any(piece.crawl == crawl for piece in pieces))
        pulled = Pulled(there.url, names)
        pull.take(
            pieces,
            pulled,
            lambda now: told(Progress("pull", listed=len(pieces), done=now.pieces, bytes=there.bytes)),
        )
    pulled.missing = session.metadata().candidates(names, ()).missing if names else ()
    return pulled
