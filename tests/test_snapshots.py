"""Snapshots made, taken over, and not taken over."""

import hashlib
import json
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from shutil import copytree
from threading import Thread
from typing import Any

import duckdb
import pytest
from filelock import FileLock

import catalogue
from catalogue import Catalogue
from catalogue.crawl import COLLINFO, manifest_path
from catalogue.demo import LoopbackServer
from catalogue.errors import BadSnapshot, QueryError, StoreLocked, UnknownCrawl
from catalogue.pages import Indexes
from catalogue.settings import Settings
from catalogue.snapshot import LIST_OF_CRAWLS, MANIFEST, Snapshot, contents_of, unpack_snapshot
from catalogue.source import MAX_DOCUMENT
from catalogue.store import Held, Store, decode, encode, frozen, read_piece
from tests.commands import Command

PATTERNS = ("*.example.com", "example.com/*", "*.org")
"""Asked before a snapshot is made, so that nothing more is learned later."""

Change = Callable[[sqlite3.Connection], object]


@pytest.fixture(scope="module")
def taught(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    """Everything is harvested, and of many row groups the pages are known."""
    data = Path(copytree(untaught_data, tmp_path_factory.mktemp("taught") / "data"))
    with catalogue.open(data, settings=settings) as cat:
        cat.backfill().run()
        for pattern in PATTERNS:
            cat.captures(pattern).to_arrow()
        yield cat


@pytest.fixture(scope="module")
def exported(taught: Catalogue, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("exported") / "snapshot"
    assert taught.export_snapshot(place).complete
    return place


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
    with closing(sqlite3.connect(f"file:{cat.data / 'footers.sqlite'}?mode=ro", uri=True)) as connection:
        return {
            table: dict(connection.execute(f"SELECT * FROM {table} WHERE NOT instr(key, 'snapshots/')"))  # noqa: S608
            for table in ("documents", "files", "indexes", "failures")
        }


def told_by(place: Path) -> Snapshot:
    return unpack_snapshot((place / MANIFEST).read_bytes())


def test_what_is_taken_over_is_what_was_held(
    taught: Catalogue, exported: Path, settings: Settings, tmp_path: Path
) -> None:
    pieces = told_by(exported).pieces
    with LoopbackServer(exported) as server, catalogue.open(tmp_path / "data", settings=settings) as cat:
        pulled = cat.pull(server.url)
        assert pulled.files == sum(piece.files for piece in pieces) == len(taught.files())
        assert (pulled.kept, pulled.missing, list(pulled.crawls)) == (0, (), taught.held())
        assert pulled.row_groups == len(rows_of(taught)["indexes"]) > 0
        assert pulled.compared == sum(min(3, piece.files) for piece in pieces) == cat.requests
        assert [exchange.path for exchange in server.log] == [MANIFEST, *(piece.name for piece in pieces)]
        assert rows_of(cat) == rows_of(taught)
        for view in ("files", "row_groups", "pages"):
            assert cat.sql(f"FROM {view} ORDER BY ALL").df().equals(taught.sql(f"FROM {view} ORDER BY ALL").df())
        for pattern in PATTERNS:
            ours, theirs = (each.captures(pattern, ordered=True) for each in (cat, taught))
            assert ours.plan == theirs.plan
            assert ours.to_arrow().equals(theirs.to_arrow())
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
    store = empty.create()
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
        catalogue.open(tmp_path / "other", settings=empty.settings) as other,
    ):
        other.pull(server.url, compare=0)
        asked = [exchange.range for exchange in server.log if exchange.path == piece.name]
        assert asked == [f"bytes=0-{MAX_DOCUMENT - 1}", f"bytes={MAX_DOCUMENT}-{piece.size - 1}"]
        assert other.create().indexes(path, [9999], held) == {9999: large}


def test_chosen_crawls(exported: Path, empty: Catalogue) -> None:
    crawls = told_by(exported).crawls
    assert empty.pull(str(exported), crawls=crawls[-1], compare=0).crawls == crawls[-1:]
    assert empty.held() == [crawls[-1]]
    assert COLLINFO in rows_of(empty)["documents"]
    with pytest.raises(UnknownCrawl, match="holds nothing of CC-MAIN-1999-01"):
        empty.pull(str(exported), crawls="CC-MAIN-1999-01")
    empty.pull(str(exported), crawls="latest", compare=0)
    assert empty.held() == [crawls[0], crawls[-1]]


def test_what_is_held_stays(exported: Path, empty: Catalogue) -> None:
    crawl = told_by(exported).crawls[0]
    empty.pull(str(exported), crawls=crawl, compare=0)
    store = empty.create()
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


# ---- what is not taken ----


def refused(cat: Catalogue, place: Path, sign: str, **options: Any) -> None:
    """That a snapshot is not taken for a named reason, and nothing of it is there then."""
    crawl = told_by(place).crawls[0] if "crawls" not in options else options.pop("crawls")
    store = cat.create()
    before = rows_of(cat), store.state(), store.index_state()
    with pytest.raises(BadSnapshot, match=sign):
        cat.pull(str(place), crawls=crawl, **options)
    after = rows_of(cat), store.state(), store.index_state()
    for tables, *_ in (before, after):
        tables["documents"].pop(COLLINFO, None)  # a piece of its own, which came first
    assert after[0] == before[0]
    assert len(list(cat.data.glob(".pulling-*"))) == 0


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        (lambda told: told.update(format="zip"), "of something else"),
        (lambda told: told.update(version=0), "version 0.*have it exported again"),
        (lambda told: told.update(version=2), "version 2.*upgrade this tool"),
        (lambda told: told.update(version=[1]), "version"),
        (lambda told: told.pop("pieces"), "lacks something"),
        (lambda told: told.update(pieces=7), "lacks something"),
        (lambda told: told["pieces"].append({}), "lacks something"),
        (lambda told: told["pieces"].append(told["pieces"][0]), "twice"),
        (lambda told: told["pieces"][0].update(crawl="../../etc"), "as none is named"),
        (lambda told: told["pieces"][0].update(contents="../x"), "as none is named"),
        (lambda told: told["pieces"][0].update(sha256=""), "as none is named"),
        (lambda told: told["pieces"][0].update(size=1 << 40), "bytes"),
        (lambda told: told["pieces"][0].update(size=True), "size"),
        (lambda told: told["pieces"][0].update(files=-1), "files"),
        (lambda told: told.update(made_by="\x1b[2J"), "text"),
        (lambda told: told.update(missing=[1]), "text"),
        (lambda told: told["tables"][0].update(table="../x"), "table"),
    ],
)
def test_what_a_snapshot_says_of_itself_is_checked(
    exported: Path, change: Callable[[dict[str, Any]], object], sign: str
) -> None:
    told = json.loads((exported / MANIFEST).read_bytes())
    assert unpack_snapshot(json.dumps(told).encode()) == told_by(exported)
    change(told)
    with pytest.raises(BadSnapshot, match=sign):
        unpack_snapshot(json.dumps(told).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff", b"7"])
def test_what_is_no_snapshot(empty: Catalogue, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(BadSnapshot, match="there is no snapshot at"):
        empty.pull(str(tmp_path / "other"))
    (tmp_path / "other" / MANIFEST).write_bytes(data)
    with pytest.raises(BadSnapshot, match=r"is not taken: its snapshot\.json is"):
        empty.pull(str(tmp_path / "other"))
    assert rows_of(empty) == {"documents": {}, "files": {}, "indexes": {}, "failures": {}}


@pytest.mark.parametrize(
    ("damage", "sign"),
    [
        (lambda data: data[:-1], "bytes"),
        (lambda data: data + b"\0", "bytes"),
        (lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], "another digest"),
        (lambda data: data[:0], "."),
    ],
)
def test_a_damaged_piece(place: Path, empty: Catalogue, damage: Callable[[bytes], bytes], sign: str) -> None:
    piece = next(piece for piece in told_by(place).pieces if piece.crawl != LIST_OF_CRAWLS)
    path = place / piece.name
    path.write_bytes(damage(path.read_bytes()))
    store = empty.create()
    with pytest.raises(catalogue.CatalogueError, match=sign):
        empty.pull(str(place), crawls=piece.crawl)
    assert store.keys("files") == []


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


def _run(sql: str, connection: sqlite3.Connection) -> None:
    connection.executescript(sql)


class Canary:
    """Whoever unpickles this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ("sql", "sign"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON files BEGIN DELETE FROM indexes; END", "holds what no store holds"),
        ("CREATE VIEW v AS SELECT * FROM files", "holds what no store holds"),
        ("CREATE TABLE more (key TEXT)", "holds what no store holds"),
        ("CREATE INDEX more ON files (length(value))", "holds what no store holds"),
        ("CREATE VIRTUAL TABLE v USING fts5(key)", "holds what no store holds"),
        ("ALTER TABLE files ADD COLUMN more GENERATED ALWAYS AS (length(value))", "holds what no store holds"),
        ("DROP TABLE files; CREATE VIEW files AS SELECT 'k' AS key, x'00' AS value", "holds what no store holds"),
        ("DROP TABLE facts", "holds what no store holds"),
        ("PRAGMA application_id=1", "is no store"),
        ("PRAGMA user_version=3", "store version 3"),
        ("PRAGMA user_version=99", "store version 99"),
        ("UPDATE files SET value = CAST(value AS TEXT)", "is damaged"),
        ("UPDATE files SET value = 5", "a row in files"),
        ("UPDATE files SET key = CAST(key AS BLOB)", "a row in files"),
        ("UPDATE files SET value = NULL", "a row in files"),
        ("UPDATE files SET key = key || char(27)", "a row in files"),
        ("UPDATE files SET value = zeroblob(70000000) WHERE rowid = 1", "is damaged"),
        ("UPDATE files SET value = x'80049528'", "its digest is wrong"),
        ("UPDATE indexes SET key = 'cc-index/' || key", "has a page index of"),
        ("INSERT INTO documents SELECT 'collinfo.json', value FROM documents LIMIT 1", "has a document"),
        ("UPDATE documents SET key = 'table.json'", "has a document"),
        ("UPDATE files SET key = replace(key, 'crawl=CC-MAIN-', 'crawl=CC-MAIN-1')", "is no index file of"),
        ("UPDATE files SET key = '../' || key", "is no index file of"),
    ],
)
def test_a_piece_of_somebody_who_means_ill(place: Path, empty: Catalogue, sql: str, sign: str) -> None:
    tampered(place, partial(_run, sql))
    refused(empty, place, sign)


def test_pickles_stay_unopened(place: Path, empty: Catalogue, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    pickled = pickle.dumps(Canary(canary))
    for value in (pickled, b"\x01" + pickled):
        put = f"UPDATE files SET value = x'{value.hex()}'"  # noqa: S608
        tampered(place, partial(_run, put))
        refused(empty, place, "its digest is wrong")
    assert not canary.exists()
    pickle.loads(pickled)  # noqa: S301 - our own
    assert canary.exists()


def with_values(table: str, change: Callable[[Held], Held]) -> Change:
    def run(connection: sqlite3.Connection) -> None:
        for key, value in connection.execute(f"SELECT key, value FROM {table}").fetchall():  # noqa: S608
            changed = encode(change(decode(value)))
            connection.execute(f"UPDATE {table} SET value = ? WHERE key = ?", [changed, key])  # noqa: S608

    return run


@pytest.mark.parametrize(
    ("table", "change", "sign"),
    [
        ("files", lambda held: replace(held, data=b""), "which is damaged"),
        ("files", lambda held: replace(held, data=b"\x15" * 200), "which is damaged"),
        ("files", lambda held: replace(held, data=held.data[:-200]), "which is damaged"),
        ("files", lambda held: replace(held, size=20), "is no index file of"),
        ("files", lambda held: replace(held, size=-1), "no store notes"),
        ("files", lambda held: replace(held, size=1 << 60), "no store notes"),
        ("files", lambda held: replace(held, etag='"x"\r\nHost: elsewhere'), "no store notes"),
        ("files", lambda held: replace(held, etag="x" * 5000), "no store notes"),
        ("files", lambda held: replace(held, source="\x1b]0;owned\x07"), "no store notes"),
        ("files", lambda held: replace(held, taken="soon"), "no store notes"),
        ("files", lambda held: replace(held, taken="9999-12-31T23:59:59+00:00"), "no store notes"),
        ("documents", lambda held: replace(held, data=b"no gzip"), "which is damaged"),
        ("documents", lambda held: replace(held, taken="2999-01-01T00:00:00+00:00"), "no store notes"),
        ("indexes", lambda held: replace(held, data=b"{}"), "which is damaged"),
        ("indexes", lambda held: replace(held, size=held.size + 1), "which is not in it so"),
    ],
)
def test_values_that_no_store_would_hold(
    place: Path, empty: Catalogue, table: str, change: Callable[[Held], Held], sign: str
) -> None:
    tampered(place, with_values(table, change))
    refused(empty, place, sign)


def test_a_list_of_crawls_that_is_none(place: Path, empty: Catalogue) -> None:
    tampered(place, with_values("documents", lambda held: replace(held, data=b"[]")), crawl=LIST_OF_CRAWLS)
    refused(empty, place, "which is damaged")


def test_footers_that_the_source_has_not(place: Path, empty: Catalogue) -> None:
    """Good ones, of other files: only the source can tell."""
    crawl = told_by(place).crawls[0]
    values = [decode(value) for key, value in sorted(rows_in(place, crawl)["files"].items())]
    others = iter([*values[1:], values[0]])

    def swap(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM indexes")
        for key in sorted(rows_in(place, crawl)["files"]):
            connection.execute("UPDATE files SET value = ? WHERE key = ?", [encode(next(others)), key])

    tampered(place, swap)
    refused(empty, place, "which the source has not, or not so|is not the one that", compare=1)
    assert empty.pull(str(place), crawls=crawl, compare=0).files == len(values)  # who believes, believes


def rows_in(place: Path, crawl: str) -> dict[str, dict[str, bytes]]:
    tables: dict[str, dict[str, bytes]] = {"documents": {}, "files": {}, "indexes": {}}
    for piece in told_by(place).pieces:
        if piece.crawl == crawl:
            for table, key, value in read_piece(place / piece.name):
                tables[table][key] = value
    return tables


def test_a_piece_under_the_name_of_another(place: Path, empty: Catalogue) -> None:
    """It would keep the good one from being taken later."""
    told = json.loads((place / MANIFEST).read_bytes())
    piece = told_by(place).pieces[-1]
    path = place / piece.name
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM indexes")
        connection.execute("DELETE FROM files WHERE rowid = 1")
        connection.commit()
    data = path.read_bytes()
    told["pieces"][-1] |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (place / MANIFEST).write_text(json.dumps(told))
    refused(empty, place, "other contents than its name says", crawls=piece.crawl)


def test_rows_that_share_their_bytes(place: Path) -> None:
    """A small file may seem to hold much, where rows refer to the same pages of it."""
    crawl = told_by(place).crawls[0]
    piece = next(piece for piece in told_by(place).pieces if piece.crawl == crawl)
    data = bytearray((place / piece.name).read_bytes())
    with closing(sqlite3.connect(place / piece.name)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    overflow = [at for at in range(0, len(data), size) if data[at] not in {2, 5, 10, 13}]
    for at in overflow:  # each chain goes on in the page after the first of all
        data[at : at + 4] = (2).to_bytes(4, "big")
    (place / piece.name).write_bytes(data)
    assert overflow
    with pytest.raises(BadSnapshot, match="is damaged"):
        read_piece(place / piece.name)


# ---- making one ----


def test_only_what_is_new_is_written_again(untaught_data: Path, settings: Settings, tmp_path: Path) -> None:
    data = Path(copytree(untaught_data, tmp_path / "data"))
    place = tmp_path / "snapshot"

    def pieces() -> dict[str, int]:
        return {str(path.relative_to(place)): path.stat().st_ino for path in place.glob("pieces/*")}

    with catalogue.open(data, settings=settings) as cat:
        newest, *_, oldest = cat.held()
        cat.export_snapshot(place)
        before = pieces()
        assert before.keys() == {piece.name for piece in told_by(place).pieces}
        (place / ".growing-left").mkdir()  # of one that was killed
        (place / ".growing-left" / "part").write_bytes(b"half")
        cat.captures("example.com/*", crawls=newest).to_arrow()
        cat.export_snapshot(place)
        changed = before.keys() ^ pieces().keys()
        assert {name.split("/")[1].split(".")[0] for name in changed} <= {newest}
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
    with empty.create().harvesting(crawl), catalogue.open(empty.data, settings=empty.settings) as other:
        with pytest.raises(StoreLocked, match=f"another process harvests {crawl}"):
            other.pull(str(exported), crawls=crawl, compare=0)
        assert other.create().keys("files") == []


def test_the_commands(asking: Command, command: Command, whole_crawls: list[str], tmp_path: Path) -> None:
    place, crawl = tmp_path / "snapshot", whole_crawls[-1]
    made = asking("export", "snapshot", str(place), "--crawl", crawl, "--json")
    assert (made.status, made.err) == (0, "")
    files = made.json()["files"]
    assert made.json() == {"place": str(place), "crawls": [crawl], "files": files, "complete": True, "missing": []}
    ran = command("pull", str(place))
    assert ran.status == 0
    assert f"1 crawl: {files} footers added, 0 held before; page indexes of 0 row groups; 3 compared" in ran.err
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
    from catalogue.crawl import parse_manifest  # noqa: PLC0415 - here alone

    with Store(path) as store:
        document = store.get("documents", manifest_path(crawl))
    assert document
    subset = one.split("subset=")[1].split("/", maxsplit=1)[0]
    return [file.path for file in parse_manifest(crawl, document.data) if file.subset == subset]


def test_when_it_was_made(exported: Path) -> None:
    snapshot = told_by(exported)
    assert datetime.fromisoformat(snapshot.made_at) <= datetime.now(UTC)
    assert unpack_snapshot(snapshot.pack()) == snapshot
