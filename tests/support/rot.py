"""A crawl that is served and harvested, and bits of it that flip at rest."""

import gzip
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.manifests import manifest_path
from catalogue.demo import LoopbackServer
from catalogue.settings import Settings
from catalogue.store.schema import TABLES
from catalogue.store.stored_file import decode
from tests.support.crawls import CRAWL, crawl_of, index_path, table

FILES = 12
ABSENT = "cc-index/table/cc-main/warc/crawl=CC-MAIN-2022-33/subset=warc/part-00099-gone.c000.gz.parquet"
"""The manifest names it, and nothing is there."""
STORE = "footers.sqlite"


def write_crawl(folder: Path) -> None:
    """Files of disjoint keys, each with two row groups and their page indexes."""
    keys = [f"com,example{number:02}){path}" for number in range(FILES) for path in ("/", "/a", "/b", "/c")]
    crawl_of(folder, *(table(keys[at : at + 4]) for at in range(0, len(keys), 4)), row_group_size=2)
    manifest = folder / manifest_path(CRAWL)
    manifest.write_bytes(gzip.compress(gzip.decompress(manifest.read_bytes()) + f"\n{ABSENT}".encode()))
    listed = [{"id": CRAWL, "name": "", "from": "2022-08-07T00:00:00", "to": "2022-08-20T00:00:00"}]
    (folder / "collinfo.json").write_text(json.dumps(listed))


def paths(folder: Path) -> list[str]:
    return [str(index_path(folder, number).relative_to(folder)) for number in range(FILES)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoopbackServer, Path]]:
    """A served crawl, and a data folder with everything of it, page indexes included."""
    folder = tmp_path_factory.mktemp("whole")
    write_crawl(folder / "mirror")
    with LoopbackServer(folder / "mirror") as server:
        with catalogue.open(folder / "data", settings=Settings(source=server.url, cache=folder / "cache")) as cat:
            cat.harvest(CRAWL, pages=True)
            cat.update()
        yield server, folder / "data"


@pytest.fixture
def server(whole: tuple[LoopbackServer, Path]) -> LoopbackServer:
    del whole[0].log[:]
    return whole[0]


@pytest.fixture
def cat(whole: tuple[LoopbackServer, Path], server: LoopbackServer, tmp_path: Path) -> Iterator[Catalogue]:
    """A copy, to be damaged."""
    shutil.copytree(whole[1], tmp_path / "data")
    with catalogue.open(tmp_path / "data", settings=Settings(source=server.url, cache=tmp_path / "cache")) as opened:
        yield opened


def rows(path: Path) -> dict[str, dict[str, bytes]]:
    """What stands in a store."""
    with closing(sqlite3.connect(path)) as connection:
        return {name: dict(connection.execute(f'SELECT key, value FROM "{name}"')) for name in TABLES}  # noqa: S608


def content(path: Path) -> dict[str, dict[str, Any]]:
    """What a store says, apart from when that was taken."""
    reported: dict[str, dict[str, Any]] = {}
    for name, values in rows(path).items():
        for key, value in values.items():
            stored = replace(decode(value), taken="")
            if name == "facts":
                known = json.loads(stored.data) | {"harvested_at": ""}
                reported.setdefault(name, {})[key] = (stored.version, known)
            else:
                reported.setdefault(name, {})[key] = stored
    return reported


def flip(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def flip_value(path: Path, name: str, key: str, random: Random) -> None:
    """Flip a bit of a value, so that the file is as if it had flipped at rest."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (value,) = connection.execute(f'SELECT value FROM "{name}" WHERE key = ?', [key]).fetchone()  # noqa: S608
        flipped = flip(value, random.randrange(8 * len(value)))
        connection.execute(f'UPDATE "{name}" SET value = ? WHERE key = ?', [flipped, key])  # noqa: S608
