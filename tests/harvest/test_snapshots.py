"""Export and pull of snapshots."""

import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from shutil import copytree
from threading import Thread

import duckdb
import pytest
from filelock import FileLock

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.manifests import COLLINFO
from catalogue.demo import LoopbackServer
from catalogue.errors import BadSnapshot, DiskFailed, QueryError, StoreDamaged, StoreLocked, UnknownCrawl
from catalogue.harvest.publish import publish
from catalogue.harvest.snapshot import CRAWL_LIST, MANIFEST, Row, read_rows, unpack_snapshot, write_rows
from catalogue.metadata_db.lake_files import write_table
from catalogue.parquet.page_index import Indexes
from catalogue.selection import stored_crawls
from catalogue.settings import Settings
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.store.database import Store
from catalogue.store.stored_file import decode, encode
from tests.support.amounts import in_soak
from tests.support.commands import Command
from tests.support.snapshots import (
    PATTERNS,
    empty,
    exported,
    indexes_in,
    manifest_of,
    place,
    replace_file,
    taught,
    values_of,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["empty", "exported", "place", "taught"]  # fixtures


def names(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


# ---- pull ----


def test_pull_stores_what_was_exported(taught: Catalogue, exported: Path, settings: Settings, tmp_path: Path) -> None:
    files = manifest_of(exported).files
    with LoopbackServer(exported) as server, catalogue.open(tmp_path / "data", settings=settings) as cat:
        pulled = cat.pull(server.url)
        assert pulled.files == sum(file.count for file in files) == len(taught.files())
        assert (pulled.kept, pulled.missing, list(pulled.crawls)) == (0, (), stored_crawls(taught.session))
        least = sum(min(3, file.count) for file in files)
        assert least <= pulled.compared == cat.requests <= 2 * least
        assert [exchange.path for exchange in server.log] == [MANIFEST, *(file.name for file in files)]
        theirs, ours = values_of(taught), values_of(cat)
        theirs["documents"] = {key: value for key, value in theirs["documents"].items() if "requested/" not in key}
        indexes = {key: written for key, each in indexes_in(theirs).items() if (written := each.written)}
        assert indexes_in(ours) == indexes
        assert 0 < pulled.row_groups == len(indexes) < len(theirs["indexes"])
        assert ours | {"indexes": {}} == theirs | {"indexes": {}}
        one, other = (each.sql("FROM files ORDER BY ALL").to_arrow_table() for each in (cat, taught))
        assert one.equals(other)
        for pattern in PATTERNS:
            one, other = (each.captures(pattern, ordered=True).to_arrow() for each in (cat, taught))
            assert one.equals(other)
        del server.log[:]
        again = cat.pull(server.url)
        assert (again.files, again.kept, again.compared, again.unchanged) == (0, 0, 0, len(again.crawls))
        assert [exchange.path for exchange in server.log] == [MANIFEST]


def test_pull_needs_no_range_support(exported: Path, empty: Catalogue) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=exported)) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        pulled = empty.pull(f"http://127.0.0.1:{server.server_port}/", crawls="latest")
        server.shutdown()
    assert pulled.files == len(empty.files()) > 0


@in_soak
def test_large_files_are_pulled_in_ranges(place: Path, empty: Catalogue) -> None:
    large = Indexes(Random(0).randbytes(MAX_DOCUMENT + 1), {})
    added: list[Row] = []

    def add(path: Path) -> None:
        rows = [row for part in read_rows(path) for row in part]
        last = max((row for row in rows if row.kind == "footer"), key=lambda row: row.path)
        added.append(Row("page_index", last.path, 9999, replace(last.stored, data=large.pack())))
        write_rows(path, [[*rows, *added]])

    replace_file(place, add)
    file = max(manifest_of(place).files, key=lambda each: each.size)
    with LoopbackServer(place) as server:
        empty.pull(server.url, crawls=file.crawl, compare=0)
        ranges = [exchange.range for exchange in server.log if exchange.path == file.name]
        assert ranges == [f"bytes=0-{MAX_DOCUMENT - 1}", f"bytes={MAX_DOCUMENT}-{file.size - 1}"]
    (row,) = added
    store = empty.session.create_store()
    stored = store.get("files", row.path)
    assert stored
    assert store.indexes(row.path, [9999], stored) == {9999: large}


