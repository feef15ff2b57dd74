"""Snapshots for tests to take over, and how to tamper with them."""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from shutil import copytree

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import BadSnapshot
from catalogue.harvest.snapshot import MANIFEST, Snapshot, contents_of, unpack_snapshot
from catalogue.parquet.stored_indexes import Indexes
from catalogue.settings import Settings
from catalogue.store.pieces import read_piece
from catalogue.store.stored_file import decode
from tests.conftest import once

PATTERNS = ("*.example.com", "example.com/*", "*.org")
"""Asked before a snapshot is made, so that nothing more is learned later."""

Change = Callable[[sqlite3.Connection], object]


def learn(untaught: Path, settings: Settings, folder: Path) -> Path:
    with catalogue.open(copytree(untaught, folder / "data"), settings=settings) as cat:
        cat.harvest("latest", subsets="all", pages=True)
        cat.backfill().run()
        for pattern in PATTERNS:
            cat.captures(pattern).to_arrow()
        assert cat.export_snapshot(folder / "snapshot").complete
    return folder


def learned(untaught: Path, settings: Settings, factory: pytest.TempPathFactory) -> Path:
    """A folder with what ``taught`` holds, and its snapshot; to be copied and read, by all files of tests."""
    return once(factory, "learned", partial(learn, untaught, settings))


@pytest.fixture(scope="module")
def taught(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    """Everything is harvested, and of many row groups the pages are known."""
    folder = learned(untaught_data, settings, tmp_path_factory)
    data = Path(copytree(folder / "data", tmp_path_factory.mktemp("taught") / "data"))
    with catalogue.open(data, settings=settings) as cat:
        yield cat


@pytest.fixture(scope="module")
def exported(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned(untaught_data, settings, tmp_path_factory) / "snapshot"


@pytest.fixture
def place(exported: Path, tmp_path: Path) -> Path:
    """One that may be damaged."""
    return Path(copytree(exported, tmp_path / "snapshot"))


@pytest.fixture
def empty(settings: Settings, tmp_path: Path) -> Iterator[Catalogue]:
    with catalogue.open(tmp_path / "empty", settings=settings) as cat:
        yield cat


def rows_of(cat: Catalogue) -> dict[str, dict[str, bytes]]:
    """All that could be in a snapshot, as it stands in the store."""
    with closing(sqlite3.connect(f"file:{cat.session.data / 'footers.sqlite'}?mode=ro", uri=True)) as connection:
        return {
            table: dict(connection.execute(f"SELECT * FROM {table} WHERE NOT instr(key, 'snapshots/')"))  # noqa: S608
            for table in ("documents", "files", "indexes", "failures")
        }


def indexes_in(rows: dict[str, dict[str, bytes]]) -> dict[str, Indexes]:
    return {key: Indexes.unpack(decode(value).data) for key, value in rows["indexes"].items()}


def told_by(place: Path) -> Snapshot:
    return unpack_snapshot((place / MANIFEST).read_bytes())


def tampered(place: Path, change: Change, *, crawl: str | None = None) -> None:
    """Change a piece, and all that tells of it, as somebody would who knows how."""
    told = json.loads((place / MANIFEST).read_bytes())
    snapshot = told_by(place)
    wanted = crawl or snapshot.crawls[0]
    at = next(n for n, piece in enumerate(snapshot.pieces) if piece.crawl == wanted)
    path = place / snapshot.pieces[at].name
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        change(connection)
    try:
        contents = contents_of(read_piece(path))
    except BadSnapshot:
        contents = snapshot.pieces[at].contents
    data = path.read_bytes()
    told["pieces"][at] |= {
        "contents": contents,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    (place / MANIFEST).write_text(json.dumps(told))
    path.rename(place / told_by(place).pieces[at].name)


def run(sql: str, connection: sqlite3.Connection) -> None:
    connection.executescript(sql)
