"""Snapshots made, and taken over."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
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
from catalogue.commoncrawl.manifests import COLLINFO, manifest_path
from catalogue.demo import LoopbackServer
from catalogue.errors import BadSnapshot, QueryError, StoreLocked, UnknownCrawl
from catalogue.harvest.snapshot import LIST_OF_CRAWLS, MANIFEST, unpack_snapshot
from catalogue.parquet.stored_indexes import Indexes
from catalogue.selection import stored_crawls
from catalogue.settings import Settings
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.store.database import Store
from catalogue.store.pieces import frozen
from tests.support.commands import Command
from tests.support.snapshots import PATTERNS, empty, exported, indexes_in, place, rows_of, taught, told_by

__all__ = ["empty", "exported", "place", "taught"]  # fixtures


def test_what_is_taken_over_is_what_was_held(
    taught: Catalogue, exported: Path, settings: Settings, tmp_path: Path
) -> None:
    pieces = told_by(exported).pieces
    with LoopbackServer(exported) as server, catalogue.open(tmp_path / "data", settings=settings) as cat:
        pulled = cat.pull(server.url)
        assert pulled.files == sum(piece.files for piece in pieces) == len(taught.files())
        assert (pulled.kept, pulled.missing, list(pulled.crawls)) == (0, (), stored_crawls(taught.session))
        least = sum(min(3, piece.files) for piece in pieces)
        assert least <= pulled.compared == cat.requests <= 2 * least
        assert [exchange.path for exchange in server.log] == [MANIFEST, *(piece.name for piece in pieces)]
        stored = rows_of(taught)
        stored["documents"] = {key: value for key, value in stored["documents"].items() if "requested/" not in key}
        held = rows_of(cat)
        indexes = {key: written for key, each in indexes_in(stored).items() if (written := each.written)}
        assert indexes_in(held) == indexes
        assert 0 < pulled.row_groups == len(indexes) < len(stored["indexes"])
        assert held | {"indexes": {}} == stored | {"indexes": {}}
        one, other = (each.sql("FROM files ORDER BY ALL").to_arrow_table() for each in (cat, taught))
        assert one.equals(other)
        for pattern in PATTERNS:
            ours, theirs = (each.captures(pattern, ordered=True).to_arrow() for each in (cat, taught))
            assert ours.equals(theirs)
        del server.log[:]
        again = cat.pull(server.url)
        assert (again.files, again.kept, again.compared) == (0, 0, 0)
        assert [exchange.path for exchange in server.log] == [MANIFEST]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_any_web_server_will_do(exported: Path, empty: Catalogue) -> None:
    """This one knows nothing of ranges."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=exported)) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        pulled = empty.pull(f"http://127.0.0.1:{server.server_port}/", crawls="latest")
        server.shutdown()
    assert pulled.files == len(empty.files()) > 0


def test_a_piece_too_large_for_one_answer(exported: Path, empty: Catalogue, tmp_path: Path) -> None:
    crawl = told_by(exported).crawls[0]
    empty.pull(str(exported), crawls=crawl, compare=0)
    store = empty.session.create_store()
    path = store.keys("files")[-1]
    held = store.get("files", path)
    assert held
    large = Indexes(Random(0).randbytes(MAX_DOCUMENT + 1), {})
    store.add_indexes(path, {9999: large}, held)
    empty.export_snapshot(tmp_path / "large")
    piece = max(told_by(tmp_path / "large").pieces, key=lambda each: each.size)
    assert [each.crawl for each in told_by(tmp_path / "large").pieces] == [LIST_OF_CRAWLS, crawl, crawl]
    with (
        LoopbackServer(tmp_path / "large") as server,
        catalogue.open(tmp_path / "other", settings=empty.session.settings) as other,
    ):
        other.pull(server.url, compare=0)
        asked = [exchange.range for exchange in server.log if exchange.path == piece.name]
        assert asked == [f"bytes=0-{MAX_DOCUMENT - 1}", f"bytes={MAX_DOCUMENT}-{piece.size - 1}"]
        assert other.session.create_store().indexes(path, [9999], held) == {9999: large}


def test_chosen_crawls(exported: Path, empty: Catalogue) -> None:
    crawls = told_by(exported).crawls
    assert empty.pull(str(exported), crawls=crawls[-1], compare=0).crawls == crawls[-1:]
    assert stored_crawls(empty.session) == [crawls[-1]]
    assert COLLINFO in rows_of(empty)["documents"]
    with pytest.raises(UnknownCrawl, match="holds nothing of CC-MAIN-1999-01"):
        empty.pull(str(exported), crawls="CC-MAIN-1999-01")
    empty.pull(str(exported), crawls="latest", compare=0)
    assert stored_crawls(empty.session) == [crawls[0], crawls[-1]]


