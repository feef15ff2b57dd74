"""Damaged stores and files of other programs are refused."""

import json
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from random import Random
from threading import Event

import pytest

from catalogue.errors import StoreDamaged, StoreError
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import Indexes
from catalogue.store.database import Store
from catalogue.store.layout import TABLES, VERSION, StoredFile, decode, encode
from tests.support.memory import memory_below
from tests.support.rot import flip
from tests.support.stores import batch, digest, empty_store, path_of, raw, signed, store_path, stored_file, value

path = pytest.fixture(store_path)
store = pytest.fixture(empty_store)


def test_detects_every_flipped_bit(path: Path) -> None:
    rng = Random("rot")
    items = dict(batch(0, 40, 500))
    with Store(path, create=True) as store, raw(path) as other:
        store.put("files", items.items())
        other.execute("PRAGMA synchronous=OFF")
        values = dict(other.execute("SELECT key, value FROM files"))
        for _ in range(400):
            key = rng.choice([*values])
            flipped = flip(values[key], rng.randrange(8 * len(values[key])))
            other.execute("UPDATE files SET value = ? WHERE key = ?", [flipped, key])
            with pytest.raises(StoreDamaged, match=f"{key} in .*; run: catalogue check --repair"):
                store.get("files", key)
            other.execute("UPDATE files SET value = ? WHERE key = ?", [values[key], key])
        assert {key: store.get("files", key) for key in items} == items


HEADER = {name: item for name, item in asdict(stored_file()).items() if name != "data"}

HOSTILE: dict[str, object] = {
    "empty": b"",
    "only a tag": b"\x01",
    "another tag": b"\x02" + encode(stored_file())[1:],
    "text": "footer",
    "a number": 1 << 40,
    "a small number": 7,
    "null": None,
    "a real": 0.5,
    "no header": signed(b""),
    "a header that is not JSON": signed(b"{\n"),
    "a header that is not UTF-8": signed(b"\xff\xfe\xfd\n"),
    "a header that is a number": signed(b"5\n"),
    "a deeply nested header": signed(b"[" * 200_000 + b"\n"),
    "no data": signed(json.dumps([6, HEADER]).encode()),
    "data that are not compressed": signed(json.dumps([6, HEADER]).encode() + b"\nfooter"),
    "truncated data": signed(json.dumps([6, HEADER]).encode() + b"\n" + zlib.compress(b"footer")[:-6]),
    "too few data": value(7, HEADER, b"footer"),
    "a negative length": value(-1, HEADER),
    "a length of gigabytes": value(1 << 40, HEADER),
    "a length over the limit": value((64 << 20) + 1, HEADER),
    "a length that is text": value("6", HEADER, b"footer"),
    "a length that is a fraction": value(6.5, HEADER, b"footer"),
    "an unknown field": value(6, HEADER | {"more": 1}, b"footer"),
    "a missing field": value(6, {"size": 6}, b"footer"),
    "a field twice": value(6, HEADER | {"data": "x"}, b"footer"),
    "fields that are a list": value(6, [1, 2], b"footer"),
    "a size that is text": value(6, HEADER | {"size": "6"}, b"footer"),
    "an ETag that is a number": value(6, HEADER | {"etag": 6}, b"footer"),
    "a source that is null": value(6, HEADER | {"source": None}, b"footer"),
    "a time that is a list": value(6, HEADER | {"taken": []}, b"footer"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_rejects_invalid_values(store: Store, path: Path, what: str) -> None:
    with raw(path) as connection:
        connection.execute("INSERT INTO files VALUES ('key', ?)", [HOSTILE[what]])
    with pytest.raises(StoreDamaged, match=r"^key in .*; run: catalogue check --repair") as caught:
        store.get("files", "key")
    assert len(str(caught.value)) < 600


def test_bounds_the_inflated_size_of_values() -> None:
    bomb = zlib.compress(bytes(64 << 20), 1)
    with memory_below(16 << 20), pytest.raises(StoreDamaged, match="has 1 bytes instead of 0"):
        decode(signed(json.dumps([0, HEADER]).encode() + b"\n" + bomb))


def altered(path: Path, *statements: str) -> None:
    with Store(path, create=True) as store:
        store.put("files", batch(0, 1))
    with raw(path) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize("statement", ["CREATE TABLE bookmarks (url TEXT)", "PRAGMA application_id=42"])
def test_does_not_touch_files_of_other_programs(path: Path, statement: str) -> None:
    path.parent.mkdir()
    with raw(path) as connection:
        connection.execute(statement)
    before = digest(path)
    with pytest.raises(StoreError, match="is a SQLite file, but not a store of footers; choose another data folder"):
        Store(path, create=True)
    assert digest(path) == before


@pytest.mark.parametrize("content", [b"PAR1" * 1000, b"SQLite format 3\0" + bytes(4000)])
def test_does_not_touch_other_files(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"is not a usable store|is a SQLite file, but not"):
        Store(path, create=True)
    assert path.read_bytes() == content


def test_rejects_a_newer_version(path: Path) -> None:
    altered(path, f"PRAGMA user_version={VERSION + 1}")
    with pytest.raises(StoreError, match=rf"a newer version of this tool \(store version {VERSION + 1}\); upgrade it"):
        Store(path)


STRANGE = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON files BEGIN DELETE FROM files; END",
    "trigger on reading": "CREATE TRIGGER files_read AFTER UPDATE ON identity BEGIN DELETE FROM files; END",
    "view": "CREATE VIEW v AS SELECT * FROM files",
    "index": "CREATE INDEX i ON files (abs(value))",
    "column": "ALTER TABLE files ADD COLUMN more TEXT AS (key || 'x')",
    "check": 'CREATE TABLE "failures" (key TEXT PRIMARY KEY, value BLOB CHECK (length(value) > 5))',
    "view for a table": "CREATE VIEW files AS SELECT 'key' AS key, x'00' AS value",
    "virtual table": "CREATE VIRTUAL TABLE documents USING fts5(key, value)",
}


@pytest.mark.parametrize("what", STRANGE)
def test_rejects_unknown_tables(path: Path, what: str) -> None:
    statement = STRANGE[what]
    instead = [f"DROP TABLE {name}" for name in TABLES if f'TABLE "{name}"' in statement or f" {name} AS" in statement]
    instead += ["DROP TABLE documents"] if "VIRTUAL" in statement else []
    altered(path, *instead, statement)
    with pytest.raises(StoreDamaged, match=r"has a .* that is not part of a store; it is not opened"):
        Store(path)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA user_version=4", "claims to be of version 4; run: catalogue check --repair"),
        ("PRAGMA user_version=0", "claims to be of version 0; run: catalogue check --repair"),
        ("PRAGMA user_version=-1", "claims to be of version -1; run: catalogue check --repair"),
        ("DELETE FROM identity", "has no identity; it is not opened"),
        ("INSERT INTO identity VALUES ('x', '1', '1')", "has no identity; it is not opened"),
        ("DROP TABLE identity", "not a usable store: no such table"),
        ("DROP TABLE files", "not a usable store: no such table"),
    ],
)
def test_unknown_versions_identities_and_missing_tables_are_damage(path: Path, statement: str, message: str) -> None:
    altered(path, statement)
    with pytest.raises(StoreDamaged, match=message), Store(path) as store:
        store.keys("files")


