"""What is committed is kept, whole, whatever happens; what is not ours is refused."""

import hashlib
import json
import multiprocessing
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import tempfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlitedict import SqliteDict

from catalogue.errors import DiskFailed, Missing, NotHarvested, StoreDamaged, StoreError, StoreLocked
from catalogue.pages import Indexes
from catalogue.store import APPLICATION_ID, TABLES, VERSION, Held, Store, decode, encode, inspected

CRAWL = "CC-MAIN-2022-05"
TEXTS = st.one_of(st.none(), st.text(max_size=30))


def held(data: bytes = b"footer", **other: Any) -> Held:
    fields: dict[str, Any] = {
        "size": 1_234_567,
        "etag": '"0123456789abcdef-8"',
        "last_modified": "Mon, 31 Jan 2022 12:00:00 GMT",
        "source": "https://data.commoncrawl.org/",
        "taken": "2022-02-01T00:00:00+00:00",
    }
    return Held(data=data, **(fields | other))


def path_of(number: int) -> str:
    return f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/part-{number:05}.c000.gz.parquet"


def batch(start: int, count: int, size: int = 2_000) -> list[tuple[str, Held]]:
    """Files whose values can be told apart and hardly be compressed."""
    return [(path_of(number), held(Random(number).randbytes(size))) for number in range(start, start + count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "footers.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path, create=True) as store:
        yield store


def changes(store: Store) -> int:
    """How often it was written to."""
    return int(store.state().split(":")[1])


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file itself, as anybody may open it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def integrity(path: Path) -> str:
    with raw(path) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


# A process beside this one. It says "ready" when it is, and goes on when it is told to.

SCRIPT = """
import os, signal, sqlite3, sys
from pathlib import Path
from catalogue.errors import CatalogueError
from catalogue.store import Store
from tests.test_store import batch, held, path_of

path = Path(sys.argv[1])

def ready(what="ready"):
    print(what, flush=True)
    sys.stdin.readline()
"""


@contextmanager
def beside(path: Path, script: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SCRIPT + script, str(path)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=Path(__file__).parent.parent
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> str:
    assert process.stdin
    process.stdin.write("\n")
    return line(process)


# Keeping


def test_what_is_put_is_got(store: Store, path: Path) -> None:
    items = dict(batch(0, 30))
    store.put("files", items.items())
    assert {key: store.get("files", key) for key in items} == items
    assert store.get("files", path_of(30)) is None
    with Store(path) as again:
        assert {key: again.get("files", key) for key in again.keys("files")} == items


@given(
    st.builds(
        Held,
        data=st.binary(max_size=300),
        size=st.integers(0, 1 << 50),
        etag=TEXTS,
        last_modified=TEXTS,
        source=st.text(max_size=30),
        taken=st.text(max_size=30),
        note=st.text(max_size=30),
    )
)
def test_every_value_is_read_as_it_was_written(value: Held) -> None:
    written = encode(value)
    assert decode(written) == value
    assert encode(decode(written)) == written


def test_tables_are_apart(store: Store) -> None:
    for number, table in enumerate(TABLES):
        store.put(table, [("key", held(size=number))])
    assert [store.get(table, "key") for table in TABLES] == [held(size=number) for number in range(len(TABLES))]
    with pytest.raises(KeyError):
        store.get("identity", "key")
    with pytest.raises(KeyError):
        store.put('files" --', [])


def test_keys_are_sorted_and_looked_up_by_what_they_contain(store: Store) -> None:
    store.put("files", [(key, held()) for key in ("b%", "a_b", "ab", "é", "B")])
    assert store.keys("files") == ["B", "a_b", "ab", "b%", "é"]
    assert store.keys("files", "_") == ["a_b"]
    assert store.keys("files", "%") == ["b%"]
    assert store.keys("files", "b") == ["a_b", "ab", "b%"]
    assert store.keys("failures") == []


def test_a_later_value_replaces_an_earlier_one(store: Store) -> None:
    store.put("files", [("key", held(b"1")), ("key", held(b"2"))])
    store.put("files", [("key", held(b"3"))])
    assert store.get("files", "key") == held(b"3")
    assert store.keys("files") == ["key"]


def test_a_file_that_is_written_stops_being_a_failure(store: Store) -> None:
    store.put("failures", [("one", held(b"", note="Missing")), ("two", held(b"", note="Missing"))])
    store.put("documents", [("one", held())])
    assert store.keys("failures") == ["one", "two"]
    store.put("files", [("one", held())])
    assert store.keys("failures") == ["two"]


def test_deleting(store: Store) -> None:
    store.put("files", batch(0, 5, 10))
    store.delete("files", [path_of(number) for number in (1, 3, 99)])
    assert store.keys("files") == [path_of(number) for number in (0, 2, 4)]


def test_state_and_versions_tell_of_every_change(store: Store, path: Path) -> None:
    states = [store.state()]

    def changed(change: Callable[[], None]) -> None:
        change()
        states.append(store.state())

    changed(lambda: store.put("files", [("a", held(b"1")), ("b", held(b"2"))]))
    before = store.versions("files", store.keys("files"))
    assert set(before) == {"a", "b"}
    assert store.state() == states[-1]
    changed(lambda: store.put("files", [("a", held(b"1", etag='"another"'))]))
    after = store.versions("files", store.keys("files"))
    assert (before["a"] == after["a"], before["b"] == after["b"]) == (False, True)
    changed(lambda: store.put("documents", [("manifest", held())]))
    changed(lambda: store.delete("files", ["a"]))
    assert set(store.versions("files", store.keys("files"))) == {"b"}
    assert len(set(states)) == len(states)
    with Store(path) as again:
        assert again.state() == states[-1]
    with Store(path.with_name("other.sqlite"), create=True) as other:
        assert other.state() not in states


def test_the_state_of_page_indexes_tells_of_every_way_to_write_them(store: Store) -> None:
    before, state = store.index_state(), store.state()
    store.put("indexes", [("key#0", held(Indexes(b"bounds").pack()))])
    assert store.index_state() != before
    assert store.state() == state
    assert store.touched("indexes", 0) == ["key#0"]


def test_size(store: Store, path: Path) -> None:
    store.put("files", batch(0, 50))
    assert store.size() > 100_000
    assert store.size() == sum(
        file.stat().st_size for file in path.parent.iterdir() if file.name in {path.name, path.name + "-wal"}
    )


def test_a_store_is_made_only_when_asked(tmp_path: Path) -> None:
    with pytest.raises(NotHarvested, match=r"nothing is harvested in .* run: catalogue harvest"):
        Store(tmp_path / "data" / "footers.sqlite")
    assert [*tmp_path.iterdir()] == []


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    """As a kill leaves it between the file's being made and its being filled."""
    path.parent.mkdir()
    path.touch()
    with Store(path) as store:
        store.put("files", batch(0, 1))
    with raw(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_log_instead_of_a_journal_even_after_somebody_else_changed_it(path: Path) -> None:
    Store(path, create=True).close()
    with raw(path) as connection:
        assert connection.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    Store(path).close()
    with raw(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# Read by sqlitedict


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_sqlitedict_reads_it_and_changes_nothing(path: Path) -> None:
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
    """Makes a folder wherever it is unpickled."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.sign),)


def test_no_pickle_is_ever_opened(store: Store, path: Path, tmp_path: Path) -> None:
    """Neither one handed in as data, by sqlitedict as it is; nor one that stands where a value should, by us."""
    sign = tmp_path / "unpickled"
    payload = pickle.dumps(Canary(sign))
    store.put("files", [("data", held(payload)), ("note", held(note=payload.decode("latin-1")))])
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
        assert again.get("files", "data") == held(payload)
        with pytest.raises(StoreDamaged, match=r"value in .*footers\.sqlite: .*its digest is wrong"):
            again.get("files", "value")
    assert not sign.exists()
    with pytest.raises(FileNotFoundError):
        sign.rmdir()
    pickle.loads(payload)  # noqa: S301 - ours; and it does what it is feared for
    assert sign.exists()


# Damage


def test_every_flipped_bit_is_found(path: Path) -> None:
    rng = Random("rot")
    items = dict(batch(0, 40, 500))
    with Store(path, create=True) as store, raw(path) as other:
        store.put("files", items.items())
        other.execute("PRAGMA synchronous=OFF")
        values = dict(other.execute("SELECT key, value FROM files"))
        for _ in range(400):
            key = rng.choice([*values])
            flipped = bytearray(values[key])
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            other.execute("UPDATE files SET value = ? WHERE key = ?", [bytes(flipped), key])
            with pytest.raises(StoreDamaged, match=f"{key} in .*; run: catalogue repair"):
                store.get("files", key)
            other.execute("UPDATE files SET value = ? WHERE key = ?", [values[key], key])
        assert {key: store.get("files", key) for key in items} == items


def signed(body: bytes) -> bytes:
    """A value whose digest is right, as a stranger can make one."""
    return b"\x01" + hashlib.blake2b(body, digest_size=16).digest() + body


def value(length: object, header: object, data: bytes = b"") -> bytes:
    return signed(json.dumps([length, header]).encode() + b"\n" + zlib.compress(data))


HEADER = {name: item for name, item in asdict(held()).items() if name != "data"}
HOSTILE: dict[str, object] = {
    "empty": b"",
    "only a tag": b"\x01",
    "another tag": b"\x02" + encode(held())[1:],
    "text": "footer",
    "a number": 1 << 40,
    "a small number": 7,
    "nothing": None,
    "a real": 0.5,
    "no header": signed(b""),
    "a header that is not JSON": signed(b"{\n"),
    "a header that is not UTF-8": signed(b"\xff\xfe\xfd\n"),
    "a header that is a number": signed(b"5\n"),
    "a header within header within header": signed(b"[" * 200_000 + b"\n"),
    "no data": signed(json.dumps([6, HEADER]).encode()),
    "data that are not compressed": signed(json.dumps([6, HEADER]).encode() + b"\nfooter"),
    "data cut short": signed(json.dumps([6, HEADER]).encode() + b"\n" + zlib.compress(b"footer")[:-6]),
    "fewer data": value(7, HEADER, b"footer"),
    "a negative length": value(-1, HEADER),
    "a length of gigabytes": value(1 << 40, HEADER),
    "a length over the limit": value((64 << 20) + 1, HEADER),
    "a length that is text": value("6", HEADER, b"footer"),
    "a length that is a fraction": value(6.5, HEADER, b"footer"),
    "a field too many": value(6, HEADER | {"more": 1}, b"footer"),
    "a field too few": value(6, {"size": 6}, b"footer"),
    "a field twice": value(6, HEADER | {"data": "x"}, b"footer"),
    "fields that are a list": value(6, [1, 2], b"footer"),
    "a size that is text": value(6, HEADER | {"size": "6"}, b"footer"),
    "an ETag that is a number": value(6, HEADER | {"etag": 6}, b"footer"),
    "a source that is nothing": value(6, HEADER | {"source": None}, b"footer"),
    "a time that is a list": value(6, HEADER | {"taken": []}, b"footer"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_values_are_refused(store: Store, path: Path, what: str) -> None:
    with raw(path) as connection:
        connection.execute("INSERT INTO files VALUES ('key', ?)", [HOSTILE[what]])
    with pytest.raises(StoreDamaged, match=r"^key in .*; run: catalogue repair") as caught:
        store.get("files", "key")
    assert len(str(caught.value)) < 600


def test_no_value_is_larger_than_any_can_be() -> None:
    with pytest.raises(StoreDamaged, match="claims 67108865 bytes"):
        decode(HOSTILE["a length over the limit"])


def test_a_value_that_inflates_to_gigabytes_is_read_no_further_than_it_says() -> None:
    bomb = zlib.compress(bytes(200 << 20), 1)
    tracemalloc.start()
    try:
        with pytest.raises(StoreDamaged, match="holds 1 bytes instead of 0"):
            decode(signed(json.dumps([0, HEADER]).encode() + b"\n" + bomb))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


# All or nothing


BAD: dict[str, Any] = {
    "data that are text": (path_of(9), held("footer")),  # type: ignore[arg-type]
    "data that are missing": (path_of(9), held(None)),  # type: ignore[arg-type]
    "a field that JSON does not know": (path_of(9), held(etag=object())),
    "something else": (path_of(9), "footer"),
    "nothing": None,
    "no pair": (path_of(9),),
    "a key that is a list": (["list"], held()),
    "a key that is a number": (5, held()),
    "a key that is nothing": (None, held()),
    "a key that is not Unicode": ("\ud800", held()),
}


@pytest.mark.parametrize("place", [0, 7, 15])
@pytest.mark.parametrize("what", BAD)
def test_one_bad_item_and_nothing_is_stored(store: Store, what: str, place: int) -> None:
    store.put("files", batch(100, 3))
    store.put("failures", [(path_of(0), held(b"", note="Missing"))])
    state = store.state()
    items: list[Any] = batch(0, 15, 10)
    items.insert(place, BAD[what])
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever Python or SQLite say to a mistake of ours
        store.put("files", items)
    assert store.state() == state
    assert len(store.keys("files")) == 3
    assert store.keys("failures") == [path_of(0)]
    store.put("files", batch(0, 15, 10))
    assert len(store.keys("files")) == 18


def test_an_iterator_that_fails_half_way(store: Store) -> None:
    def items() -> Iterator[tuple[str, Held]]:
        yield from batch(0, 5, 10)
        message = "the source failed"
        raise OSError(message)

    with pytest.raises(OSError, match="the source failed"):
        store.put("files", items())
    assert store.keys("files") == []


# Several at once


def test_many_threads(store: Store) -> None:
    def work(start: int) -> None:
        for number in range(start, start + 25):
            store.put("files", [(path_of(number), held(b"%d" % number))])
            assert store.get("files", path_of(number)) == held(b"%d" % number)
            assert path_of(number) in store.keys("files")

    before = changes(store)
    with ThreadPoolExecutor(8) as threads:
        for future in [threads.submit(work, 1000 * number) for number in range(8)]:
            future.result()
    assert len(store.keys("files")) == 200
    assert changes(store) == before + 200


LOCK = """
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
ready()
connection.execute("ROLLBACK")
ready("released")
"""


def test_a_lock_that_stays_is_an_error_and_nothing_is_stored(path: Path) -> None:
    with Store(path, create=True, busy_seconds=0.05) as store:
        store.put("files", batch(0, 2))
        with beside(path, LOCK) as other:
            assert line(other) == "ready"
            with pytest.raises(StoreLocked, match="is locked by another process; try again"):
                store.put("files", batch(2, 20))
            with pytest.raises(StoreLocked, match="is locked by another process; try again"):
                store.delete("files", [path_of(0)])
            assert store.keys("files") == [path_of(0), path_of(1)]  # reading goes on
            assert go_on(other) == "released"
            store.put("files", batch(2, 20))
        assert len(store.keys("files")) == 22


def test_a_lock_that_is_released_in_time_is_waited_for(path: Path) -> None:
    with Store(path, create=True, busy_seconds=60) as store, beside(path, LOCK) as other:
        assert line(other) == "ready"
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(store.put, "files", batch(0, 2))
            assert go_on(other) == "released"
            waiting.result()
        assert len(store.keys("files")) == 2


def test_whoever_reads_for_long_holds_up_nobody(store: Store, path: Path) -> None:
    store.put("files", batch(0, 2))
    with raw(path) as reader:
        reader.execute("BEGIN")
        seen = reader.execute("SELECT count(*) FROM files").fetchone()
        for number in range(2, 100):
            store.put("files", batch(number, 1))
        assert reader.execute("SELECT count(*) FROM files").fetchone() == seen == (2,)
    assert len(store.keys("files")) == 100


CREATE = """
ready()
with Store(path, create=True) as store:
    store.put("files", batch(int(sys.argv[2]), 1))
print("made", flush=True)
"""


def test_several_may_make_it_at_once(path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT + CREATE, str(path)]
    folder = Path(__file__).parent.parent
    started = [
        subprocess.Popen([*command, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)
        for n in range(4)
    ]
    try:
        assert [line(process) for process in started] == ["ready"] * 4
        for process in started:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        assert [line(process) for process in started] == ["made"] * 4
    finally:
        for process in started:
            with process:
                process.kill()
    with Store(path) as store:
        assert len(store.keys("files")) == 4


HARVEST = """
with Store(path) as store, store.harvesting("CC-MAIN-2022-05"):
    ready()
ready("released")
"""


def test_a_crawl_is_harvested_by_one_process_at_a_time(store: Store, path: Path) -> None:
    with beside(path, HARVEST) as other:
        assert line(other) == "ready"
        with pytest.raises(StoreLocked, match=f"another process harvests {CRAWL} into"), store.harvesting(CRAWL):
            pass
        with store.harvesting("CC-MAIN-2021-49"):
            store.put("files", batch(0, 2))  # the store itself is not locked
        assert go_on(other) == "released"
        with store.harvesting(CRAWL):
            pass
    with beside(path, HARVEST) as other:
        assert line(other) == "ready"
        other.kill()
        other.wait()
        with store.harvesting(CRAWL):  # a lock does not outlive who holds it
            pass


def test_a_crawl_is_harvested_once_at_a_time_in_one_process_too(store: Store, path: Path) -> None:
    with Store(path) as other, store.harvesting(CRAWL), pytest.raises(StoreLocked), other.harvesting(CRAWL):
        pass


def test_errors_while_harvesting_are_their_own(store: Store) -> None:
    """Even those that are of the same kind as a lock's, or a disk's."""
    for error in (TimeoutError("the source is slow"), OSError("something else"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, store.harvesting(CRAWL):
            raise error
        assert caught.value is error
    with store.harvesting(CRAWL):
        pass


@pytest.mark.parametrize("name", ["../CC-MAIN-2022-05", "/tmp/x", "CC-MAIN-2022-05/..", ""])  # noqa: S108
def test_no_other_lock_is_ever_made(store: Store, path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a crawl"), store.harvesting(name):
        pass
    assert all(file.name.startswith(path.name) for file in path.parent.iterdir())


FORK = """
import contextlib
store = Store(path)
store.put("files", batch(0, 1))
child = os.fork()
if child == 0:
    answers = []
    for use in (
        lambda: store.get("files", path_of(0)),
        lambda: store.put("files", batch(1, 1)),
        lambda: store.delete("files", [path_of(0)]),
        lambda: store.keys("files"),
        lambda: store.versions("files", [path_of(0)]),
        store.state,
    ):
        try:
            use()
        except CatalogueError as error:
            answers.append("open it again in this one" in str(error))
    store.close()
    with Store(path) as own:
        own.put("files", batch(2, 1))
    print(answers, flush=True)
    os._exit(0)
os.waitpid(child, 0)
store.put("files", batch(3, 1))
print(len(store.keys("files")), flush=True)
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork")
def test_after_a_fork_it_is_refused(path: Path) -> None:
    Store(path, create=True).close()
    with beside(path, FORK) as process:
        assert line(process) == str([True] * 6)
        assert line(process) == "3"
    assert integrity(path) == "ok"


# Kills and full disks


WRITE = """
with Store(path) as store:
    for number in range(10_000):
        store.put("files", batch(20 * number, 20))
        print(number, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [0, 11])
def test_a_kill_loses_nothing_that_was_acknowledged(path: Path, acknowledged: int) -> None:
    with Store(path, create=True) as store:
        before = changes(store)
    with beside(path, WRITE) as process:
        for number in range(acknowledged):
            assert line(process) == str(number)
        process.send_signal(signal.SIGKILL)
    with Store(path) as store:
        keys = store.keys("files")
        assert len(keys) >= 20 * acknowledged
        assert len(keys) % 20 == 0  # none in part
        assert keys == [path_of(number) for number in range(len(keys))]
        assert all(store.get("files", key) == value for key, value in batch(0, len(keys)))
        assert changes(store) == before + len(keys) // 20
        store.put("files", batch(len(keys), 1))
    assert integrity(path) == "ok"


FULL = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
with Store(path) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    number = 0
    try:
        while True:
            store.put("files", batch(20 * number, 20))
            number += 1
    except CatalogueError as error:
        print(number, type(error).__name__, "what was committed before is kept" in str(error), flush=True)
    print(len(store.keys("files")), all(store.get("files", k) == v for k, v in batch(0, 20 * number)), flush=True)
    try:
        store.put("files", batch(20 * number, 20))
    except CatalogueError as error:
        print(type(error).__name__, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.put("files", batch(20 * number, 20))
    print(len(store.keys("files")), flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="there is no limit to the size of files")
def test_a_full_disk_loses_nothing_and_work_goes_on_after_it(path: Path) -> None:
    """A limit to the size of files, as room on a disk cannot be taken away without being root."""
    Store(path, create=True).close()
    with beside(path, FULL) as process:
        number, error, promised = line(process).split()
        assert (int(number) > 3, error, promised) == (True, "DiskFailed", "True")
        assert line(process) == f"{20 * int(number)} True"
        assert line(process) == "DiskFailed"
        assert line(process) == str(20 * int(number) + 20)
    assert integrity(path) == "ok"
    with Store(path) as store:
        assert len(store.keys("files")) == 20 * int(number) + 20


def test_what_failed_is_said_once(store: Store) -> None:
    """What is written may come from where something else fails, of the disk or of the source."""

    def failing(error: OSError) -> Iterator[tuple[str, Held]]:
        yield path_of(0), held()
        raise error

    with pytest.raises(DiskFailed) as failed:
        store.add_facts(failing(DiskFailed("another disk is full")))
    assert str(failed.value) == "another disk is full"
    with pytest.raises(Missing, match=r"^there is no such file$"):
        store.add_facts(failing(Missing("there is no such file")))
    assert store.keys("facts") == []


def test_a_disk_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskFailed, match=r"footers\.sqlite cannot be written or read"):
        Store(tmp_path / "file" / "footers.sqlite", create=True)
    (tmp_path / "folder").mkdir()
    with pytest.raises(DiskFailed, match="folder cannot be written or read"):
        Store(tmp_path / "folder", create=True)


READ_ONLY = """
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
def attempt(use):
    try:
        print(use(), flush=True)
    except CatalogueError as error:
        hint = "its folder must be one that can be written to" in str(error)
        print(type(error).__name__, hint, "Traceback" in str(error), flush=True)
attempt(lambda: len(Store(path).keys("files")))
store = Store(path.with_name("published.sqlite"))
attempt(lambda: len(store.keys("files")))
attempt(lambda: store.get("files", path_of(1)) == held(batch(1, 1)[0][1].data))
attempt(lambda: store.put("files", batch(5, 1)))
attempt(lambda: store.harvesting("CC-MAIN-2022-05").__enter__())
attempt(lambda: len(store.keys("files")))
attempt(lambda: Store(path.with_name("new.sqlite"), create=True))
"""


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="there is nobody else to be")
def test_read_only_media() -> None:
    """A store that is in use is not read, but its folder is blamed; one whose log was folded in is."""
    with tempfile.TemporaryDirectory() as name:  # where everybody may go, as nobody must; pytest's own is private
        folder = Path(name) / "data"
        if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in Path(name).parents):
            pytest.skip("nobody may go where temporary files are")
        path, published = folder / "footers.sqlite", folder / "published.sqlite"
        for file in (path, published):
            with Store(file, create=True) as store:
                store.put("files", batch(0, 4))
        with raw(published) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        Path(name).chmod(0o755)
        try:
            with beside(path, READ_ONLY) as process:
                assert line(process) == "DiskFailed True False"
                assert line(process) == "4"
                assert line(process) == "True"
                assert line(process) == "DiskFailed True False"
                assert line(process) == "DiskFailed False False"
                assert line(process) == "4"
                assert line(process) == "DiskFailed True False"
        finally:
            folder.chmod(0o755)


# What is not ours


def altered(path: Path, *statements: str) -> None:
    with Store(path, create=True) as store:
        store.put("files", batch(0, 1))
    with raw(path) as connection:
        for statement in statements:
            connection.execute(statement)


def test_another_programs_file_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with raw(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = digest(path)
    with pytest.raises(StoreError, match="is a SQLite file, but not a store of footers; choose another --data folder"):
        Store(path, create=True)
    assert digest(path) == before


def test_another_programs_empty_file_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with raw(path) as connection:
        connection.execute("PRAGMA application_id=42")
    with pytest.raises(StoreError, match="not a store of footers"):
        Store(path, create=True)


@pytest.mark.parametrize("content", [b"PAR1" * 1000, b"SQLite format 3\0" + bytes(4000)])
def test_what_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"is not a usable store|is a SQLite file, but not"):
        Store(path, create=True)
    assert path.read_bytes() == content


def test_a_newer_version_is_refused(path: Path) -> None:
    altered(path, f"PRAGMA user_version={VERSION + 1}")
    with pytest.raises(StoreError, match=rf"a newer version of this tool \(store version {VERSION + 1}\); upgrade it"):
        Store(path)


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_damage(path: Path, version: int) -> None:
    altered(path, f"PRAGMA user_version={version}")
    with pytest.raises(StoreDamaged, match=f"claims to be of version {version}; run: catalogue repair"):
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
def test_what_no_store_has_is_refused(path: Path, what: str) -> None:
    statement = STRANGE[what]
    instead = [f"DROP TABLE {name}" for name in TABLES if f'TABLE "{name}"' in statement or f" {name} AS" in statement]
    instead += ["DROP TABLE documents"] if "VIRTUAL" in statement else []
    altered(path, *instead, statement)
    with pytest.raises(StoreDamaged, match=r"holds a .* that no store has; it is not opened"):
        Store(path)


@pytest.mark.parametrize("statement", ["DELETE FROM identity", "INSERT INTO identity VALUES ('x', 1, 1)"])
def test_a_store_has_one_identity(path: Path, statement: str) -> None:
    altered(path, statement)
    with pytest.raises(StoreDamaged, match="lacks its identity; it is not opened"):
        Store(path)


@pytest.mark.parametrize("statement", ["DROP TABLE identity", "DROP TABLE files"])
def test_what_is_missing_is_missed(path: Path, statement: str) -> None:
    altered(path, statement)
    with pytest.raises(StoreDamaged, match="not a usable store: no such table"), Store(path) as store:
        store.keys("files")


@pytest.mark.parametrize("statement", ["ANALYZE", "CREATE TABLE unnamed (key TEXT PRIMARY KEY, value BLOB)"])
def test_what_does_no_harm_is_left_there(path: Path, statement: str) -> None:
    """SQLite's own statistics, and the table that sqlitedict makes unless it is told a name."""
    altered(path, statement)
    with Store(path) as store:
        assert store.keys("files") == [path_of(0)]
    with inspected(path) as inspection:
        assert inspection.wrong() is None


def test_a_store_of_an_earlier_version_is_not_said_to_have_what_it_lacks(path: Path) -> None:
    altered(path, *OLDER[3].split("; "))
    with inspected(path) as inspection:
        assert inspection.wrong() == "its layout is not that of a store"


def test_damaged_pages_of_the_file_are_a_named_error(path: Path) -> None:
    with Store(path, create=True) as store:
        store.put("files", batch(0, 50))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(Random("pages").randbytes(size - 4096))
    with pytest.raises(StoreError, match=r"footers\.sqlite"), Store(path) as store:
        [store.get("files", path_of(number)) for number in range(50)]


def test_a_closed_store_is_an_error(path: Path) -> None:
    store = Store(path, create=True)
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.keys("files")


def test_closing_waits_for_the_thread_that_is_at_it(path: Path) -> None:
    """Else SQLite takes the process down."""
    store = Store(path, create=True)
    begun, closing_now = Event(), Event()

    def facts() -> Iterator[tuple[str, Held]]:
        begun.set()
        closing_now.wait(60)
        yield path_of(1), held()

    def close() -> None:
        closing_now.set()
        store.close()

    with ThreadPoolExecutor(2) as executor:
        writing = executor.submit(store.add_facts, facts())
        assert begun.wait(60)
        executor.submit(close).result()
        writing.result()
    with Store(path) as again:
        assert list(again.facts([path_of(1)])) == [path_of(1)]


def test_values_are_frozen() -> None:
    assert replace(held(), note="x") != held()
    with pytest.raises(AttributeError):
        held().size = 5  # type: ignore[misc]


OLDER = {
    3: "DROP TABLE touched; DROP TABLE history; PRAGMA user_version=3",
    2: "DROP TABLE touched; DROP TABLE history; DROP TABLE facts; PRAGMA user_version=2",
    1: (
        "DROP TABLE touched; DROP TABLE history; DROP TABLE facts; DROP TABLE indexes;"
        "CREATE TABLE older AS SELECT id, changes FROM identity;"
        "DROP TABLE identity; CREATE TABLE identity (id TEXT, changes INTEGER);"
        "INSERT INTO identity SELECT * FROM older; DROP TABLE older; PRAGMA user_version=1"
    ),
}
"""What makes a store of an earlier version: 3 did not note what changed, 2 had no facts, 1 no page indexes either."""


@pytest.mark.parametrize("version", OLDER)
def test_an_older_store_is_brought_up_to_date(path: Path, version: int) -> None:
    """All that it had it still has."""
    with Store(path, create=True) as store:
        store.put("files", [("key", held(b"1"))])
        state = store.state().rpartition(":")[0]
    with raw(path) as connection:
        connection.executescript(OLDER[version])
    with Store(path) as store:
        assert store.state().rpartition(":")[0] == state
        assert store.get("files", "key") == held(b"1")
        store.add_indexes("key", {3: Indexes(b"bounds", {"url": b"pages"})}, held(b"1"))
        assert store.indexes("key", [2, 3], held(b"1")) == {3: Indexes(b"bounds", {"url": b"pages"})}
        store.add_facts([("key", held(b"facts"))])
        assert store.state().rpartition(":")[0] == state
        assert store.index_state().startswith("1:")
        assert store.touched("files", 0) == ["key"]
        assert store.touched("files", 1) == []
        assert store.touched("indexes", 0) == ["key#3"]


def test_what_changed_since_is_known(store: Store) -> None:
    def since(number: int, table: str = "files") -> list[str]:
        return store.touched(table, number)

    store.put("files", [("a", held(b"1")), ("b", held(b"2"))])
    store.put("failures", [("c", held(note="lost"))])
    assert ":2:" in store.state()
    assert (since(0), since(1), since(1, "failures")) == (["a", "b"], [], ["c"])
    store.put("files", [("c", held(b"3"))])  # which is no failure any more
    store.delete("files", ["a"])
    assert (since(2), since(3), since(2, "failures")) == (["a", "c"], ["a"], ["c"])
    store.add_indexes("b", {0: Indexes(b"bounds", {})}, held(b"2"))
    store.add_facts([("b", held(b"facts"))])
    assert (since(4), since(0, "indexes"), since(1, "indexes")) == ([], ["b#0"], [])
    assert store.index_keys("b") == ["b#0"]
    with pytest.raises(TypeError):
        store.put("files", [("b", held(b"4")), (5, held(b"5"))])  # type: ignore[list-item]
    assert since(4) == []  # what is not written was not touched


def test_facts_are_short_cuts_that_go_with_their_file(store: Store, path: Path) -> None:
    store.put("files", [("a", held(b"1")), ("b", held(b"2"))])
    state = store.state()
    store.add_facts([("a", held(b"of a")), ("b", held(b"of b"))])
    assert store.facts(["a", "b", "c"]) == {"a": held(b"of a"), "b": held(b"of b")}
    assert store.state() == state
    store.delete("files", ["a"])
    assert store.facts(["a", "b"]) == {"b": held(b"of b")}
    with raw(path) as connection:
        connection.execute("UPDATE facts SET value = CAST(value || x'00' AS BLOB)")
    assert store.facts(["b"]) == {}


def test_indexes_are_joined_and_belong_to_one_version(store: Store) -> None:
    store.put("files", [("key", held(b"1"))])
    store.add_indexes("key", {0: Indexes(b"bounds", {"url": b"1"})}, held(b"1"))
    store.add_indexes("key", {0: Indexes(None, {"url_path": b"2"})}, held(b"1"))
    both = Indexes(b"bounds", {"url": b"1", "url_path": b"2"})
    assert store.indexes("key", [0], held(b"1")) == {0: both}
    assert store.indexes("key", [0], held(b"1", size=99)) == {}
    own = Indexes(b"own", {"url": b"3"}, own=True)
    store.add_indexes("key", {0: own}, held(b"1"))
    store.add_indexes("key", {0: both}, held(b"1"))
    assert store.indexes("key", [0], held(b"1"))[0].column_index == b"own"
    store.delete("files", ["key"])
    assert store.keys("indexes") == []