def test_what_is_held_stays(exported: Path, empty: Catalogue) -> None:
    crawl = told_by(exported).crawls[0]
    empty.pull(str(exported), crawls=crawl, compare=0)
    store = empty.session.create_store()
    same, other, gone, *_ = sorted(rows_of(empty)["files"])
    held = store.get("files", other)
    assert held
    changed = replace(held, etag='"another"')
    store.put("files", [(other, changed)])
    store.delete("files", [gone])
    store.delete("documents", store.keys("documents", "snapshots/"))
    store.delete("indexes", store.index_keys(same))
    before = store.state()
    pulled = empty.pull(str(exported), crawls=crawl)
    assert (pulled.files, pulled.kept) == (1, len(store.keys("files")) - 1)
    assert store.get("files", other) == changed
    assert store.index_keys(other) == []  # they are of another version
    assert store.index_keys(same) == sorted(key for key in rows_of(empty)["indexes"] if key.startswith(f"{same}#"))
    assert store.state() != before
    empty.forget(crawl)
    assert empty.pull(str(exported), crawls=crawl, compare=0).files == pulled.files + pulled.kept


def test_a_pull_goes_on_where_it_was_broken_off(place: Path, empty: Catalogue) -> None:
    first, *_, last = told_by(place).pieces
    data = (place / last.name).read_bytes()
    (place / last.name).unlink()
    with pytest.raises(BadSnapshot, match="run the same command again"):
        empty.pull(str(place), compare=0)
    taken = len(empty.files())
    assert taken == sum(piece.files for piece in told_by(place).pieces) - last.files
    (place / last.name).write_bytes(data)
    with LoopbackServer(place) as server:
        assert empty.pull(server.url).files == last.files
        assert [exchange.path for exchange in server.log] == [MANIFEST, last.name]
    assert first.crawl == LIST_OF_CRAWLS


# ---- making one ----


def test_only_what_is_new_is_written_again(untaught_data: Path, settings: Settings, tmp_path: Path) -> None:
    data = Path(copytree(untaught_data, tmp_path / "data"))
    place = tmp_path / "snapshot"

    def pieces() -> dict[str, int]:
        return {str(path.relative_to(place)): path.stat().st_ino for path in place.glob("pieces/*")}

    with catalogue.open(data, settings=settings) as cat:
        newest, *_, oldest = stored_crawls(cat.session)
        cat.export_snapshot(place)
        before = pieces()
        assert before.keys() == {piece.name for piece in told_by(place).pieces}
        (place / ".growing-left").mkdir()  # of one that was killed
        (place / ".growing-left" / "part").write_bytes(b"half")
        cat.harvest(newest, pages=True)
        cat.captures("example.com/*").to_arrow()  # what that derives is not part of a snapshot
        cat.export_snapshot(place)
        changed = before.keys() ^ pieces().keys()
        assert {name.split("/")[1].split(".")[0] for name in changed} == {newest}
        assert before.items() - {(name, before.get(name)) for name in changed} <= pieces().items()
        one, *_ = pieces()
        (place / one).write_bytes(b"cut")
        cat.export_snapshot(place, crawls=oldest)
        assert told_by(place).crawls == (oldest,)
        assert {piece.name: piece.size for piece in told_by(place).pieces} == {
            str(path.relative_to(place)): path.stat().st_size for path in place.glob("pieces/*")
        }
        assert sorted(path.name for path in place.iterdir()) == ["pieces", MANIFEST, "tables"]


def test_what_is_written_meanwhile_is_not_in_it(untaught_data: Path, tmp_path: Path) -> None:
    data = Path(copytree(untaught_data, tmp_path / "data"))
    with Store(data / "footers.sqlite") as store, frozen(store) as held:
        (path, *_) = paths = held.paths()
        before = held.file(path)
        assert paths == store.keys("files")
        taken = store.get("files", path)
        assert taken
        store.put("files", [(path, replace(taken, etag="another")), (f"{path}more", taken)])
        store.delete("files", paths[1:])
        assert held.paths() == paths
        assert held.file(path) == before