@pytest.mark.parametrize("statement", ["ANALYZE", "CREATE TABLE unnamed (key TEXT PRIMARY KEY, value BLOB)"])
def test_ignores_harmless_tables(path: Path, statement: str) -> None:
    """Statistics of SQLite, and the default table of sqlitedict."""
    altered(path, statement)
    with Store(path) as store:
        assert store.keys("files") == [path_of(0)]
        assert store.problem() is None


def test_damaged_pages_raise_store_damaged(path: Path) -> None:
    with Store(path, create=True) as store:
        store.put("files", batch(0, 50))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(Random("pages").randbytes(size - 4096))
    with pytest.raises(StoreError, match=r"footers\.sqlite"), Store(path) as store:
        [store.get("files", path_of(number)) for number in range(50)]


def test_close_waits_for_running_threads(path: Path) -> None:
    """Otherwise SQLite crashes the process."""
    store = Store(path, create=True)
    begun, closing_now = Event(), Event()

    def facts() -> Iterator[tuple[str, StoredFile]]:
        begun.set()
        closing_now.wait(60)
        yield path_of(1), stored_file()

    def close() -> None:
        closing_now.set()
        store.close()

    with ThreadPoolExecutor(2) as executor:
        writing = executor.submit(store.add_facts, facts())
        assert begun.wait(60)
        executor.submit(close).result()
        writing.result()
    store.close()
    with pytest.raises(StoreError):
        store.keys("files")
    with Store(path) as again:
        assert again.keys("facts", path_of(1)) == [path_of(1)]


def test_numbers_rows_in_the_order_of_writes(store: Store) -> None:
    assert store.row_numbers("files") == {}
    store.put("files", [("a", stored_file(b"1")), ("b", stored_file(b"2"))])
    first, state = store.row_numbers("files"), store.state()
    assert first["a"] < first["b"]
    store.put("files", [("a", stored_file(b"3")), ("c", stored_file(b"4"))])
    second = store.row_numbers("files")
    assert first["b"] == second["b"] < second["a"] < second["c"]
    store.delete("files", ["a"])
    assert store.row_numbers("files") == {"b": second["b"], "c": second["c"]}
    assert store.row_numbers("files", "b") == {"b": second["b"]}
    assert store.state().partition(":")[0] == state.partition(":")[0]
    store.delete("files", ["c"])  # SQLite gives the next row the number of the last one
    assert store.state().partition(":")[0] != state.partition(":")[0]


def test_facts_do_not_change_the_state_and_may_be_damaged(store: Store, path: Path) -> None:
    state = store.state()
    store.add_facts([("b", stored_file(b"of b"))])
    assert store.state() == state
    with raw(path) as connection:
        connection.execute("UPDATE facts SET value = CAST(value || x'00' AS BLOB)")
    with pytest.raises(StoreDamaged):
        store.get("facts", "b")


def test_indexes_are_joined_for_one_version(store: Store) -> None:
    store.put("files", [("key", stored_file(b"1"))])
    store.add_indexes("key", {0: Indexes(b"bounds", {"url": b"1"})}, stored_file(b"1"))
    store.add_indexes("key", {0: Indexes(None, {"url_path": b"2"})}, stored_file(b"1"))
    both = Indexes(b"bounds", {"url": b"1", "url_path": b"2"})
    assert store.indexes("key", [0], stored_file(b"1")) == {0: both}
    assert store.indexes("key", [0], stored_file(b"1", size=99)) == {}
    bounds = Bounds(b"a", b"b")
    store.add_indexes("key", {0: Indexes(bounds=bounds)}, stored_file(b"1"))
    assert store.indexes("key", [0], stored_file(b"1")) == {0: Indexes(b"bounds", both.offset_indexes, bounds)}
    store.delete("files", ["key"])
    assert store.keys("indexes") == []
