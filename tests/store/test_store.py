"""Stored values can be read again, also by sqlitedict."""

import os
import pickle
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlitedict import SqliteDict

from catalogue.errors import NotHarvested, StoreDamaged, StoreError
from catalogue.parquet.page_index import Indexes
from catalogue.store.database import Store
from catalogue.store.layout import APPLICATION_ID, TABLES, VERSION, StoredFile, decode, encode, version_of
from catalogue.store.locks import remote_kind
from tests.support.stores import batch, digest, empty_store, path_of, raw, store_path, stored_file

path = pytest.fixture(store_path)
store = pytest.fixture(empty_store)


TEXTS = st.text(max_size=30)


def test_moved_and_replaced_stores_are_not_used(path: Path, store: Store) -> None:
    store.put("files", batch(0, 2))
    elsewhere = path.parent.rename(path.parent.with_name("elsewhere"))
    for use in (store.state, lambda: store.keys("files"), lambda: store.put("files", batch(2, 3))):
        with pytest.raises(StoreError, match="was moved, deleted or replaced"):
            use()
    copytree(elsewhere, path.parent)
    with pytest.raises(StoreError, match="was moved, deleted or replaced"):
        store.put("files", batch(2, 3))


def test_put_get_roundtrip(store: Store, path: Path) -> None:
    items = dict(batch(0, 1201))
    store.put("files", items.items())
    store.add_facts(items.items())
    keys, both = [*items, path_of(5000)], items | {path_of(5000): None}
    assert {key: store.get("files", key) for key in keys} == {key: store.get("facts", key) for key in keys} == both
    assert store.versions(keys) == {key: version_of(encode(value)) for key, value in items.items()}
    assert store.size() == sum(path.with_name(f"{path.name}{end}").stat().st_size for end in ("", "-wal")) > 10**6
    with Store(path) as again:
        assert {key: again.get("files", key) for key in again.keys("files")} == items
    store.delete("files", [path_of(number) for number in (1, 3, 9999)])
    assert store.keys("files") == sorted(items.keys() - {path_of(1), path_of(3)})


@given(
    st.builds(
        StoredFile,
        data=st.binary(max_size=300),
        size=st.integers(0, 1 << 50),
        **dict.fromkeys(("etag", "last_modified"), st.none() | TEXTS),
        **dict.fromkeys(("source", "taken", "note"), TEXTS),
    )
)
def test_every_value_roundtrips(value: StoredFile) -> None:
    written = encode(value)
    assert decode(written) == value
    assert encode(decode(written)) == written


def test_tables_are_separate_and_values_replaced(store: Store) -> None:
    for number, table in enumerate(TABLES):
        store.put(table, [("key", stored_file(b"1")), ("key", stored_file(b"2"))])
        store.put(table, [("key", stored_file(size=number))])
    assert [store.get(table, "key") for table in TABLES] == [stored_file(size=number) for number in range(len(TABLES))]
    assert [store.keys(table) for table in TABLES] == [["key"]] * len(TABLES)


def test_keys_are_sorted_and_searchable(store: Store) -> None:
    store.put("files", [(key, stored_file()) for key in ("b%", "a_b", "ab", "é", "B")])
    assert store.keys("files") == ["B", "a_b", "ab", "b%", "é"]
    assert store.keys("files", "_") == ["a_b"]
    assert store.keys("files", "%") == ["b%"]
    assert store.keys("files", "b") == ["a_b", "ab", "b%"]
    assert store.keys("failures") == []


def test_storing_a_file_removes_its_failure(store: Store) -> None:
    store.put("failures", [("one", stored_file(b"", note="Missing")), ("two", stored_file(b"", note="Missing"))])
    store.put("documents", [("one", stored_file())])
    assert store.keys("failures") == ["one", "two"]
    store.put("files", [("one", stored_file())])
    assert store.keys("failures") == ["two"]


