"""Keys of the store that are damaged on disk, in a row or in the index of the table, are repaired."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from catalogue import Catalogue
from catalogue.demo import LoopbackServer
from tests.support import rot
from tests.support.amounts import in_part
from tests.support.crawls import CRAWL
from tests.support.rot import STORE, paths

harvested_crawl, server, cat = rot.harvested_crawl, rot.server, rot.cat


def damage_key(path: Path, key: str, place: int, byte: bytes) -> None:
    """Replace the first byte of a part of a key, in one of the places of the file that have it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    places = [at for at in range(len(content)) if content.startswith(key.encode(), at)]
    at = places[place] + len("cc-index/table/")
    path.write_bytes(content[:at] + byte + content[at + 1 :])


@in_part(2)
@pytest.mark.parametrize(("place", "byte"), [(0, b"k"), (0, b"\xff"), (1, b"\xff")])
def test_damaged_keys_are_repaired(cat: Catalogue, server: LoopbackServer, place: int, byte: bytes) -> None:
    one = paths(server.folder)[3]
    with closing(sqlite3.connect(cat.session.data / STORE)) as connection:
        connection.execute("DELETE FROM indexes")  # whose keys begin with the path
        connection.execute("DELETE FROM facts")
        connection.commit()
        connection.execute("VACUUM")
    cat.close()
    damage_key(cat.session.data / STORE, one, place, byte)
    cat.check()
    cat.close()
    cat.check(repair=True)
    cat.close()
    cat.harvest(CRAWL)
    assert cat.check().findings == []
    assert one in {*cat.files()["path"]}
    assert len(cat.files()) == rot.FILES
