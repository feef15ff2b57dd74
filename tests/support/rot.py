"""A harvested crawl with flipped bits in its stored data."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from catalogue import Catalogue
from catalogue.demo import LoopbackServer
from catalogue.store.layout import TABLES, decode
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.crawls import ABSENT, CRAWL, crawl_of, index_path, table, write_manifest
from tests.support.stores import raw

FILES = 12
STORE = "footers.sqlite"


def write_crawl(folder: Path) -> None:
    """Write files of disjoint keys, each with two row groups and page indexes."""
    keys = [f"com,example{number:02}){path}" for number in range(FILES) for path in ("/", "/a", "/b", "/c")]
    crawl_of(folder, *(table(keys[at : at + 4]) for at in range(0, len(keys), 4)), row_group_size=2)
    write_manifest(folder, CRAWL, ABSENT)
    listed = [{"id": CRAWL, "name": "", "from": "2022-08-07T00:00:00", "to": "2022-08-20T00:00:00"}]
    (folder / "collinfo.json").write_text(json.dumps(listed))


def paths(folder: Path) -> list[str]:
    return [str(index_path(folder, number).relative_to(folder)) for number in range(FILES)]


@pytest.fixture(scope="module")
def harvested_crawl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoopbackServer, Path]]:
    """A server, and a data folder with all files and page indexes of its crawl."""
    folder = tmp_path_factory.mktemp("harvested")
    write_crawl(folder / "mirror")
    with LoopbackServer(folder / "mirror") as server:
        with catalogue_in(folder, server.url) as cat:
            cat.harvest(CRAWL, pages=True)
        yield server, folder / "data"


@pytest.fixture
def server(harvested_crawl: tuple[LoopbackServer, Path]) -> LoopbackServer:
    del harvested_crawl[0].log[:]
    return harvested_crawl[0]


@pytest.fixture
def cat(harvested_crawl: tuple[LoopbackServer, Path], server: LoopbackServer, tmp_path: Path) -> Iterator[Catalogue]:
    shutil.copytree(harvested_crawl[1], tmp_path / "data")
    with catalogue_in(tmp_path, server.url) as opened:
        yield opened


def rows(path: Path) -> dict[str, dict[str, bytes]]:
    with raw(path) as connection:
        return {name: dict(connection.execute(f'SELECT key, value FROM "{name}"')) for name in TABLES}  # noqa: S608


def content(path: Path) -> dict[str, dict[str, Any]]:
    """Return the decoded values of a store, without the times of requests."""
    return {
        name: {key: replace(decode(value), taken="") for key, value in values.items()}
        for name, values in rows(path).items()
    }


def flip(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def flip_value(path: Path, name: str, key: str, random: Random) -> None:
    with raw(path) as connection:
        (value,) = connection.execute(f'SELECT value FROM "{name}" WHERE key = ?', [key]).fetchone()  # noqa: S608
        flipped = flip(value, random.randrange(8 * len(value)))
        connection.execute(f'UPDATE "{name}" SET value = ? WHERE key = ?', [flipped, key])  # noqa: S608


def commands(cat: Catalogue, source: str | None = None) -> Command:
    return Command(cat.session.data, source or cat.session.settings.source, cat.session.data)


def sql(cat: Catalogue, statement: str, *parameters: object) -> None:
    cat.close()
    with raw(cat.session.data / STORE) as connection:
        connection.execute(statement, parameters)
