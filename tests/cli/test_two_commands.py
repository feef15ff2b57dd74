"""Two commands at the same time on one folder: correct results, or a message and exit status 75.

One of them waits at a chosen request until the other has ended.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import pytest

from tests.support.commands import Command, Ran, ended
from tests.support.crawls import crawl_of, table
from tests.support.faults import FaultServer
from tests.support.gates import Gate, nth

LATER = 75
OLD, NEW, LARGE = "CC-MAIN-2021-49", "CC-MAIN-2022-33", "CC-MAIN-2024-22"
FILES, ROWS = 3, 40
BATCH = 200
"""Files after which a harvest commits."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl without bounds, one with bounds, and one that is harvested in two batches."""
    made = tmp_path_factory.mktemp("source")
    for crawl, files in ((OLD, FILES), (NEW, FILES), (LARGE, BATCH + 3)):
        rows = ROWS if files == FILES else 1
        tables = [table([f"com,{crawl[-2:]},{n:03})/{row:03}" for row in range(rows)]) for n in range(files)]
        crawl_of(made, *tables, crawl=crawl, row_group_size=10, write_statistics=crawl != OLD)
    return made


def keys_of(crawl: str, files: int = FILES) -> list[str]:
    rows = ROWS if files == FILES else 1
    return [f"com,{crawl[-2:]},{n:03})/{row:03}" for n in range(files) for row in range(rows)]


@dataclass(frozen=True)
class Two:
    """Commands on one folder, and the gate where the first waits."""

    command: Command
    gate: Gate
    server: FaultServer

    def keys(self, crawl: str, *patterns: str) -> list[str]:
        ran = self.ask(crawl, *patterns)
        assert (ran.status, "incomplete" in ran.err) == (0, False), ran
        return found(ran)

    def ask(self, crawl: str, *patterns: str) -> Ran:
        return self.command(*words_for(crawl, *patterns))


def words_for(crawl: str, *patterns: str) -> list[str]:
    words = ["query", *(patterns or "*"), "--index", "columnar", "--crawl", crawl, "--columns", "url_surtkey"]
    return [*words, "--yes"]


def found(ran: Ran) -> list[str]:
    return sorted(row["url_surtkey"] for row in ran.json_lines())