def test_pull_selects_crawls(exported: Path, empty: Catalogue) -> None:
    crawls = manifest_of(exported).crawls
    assert empty.pull(str(exported), crawls=crawls[-1], compare=0).crawls == crawls[-1:]
    assert stored_crawls(empty.session) == [crawls[-1]]
    assert COLLINFO in values_of(empty)["documents"]
    with pytest.raises(UnknownCrawl, match="does not have CC-MAIN-1999-01"):
        empty.pull(str(exported), crawls="CC-MAIN-1999-01")
    empty.pull(str(exported), crawls="latest", compare=0)
    assert stored_crawls(empty.session) == [crawls[0], crawls[-1]]


def test_pull_keeps_stored_values(exported: Path, empty: Catalogue) -> None:
    crawl = manifest_of(exported).crawls[0]
    empty.pull(str(exported), crawls=crawl, compare=0)
    store = empty.session.create_store()
    same, other, removed, *_ = sorted(values_of(empty)["files"])
    stored = store.get("files", other)
    assert stored
    changed = replace(stored, etag='"another"')
    store.put("files", [(other, changed)])
    store.delete("files", [removed])
    store.delete("documents", store.keys("documents", "snapshots/"))
    store.delete("indexes", store.index_keys(same))
    pulled = empty.pull(str(exported), crawls=crawl)
    assert (pulled.files, pulled.kept) == (1, len(store.keys("files")) - 1)
    assert store.get("files", other) == changed
    assert store.index_keys(other) == []  # those of the snapshot are of another version
    assert store.index_keys(same)
    empty.forget(crawl)
    assert empty.pull(str(exported), crawls=crawl, compare=0).files == pulled.files + pulled.kept


def test_pull_continues_after_a_missing_file(place: Path, empty: Catalogue) -> None:
    *_, last = files = manifest_of(place).files
    data = (place / last.name).read_bytes()
    (place / last.name).unlink()
    with pytest.raises(BadSnapshot, match="run the same command again"):
        empty.pull(str(place), compare=0)
    assert len(empty.files()) == sum(file.count for file in files) - last.count
    (place / last.name).write_bytes(data)
    with LoopbackServer(place) as server:
        assert empty.pull(server.url).files == last.count
        assert [exchange.path for exchange in server.log] == [MANIFEST, last.name]


def test_pull_waits_for_no_other_process(exported: Path, empty: Catalogue) -> None:
    crawl = manifest_of(exported).crawls[0]
    with (
        empty.session.create_store().harvesting(crawl),
        catalogue.open(empty.session.data, settings=empty.session.settings) as other,
        pytest.raises(StoreLocked, match=f"another process harvests {crawl}"),
    ):
        other.pull(str(exported), crawls=crawl, compare=0)
    with FileLock(empty.session.data / "pull.lock"), pytest.raises(StoreLocked, match="another process writes to"):
        empty.pull(str(exported), crawls=crawl, compare=0)
    assert empty.session.create_store().keys("files") == []


# ---- export ----


