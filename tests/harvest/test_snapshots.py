"""Export and pull of snapshots."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from filelock import FileLock

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.datasets import index_file
from catalogue.demo import LoopbackServer
from catalogue.errors import BadSnapshot, QueryError, StoreDamaged, StoreLocked, UnknownCrawl
from catalogue.harvest.snapshot import MANIFEST
from catalogue.parquet.page_index import Indexes
from catalogue.settings import Settings
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.store.database import Store
from catalogue.store.layout import decode, encode
from tests.support.commands import Command
from tests.support.rot import flip_value
from tests.support.snapshots import (
    PATTERNS,
    empty,
    exported,
    files_of,
    footers_of,
    indexes_in,
    place,
    read_rows,
    replace_rows,
    taught,
    values_of,
    write_rows,
)
from tests.support.stores import raw

__all__ = ["empty", "exported", "place", "taught"]  # fixtures


def names(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


# ---- pull ----


def test_pull_stores_what_was_exported(taught: Catalogue, exported: Path, settings: Settings, tmp_path: Path) -> None:
    files = files_of(exported).values()
    with LoopbackServer(exported) as server, catalogue.open(tmp_path / "data", settings=settings) as cat:
        pulled = cat.pull(server.url)
        assert pulled.files == len(taught.files())
        assert (pulled.kept, pulled.missing, list(pulled.crawls)) == (0, (), taught.session.stored_crawls())
        least = sum(min(3, footers_of(exported, file)) for file in files)
        assert least <= pulled.compared <= 2 * least
        assert cat.requests == pulled.compared + len(server.log)
        assert [exchange.path for exchange in server.log] == [MANIFEST, *(file.name for file in files)]
        theirs, ours = values_of(taught), values_of(cat)
        theirs["documents"] = {key: value for key, value in theirs["documents"].items() if "crawl-data/" in key}
        indexes = {key: written for key, each in indexes_in(theirs).items() if (written := each.written)}
        assert indexes_in(ours) == indexes
        indexed = [row.key for file in files for row in read_rows(exported / file.name) if row.indexes]
        assert 0 < len(indexed) < pulled.files
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


def test_pull_reads_version_6_and_needs_no_range_support(place: Path, empty: Catalogue) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    manifest = json.loads((place / MANIFEST).read_bytes())
    files = [each | {"contents": "", "footers": 0} for each in manifest["files"]]
    (place / MANIFEST).write_text(json.dumps(manifest | {"version": 6, "files": files}))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=place)) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        pulled = empty.pull(f"http://127.0.0.1:{server.server_port}/", crawls="latest")
        server.shutdown()
    assert pulled.files == len(empty.files()) > 0


@pytest.mark.in_soak
def test_large_files_are_pulled_in_ranges(place: Path, empty: Catalogue) -> None:
    large = Indexes(Random(0).randbytes(MAX_DOCUMENT + 1), {})
    file = next(iter(files_of(place).values()))
    key = next(row.key for row in read_rows(place / file.name) if row.indexes)
    replace_rows(place, lambda row: row._replace(indexes={0: large}) if row.key == key else row)
    with LoopbackServer(place) as server:
        empty.pull(server.url, crawls=file.crawl, compare=0)
        ranges = [exchange.range for exchange in server.log if exchange.path == file.name]
        assert ranges == [f"bytes=0-{MAX_DOCUMENT - 1}", f"bytes={MAX_DOCUMENT}-{files_of(place)[file.crawl].size - 1}"]
    assert indexes_in(values_of(empty))[f"{key}#0"] == large


def test_too_many_page_indexes_of_a_file_are_left_out(exported: Path, tmp_path: Path) -> None:
    file = next(iter(files_of(exported).values()))
    row = next(row for row in read_rows(exported / file.name) if row.indexes)
    large = Indexes(bytes(33 << 20), {})
    for indexes, expected in [({1: large}, {1: large}), ({0: large, 1: large}, {})]:
        write_rows(tmp_path / "values", [row._replace(indexes=indexes)])
        assert read_rows(tmp_path / "values") == [row._replace(indexes=expected)]


def test_pull_selects_crawls(exported: Path, empty: Catalogue) -> None:
    crawls = (*files_of(exported),)
    assert empty.pull(str(exported), crawls=crawls[-1], compare=0).crawls == crawls[-1:]
    assert empty.session.stored_crawls() == [crawls[-1]]
    with pytest.raises(UnknownCrawl, match="does not have CC-MAIN-1999-01"):
        empty.pull(str(exported), crawls="CC-MAIN-1999-01")
    empty.pull(str(exported), crawls="latest", compare=0)
    assert empty.session.stored_crawls() == [crawls[0], crawls[-1]]


def test_pull_keeps_stored_values(exported: Path, empty: Catalogue) -> None:
    crawl = next(iter(files_of(exported)))
    empty.pull(str(exported), crawls=crawl, compare=0)
    store = empty.session.create_store()
    same, other, removed, *_ = sorted(values_of(empty)["files"])
    stored = store.get("files", other)
    assert stored
    changed = replace(stored, etag='"another"')
    store.put("files", [(other, changed)])
    store.delete("indexes", store.index_keys(same))
    flip_value(store.path, "files", removed, Random(1))
    assert empty.check(repair=True).dropped == [removed]
    pulled = empty.pull(str(exported), crawls=crawl)
    assert (pulled.files, pulled.kept) == (1, len(store.keys("files")) - 1)
    assert store.get("files", other) == changed
    assert store.index_keys(other) == []  # those of the snapshot are of another version
    assert store.index_keys(same)
    empty.forget(crawl)
    assert empty.pull(str(exported), crawls=crawl, compare=0).files == pulled.files + pulled.kept


def test_pull_continues_after_a_missing_file(place: Path, empty: Catalogue) -> None:
    *_, last = files = [*files_of(place).values()]
    data = (place / last.name).read_bytes()
    (place / last.name).unlink()
    with pytest.raises(BadSnapshot, match="run the same command again"):
        empty.pull(str(place), compare=0)
    assert len(empty.files()) == sum(footers_of(place, file) for file in files[:-1])
    (place / last.name).write_bytes(data)
    with LoopbackServer(place) as server:
        assert empty.pull(server.url).files == footers_of(place, last)
        assert [exchange.path for exchange in server.log] == [MANIFEST, last.name]


def test_pull_waits_for_no_other_process(exported: Path, empty: Catalogue) -> None:
    crawl = next(iter(files_of(exported)))
    with (
        empty.session.create_store().harvesting(crawl),
        catalogue.open(empty.session.data, settings=empty.session.settings) as other,
        pytest.raises(StoreLocked, match=f"another process harvests {crawl}"),
    ):
        other.pull(str(exported), crawls=crawl, compare=0)
    assert empty.session.create_store().keys("files") == []


# ---- export ----


@pytest.mark.in_soak
def test_export_writes_only_changed_crawls(data: Path, settings: Settings, tmp_path: Path) -> None:
    place = tmp_path / "snapshot"

    def inodes() -> dict[str, int]:
        return {path.stem: path.stat().st_ino for path in place.glob("crawls/*")}

    with catalogue.open(data, settings=settings) as cat:
        newest, *_, oldest = crawls = cat.session.stored_crawls()
        cat.export_snapshot(place)
        before = inodes()
        assert [*before] != [*files_of(place)] == crawls
        cat.harvest(newest, pages=True)
        (place / files_of(place)[oldest].name).write_bytes(b"cut off")
        assert cat.export_snapshot(place).crawls == tuple(crawls)
        after = inodes()
        assert {crawl for crawl in crawls if before[crawl] != after[crawl]} == {newest, oldest}
        cat.forget(oldest)
        cat.export_snapshot(place, crawls=newest)
        assert ([*files_of(place)], inodes()) == (crawls, after)
        cat.export_snapshot(place, crawls=iter(["all"]))
        assert oldest not in files_of(place)
        assert names(place) == sorted([MANIFEST, *(file.name for file in files_of(place).values())])


@pytest.mark.parametrize("table", ["documents", "files"])
def test_export_continues_an_unfinished_one(
    taught: Catalogue, connection: sqlite3.Connection, empty: Catalogue, exported: Path, tmp_path: Path, table: str
) -> None:
    place, last = tmp_path / "snapshot", taught.session.stored_crawls()[-1]
    place.mkdir()
    (place / ".growing").write_bytes(b"left by a process that was killed")
    with pytest.raises(BadSnapshot, match=r"there is no snapshot at .* is missing; if it is being exported, wait"):
        empty.pull(str(place))
    store = taught.session.store
    key = store.keys(table, f"{last}/")[0]
    value = store.get(table, key)
    assert value
    damage(connection, table, key)
    with pytest.raises(StoreDamaged, match="catalogue check --repair") as caught:
        taught.export_snapshot(place)
    assert key in str(caught.value)
    finished = {*files_of(place)}
    assert finished == {*files_of(exported)} - {last} != set()
    times = {path: path.stat().st_mtime_ns for path in place.glob("crawls/*")}
    store.put(table, [(key, value)])
    (place / "crawls/CC-MAIN-2012-01.values").touch()  # as of an export killed when it removed a crawl
    taught.export_snapshot(place)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert names(place) == names(exported)
    assert empty.pull(str(place), compare=0).missing == ()


def test_files_have_the_documented_form(taught: Catalogue, exported: Path) -> None:
    stored, found = values_of(taught), set()
    for file in files_of(exported).values():
        data = (exported / file.name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)
        stream, keys = BytesIO(data), list[str]()
        for line in stream:
            key, length, first, *others = json.loads(line)
            value, at = decode(stream.read(length)), first
            assert replace(value, data=value.data[:first]) == decode(stored["files" if keys else "documents"][key])
            for row_group, size in enumerate(others):
                if size:
                    index = Indexes.unpack(decode(stored["indexes"][f"{key}#{row_group}"]).data)
                    assert Indexes.unpack(value.data[at : at + size]) == index.written
                at += size
            assert at == len(value.data)
            keys.append(key)
        assert keys[0] == f"crawl-data/{file.crawl}/cc-index-table.paths.gz"
        assert {index_file(key).crawl for key in keys[1:]} == {file.crawl}  # type: ignore[union-attr]
        assert len(keys) == 1 + footers_of(exported, file)
        found.update(keys)
    assert found >= stored["files"].keys()


def test_export_keeps_other_files(taught: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    with pytest.raises(QueryError, match="has other files"):
        taught.export_snapshot(tmp_path / "mine")
    (tmp_path / "mine" / MANIFEST).write_text("{}")
    with pytest.raises(QueryError, match=r"cannot be used.*; choose another name to keep it"):
        taught.export_snapshot(tmp_path / "mine")
    (tmp_path / "mine" / MANIFEST).write_text('{"version": 2}')  # of an earlier version of the tool
    with pytest.raises(
        QueryError,
        match=r"version 2, and this tool reads version \d+, which a new export has; choose another name to keep it$",
    ):
        taught.export_snapshot(tmp_path / "mine")
    with pytest.raises(QueryError, match="is a file"):
        taught.export_snapshot(tmp_path / "mine" / "letter")
    assert names(tmp_path / "mine") == ["letter", MANIFEST]
    with FileLock(tmp_path / "new.lock"), pytest.raises(StoreLocked, match="another process writes to"):
        taught.export_snapshot(tmp_path / "new")


@pytest.fixture
def connection(taught: Catalogue) -> Iterator[sqlite3.Connection]:
    assert len(taught.files())  # the metadata database is built before the store is damaged
    with raw(taught.session.data / "footers.sqlite") as opened:
        yield opened


def damage(connection: sqlite3.Connection, table: str, like: str = "c%/%") -> str:
    query = f"SELECT key, value FROM {table} WHERE key LIKE ? ORDER BY key DESC LIMIT 1"  # noqa: S608
    key, value = connection.execute(query, [like]).fetchone()
    connection.execute(f"UPDATE {table} SET value = ? WHERE key = ?", [value[:-1] + bytes([value[-1] ^ 1]), key])  # noqa: S608
    return str(key)


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
    expected = {"place": str(place), "crawls": [crawl], "files": files, "complete": True, "missing": []}
    assert made.json() == expected
    assert [*files_of(place)] == [crawl]
    ran = command("pull", str(place))
    assert ran.status == 0
    assert f"1 crawl: {files} footers added, 0 stored before; page indexes of " in ran.err
    assert "3 compared with the source" in ran.err
    assert command("pull", str(place)).err == "1 crawl: nothing new since the last pull\n"
    again = command("pull", str(place), "--json", "--compare", "0").json()
    assert (again["files"], again["compared"], again["unchanged"], again["crawls"]) == (0, 0, 1, [crawl])

    with Store(command.data / "footers.sqlite") as store:
        store.delete("files", store.keys("files", f"crawl={crawl}/subset=warc/")[:1])
    part = command("export", "snapshot", str(tmp_path / "part"), "--quiet")
    assert part.status == 1
    assert "it is incomplete: 1 of the" in part.err
    pulled = replace(command, data=tmp_path / "third")("pull", str(tmp_path / "part"), "--quiet")
    assert pulled.status == 1
    assert "the store is incomplete: 1 of the" in pulled.err
