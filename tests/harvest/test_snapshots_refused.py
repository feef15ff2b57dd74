"""Snapshots that are damaged, old, or of somebody who means ill: a named error, and nothing is taken."""

import hashlib
import json
import pickle
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.manifests import COLLINFO
from catalogue.errors import BadSnapshot
from catalogue.harvest.pull import Pull, Pulled
from catalogue.harvest.snapshot import LIST_OF_CRAWLS, MANIFEST, Piece, contents_of, unpack_snapshot
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import encode_column_index
from catalogue.parquet.stored_indexes import ColumnIndex, Indexes
from catalogue.settings import Settings
from catalogue.source.open import open_source
from catalogue.store.pieces import read_piece, write_piece
from catalogue.store.stored_file import StoredFile, decode, encode
from tests.support.crawls import CRAWL, crawl_of, table
from tests.support.snapshots import Change, empty, exported, place, rows_of, run, tampered, taught, told_by

__all__ = ["empty", "exported", "place", "taught"]  # fixtures


def refused(cat: Catalogue, place: Path, sign: str, **options: Any) -> None:
    """That a snapshot is not taken for a named reason, and nothing of it is there then."""
    crawl = told_by(place).crawls[0] if "crawls" not in options else options.pop("crawls")
    cat.session.create_store()
    before = rows_of(cat)
    with pytest.raises(BadSnapshot, match=sign):
        cat.pull(str(place), crawls=crawl, **options)
    after = rows_of(cat)
    for tables in (before, after):
        tables["documents"].pop(COLLINFO, None)  # a piece of its own, which came first
    assert after == before
    assert not (cat.session.data / "pulling.part").exists()


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        (lambda told: told.update(format="zip"), "of something else"),
        (lambda told: told.update(version=0), "version 0.*have it exported again"),
        (lambda told: told.update(version=2), "version 2.*upgrade this tool"),
        (lambda told: told.update(version=[1]), "version"),
        (lambda told: told.update(version="x" * 10_000), "^.{,200}$"),
        (lambda told: told["pieces"][0].update(crawl="x" * 10_000), "^.{,200}$"),
        (lambda told: told.update(missing="abc"), "lacks something"),
        (lambda told: told.update(missing={"abc": 1}), "lacks something"),
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
        (lambda data: data[:0], "has 0 bytes"),
    ],
)
def test_a_damaged_piece(place: Path, empty: Catalogue, damage: Callable[[bytes], bytes], sign: str) -> None:
    piece = next(piece for piece in told_by(place).pieces if piece.crawl != LIST_OF_CRAWLS)
    path = place / piece.name
    path.write_bytes(damage(path.read_bytes()))
    store = empty.session.create_store()
    with pytest.raises(catalogue.CatalogueError, match=sign):
        empty.pull(str(place), crawls=piece.crawl)
    assert store.keys("files") == []


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
        (
            "PRAGMA writable_schema=1; UPDATE sqlite_master SET sql = 'x', name = char(27) || '[2' WHERE name='facts'",
            r"is damaged: 'malformed database schema \(\\x1b\[2",
        ),
    ],
)
def test_a_piece_of_somebody_who_means_ill(place: Path, empty: Catalogue, sql: str, sign: str) -> None:
    tampered(place, partial(run, sql))
    refused(empty, place, sign)


def test_pickles_stay_unopened(place: Path, empty: Catalogue, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    pickled = pickle.dumps(Canary(canary))
    for value in (pickled, b"\x01" + pickled):
        put = f"UPDATE files SET value = x'{value.hex()}'"  # noqa: S608
        tampered(place, partial(run, put))
        refused(empty, place, "its digest is wrong")
    assert not canary.exists()
    pickle.loads(pickled)  # noqa: S301 - our own
    assert canary.exists()


def with_values(table: str, change: Callable[[StoredFile], StoredFile]) -> Change:
    def written(connection: sqlite3.Connection) -> None:
        for key, value in connection.execute(f"SELECT key, value FROM {table}").fetchall():  # noqa: S608
            changed = encode(change(decode(value)))
            connection.execute(f"UPDATE {table} SET value = ? WHERE key = ?", [changed, key])  # noqa: S608

    return written


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
        ("files", lambda held: replace(held, taken="2026-01-01T00:00:00"), "no store notes"),
        ("files", lambda held: replace(held, taken="2026-01-01\x1b00:00:00+00:00"), "no store notes"),
        ("files", lambda held: replace(held, taken="9999-12-31T23:59:59+00:00"), "no store notes"),
        ("documents", lambda held: replace(held, data=b"no gzip"), "which is damaged"),
        ("documents", lambda held: replace(held, taken="2999-01-01T00:00:00+00:00"), "no store notes"),
        ("indexes", lambda held: replace(held, data=b"{}"), "which is damaged"),
        ("indexes", lambda held: replace(held, size=held.size + 1), "which is not in it so"),
    ],
)
def test_values_that_no_store_would_hold(
    place: Path, empty: Catalogue, table: str, change: Callable[[StoredFile], StoredFile], sign: str
) -> None:
    tampered(place, with_values(table, change))
    refused(empty, place, sign)


