"""What a snapshot says is in it: pieces of a store that others take over, and plain tables for who has other tools.

::

    snapshot.json                                    this
    pieces/CC-MAIN-2022-05.<contents>.sqlite         part of a store, in the store's own layout
    tables/files.parquet, row_groups.parquet, pages.parquet

Whoever reads it trusts nothing in it: names have the one form that each has here, and everything else is bounded.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from catalogue.commoncrawl.crawls import check_crawl_name, newest_first, select_crawls
from catalogue.errors import BadSnapshot, UnknownCrawl

MANIFEST = "snapshot.json"
FORMAT = "catalogue snapshot"
VERSION = 1
LIST_OF_CRAWLS = "crawls"
"""Stands for the crawl in a piece that holds the list of crawls, and no crawl's footers."""
TABLES = ("files", "row_groups", "pages")

MOST_PIECE = 256 << 20
"""Bytes that a piece may have; ours have about 12 MB, unless one file alone takes more."""
_MOST_PIECES = 20_000
_SHOWN = 100
"""Characters of what is wrong that are told."""

_HEX = re.compile("[0-9a-f]{64}")
_CONTENTS = re.compile("[0-9a-f]{32}")
_PIECE = re.compile(r"pieces/[A-Za-z0-9-]+\.[0-9a-f]{32}\.sqlite")


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a store: a crawl's list of files, or some of its files and what is held of their pages."""

    crawl: str
    contents: str
    """Names what is in it, whoever wrote it down and when: 32 hexadecimal digits."""
    size: int
    """Bytes."""
    sha256: str
    """Of the file, in hexadecimal digits."""
    files: int
    """Footers in it."""

    @property
    def name(self) -> str:
        """Where it is in the snapshot."""
        return f"pieces/{self.crawl}.{self.contents}.sqlite"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A view of the catalogue as a Parquet file."""

    table: str
    """One of ``TABLES``."""
    size: int
    sha256: str
    rows: int

    @property
    def name(self) -> str:
        """Where it is in the snapshot."""
        return f"tables/{self.table}.parquet"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is in a snapshot."""

    made_at: str
    """ISO 8601, UTC."""
    made_by: str
    """The version of this package that made it."""
    missing: tuple[str, ...]
    """Of its crawls, what was not harvested: a sentence each."""
    pieces: tuple[Piece, ...]
    tables: tuple[TableFile, ...]

    @property
    def crawls(self) -> tuple[str, ...]:
        """Newest first."""
        return tuple(newest_first({piece.crawl for piece in self.pieces} - {LIST_OF_CRAWLS}))

    def of(self, words: tuple[str, ...]) -> tuple[Piece, ...]:
        """The pieces of the crawls that words mean, newest first; the list of crawls comes before them.

        Raises:
            BadSnapshot: if there are none.
            UnknownCrawl: if a word means none of these.
        """
        if not self.crawls:
            message = "the snapshot holds no crawl"
            raise BadSnapshot(message)
        chosen = select_crawls(words, self.crawls)
        if absent := [crawl for crawl in chosen if crawl not in self.crawls]:
            message = f"the snapshot holds nothing of {absent[0]}; it has {_named(self.crawls)}"
            raise UnknownCrawl(message)
        order = [LIST_OF_CRAWLS, *chosen]
        return tuple(sorted((p for p in self.pieces if p.crawl in order), key=lambda each: order.index(each.crawl)))

    def pack(self) -> bytes:
        """As ``snapshot.json``."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1).encode() + b"\n"


def is_piece(name: str) -> bool:
    """Whether a file of a snapshot has the name of a piece."""
    return bool(_PIECE.fullmatch(name))


def contents_of(rows: Iterable[tuple[str, str, bytes]]) -> str:
    """What names a piece: the same for the same rows, each a table, a key and a value, in whatever order."""
    digest = hashlib.blake2b(digest_size=16)
    for table, key, value in sorted(rows):
        digest.update(f"{table}\0{key}\0{len(value)}\0".encode())
        digest.update(value)
    return digest.hexdigest()


def unpack_snapshot(data: bytes) -> Snapshot:
    """Read a ``snapshot.json``, which may be hostile.

    Raises:
        BadSnapshot: if it is none, of another version, or says what no snapshot says.
    """
    try:
        told = json.loads(data)
    except (ValueError, RecursionError) as error:
        message = f"its {MANIFEST} is not JSON"
        raise BadSnapshot(message) from error
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        message = f"its {MANIFEST} is of something else"
        raise BadSnapshot(message)
    if told.get("version") != VERSION:
        newer = isinstance(told.get("version"), int) and told["version"] > VERSION
        next_step = "upgrade this tool" if newer else "have it exported again"
        message = (
            f"it has version {repr(told.get('version'))[:_SHOWN]}, and this tool reads version {VERSION}; {next_step}"
        )
        raise BadSnapshot(message)
    try:
        missing = told["missing"]
        pieces = tuple(_made(Piece, each) for each in told["pieces"])
        tables = tuple(_made(TableFile, each) for each in told["tables"])
        if not isinstance(missing, list):
            raise TypeError("missing")  # noqa: TRY301 - like those of _made
        snapshot = Snapshot(told["made_at"], told["made_by"], tuple(missing), pieces, tables)
        wrong = _wrong(snapshot)
    except (KeyError, TypeError) as error:
        message = f"its {MANIFEST} lacks something, or has it in another form: {error}"
        raise BadSnapshot(message) from error
    if wrong:
        message = f"its {MANIFEST} {wrong}"
        raise BadSnapshot(message)
    return snapshot


_Part = TypeVar("_Part", Piece, TableFile)


def _made(kind: type[_Part], told: Mapping[str, Any]) -> _Part:
    known = {field.name: field.type for field in fields(kind)}
    values = {name: told[name] for name in known}
    if wrong := [name for name, type_ in known.items() if type(values[name]) is not type_]:
        raise TypeError(wrong[0])
    return kind(**values)


def _wrong(snapshot: Snapshot) -> str | None:
    """What of it cannot be, as the rest of a sentence."""
    texts = (snapshot.made_at, snapshot.made_by, *snapshot.missing)
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        return "has a text that is none"
    for piece in snapshot.pieces:
        if not (_is_named(piece.crawl) and _CONTENTS.fullmatch(piece.contents) and _HEX.fullmatch(piece.sha256)):
            return f"names a piece {repr(piece.crawl)[:_SHOWN]} as none is named"
        if not (0 < piece.size <= MOST_PIECE and piece.files >= 0):
            return f"says {piece.name} has {piece.size} bytes and {piece.files} files"
    if len({piece.name for piece in snapshot.pieces}) < len(snapshot.pieces) or len(snapshot.pieces) > _MOST_PIECES:
        return "names a piece twice, or too many"
    for table in snapshot.tables:
        if table.table not in TABLES or not _HEX.fullmatch(table.sha256) or table.size < 0 or table.rows < 0:
            return f"tells of a table {repr(table.table)[:_SHOWN]} as there is none"
    return None


def _is_named(crawl: str) -> bool:
    with suppress(UnknownCrawl):
        return crawl == LIST_OF_CRAWLS or bool(check_crawl_name(crawl))
    return False


def _named(crawls: tuple[str, ...]) -> str:
    few = 3
    return ", ".join(crawls[:few]) + (f" and {len(crawls) - few} more" if len(crawls) > few else "")