def test_state_and_version_change_with_every_write(store: Store, path: Path) -> None:
    states = [store.state()]
    store.put("files", [("a", stored_file(b"1")), ("b", stored_file(b"2"))])
    states.append(store.state())
    before = store.versions(store.keys("files"))
    assert set(before) == {"a", "b"}
    assert store.state() == states[-1]
    store.put("files", [("a", stored_file(b"1", etag='"another"'))])
    states.append(store.state())
    after = store.versions(store.keys("files"))
    assert (before["a"] == after["a"], before["b"] == after["b"]) == (False, True)
    store.put("documents", [("manifest", stored_file())])
    states.append(store.state())
    store.delete("files", ["a"])
    states.append(store.state())
    assert set(store.versions(store.keys("files"))) == {"b"}
    assert len(set(states)) == len(states)
    with Store(path) as again:
        assert again.state() == states[-1]
    with Store(path.with_name("other.sqlite"), create=True) as other:
        assert other.state() not in states
    index_state = store.states()[1]
    store.put("indexes", [("key#0", stored_file(Indexes(b"bounds").pack()))])
    assert store.states()[1] != index_state
    assert store.states()[0] == states[-1]
    assert [*store.row_numbers("indexes")] == ["key#0"]


def test_empty_file_becomes_a_store_and_none_is_created_by_reading(path: Path) -> None:
    with pytest.raises(NotHarvested, match=r"nothing is harvested in .* run: catalogue harvest"):
        Store(path)
    assert not path.parent.exists()
    path.parent.mkdir()
    path.touch()
    with Store(path) as store:
        store.put("files", batch(0, 1))
    with raw(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    Store(path).close()  # restores its mode
    with raw(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_sqlitedict_reads_it_unchanged(path: Path) -> None:
    items = dict(batch(0, 20))
    with Store(path, create=True) as store:
        store.put("files", items.items())
    before = digest(path)
    found = SqliteDict(str(path), tablename="files", encode=encode, decode=decode, flag="r", journal_mode="WAL")
    try:
        assert dict(found) == items
        assert found[path_of(3)].etag == '"0123456789abcdef-8"'
    finally:
        found.close()
    assert digest(path) == before
    with Store(path) as store:
        assert store.get("files", path_of(3)) == items[path_of(3)]


class Canary:
    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.sign),)


def test_never_unpickles(store: Store, path: Path, tmp_path: Path) -> None:
    """sqlitedict does not unpickle data of a value, and the store does not unpickle a value."""
    sign = tmp_path / "unpickled"
    payload = pickle.dumps(Canary(sign))
    store.put("files", [("data", stored_file(payload)), ("note", stored_file(note=payload.decode("latin-1")))])
    store.close()
    naive = SqliteDict(str(path), tablename="files", flag="r", journal_mode="WAL")
    try:
        for key in ("data", "note"):
            with pytest.raises(pickle.UnpicklingError):
                naive[key]
    finally:
        naive.close()
    with raw(path) as connection:
        connection.execute("INSERT INTO files VALUES ('value', ?)", [payload])
    with Store(path) as again:
        assert again.get("files", "data") == stored_file(payload)
        with pytest.raises(StoreDamaged, match=r"value in .*footers\.sqlite: .*its digest is wrong"):
            again.get("files", "value")
    assert not sign.exists()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "fuse.mount-s3", "ext4", "tmpfs", "fuse.portal"])
def test_detects_network_mounts(tmp_path: Path, kind: str) -> None:
    device = tmp_path.stat().st_dev
    mounts = f"""
22 1 {os.major(device)}:{os.minor(device) + 1} / /home rw,relatime shared:1 - nfs server:/home rw,vers=3
23 1 {os.major(device)}:{os.minor(device)} / /with\\040blank rw,relatime - {kind} server:/export rw

odd
"""
    found = remote_kind(tmp_path / "new" / "data", lambda: mounts)
    assert found == (None if kind in {"ext4", "tmpfs", "fuse.portal"} else kind)
    assert remote_kind(tmp_path, lambda: "") is remote_kind(Path("/proc")) is None