@in_soak
def test_export_writes_only_changed_crawls(untaught_data: Path, settings: Settings, tmp_path: Path) -> None:
    place = tmp_path / "snapshot"

    def inodes() -> dict[str, int]:
        return {str(path.relative_to(place)): path.stat().st_ino for path in place.glob("crawls/*")}

    with catalogue.open(copytree(untaught_data, tmp_path / "data"), settings=settings) as cat:
        newest, *_, oldest = stored_crawls(cat.session)
        cat.export_snapshot(place)
        before = inodes()
        assert before.keys() == {file.name for file in manifest_of(place).files}
        (place / ".growing-left").mkdir()  # of an export that was killed
        (place / "crawls" / f"{oldest}.{'0' * 32}.zst").write_bytes(b"left")
        (place / "crawls" / "README").write_text("ours")
        cat.harvest(newest, pages=True)
        cat.captures("example.com/*").to_arrow()  # derives page indexes, which are not exported
        cat.export_snapshot(place)
        changed = {name for name in before.keys() ^ inodes().keys() if name != "crawls/README"}
        assert {name.split("/")[1].split(".")[0] for name in changed} == {newest}
        assert {name: before[name] for name in before.keys() - changed}.items() <= inodes().items()
        for crawl in stored_crawls(cat.session):
            if crawl != oldest:
                cat.forget(crawl)
        cat.export_snapshot(place)
        assert manifest_of(place).crawls == (oldest,)
        tables = [f"tables/{table}.parquet" for table in ("files", "pages", "row_groups")]
        assert names(place) == sorted(
            ["crawls/README", *(file.name for file in manifest_of(place).files), MANIFEST, *tables]
        )


def test_export_continues_an_unfinished_one(
    taught: Catalogue, empty: Catalogue, exported: Path, tmp_path: Path
) -> None:
    def fail(_: Path) -> int:
        raise ZeroDivisionError

    place, crawl = tmp_path / "snapshot", stored_crawls(taught.session)[0]
    with Store(taught.session.data / "footers.sqlite") as store, pytest.raises(ZeroDivisionError):
        publish(
            place,
            store,
            {crawl: list(taught.files(crawl)["path"])},
            {"files": fail},
            missing=(),
            cache=tmp_path / "cache",
        )
    assert any(name.startswith(f"crawls/{crawl}.") for name in names(place))
    with pytest.raises(BadSnapshot, match=r"there is no snapshot at .* is missing; if it is being exported, wait"):
        empty.pull(str(place))
    taught.export_snapshot(place)
    assert names(place) == names(exported)


def test_files_have_the_documented_form(taught: Catalogue, exported: Path) -> None:
    snapshot = manifest_of(exported)
    assert unpack_snapshot(snapshot.pack()) == snapshot
    for file in (*snapshot.files, *snapshot.tables):
        data = (exported / file.name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)
    stored, found = values_of(taught)["files"], set()
    for path in exported.glob("crawls/*.zst"):
        with zstd.open(path) as stream:
            for line in stream:
                fields = json.loads(line)
                data = stream.read(fields["length"])
                assert hashlib.sha256(data).hexdigest() == fields["digest"]
                if fields["kind"] == "footer":
                    found.add(fields["path"])
                    value = decode(stored[fields["path"]])
                    expected = (value.size, value.etag, value.last_modified, value.source, value.taken, value.data)
                    names = ("file_size", "etag", "last_modified", "source", "harvested_at")
                    assert (*(fields[name] for name in names), data) == expected
    assert found == stored.keys()
    for table in snapshot.tables:
        name = table.name.removeprefix("tables/").removesuffix(".parquet")
        path = exported / table.name
        assert duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(table.count,)] != [(0,)]  # noqa: S608
        for one, other in ((name, f"'{path}'"), (f"'{path}'", name)):
            assert taught.sql(f"(FROM {one}) EXCEPT ALL (FROM {other})").fetchall() == []


