"""All of it or nothing, whoever else is at work."""

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from catalogue.errors import StoreLocked
from catalogue.store.database import Store
from catalogue.store.stored_file import StoredFile
from tests.support.stores import (
    CRAWL,
    SCRIPT,
    batch,
    empty_store,
    integrity,
    line,
    path_of,
    raw,
    run_script,
    store_path,
    stored_file,
)

path = pytest.fixture(store_path)
store = pytest.fixture(empty_store)


# A process beside this one. It says "ready" when it is, and goes on when it is told to.


def go_on(process: subprocess.Popen[str]) -> str:
    assert process.stdin
    process.stdin.write("\n")
    return line(process)


# All or nothing


BAD: dict[str, Any] = {
    "data that are text": (path_of(9), stored_file("footer")),  # type: ignore[arg-type]
    "data that are missing": (path_of(9), stored_file(None)),  # type: ignore[arg-type]
    "a field that JSON does not know": (path_of(9), stored_file(etag=object())),
    "something else": (path_of(9), "footer"),
    "nothing": None,
    "no pair": (path_of(9),),
    "a key that is a list": (["list"], stored_file()),
    "a key that is a number": (5, stored_file()),
    "a key that is nothing": (None, stored_file()),
    "a key that is not Unicode": ("\ud800", stored_file()),
}


@pytest.mark.parametrize("place", [0, 7, 15])
@pytest.mark.parametrize("what", BAD)
def test_invalid_item_rolls_back(store: Store, what: str, place: int) -> None:
    store.put("files", batch(100, 3))
    store.put("failures", [(path_of(0), stored_file(b"", note="Missing"))])
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


def test_failing_iterator_rolls_back(store: Store) -> None:
    def items() -> Iterator[tuple[str, StoredFile]]:
        yield from batch(0, 5, 10)
        message = "the source failed"
        raise OSError(message)

    with pytest.raises(OSError, match="the source failed"):
        store.put("files", items())
    assert store.keys("files") == []


# Several at once


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
            assert store.keys("files") == [path_of(0), path_of(1)]  # reading goes on
            assert go_on(other) == "released"
            store.put("files", batch(2, 20))
        assert len(store.keys("files")) == 22


def test_waits_for_a_lock(path: Path) -> None:
    with Store(path, create=True, busy_seconds=60) as store, run_script(path, LOCK) as other:
        assert line(other) == "ready"
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(store.put, "files", batch(0, 2))
            assert go_on(other) == "released"
            waiting.result()
        assert len(store.keys("files")) == 2


def test_long_reader_blocks_nobody(store: Store, path: Path) -> None:
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


def test_can_be_created_by_several_processes(path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT + CREATE, str(path)]
    folder = Path(__file__).parents[2]
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


def test_one_process_harvests_a_crawl(store: Store, path: Path) -> None:
    with run_script(path, HARVEST) as other:
        assert line(other) == "ready"
        with pytest.raises(StoreLocked, match=f"another process harvests {CRAWL} into"), store.harvesting(CRAWL):
            pass
        with store.harvesting("CC-MAIN-2021-49"):
            store.put("files", batch(0, 2))  # the store itself is not locked
        assert go_on(other) == "released"
        with store.harvesting(CRAWL):
            pass
    with run_script(path, HARVEST) as other:
        assert line(other) == "ready"
        other.kill()
        other.wait()
        with store.harvesting(CRAWL):  # a lock does not outlive who holds it
            pass


def test_one_thread_harvests_a_crawl(store: Store, path: Path) -> None:
    with Store(path) as other, store.harvesting(CRAWL), pytest.raises(StoreLocked), other.harvesting(CRAWL):
        pass


def test_errors_in_the_lock_pass_unchanged(store: Store) -> None:
    """Even those that are of the same kind as a lock's, or a disk's."""
    for error in (TimeoutError("the source is slow"), OSError("something else"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, store.harvesting(CRAWL):
            raise error
        assert caught.value is error
    with store.harvesting(CRAWL):
        pass


@pytest.mark.parametrize("name", ["../CC-MAIN-2022-05", "/tmp/x", "CC-MAIN-2022-05/..", ""])  # noqa: S108
def test_makes_no_other_locks(store: Store, path: Path, name: str) -> None:
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
def test_refuses_use_after_fork(path: Path) -> None:
    Store(path, create=True).close()
    with run_script(path, FORK) as process:
        assert line(process) == str([True] * 6)
        assert line(process) == "3"
    assert integrity(path) == "ok"
