"""Snapshots that were broken off while they were written, and snapshots of stores with something wrong in them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import catalogue
from catalogue import Catalogue, metadata_db
from catalogue.errors import BadSnapshot, DiskFailed, StoreDamaged
from catalogue.harvest.publish import publish
from catalogue.selection import stored_crawls
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.store.stored_file import decode, encode
from tests.support.snapshots import empty, exported, indexes_in, rows_of, taught, told_by

__all__ = ["empty", "exported", "taught"]  # fixtures


@pytest.fixture
def mine(taught: Catalogue, settings: Settings, tmp_path: Path) -> Iterator[Catalogue]:
    """A store that may be damaged, with all that is known of pages."""
    with closing(sqlite3.connect(taught.session.data / "footers.sqlite")) as connection:
        (tmp_path / "mine").mkdir()
        connection.execute("VACUUM INTO ?", [str(tmp_path / "mine" / "footers.sqlite")])
    with catalogue.open(tmp_path / "mine", settings=settings) as cat:
        yield cat


class BrokenOff(Exception):
    pass


def broken_off(cat: Catalogue, place: Path, crawl: str) -> None:
    """Write the pieces of a snapshot and no more."""

    def fail(_: Path) -> int:
        raise BrokenOff

    with Store(cat.session.data / "footers.sqlite") as store, pytest.raises(BrokenOff):
        publish(place, store, [crawl], {"files": fail}, missing=(), cache=cat.session.settings.cache)


def names(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


def test_the_first_one_is_gone_on_with(taught: Catalogue, empty: Catalogue, exported: Path, tmp_path: Path) -> None:
    place = tmp_path / "snapshot"
    newest, *_, oldest = stored_crawls(taught.session)
    broken_off(taught, place, newest)
    assert any(f"pieces/{newest}." in name for name in names(place))
    with pytest.raises(BadSnapshot, match=r"there is no snapshot at .*; or somebody is exporting the first"):
        empty.pull(str(place))
    taught.export_snapshot(place, crawls=oldest)
    assert told_by(place).crawls == (oldest,)
    parts = [piece.name for piece in told_by(place).pieces] + [table.name for table in told_by(place).tables]
    assert names(place) == sorted(["snapshot.json", *parts])
    taught.export_snapshot(place)
    assert names(place) == names(exported)


def test_what_one_left_beside_another_is_removed(taught: Catalogue, tmp_path: Path) -> None:
    place = tmp_path / "snapshot"
    newest, *_, oldest = stored_crawls(taught.session)
    taught.export_snapshot(place, crawls=oldest)
    before = names(place)
    broken_off(taught, place, newest)
    assert told_by(place).crawls == (oldest,)
    assert set(before) < set(names(place))
    (place / "pieces" / "README").write_text("ours")
    taught.export_snapshot(place, crawls=oldest)
    assert set(names(place)) == {*before, "pieces/README"}


def spoil(cat: Catalogue, table: str) -> str:
    """Flip a bit of a value; returns its key."""
    with closing(sqlite3.connect(cat.session.data / "footers.sqlite", isolation_level=None)) as connection:
        query = (
            f"SELECT key, value FROM {table} WHERE key LIKE 'c%' AND key != 'collinfo.json' ORDER BY key DESC LIMIT 1"  # noqa: S608
        )
        key, value = connection.execute(query).fetchone()
        spoilt = value[:-1] + bytes([value[-1] ^ 1])
        connection.execute(f"UPDATE {table} SET value = ? WHERE key = ?", [spoilt, key])  # noqa: S608
    return str(key)


@pytest.mark.parametrize("table", ["files", "documents"])
def test_what_is_damaged_is_not_passed_on(mine: Catalogue, tmp_path: Path, table: str) -> None:
    """Nobody would take it, nor what is in the same piece."""
    assert len(mine.files())  # the catalogue is made while all is well
    key = spoil(mine, table)
    with pytest.raises(StoreDamaged, match="catalogue check --repair") as caught:
        mine.export_snapshot(tmp_path / "snapshot")
    assert key in str(caught.value)


def test_page_indexes_that_nobody_would_use_are_left_out(mine: Catalogue, empty: Catalogue, tmp_path: Path) -> None:
    """One is damaged, one is of another version of its file, as a question leaves it that was asked meanwhile."""
    damaged = spoil(mine, "indexes")
    with closing(sqlite3.connect(mine.session.data / "footers.sqlite", isolation_level=None)) as connection:
        query = "SELECT key, value FROM indexes ORDER BY key DESC LIMIT 1 OFFSET 1"
        stale, value = connection.execute(query).fetchone()
        other = encode(replace(decode(value), etag='"other"'))
        connection.execute("UPDATE indexes SET value = ? WHERE key = ?", [other, stale])
    mine.export_snapshot(tmp_path / "snapshot")
    empty.pull(str(tmp_path / "snapshot"), compare=0)
    held = rows_of(mine)
    del held["indexes"][damaged], held["indexes"][stale]
    assert rows_of(empty)["indexes"].keys() == {key for key, each in indexes_in(held).items() if not each.own} != set()
    assert rows_of(empty)["files"] == rows_of(mine)["files"]


def test_a_table_that_cannot_be_written_is_not_the_catalogues_fault(taught: Catalogue, tmp_path: Path) -> None:
    """As on a full disk: nobody is to delete the catalogue for that."""
    with (
        taught.connect() as connection,
        pytest.raises(DiskFailed, match=r"nowhere/part cannot be written: .* make room"),
    ):
        metadata_db.write_table(connection, "files", stored_crawls(taught.session), tmp_path / "nowhere" / "part")
