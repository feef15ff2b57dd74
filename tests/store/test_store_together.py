"""Transactions are atomic while other threads and processes use the store."""

import os
import pickle
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from catalogue.errors import StoreLocked
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.faults import FaultServer
from tests.support.processes import line
from tests.support.stores import (
    CRAWL,
    batch,
    empty_store,
    integrity,
    path_of,
    raw,
    run_script,
    store_path,
    stored_file,
)

path = pytest.fixture(store_path)
store = pytest.fixture(empty_store)


def resume(process: subprocess.Popen[str]) -> str:
    assert process.stdin
    process.stdin.write("\n")
    return line(process)


BAD: dict[str, Any] = {
    "data that are text": (path_of(9), stored_file("footer")),  # type: ignore[arg-type]
    "data that are missing": (path_of(9), stored_file(None)),  # type: ignore[arg-type]
    "a field that is not JSON": (path_of(9), stored_file(etag=object())),
    "no stored file": (path_of(9), "footer"),
    "null": None,
    "no pair": (path_of(9),),
    "a key that is a list": (["list"], stored_file()),
    "a key that is not Unicode": ("\ud800", stored_file()),
}


@pytest.mark.parametrize("what", BAD)
def test_invalid_item_rolls_back(store: Store, what: str) -> None:
    store.put("files", batch(100, 3))
    store.put("failures", [(path_of(0), stored_file(b"", note="Missing"))])
    state = store.state()
    items: list[Any] = batch(0, 15, 10)
    items.insert(7, BAD[what])
    with pytest.raises(Exception):  # noqa: B017, PT011 - any exception of Python or SQLite
        store.put("files", items)
    assert store.state() == state
    assert len(store.keys("files")) == 3
    assert store.keys("failures") == [path_of(0)]
    store.put("files", batch(0, 15, 10))
    assert len(store.keys("files")) == 18


def test_failing_iterator_rolls_back(store: Store) -> None:
    def items() -> Iterator[tuple[str, StoredFile]]:
        yield from batch(0, 5, 10)
        message = "the source failed"
        raise OSError(message)

    with pytest.raises(OSError, match="the source failed"):
        store.put("files", items())
    assert store.keys("files") == []


def test_supports_many_threads(store: Store) -> None:
    def work(start: int) -> None:
        for number in range(start, start + 25):
            store.put("files", [(path_of(number), stored_file(b"%d" % number))])
            assert store.get("files", path_of(number)) == stored_file(b"%d" % number)
            assert path_of(number) in store.keys("files")

    with ThreadPoolExecutor(8) as threads:
        for future in [threads.submit(work, 1000 * number) for number in range(8)]:
            future.result()
    assert len(store.keys("files")) == 200


LOCK = """
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
ready()
connection.execute("ROLLBACK")
ready("released")
"""


def test_permanent_lock_is_an_error(path: Path) -> None:
    with Store(path, create=True, busy_seconds=0.05) as store:
        store.put("files", batch(0, 2))
        with run_script(path, LOCK) as other:
            assert line(other) == "ready"
            with pytest.raises(StoreLocked, match="is locked by another process; try again"):
                store.put("files", batch(2, 20))
            with pytest.raises(StoreLocked, match="is locked by another process; try again"):
                store.delete("files", [path_of(0)])
            assert store.keys("files") == [path_of(0), path_of(1)]  # reads still work
            assert resume(other) == "released"
            store.put("files", batch(2, 20))
        assert len(store.keys("files")) == 22


def test_waits_for_a_lock(path: Path) -> None:
    with Store(path, create=True, busy_seconds=60) as store, run_script(path, LOCK) as other:
        assert line(other) == "ready"
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(store.put, "files", batch(0, 2))
            assert resume(other) == "released"
            waiting.result()
        assert len(store.keys("files")) == 2


def test_long_reader_blocks_no_writer(store: Store, path: Path) -> None:
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
    store.put("files", batch({}, 1))
print("made", flush=True)
"""


def test_can_be_created_by_several_processes(path: Path) -> None:
    with ExitStack() as stack:
        started = [stack.enter_context(run_script(path, CREATE.format(n))) for n in range(3)]
        assert [line(process) for process in started] == ["ready"] * 3
        assert [resume(process) for process in started] == ["made"] * 3
    with Store(path) as store:
        assert len(store.keys("files")) == 3


HARVEST = """
with Store(path) as store, store.harvesting("CC-MAIN-2022-05"):
    ready()