def test_tables_for_who_has_other_tools(taught: Catalogue, exported: Path) -> None:
    snapshot = told_by(exported)
    assert {table.table for table in snapshot.tables} == {"files", "row_groups", "pages"}
    for table in snapshot.tables:
        path = exported / table.name
        data = path.read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (table.size, table.sha256)
        (count,) = duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall()  # noqa: S608
        assert count == (table.rows,) != (0,)
        for one, other in ((table.table, f"'{path}'"), (f"'{path}'", table.table)):
            assert taught.sql(f"(FROM {one}) EXCEPT ALL (FROM {other})").fetchall() == []


def test_something_else_is_not_written_over(taught: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    with pytest.raises(QueryError, match="holds something else"):
        taught.export_snapshot(tmp_path / "mine")
    (tmp_path / "mine" / MANIFEST).write_text("{}")
    with pytest.raises(QueryError, match="of something else, or of another version"):
        taught.export_snapshot(tmp_path / "mine")
    with pytest.raises(QueryError, match="is a file"):
        taught.export_snapshot(tmp_path / "mine" / "letter")
    with pytest.raises(QueryError, match="there is no folder"):
        taught.export_snapshot(tmp_path / "nowhere" / "mine")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["letter", MANIFEST]
    with FileLock(tmp_path / "new.lock"), pytest.raises(StoreLocked, match="another process writes to"):
        taught.export_snapshot(tmp_path / "new")


def test_two_at_once(exported: Path, empty: Catalogue) -> None:
    crawl = told_by(exported).crawls[0]
    with (
        empty.session.create_store().harvesting(crawl),
        catalogue.open(empty.session.data, settings=empty.session.settings) as other,
    ):
        with pytest.raises(StoreLocked, match=f"another process harvests {crawl}"):
            other.pull(str(exported), crawls=crawl, compare=0)
        assert other.session.create_store().keys("files") == []
    with FileLock(empty.session.data / "pull.lock"), pytest.raises(StoreLocked, match="another process writes to"):
        empty.pull(str(exported), crawls=crawl, compare=0)


def test_the_commands(asking: Command, command: Command, whole_crawls: list[str], tmp_path: Path) -> None:
    place, crawl = tmp_path / "snapshot", whole_crawls[-1]
    made = asking("export", "snapshot", str(place), "--crawl", crawl, "--json")
    assert (made.status, made.err) == (0, "")
    files = made.json()["files"]
    assert made.json() == {"place": str(place), "crawls": [crawl], "files": files, "complete": True, "missing": []}
    ran = command("pull", str(place))
    assert ran.status == 0
    assert f"1 crawl: {files} footers added, 0 held before; page indexes of " in ran.err
    assert "3 compared with the source" in ran.err
    assert command("pull", str(place)).err == "1 crawl: nothing is new since the last pull\n"
    again = command("pull", str(place), "--json", "--compare", "0")
    assert again.json()["files"] == again.json()["compared"] == 0
    assert again.json()["crawls"] == [crawl]
    (wrong,) = command("pull", str(tmp_path / "nowhere")).err.splitlines()
    assert "is no folder and no http, https or s3 address" in wrong
    # What is lacking is told of at both ends.
    path = command.data / "footers.sqlite"
    with Store(path) as store:
        gone = store.keys("files", f"crawl={crawl}/subset=warc/")[0]
        store.delete("files", [gone])
    part = command("export", "snapshot", str(tmp_path / "part"))
    assert part.status == 1
    assert f"it is incomplete: 1 of the {len(store_listed(path, crawl, gone))} files of {crawl}" in part.err
    taken = replace(command, data=tmp_path / "third")("pull", str(tmp_path / "part"))
    assert taken.status == 1
    assert "what is held is incomplete: 1 of the" in taken.err


def store_listed(path: Path, crawl: str, one: str) -> list[str]:
    """The files of one's subset that the manifest lists."""
    from catalogue.commoncrawl.manifests import parse_manifest  # noqa: PLC0415 - here alone

    with Store(path) as store:
        document = store.get("documents", manifest_path(crawl))
    assert document
    subset = one.split("subset=")[1].split("/", maxsplit=1)[0]
    return [file.path for file in parse_manifest(crawl, document.data) if file.subset == subset]


def test_when_it_was_made(exported: Path) -> None:
    snapshot = told_by(exported)
    assert datetime.fromisoformat(snapshot.made_at) <= datetime.now(UTC)
    assert unpack_snapshot(snapshot.pack()) == snapshot
