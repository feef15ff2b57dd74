"""The store's file and who else has to do with it: copies without their log, forks, readers that never end."""

import os
import random
import shutil
import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import catalogue
from catalogue.settings import Settings
from catalogue.store.database import Store
from tests.support.commands import Command
from tests.support.faults import FaultServer
from tests.support.stores import batch, integrity, path_of

needs_forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def elsewhere(work: Callable[[], object]) -> str:
    """What a forked process says; it ends as a killed one does, closing nothing."""
    here, there = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads, which is the point
        number = os.fork()
    if not number:
        try:
            messages = str(work())
        except BaseException as error:  # noqa: BLE001 - told to the test
            messages = f"{type(error).__name__}: {error}"
        os.write(there, messages.encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as reported:
        messages = reported.read().decode()
    os.waitpid(number, 0)
    return messages


def grow(path: Path, start: int, batches: int) -> None:
    """Add batches of ten, and end without closing, so that the log stays."""

    def put() -> None:
        store = Store(path, create=True)
        for number in range(start, start + batches):
            store.put("files", batch(10 * number, 10))

    assert elsewhere(put) == "None"


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


@pytest.fixture
def grown(tmp_path: Path) -> tuple[Path, Path]:
    """A store that was killed with a part of it in its log, and a copy of it as it was some changes before that."""
    path, backup = tmp_path / "data" / "footers.sqlite", tmp_path / "backup.sqlite"
    grow(path, 0, 40)
    Store(path).close()
    shutil.copy(path, backup)
    grow(path, 40, 5)
    Store(path).close()
    grow(path, 45, 3)
    assert log_of(path).stat().st_size
    return path, backup


@needs_forks
def test_copy_without_log_is_an_older_state(grown: tuple[Path, Path], tmp_path: Path) -> None:
    path, _ = grown
    copy = Path(shutil.copy(path, tmp_path / "copy.sqlite"))
    assert integrity(copy) == "ok"
    with Store(copy) as early:
        assert early.keys("files") == [path_of(number) for number in range(450)]
    with Store(path) as store:
        assert store.count("files") == 480


@needs_forks
@pytest.mark.parametrize("seed", range(2))
def test_accepts_its_own_log(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "footers.sqlite"
    dice = random.Random(seed)
    Store(path, create=True).close()

    def work() -> int:
        store = Store(path)
        for _ in range(dice.randrange(8)):
            number = dice.randrange(30)
            match dice.randrange(5):
                case 0 | 1:
                    store.put("files", batch(number, dice.randrange(4)))
                case 2:
                    store.delete("files", [path_of(number)])
                case 3:
                    store.add_facts(batch(number, 1))
                case _:
                    mode = dice.choice(["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
                    with closing(sqlite3.connect(path)) as other:
                        other.execute(f"PRAGMA wal_checkpoint({mode})")
        if dice.randrange(3) == 0:
            store.close()
        return store.count("files") if dice.randrange(2) == 0 else 0

    for _ in range(12):
        messages = elsewhere(work)
        dice.random()
        assert messages.isdecimal() or "closed" in messages, messages
    assert integrity(path) == "ok"


@needs_forks
def test_readers_work_during_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "footers.sqlite"
    Store(path, create=True).close()
    here, there = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        number = os.fork()
    if not number:
        os.close(there)
        store = Store(path)
        os.set_blocking(here, False)
        while True:
            try:
                os.read(here, 1)
                os._exit(0)
            except BlockingIOError:
                store.put("files", batch(0, 2))
                with closing(sqlite3.connect(path)) as other:
                    other.execute("PRAGMA wal_checkpoint(RESTART)")
    os.close(here)
    try:
        for _ in range(100):
            with Store(path) as store:
                assert store.count("files") in {0, 2}
    finally:
        os.close(there)
        os.waitpid(number, 0)


def test_log_shrinks_after_a_long_reader(tmp_path: Path) -> None:
    path = tmp_path / "data" / "footers.sqlite"
    command = Command(path.parent, str(tmp_path), tmp_path)
    with (
        Store(path, create=True) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
    ):
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM files").fetchone() == (0,)
        writer.execute("INSERT INTO facts VALUES ('much', zeroblob(?))", [33 << 20])
        writer.execute("DELETE FROM facts")
        assert store.log_size() > 33 << 20
        reported = command("status")
        assert "because a program keeps reading the store; stop it" in reported.out, reported
        assert command("status", "--json").json()["store_log_bytes"] > 33 << 20
        reader.execute("ROLLBACK")
        store.put("files", batch(0, 1))  # folds it in
        store.put("files", batch(1, 1))  # begins anew
        assert store.log_size() <= 16 << 20
        assert "keeps reading" not in command("status").out


@needs_forks
def test_refuses_use_after_fork_without_deadlock(mirror: Path, crawl: str, tmp_path: Path) -> None:
    with FaultServer(mirror) as server:
        settings = Settings(source=server.url, cache=tmp_path / "cache")
        with catalogue.open(tmp_path / "data", settings=settings) as cat:
            cat.harvest(crawl)
            found = cat.captures("*.example.com", crawls=crawl, limit=3)
            rows = found.to_arrow().num_rows
            uses: dict[str, Callable[[], object]] = {
                "a question": lambda: cat.captures("*", columns="url"),
                "a plan": lambda: cat.captures("*.example.com", columns="url").plan,
                "SQL": lambda: cat.sql("from files"),
                "crawls": lambda: cat.crawls(fetch=True),
                "a harvest": lambda: cat.harvest(crawl, refresh=True),
                "records": lambda: list(cat.records(found)),
                "a file of records": lambda: cat.fetch(found, tmp_path / "out.warc.gz"),
            }
            for name, use in uses.items():
                messages = elsewhere(use)
                assert "opened by another process; open it again in this one" in messages, (name, messages)
            assert elsewhere(found.to_arrow) == str(found.to_arrow())  # which were read before

            def again() -> int:
                cat.close()
                return int(cat.captures("*.example.com", crawls=crawl, limit=3).to_arrow().num_rows)

            assert elsewhere(again) == str(rows)
            assert cat.captures("*.example.com", crawls=crawl, limit=3).to_arrow().num_rows == rows
