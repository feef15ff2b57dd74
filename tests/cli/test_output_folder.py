"""Query results in a folder, with a file per crawl; and counts by crawl."""

import json
import signal
from collections import Counter
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from catalogue import Catalogue
from catalogue.demo import LoopbackServer
from catalogue.store.locks import locked
from tests.support.commands import Command
from tests.support.miniatures import OLD

COLUMNAR = ("--index", "columnar")
URLS = ("--columns", "url")
"""Reading one column saves time."""


def test_writes_one_file_a_crawl_again_without_ledger(asking: Command, tmp_path: Path, harvested: Catalogue) -> None:
    ran = asking("query", "*.example.com", "-o", "found/")
    assert (ran.status, ran.out) == (0, "")
    parts = {path.stem: pq.read_table(path) for path in (tmp_path / "found").glob("*.parquet")}
    everything = harvested.captures("*.example.com").to_arrow()
    assert pa.concat_tables(parts[crawl] for crawl in sorted(parts)).num_rows == everything.num_rows
    for crawl, rows in parts.items():
        assert rows.equals(everything.filter(pc.field("crawl") == crawl))
        assert f"{crawl}: {rows.num_rows:,} captures\n" in ran.err
    assert len({str(rows.schema) for rows in parts.values()}) == 1
    ledger = tmp_path / "found" / "answer.json"
    noted = json.loads(ledger.read_text())
    assert {name: part["captures"] for name, part in noted["parts"].items()} == {c: len(r) for c, r in parts.items()}
    ledger.write_text(json.dumps(noted | {"parts": {}}))  # as a kill leaves it
    ran = asking("query", "*.example.com", "-o", "found")
    assert (ran.status, [crawl for crawl in parts if f"{crawl}: " not in ran.err]) == (0, [])
    again = asking("query", "*.example.com", "-o", "found")
    assert (again.status, again.err) == (0, f"found already has the captures of {len(parts)} crawls\n")


def test_continues_after_a_kill(asking: Command, tmp_path: Path, server: LoopbackServer, harvested: Catalogue) -> None:
    crawls = harvested.session.stored_crawls()
    command = Command(asking.data, server.url, tmp_path)
    words = ["query", "*.example.com", "-o", "found/", "--format", "jsonl", "--no-cache"]
    with command.start(*words) as process:
        assert b"came from" in process.stderr.readline()
        assert process.stderr.readline().startswith(crawls[0].encode())
        process.send_signal(signal.SIGKILL)
    before = len(server.log)
    ran = command(*words)
    assert ran.status == 0
    requested = {exchange.path.partition("crawl=")[2].partition("/")[0] for exchange in list(server.log)[before:]}
    assert crawls[0] not in requested
    for crawl in crawls:
        lines = (tmp_path / "found" / f"{crawl}.jsonl").read_text().splitlines()
        assert len(lines) == harvested.captures("*.example.com", crawls=crawl).count()


@pytest.mark.in_soak
def test_writes_missing_incomplete_and_damaged_parts(
    command: Command, tmp_path: Path, mirror: Path, whole_crawls: list[str]
) -> None:
    crawl, other = whole_crawls[0], whole_crawls[-1]
    source = Path(copytree(mirror, tmp_path / "source"))
    here, found = Command(command.data, str(source), tmp_path), tmp_path / "found"
    words = ("query", "*", "-o", "found/", *URLS, *COLUMNAR)

    def written() -> list[str]:
        ran = here(*words)
        assert ran.status == 0
        return [each for each in (crawl, other, OLD) if f"{each}: " in ran.err]

    lost = min(source.rglob(f"crawl={crawl}/subset=warc/*.parquet"))
    whole = lost.read_bytes()
    lost.unlink()
    assert here("harvest", "--crawl", crawl, "--crawl", other, "--yes").status == 1
    ran = here(*words)
    assert (ran.status, "may be incomplete: 1 of the" in ran.err) == (1, True)
    lost.write_bytes(whole)
    assert here("harvest", "--crawl", crawl).status == 0
    assert written() == [crawl]
    assert here("harvest", "--crawl", OLD).status == 0
    assert written() == [OLD]
    for each in (crawl, other, OLD):
        files = source.rglob(f"crawl={each}/subset=warc/*.parquet")
        assert pq.read_metadata(found / f"{each}.parquet").num_rows == sum(pq.read_metadata(f).num_rows for f in files)
    assert here("harvest", "--crawl", crawl, "--subset", "all").status == 0
    assert "already" in here(*words).err
    (found / f"{other}.parquet").unlink()
    cut = found / f"{crawl}.parquet"
    cut.write_bytes(cut.read_bytes()[:-1])
    assert written() == [crawl, other]


