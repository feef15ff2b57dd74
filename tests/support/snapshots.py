"""Snapshots of a harvested store, and how to change them."""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.harvest.snapshot import MANIFEST, Entry, SnapshotFile, read_entries, unpack_manifest
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import Indexes
from catalogue.settings import Settings
from catalogue.store.layout import decode
from tests.conftest import once

PATTERNS = ("*.example.com", "example.com/*", "*.org")


def _fill(untaught: Path, settings: Settings, folder: Path) -> Path:
    with catalogue.open(copytree(untaught, folder / "data"), settings=settings) as cat:
        cat.harvest("latest", subsets="all", pages=True)
        [path, *_] = cat.files(cat.session.stored_crawls()[-1]).path
        version = cat.session.store.get("files", path)
        assert version
        cat.session.store.add_indexes(path, {0: Indexes(bounds=Bounds(b"a", b"z"))}, version)  # as a backfill does
        for pattern in PATTERNS:  # so that later queries fetch no more page indexes
            cat.captures(pattern).to_arrow()
        assert cat.export_snapshot(folder / "snapshot").complete
    return folder


def _filled(untaught: Path, settings: Settings, factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store and its snapshot, shared by all tests."""
    return once(factory, "filled", partial(_fill, untaught, settings))


@pytest.fixture
def taught(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    """A catalogue with everything harvested, many page indexes, and bounds that a backfill found."""
    folder = _filled(untaught_data, settings, tmp_path_factory)
    data = Path(copytree(folder / "data", tmp_path_factory.mktemp("taught") / "data"))
    with catalogue.open(data, settings=settings) as cat:
        yield cat


@pytest.fixture(scope="module")
def exported(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _filled(untaught_data, settings, tmp_path_factory) / "snapshot"


@pytest.fixture
def place(exported: Path, tmp_path: Path) -> Path:
    return Path(copytree(exported, tmp_path / "snapshot"))


@pytest.fixture
def empty(settings: Settings, tmp_path: Path) -> Iterator[Catalogue]:
    with catalogue.open(tmp_path / "empty", settings=settings) as cat:
        yield cat


def values_of(cat: Catalogue) -> dict[str, dict[str, bytes]]:
    """Return all values of a store that a snapshot could have, as encoded."""
    with closing(sqlite3.connect(f"file:{cat.session.data / 'footers.sqlite'}?mode=ro", uri=True)) as connection:
        return {
            table: dict(connection.execute(f"SELECT * FROM {table} WHERE NOT instr(key, 'snapshots/')"))  # noqa: S608
            for table in ("documents", "files", "indexes", "failures")
        }


def indexes_in(values: dict[str, dict[str, bytes]]) -> dict[str, Indexes]:
    return {key: Indexes.unpack(decode(value).data) for key, value in values["indexes"].items()}


def files_of(place: Path) -> dict[str, SnapshotFile]:
    return unpack_manifest((place / MANIFEST).read_bytes(), str(place))


def footers_of(place: Path, file: SnapshotFile) -> int:
    return sum(not row.key.startswith("crawl-data/") for row in read_rows(place / file.name))


def read_rows(path: Path) -> list[Entry]:
    with path.open("rb") as file:
        return [*read_entries(file)]


def write_rows(path: Path, rows: Iterable[Entry]) -> None:
    path.write_bytes(b"".join(row.pack() for row in rows))


def replace_file(place: Path, change: Callable[[Path], object]) -> None:
    """Change the file of the newest crawl, with a manifest that fits."""
    file = next(iter(files_of(place).values()))
    change(place / file.name)
    data = (place / file.name).read_bytes()
    manifest = json.loads((place / MANIFEST).read_bytes())
    found = next(each for each in manifest["files"] if each["crawl"] == file.crawl)
    found.update(size=len(data), sha256=hashlib.sha256(data).hexdigest())
    (place / MANIFEST).write_text(json.dumps(manifest))


def replace_rows(place: Path, change: Callable[[Entry], Entry], *, manifests: bool = False) -> None:
    """Change the rows of index files, or of the manifest, in the file of the newest crawl."""

    def changed(path: Path) -> None:
        write_rows(
            path, [change(row) if row.key.startswith("crawl-data/") == manifests else row for row in read_rows(path)]
        )

    replace_file(place, changed)


def with_stored(**fields: object) -> Callable[[Entry], Entry]:
    return lambda row: row._replace(stored=replace(row.stored, **fields))  # type: ignore[arg-type]