@pytest.fixture(scope="module")
def harvested(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("harvested")
    assert Command(home / "data", str(folder), home)("harvest", "--crawl", OLD).status == 0
    return home / "data"


@contextmanager
def two(folder: Path, home: Path, gate: Gate, harvested: Path | None = None) -> Iterator[Two]:
    """Serve the source with a gate, for commands on an empty data folder or a copy of one."""
    if harvested:
        copytree(harvested, home / "data")
    with FaultServer(folder, gate=gate) as server:
        yield Two(Command(home / "data", server.url, home), gate, server)


def sentence(ran: Ran, status: int, messages: str) -> None:
    """Check the status and the one message, not counting the one on the source."""
    lines = [line for line in ran.err.splitlines() if not line.startswith("files in ")]
    assert (ran.status, len(lines), ran.out) == (status, 1, ""), ran
    assert re.search(messages, lines[0]), ran


def test_queries_during_a_harvest(folder: Path, harvested: Path, tmp_path: Path) -> None:
    with two(folder, tmp_path, Gate(nth(FILES - 1, f"crawl={NEW}")), harvested) as at:
        command = at.command
        with command.start("harvest", "--crawl", NEW) as harvest:
            at.gate.wait()
            assert at.keys(OLD) == keys_of(OLD)
            advice = f"add --harvest, or run: catalogue harvest --crawl {NEW}$"
            sentence(at.ask(NEW), 2, f"{NEW} is not harvested yet; {advice}")
            assert command("plan", "*", "--crawl", OLD).status == 0
            stored = command("sql", "--json", "select crawl, count(*) as n from files group by all").json_lines()
            assert stored == [{"crawl": OLD, "n": FILES}]
            sentence(command("harvest", "--crawl", NEW), LATER, f"another process harvests {NEW} into")
            for kind, place in (("ducklake", "lake"), ("iceberg", "ice"), ("snapshot", "snap")):
                exported = command("export", kind, str(tmp_path / place))
                assert exported.status == 1, exported
                assert f"{FILES} files of {NEW}, warc, are not harvested" in exported.err
                assert f"{FILES} files of 1 crawl" in exported.err
            coverage = command("status", "--json").json()["coverage"]
            assert {row["crawl"]: row["files_harvested"] for row in coverage} == {OLD: FILES, NEW: 0}
            at.gate.open()
            assert ended(harvest).status == 0
        assert at.keys("stored") == sorted(keys_of(NEW) + keys_of(OLD))


def test_two_queries_to_one_file_of_which_one_is_killed(folder: Path, harvested: Path, tmp_path: Path) -> None:
    """The second is refused while the first runs, and the third replaces what the killed one left."""
    words, output = [*words_for(OLD), "-o", "found.jsonl"], tmp_path / "found.jsonl"
    with two(folder, tmp_path, Gate(nth(0, f"crawl={OLD}")), harvested) as at:
        with at.command.start(*words) as first:
            at.gate.wait()
            (left,) = tmp_path.glob(".found*")
            sentence(at.command(*words), LATER, f"another process writes to {output}; wait for it")
            assert left.exists()
            first.kill()
        assert left.exists()
        assert at.command(*words).status == 0
        assert len(output.read_bytes().splitlines()) == FILES * ROWS
    assert [path.name for path in tmp_path.iterdir() if "found" in path.name] == ["found.jsonl"]


def test_two_harvests_at_the_same_time(folder: Path, tmp_path: Path) -> None:
    """The first waits at its manifest, when there is no store yet."""
    with two(folder, tmp_path, Gate(nth(0, NEW))) as at:
        with at.command.start("harvest", "--crawl", NEW) as harvest:
            at.gate.wait()
            assert at.command("harvest", "--crawl", OLD).status == 0
            at.gate.open()
            assert ended(harvest).status == 0
        assert at.keys("stored") == sorted(keys_of(NEW) + keys_of(OLD))


@pytest.mark.in_soak
def test_queries_a_half_harvested_crawl(folder: Path, harvested: Path, tmp_path: Path) -> None:
    some = [0, BATCH // 2, *range(BATCH - 3, BATCH + 3)]
    every, requested = keys_of(LARGE, BATCH + 3), [f"{number:03}.{LARGE[-2:]}.com/*" for number in some]
    with two(folder, tmp_path, Gate(nth(BATCH + 2, f"crawl={LARGE}")), harvested) as at:
        with at.command.start("harvest", "--crawl", LARGE, CATALOGUE_CONNECTIONS="1") as harvest:
            at.gate.wait()
            part = at.ask(LARGE, *requested)
            messages = re.search(rf"(\d+) of the {len(every)} files of {LARGE}, warc, are not harvested", part.err)
            assert messages
            missing = messages[0].partition(",")[0]
            stored = len(every) - int(messages[1])  # a batch, or a smaller one if that took long
            assert 0 < stored < len(every)
            assert (part.status, found(part)) == (1, [every[number] for number in some if number < stored]), part
            exported = at.command("export", "iceberg", str(tmp_path / "ice"))
            assert (exported.status, missing in exported.err) == (1, True), exported
            sentence(at.command("forget", "--crawl", LARGE, "--yes"), LATER, f"another process harvests {LARGE}")
            at.gate.open()
            assert ended(harvest).status == 0
        assert at.keys(LARGE, *requested) == [every[number] for number in some]


@pytest.mark.in_soak
def test_backfill_during_queries_and_harvests(folder: Path, harvested: Path, tmp_path: Path) -> None:
    with two(folder, tmp_path, Gate(nth(1, f"crawl={OLD}")), harvested) as at:
        with at.command.start("backfill", "--yes", "--json") as backfill:
            at.gate.wait()
            assert at.keys(OLD) == keys_of(OLD)
            assert at.command("harvest", "--crawl", NEW).status == 0
            at.gate.open()
            done = ended(backfill)
            assert done.json()["complete"], done
        assert at.keys("stored") == sorted(keys_of(NEW) + keys_of(OLD))
        coverage = at.command("status", "--json").json()["coverage"]
        assert {row["crawl"]: row["without_bounds"] for row in coverage} == {OLD: 0, NEW: 0}


def test_two_equal_queries(folder: Path, tmp_path: Path) -> None:
    with two(folder, tmp_path, Gate(nth(FILES + 2, f"crawl={OLD}"))) as at:
        assert at.command("harvest", "--crawl", OLD).status == 0
        words = ["query", "*", "--columns", "url_surtkey", "--yes"]
        with at.command.start(*words) as first:
            at.gate.wait()
            assert found(at.command(*words)) == keys_of(OLD)
            at.gate.open()
            assert found(ended(first)) == keys_of(OLD)
        at.server.reset()
        assert at.keys(OLD) == keys_of(OLD)
        assert not [each for each in at.server.log if each.path.endswith(".parquet")]  # it is in the cache


def test_forget_during_a_query(folder: Path, harvested: Path, tmp_path: Path) -> None:
    with two(folder, tmp_path, Gate(nth(1, f"crawl={OLD}")), harvested) as at:
        with at.command.start(*words_for(OLD)) as query:
            at.gate.wait()
            assert at.command("forget", "--crawl", OLD, "--yes").status == 0
            at.gate.open()
            answer = ended(query)
        assert (answer.status, found(answer)) == (0, keys_of(OLD)), answer
        sentence(at.ask(OLD), 2, f"{OLD} is not harvested yet")
        assert at.command("harvest", "--crawl", OLD).status == 0
        assert at.keys(OLD) == keys_of(OLD)


@pytest.mark.parametrize("derived", ["catalogue.duckdb", "tables"])
def test_repair_deletes_nothing_without_a_lock(folder: Path, harvested: Path, tmp_path: Path, derived: str) -> None:
    """Another process may be reading it for an update."""
    with two(folder, tmp_path, Gate(nth(0)), harvested) as at:
        lock = at.command.data / f"{derived}.lock"
        lock.unlink()
        lock.mkdir()
        before = {*at.command.data.rglob("*")}
        ran = at.command("check", "--repair")
        assert (ran.status, before - {*at.command.data.rglob("*")}) == (74, set()), ran