def test_writes_no_file_without_captures(asking: Command, tmp_path: Path) -> None:
    assert asking("query", "no.such.host", "-o", "none/", *URLS).status == 0
    assert {path.name for path in (tmp_path / "none").iterdir()} == {"answer.json"}
    assert "already" in asking("query", "no.such.host", "-o", "none/", *URLS).err


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "words",
    [["*.is", "--urls-file", "patterns"], ["*.org", "--subset", "crawldiagnostics"]],
    ids=["patterns", "subset"],
)
def test_folder_has_as_many_captures_as_a_count(asking: Command, tmp_path: Path, words: list[str]) -> None:
    """Also where the patterns are in a file, which is read once, and where crawls do not have the subset."""
    (tmp_path / "patterns").write_text("*.net\n*.org\n")
    total = int(asking("query", *words, "--index", "columnar", "--count").out)
    assert asking("query", *words, "-o", "found/", *URLS).status == 0
    parts = (tmp_path / "found").glob("*.parquet")
    assert sum(pq.read_metadata(path).num_rows for path in parts) == total > 0


def test_subset_that_is_not_stored_is_an_error(command: Command, tmp_path: Path, whole_crawls: list[str]) -> None:
    stored, missing = whole_crawls[0], whole_crawls[-1]
    assert command("harvest", "--crawl", stored, "--subset", "all").status == 0
    assert command("harvest", "--crawl", missing).status == 0
    question = ["query", "*.org", "--subset", "crawldiagnostics", "--index", "columnar", *URLS]
    of_one = [*question, "--crawl", missing]
    for words in (question, of_one):
        ran = command(*words, "-o", "found/")
        assert ran == command(*words, "-o", "found.jsonl")
        assert ran.status == 2
        assert ran.err.endswith(f"run: catalogue harvest --crawl {missing} --subset crawldiagnostics\n")
    assert not (tmp_path / "found").exists()
    assert command(*question[:-2], *URLS, "--crawl", stored, "-o", "found/").status == 0


def test_refuses_two_writers_of_one_folder(asking: Command, tmp_path: Path) -> None:
    (tmp_path / "found").mkdir()
    with locked(tmp_path / "found" / ".answer.lock", "found"):
        ran = asking("query", "*.org", "-o", "found/")
    assert (ran.status, ran.err.count("\n")) == (75, 1)
    assert "another process writes to found" in ran.err


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "question",
    [
        {"patterns": "*"},
        {"patterns": ["*.com", "*.is"]},
        {"patterns": "*.example.com", "where": "fetch_status = 200"},
        {"patterns": "*.com", "from_": "2020"},
        {"patterns": "no.such.host"},
    ],
    ids=str,
)
def test_counts_by_crawl_equal_the_rows(harvested: Catalogue, question: dict[str, str]) -> None:
    found = harvested.captures(**question, columns="url")  # type: ignore[arg-type]
    counts = found.count_by_crawl()
    assert counts == dict(Counter(found.to_arrow().column("crawl").to_pylist()))
    assert list(counts) == [crawl for crawl in harvested.session.stored_crawls() if crawl in counts]
    assert sum(counts.values()) == found.count()


@pytest.mark.in_soak
def test_counting_by_crawl_costs_the_same_as_counting(asking: Command, server: LoopbackServer, tmp_path: Path) -> None:
    command = Command(asking.data, server.url, tmp_path)
    command("plan", "*.com", "--count", "--indexes")
    before = len(server.log)
    total = command("query", "*.com", "--count", "--no-cache")
    between = len(server.log)
    by_crawl = command("query", "*.com", "--count", "--by", "crawl", "--no-cache")
    assert sum(line["captures"] for line in by_crawl.json_lines()) == int(total.out)
    assert len(server.log) - between <= between - before