ready("released")
"""


def test_one_process_harvests_a_crawl(store: Store, path: Path) -> None:
    with run_script(path, HARVEST) as other:
        assert line(other) == "ready"
        with pytest.raises(StoreLocked, match=f"another process harvests {CRAWL} into"), store.harvesting(CRAWL):
            pass
        with store.harvesting("CC-MAIN-2021-49"):
            store.put("files", batch(0, 2))  # the store itself is not locked
        assert resume(other) == "released"
        with store.harvesting(CRAWL):
            pass
    with Store(path) as same, store.harvesting(CRAWL), pytest.raises(StoreLocked), same.harvesting(CRAWL):
        pass
    with run_script(path, HARVEST) as other:
        assert line(other) == "ready"
        other.kill()
        other.wait()
        with store.harvesting(CRAWL):  # a lock ends with its process
            pass
    for error in (TimeoutError("the source is slow"), OSError("no stored file"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, store.harvesting(CRAWL):
            raise error
        assert caught.value is error  # also of the types that the lock or the disk raise
    with store.harvesting(CRAWL):
        pass


def in_fork(work: Callable[[], object]) -> str:
    """Run a function in a forked process and return its result as text; the process closes nothing."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks of a process with threads
        number = os.fork()
    if not number:
        try:
            messages = str(work())
        except BaseException as error:  # noqa: BLE001 - reported to the test
            messages = f"{type(error).__name__}: {error}"
        os.write(writer, messages.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as reported:
        messages = reported.read().decode()
    os.waitpid(number, 0)
    return messages


def test_copy_without_log_is_an_older_state(path: Path, tmp_path: Path) -> None:
    def put(start: int, count: int) -> None:
        """Write without closing the store, so that its log stays."""
        store = Store(path, create=True)
        for number in range(start, start + count):
            store.put("files", batch(10 * number, 10))

    assert in_fork(lambda: put(0, 45)) == "None"
    Store(path).close()
    assert in_fork(lambda: put(45, 3)) == "None"
    assert path.with_name(path.name + "-wal").stat().st_size
    copy = Path(shutil.copy(path, tmp_path / "copy.sqlite"))
    assert integrity(copy) == "ok"
    with Store(copy) as early:
        assert early.keys("files") == [path_of(number) for number in range(450)]
    with Store(path) as store:
        assert store.count("files") == 480


CHECKPOINTS = """
store = Store(path)
print("ready", flush=True)
while True:
    store.put("files", batch(0, 2))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    connection.close()
"""


def test_readers_work_during_checkpoints(path: Path) -> None:
    Store(path, create=True).close()
    with run_script(path, CHECKPOINTS) as other:
        assert line(other) == "ready"
        for _ in range(100):
            with Store(path) as store:
                assert store.count("files") in {0, 2}


def test_log_shrinks_after_a_long_reader(path: Path, tmp_path: Path) -> None:
    command = Command(path.parent, str(tmp_path), tmp_path)
    with Store(path, create=True) as store, raw(path) as reader, raw(path) as writer:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM files").fetchone() == (0,)
        writer.execute("INSERT INTO facts VALUES ('much', zeroblob(?))", [33 << 20])
        writer.execute("DELETE FROM facts")
        assert store.log_size() > 33 << 20
        reported = command("status")
        assert "because a program keeps reading the store; stop it" in reported.out, reported
        assert command("status", "--json").json()["store_log_bytes"] > 33 << 20
        reader.execute("ROLLBACK")
        store.put("files", batch(0, 1))  # moves the log into the file
        store.put("files", batch(1, 1))  # starts a new log
        assert store.log_size() <= 16 << 20
        assert "keeps reading" not in command("status").out


def test_refuses_use_after_fork(mirror: Path, crawl: str, tmp_path: Path) -> None:
    with FaultServer(mirror) as server, catalogue_in(tmp_path, server.url) as cat:
        cat.harvest(crawl)
        found = cat.captures("*.example.com", crawls=crawl, limit=3)
        rows = found.to_arrow().num_rows
        uses: dict[str, Callable[[], object]] = {
            "a query": lambda: cat.captures("*", columns="url"),
            "a plan": lambda: cat.captures("*.example.com", columns="url").plan,
            "SQL": lambda: cat.sql("from files"),
            "crawls": lambda: cat.crawls(fetch=True),
            "a harvest": lambda: cat.harvest(crawl, refresh=True),
            "records": lambda: list(cat.records(found)),
            "a file of records": lambda: cat.fetch(found, tmp_path / "out.warc.gz"),
        }
        for name, use in uses.items():
            messages = in_fork(use)
            assert "opened by another process; open it again in this one" in messages, (name, messages)
        with pytest.raises(TypeError, match="open it again in each process"):
            pickle.dumps(found)
        assert in_fork(found.to_arrow) == str(found.to_arrow())  # read before the fork

        def again() -> int:
            cat.close()
            return int(cat.captures("*.example.com", crawls=crawl, limit=3).to_arrow().num_rows)

        assert in_fork(again) == str(rows)
        assert cat.captures("*.example.com", crawls=crawl, limit=3).to_arrow().num_rows == rows
