"""Snapshots of a list of blocks, and how to change them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import copytree

import pytest

import catalogue
from benchmarks.cluster import make_list
from catalogue import Catalogue
from catalogue.settings import Settings
from tests.conftest import once
from tests.support.block_lists import CRAWL, OTHER, write_list
from tests.support.snapshots import files_of, read_rows, replace_file, write_rows

__all__ = ["CRAWL", "OTHER"]


@cache
def some_lines() -> bytes:
    return make_list(9000)


@cache
def other_lines() -> bytes:
    return make_list(2000, seed=2, shards=7)


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    write_list(tmp_path / "mirror", some_lines())
    return tmp_path / "mirror"


@pytest.fixture
def settings(mirror: Path, tmp_path: Path) -> Settings:
    return Settings(source=str(mirror), cache=tmp_path / "cache")


@pytest.fixture
def mine(settings: Settings, tmp_path: Path) -> Iterator[Catalogue]:
    """A catalogue that has the list and no footers."""
    with catalogue.open(tmp_path / "mine", settings=settings) as cat:
        cat.harvest(CRAWL, index="cdx")
        yield cat


@pytest.fixture
def theirs(settings: Settings, tmp_path: Path) -> Iterator[Catalogue]:
    with catalogue.open(tmp_path / "theirs", settings=settings) as cat:
        yield cat


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of the list of blocks, from another source than the tests'; to be copied."""

    def make(folder: Path) -> Path:
        write_list(folder / "mirror", some_lines())
        with catalogue.open(folder / "data", settings=Settings(source=str(folder / "mirror"))) as cat:
            cat.harvest(CRAWL, index="cdx")
            cat.export_snapshot(folder / "snapshot")
        return folder / "snapshot"

    return once(tmp_path_factory, "list", make)


@pytest.fixture
def place(exported: Path, tmp_path: Path) -> Path:
    return Path(copytree(exported, tmp_path / "snapshot"))


def change_list(place: Path, lines: bytes | None = None, *, pieces: int = 64 << 10, **fields: object) -> None:
    """Change the published list: its lines, and fields of its version."""

    def change(path: Path) -> None:
        rows = read_rows(path)
        data = b"".join(row.stored.data for row in rows) if lines is None else lines
        version = replace(rows[0].stored, size=len(data), **fields)  # type: ignore[arg-type]
        parts = [data[start : start + pieces] for start in range(0, len(data), pieces)]
        write_rows(path, [rows[0]._replace(stored=replace(version, data=part)) for part in parts])

    replace_file(place, change)


def published(place: Path) -> Path:
    return place / files_of(place)[CRAWL].name
