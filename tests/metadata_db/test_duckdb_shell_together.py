"""DuckDB's shell on the metadata database during a rebuild, and files that it leaves."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from subprocess import PIPE

import duckdb
import pytest
from filelock import FileLock

import catalogue
from catalogue.errors import NotHarvested, StoreLocked
from catalogue.metadata_db.connection import connect, reading
from catalogue.metadata_db.refresh import refresh
from catalogue.settings import Settings
from catalogue.store.database import Store
from tests.support.commands import Command
from tests.support.crawls import crawl_of, table
from tests.support.faults import FaultServer
from tests.support.gates import Gate, nth
from tests.support.processes import line, run_script

OLD, NEW = "CC-MAIN-2021-49", "CC-MAIN-2022-33"
HELD = "SELECT crawl, count(*) FROM files GROUP BY ALL ORDER BY ALL"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("source")
    for crawl in (OLD, NEW):
        crawl_of(made, *(table([f"com,{n})/{row}" for row in range(9)]) for n in range(2)), crawl=crawl)
    return made


@pytest.fixture(scope="module")
def harvested(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("harvested") / "data"
    with catalogue.open(data, settings=Settings(source=str(folder))) as cat:
        cat.harvest(OLD)
    return data


@pytest.fixture
def command(folder: Path, harvested: Path, tmp_path: Path) -> Command:
    return Command(Path(copytree(harvested, tmp_path / "data")), str(folder), tmp_path)


SHELL = """
import os, sys
import duckdb
shell = duckdb.connect(sys.argv[1], read_only=READ_ONLY)
print("open", flush=True)
for statement in sys.stdin:
    print(shell.execute(statement).fetchall(), flush=True)