def test_a_list_of_crawls_that_is_none(place: Path, empty: Catalogue) -> None:
    tampered(place, with_values("documents", lambda held: replace(held, data=b"[]")), crawl=LIST_OF_CRAWLS)
    refused(empty, place, "which is damaged")


def test_a_list_of_crawls_of_which_nobody_can_tell_the_age(place: Path, empty: Catalogue) -> None:
    no_zone = with_values("documents", lambda held: replace(held, taken="2026-01-01T00:00:00"))
    tampered(place, no_zone, crawl=LIST_OF_CRAWLS)
    refused(empty, place, "no store notes")
    assert len(empty.harvest("latest")) == 1


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


@pytest.mark.parametrize("own", [True, False])
def test_page_indexes_that_lie_shorten_no_answer(tmp_path: Path, *, own: bool) -> None:
    """Derived ones, which older snapshots have, are not taken; those of the file are compared with it."""
    keys = [f"com,example)/{number:02}" for number in range(40)]
    mirror = crawl_of(tmp_path / "mirror", table(keys), data_page_size=1, write_batch_size=10)
    settings = Settings(source=str(mirror), cache=tmp_path / "cache")
    with catalogue.open(tmp_path / "mine", settings=settings) as mine:
        mine.harvest(CRAWL, pages=True)
        mine.export_snapshot(tmp_path / "snapshot")

    def lie(held: StoredFile) -> StoredFile:
        """Each page holds its first key alone, it says, and the last page the last."""
        bounds = [Bounds(key.encode(), key.encode()) for key in (*keys[:30:10], keys[-1])]
        lying = encode_column_index(ColumnIndex(tuple(bounds), None))
        return replace(held, data=replace(Indexes.unpack(held.data), column_index=lying, own=own).pack())

    tampered(tmp_path / "snapshot", with_values("indexes", lie))
    with catalogue.open(tmp_path / "theirs", settings=settings) as theirs:
        if own:
            assert theirs.pull(str(tmp_path / "snapshot")).row_groups == 0
            assert theirs.captures("example.com/15").count() == 1
        else:
            refused(theirs, tmp_path / "snapshot", "the page index of .* is not the one that", compare=1)
            theirs.pull(str(tmp_path / "snapshot"), compare=0)
            (finding,) = theirs.check(read_subset="100%").findings
            assert finding.what == "the stored page index differs from the file's"


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


def test_footers_that_say_far_more_than_they_have_bytes(empty: Catalogue, tmp_path: Path) -> None:
    """What is found in some hundred of them would not fit into memory, were it not packed."""
    written = BytesIO()
    with pq.ParquetWriter(written, pa.schema([("url_surtkey", pa.string())])) as writer:
        for _ in range(300):
            writer.write_table(pa.table({"url_surtkey": ["com,example)/"]}))
    file = written.getvalue()
    footer = file[-8 - int.from_bytes(file[-8:-4], "little") : -8]
    value = encode(StoredFile(footer, len(file), None, None, "https://example.org/", "2026-01-01T00:00:00+00:00"))
    crawl = "CC-MAIN-2022-05"
    rows = [("files", f"cc-index/crawl={crawl}/subset=warc/{n}.parquet", value) for n in range(12)]
    (tmp_path / "pieces").mkdir()
    write_piece(tmp_path / "piece", rows)
    data = (tmp_path / "piece").read_bytes()
    piece = Piece(crawl, contents_of(rows), len(data), hashlib.sha256(data).hexdigest(), len(rows))
    (tmp_path / "piece").rename(tmp_path / piece.name)
    with closing(open_source(str(tmp_path), empty.session.settings)) as there:
        pull = Pull(there, empty.session.create_store(), there, compare=0, folder=empty.session.data)
        tracemalloc.start()
        try:
            pull.take([piece], Pulled(there.url, ()), lambda _: None)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert empty.session.create_store().count("facts") == len(rows)
    assert peak < 1_950_000  # bytes; two of them at a time take half of that, all of them 3 MB