def test_export_keeps_other_files(taught: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    with pytest.raises(QueryError, match="has other files"):
        taught.export_snapshot(tmp_path / "mine")
    (tmp_path / "mine" / MANIFEST).write_text("{}")
    with pytest.raises(QueryError, match="is not the manifest of a snapshot, or has another version"):
        taught.export_snapshot(tmp_path / "mine")
    with pytest.raises(QueryError, match="is a file"):
        taught.export_snapshot(tmp_path / "mine" / "letter")
    assert names(tmp_path / "mine") == ["letter", MANIFEST]
    with FileLock(tmp_path / "new.lock"), pytest.raises(StoreLocked, match="another process writes to"):
        taught.export_snapshot(tmp_path / "new")
    with (
        taught.connect() as connection,
        pytest.raises(DiskFailed, match=r"nowhere/part cannot be written: .* make room"),
    ):
        write_table(connection, "files", stored_crawls(taught.session), tmp_path / "nowhere" / "part")


@pytest.fixture
def connection(taught: Catalogue) -> Iterator[sqlite3.Connection]:
    assert len(taught.files())  # the metadata database is built before the store is damaged
    with closing(sqlite3.connect(taught.session.data / "footers.sqlite", isolation_level=None)) as opened:
        yield opened


def damage(connection: sqlite3.Connection, table: str) -> str:
    """Flip a bit of a value; returns its key."""
    query = f"SELECT key, value FROM {table} WHERE key LIKE 'c%' AND key != '{COLLINFO}' ORDER BY key DESC LIMIT 1"  # noqa: S608
    key, value = connection.execute(query).fetchone()
    connection.execute(f"UPDATE {table} SET value = ? WHERE key = ?", [value[:-1] + bytes([value[-1] ^ 1]), key])  # noqa: S608
    return str(key)


@pytest.mark.parametrize("table", ["files", "documents"])
def test_export_refuses_damaged_values(
    taught: Catalogue, connection: sqlite3.Connection, tmp_path: Path, table: str
) -> None:
    key = damage(connection, table)
    with pytest.raises(StoreDamaged, match="catalogue check --repair") as caught:
        taught.export_snapshot(tmp_path / "snapshot")
    assert key in str(caught.value)


def test_export_leaves_out_unusable_page_indexes(
    taught: Catalogue, connection: sqlite3.Connection, empty: Catalogue, tmp_path: Path
) -> None:
    damaged = damage(connection, "indexes")
    query = "SELECT key, value FROM indexes ORDER BY key DESC LIMIT 1 OFFSET 1"
    stale, value = connection.execute(query).fetchone()
    other = encode(replace(decode(value), etag='"other"'))
    connection.execute("UPDATE indexes SET value = ? WHERE key = ?", [other, stale])
    taught.export_snapshot(tmp_path / "snapshot")
    empty.pull(str(tmp_path / "snapshot"), compare=0)
    values = values_of(taught)
    del values["indexes"][damaged], values["indexes"][stale]
    assert values_of(empty)["indexes"].keys() == {k for k, each in indexes_in(values).items() if each.written} != set()
    assert values_of(empty)["files"] == values["files"]


# ---- commands ----


def test_commands(asking: Command, command: Command, whole_crawls: list[str], tmp_path: Path) -> None:
    place, crawl = tmp_path / "snapshot", whole_crawls[-1]
    made = asking("export", "snapshot", str(place), "--crawl", crawl, "--json")
    assert (made.status, made.err) == (0, "")
    files = made.json()["files"]
    expected = {"place": str(place), "crawls": [crawl], "files": files, "lists": 0, "complete": True, "missing": []}
    assert made.json() == expected
    assert [file.crawl for file in manifest_of(place).files] == [CRAWL_LIST, crawl]
    ran = command("pull", str(place))
    assert ran.status == 0
    assert f"1 crawl: {files} footers added, 0 stored before; page indexes of " in ran.err
    assert "3 compared with the source" in ran.err
    assert command("pull", str(place)).err == "1 crawl: nothing new since the last pull\n"
    again = command("pull", str(place), "--json", "--compare", "0").json()
    assert (again["files"], again["compared"], again["unchanged"], again["crawls"]) == (0, 0, 1, [crawl])
    (wrong,) = command("pull", str(tmp_path / "nowhere")).err.splitlines()
    assert "there is no folder" in wrong
    with Store(command.data / "footers.sqlite") as store:
        store.delete("files", store.keys("files", f"crawl={crawl}/subset=warc/")[:1])
    part = command("export", "snapshot", str(tmp_path / "part"))
    assert part.status == 1
    assert "it is incomplete: 1 of the" in part.err
    pulled = replace(command, data=tmp_path / "third")("pull", str(tmp_path / "part"))
    assert pulled.status == 1
    assert "the store is incomplete: 1 of the" in pulled.err