os._exit(0)  # as one that is killed: what it wrote stays in its log
"""


@contextmanager
def shell(path: Path, *, read_only: bool = False) -> Iterator["subprocess.Popen[str]"]:
    with run_script(path, SHELL.replace("READ_ONLY", str(read_only))) as process:
        assert line(process) == "open"
        yield process


def run(process: "subprocess.Popen[str]", statement: str) -> str:
    assert process.stdin
    process.stdin.write(f"{statement}\n")
    return line(process)


def end(process: "subprocess.Popen[str]") -> None:
    assert process.stdin
    process.stdin.close()
    process.wait()


def test_reading_shell_keeps_its_file_and_does_not_block(command: Command) -> None:
    path = command.data / "catalogue.duckdb"
    program = (str(Path(sys.executable).with_name("duckdb")), "-readonly", "-csv", "-noheader")
    with (
        shell(path, read_only=True) as ours,
        subprocess.Popen([*program, str(path)], stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as cli,
    ):
        before = run(ours, HELD)
        assert before == str([(OLD, 2)])
        assert run(cli, "SELECT 'open';") == "open"
        assert command("harvest", "--crawl", NEW).status == 0
        assert run(ours, HELD) == before
        assert cli.communicate(HELD + ";")[0] == f"{OLD},2\n"
    with connect(path) as now:
        assert now.execute(HELD).fetchall() == [(OLD, 2), (NEW, 2)]


def test_writing_shell_does_not_block(command: Command) -> None:
    path = command.data / "catalogue.duckdb"
    with shell(path) as writer:
        for words in (["harvest", "--crawl", NEW], ["status"], ["sql", "from files"]):
            ran = command(*words)
            assert (ran.status, ran.out) == (75, ""), ran
            assert "is open for writing elsewhere; close it there, or open it read-only" in ran.err
            assert "Traceback" not in ran.err
        # What was harvested is stored, and queries do not need the database.
        assert len(command("query", "*", "--crawl", "stored", "--yes").json_lines()) == 36
        end(writer)


def test_log_of_a_killed_shell_changes_no_result(command: Command) -> None:
    path = command.data / "catalogue.duckdb"
    log = path.with_name("catalogue.duckdb.wal")
    with shell(path) as writer:
        assert run(writer, "DELETE FROM derived.row_groups") == "[(2,)]"
        end(writer)
    assert log.exists()
    assert len(command("query", "*", "--yes").json_lines()) == 18
    assert command("sql", "SELECT count(*) AS n FROM row_groups", "--format", "csv").out == "n\n2\n"
    assert not log.exists()


def test_ignores_a_log_written_next_to_a_newer_file(command: Command) -> None:
    """As one does that has the older one open still. DuckDB would take it: our files name no log as theirs."""
    path = command.data / "catalogue.duckdb"
    log = path.with_name("catalogue.duckdb.wal")
    newer = path.with_name("newer")
    newer.write_bytes(path.read_bytes())
    with shell(path) as writer:
        newer.replace(path)
        assert run(writer, "INSERT INTO derived.row_groups SELECT * FROM derived.row_groups") == "[(2,)]"
        assert log.exists()
        assert len(command("query", "*", "--yes").json_lines()) == 18
        assert command("sql", "SELECT count(*) AS n FROM row_groups", "--format", "csv").out == "n\n2\n"
        assert not log.exists()
        assert run(writer, "SELECT count(*) FROM derived.row_groups") == "[(4,)]"


def test_stops_waiting_for_a_long_rebuild(command: Command) -> None:
    path = command.data / "catalogue.duckdb"
    with Store(command.data / "footers.sqlite") as store, FileLock(f"{path}.lock"):
        store.delete("files", store.keys("files")[:1])
        with pytest.raises(StoreLocked, match=r"another process has been updating .* for 0 s; try again"):
            refresh(path, store, busy_seconds=0.01)


@pytest.mark.parametrize("name", ["tables", "catalogue.duckdb"])
def test_says_that_it_waits_for_another_process(command: Command, name: str) -> None:
    with Store(command.data / "footers.sqlite") as store:
        store.delete("files", store.keys("files")[:1])
    lock = FileLock(command.data / f"{name}.lock")
    with lock, command.start("sql", "select count(*) from files") as process:
        waiting = process.stderr.readline().decode()
        assert f"waiting for another process that updates {command.data / name}; Ctrl-C ends the wait" in waiting
        lock.release()
        assert process.wait(60) == 0


def test_two_catalogues_in_one_process(folder: Path, tmp_path: Path) -> None:
    """One harvests, the other asks, with an older file open: DuckDB hands one out again as it was, if it is let."""
    gate = Gate(nth(1, f"crawl={NEW}"))
    with FaultServer(folder, gate=gate) as server, ThreadPoolExecutor(1) as thread:
        settings = Settings(source=server.url, cache=tmp_path / "cache")
        ended = threading.Event()

        def harvest() -> None:
            with catalogue.open(tmp_path / "data", settings=settings) as other:
                other.harvest(NEW)
                ended.wait(60)

        with catalogue.open(tmp_path / "data", settings=settings) as cat:
            cat.harvest(OLD)
            older = cat.connect()
            harvesting = thread.submit(harvest)
            gate.wait()
            assert cat.captures("*", columns="url", crawls=OLD, index="columnar").to_arrow().num_rows == 18
            with pytest.raises(NotHarvested, match=f"{NEW} is not harvested yet"):
                cat.captures("*", columns="url", index="columnar")
            gate.open()
            while len(cat.session.metadata().crawls) < 2:
                assert not harvesting.done()
            assert cat.captures("*", columns="url", index="columnar").to_arrow().num_rows == 36
            assert cat.connect().execute(HELD).fetchall() == [(OLD, 2), (NEW, 2)]
            assert older.execute(HELD).fetchall() == [(OLD, 2)]
            ended.set()
            harvesting.result()
            older.close()


COUNT = "SELECT count(*) FROM files"
WRITES = "import sys, duckdb; duckdb.connect(sys.argv[1]).execute('CREATE TABLE note (text VARCHAR)')"


@pytest.fixture
def path(untaught_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(untaught_data / "catalogue.duckdb", tmp_path / "catalogue.duckdb"))


def count(path: Path) -> int:
    with reading(path) as connection:
        ((number,),) = connection.execute(COUNT).fetchall()
    return int(number)


def test_failed_query_does_not_affect_the_next_and_releases_the_file(path: Path) -> None:
    right = count(path)
    for _ in range(2):
        with pytest.raises(duckdb.BinderException), reading(path) as connection:
            connection.execute("CREATE TEMP TABLE files AS SELECT 1; SELECT no_such_column FROM catalogue.files")
        assert count(path) == right
    subprocess.run([sys.executable, "-c", WRITES, path], check=True, timeout=60)
