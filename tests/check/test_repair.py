"""What rotted is asked for again, and nothing else."""

import shutil
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.datasets import DATASET_DOCUMENT, PATHS_DOCUMENT
from catalogue.commoncrawl.manifests import COLLINFO, manifest_path
from catalogue.demo import LoopbackServer
from catalogue.errors import CatalogueError, DiskFailed, IncompleteAnswer, StoreDamaged, StoreLocked
from catalogue.formatting import plural
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.store.salvaging import salvage
from tests.support.commands import Command, wait_until
from tests.support.crawls import CRAWL, crawl_of, index_path, table
from tests.support.faults import FaultServer, Kind, always
from tests.support.hosts import opened
from tests.support.rot import ABSENT, FILES, SHOWN, STORE, content, flip, flip_value, fresh, paths, rows
from tests.support.rotten import its_copy, its_server, whole_store

whole = pytest.fixture(scope="module")(whole_store)
server = pytest.fixture(its_server)
cat = pytest.fixture(its_copy)


PATTERN = "*.com"


def found(cat: Catalogue) -> list[tuple[str, str]]:
    return [(finding.kind, finding.key) for finding in cat.check().findings]


def asked(server: LoopbackServer) -> Counter[str]:
    return Counter(exchange.path for exchange in server.log)


def answers_of(cat: Catalogue) -> pa.Table:
    """All captures; one file of the list is nowhere."""
    with pytest.warns(IncompleteAnswer):
        return cat.captures(PATTERN).to_arrow().sort_by("url_surtkey")


def spoil(path: Path, at: int, length: int) -> None:
    """Other bytes at some place of a file."""
    data = bytearray(path.read_bytes())
    data[at : at + length] = Random(at).randbytes(length)
    path.write_bytes(data)


def test_what_rotted_is_asked_for_and_nothing_else(cat: Catalogue, server: LoopbackServer) -> None:
    before = content(cat.session.data / STORE)
    one, two, three, *_ = paths(server.folder)
    rotten = [
        ("files", one),
        ("files", two),
        ("facts", two),
        ("indexes", f"{three}#0"),
        ("indexes", f"{three}#1"),
        ("failures", ABSENT),
        ("documents", COLLINFO),
        ("documents", manifest_path(CRAWL)),
    ]
    for name, key in rotten:
        flip_value(cat.session.data / STORE, name, key, Random(3))
    done = cat.repair()
    assert sorted((finding.kind, finding.key) for finding in done.found) == sorted(rotten)
    assert (done.left, done.taken, list(done.failures), done.aside) == ([], [one, two], [ABSENT], None)
    assert asked(server) == Counter([one, two, three, ABSENT, COLLINFO, manifest_path(CRAWL)])
    assert done.requests == len(server.log)
    assert content(cat.session.data / STORE) == before
    server.log.clear()
    assert answers_of(cat).num_rows == 4 * FILES
    assert {*asked(server)} <= {*paths(server.folder)}


def test_a_file_that_the_source_has_no_more(cat: Catalogue, server: LoopbackServer, tmp_path: Path) -> None:
    """Then nothing is held of it, and answers say so."""
    mirror = Path(shutil.copytree(server.folder, tmp_path / "mirror"))
    gone, other, *_ = paths(mirror)
    (mirror / gone).unlink()
    flip_value(cat.session.data / STORE, "files", gone, Random(1))
    flip_value(cat.session.data / STORE, "files", other, Random(1))
    with LoopbackServer(mirror) as now:
        ran = Command(cat.session.data, now.url, cat.session.data)("repair")
        assert (ran.status, ran.out) == (1, f"failed: {now.url}{gone} does not exist\n")
        assert asked(now) == Counter([gone, other])
    assert not cat.captures(PATTERN).complete
    with Store(cat.session.data / STORE) as store:
        assert gone not in store.keys("files")
        assert gone in store.keys("failures")
    assert cat.check().complete


def test_a_crawl_that_the_source_lists_no_more(cat: Catalogue, server: LoopbackServer, tmp_path: Path) -> None:
    """Its damaged file is lacking, and not only gone."""
    mirror = Path(shutil.copytree(server.folder, tmp_path / "mirror"))
    (mirror / manifest_path(CRAWL)).unlink()
    one, *_ = paths(mirror)
    flip_value(cat.session.data / STORE, "files", one, Random(1))
    flip_value(cat.session.data / STORE, "documents", manifest_path(CRAWL), Random(1))
    with (
        LoopbackServer(mirror) as now,
        catalogue.open(cat.session.data, settings=Settings(source=now.url, cache=tmp_path)) as other,
    ):
        assert not other.repair().complete
    with Store(cat.session.data / STORE) as store:
        assert one not in store.keys("files")
        assert one in store.keys("failures")
    assert cat.repair().left == []
    assert asked(server) == Counter([manifest_path(CRAWL), one])


def test_a_source_that_is_down(cat: Catalogue, server: LoopbackServer) -> None:
    """Nothing that is held is let go of for what cannot be had; it is mended later."""
    before = content(cat.session.data / STORE)
    one, two, *_ = paths(server.folder)
    flip_value(cat.session.data / STORE, "files", one, Random(1))
    flip_value(cat.session.data / STORE, "documents", manifest_path(CRAWL), Random(1))
    spoil(cat.session.data / STORE, 0, 4096)  # the page that leads to all others
    (cat.session.data / f"{STORE}.new").mkdir()
    for left in (STORE, f"{STORE}-wal", f"{STORE}.lock", "copy", "copy-wal"):
        (cat.session.data / f"{STORE}.new/{left}").write_bytes(b"of a repair that was broken off")
    with pytest.raises(StoreDamaged, match="run: catalogue repair"):
        Store(cat.session.data / STORE)
    with FaultServer(server.folder, script=always(Kind.REDIRECT_AWAY)) as down:
        ran = Command(cat.session.data, down.url, cat.session.data)("repair")
    assert ran.status == 75
    assert not [path.name for path in cat.session.data.glob(f"{STORE}.*") if ".new" in path.name]
    done = cat.repair()
    assert ("failures", one) in [(finding.kind, finding.key) for finding in done.found]
    assert done.left == []
    assert asked(server) == Counter([one, manifest_path(CRAWL)])
    assert content(cat.session.data / STORE) == before
    assert two in content(cat.session.data / STORE)["files"]


def test_killed_in_the_middle_it_can_be_run_again(cat: Catalogue, server: LoopbackServer) -> None:
    before = content(cat.session.data / STORE)
    one, two, *_ = paths(server.folder)
    for path in (one, two):
        flip_value(cat.session.data / STORE, "files", path, Random(1))
    spoil(cat.session.data / STORE, 16, 8)
    with (
        FaultServer(server.folder, script=always(Kind.SILENT)) as slow,
        Command(cat.session.data, slow.url, cat.session.data).start("repair") as process,
    ):
        wait_until(process, lambda: bool(slow.log))
        process.kill()
    assert list(cat.session.data.glob(f"{STORE}.damaged-*"))  # so far it had come
    done = cat.repair()
    assert done.left == []
    assert asked(server) == Counter([one, two])
    assert content(cat.session.data / STORE) == before


def test_what_reading_taught_is_told_to_be_forgotten(tmp_path: Path) -> None:
    """The file does not have it, and reading it again is somebody's choice."""
    mirror = crawl_of(tmp_path / "mirror", table(["com,a)/", "com,b)/", "com,c)/"]), write_page_index=False)
    path = str(index_path(mirror).relative_to(mirror))
    for file in mirror.rglob("*.parquet"):
        pq.write_table(pq.read_table(file), file, write_statistics=False, row_group_size=2)
    with catalogue.open(tmp_path / "data", settings=Settings(source=str(mirror), cache=tmp_path)) as cat:
        cat.harvest(CRAWL)
        cat.backfill().run()
        cat.update()
        before = content(cat.session.data / STORE)
        assert before["indexes"].keys() == {f"{path}#0", f"{path}#1"}
        cat.close()
        flip_value(cat.session.data / STORE, "indexes", f"{path}#1", Random(1))
        done = cat.repair()
        assert (done.forgotten, done.left, done.requests) == ([f"{path}#1"], [], 0)
        cat.backfill().run()
        assert content(cat.session.data / STORE)["indexes"] == before["indexes"]


def define(data: Path, mirror: Path, *files: str) -> dict[str, str]:
    """Harvest some files as a table of their own; what failed of them."""
    with opened(data, mirror, "mine") as cat:
        cat.define("url_surtkey", paths=files)
        return {path: reason for outcome in cat.harvest() for path, reason in outcome.failures.items()}


def test_the_definition_of_a_table_is_told_to_be_given_again(tmp_path: Path) -> None:
    """No source has it."""
    mirror = crawl_of(tmp_path / "mirror", table(["com,a)/", "com,b)/"]))
    path = str(index_path(mirror).relative_to(mirror))
    command = Command(tmp_path / "data", str(mirror), tmp_path)
    assert not define(tmp_path / "data", mirror, path)
    flip_value(tmp_path / "data" / "mine" / STORE, "documents", "table.json", Random(1))
    for verb in ("check", "repair"):
        ran = command(verb, "--table", "mine")
        assert ran.status == 1
        assert ran.err.splitlines()[-1].startswith("run: catalogue harvest --table mine --key COLUMN")
    assert command("harvest", "--table", "mine", "--key", "url_surtkey", path).status == 0
    with opened(tmp_path / "data", mirror, "mine") as cat:
        assert cat.check().complete


def test_where_the_list_of_a_table_is_lost_its_footers_are_kept(tmp_path: Path) -> None:
    """As by a salvage: nobody knows any more which files there are, but those that are held."""
    mirror = crawl_of(tmp_path / "mirror", table(["com,a)/", "com,b)/"]), table(["com,c)/", "com,d)/"]))
    one, two = (str(index_path(mirror, number).relative_to(mirror)) for number in range(2))
    data, store = tmp_path / "data", tmp_path / "data" / "mine" / STORE
    assert not define(data, mirror, one, two)
    for lost in (PATHS_DOCUMENT, DATASET_DOCUMENT):
        with closing(sqlite3.connect(store, isolation_level=None)) as connection:
            connection.execute("DELETE FROM documents WHERE key = ?", [lost])
        flip_value(store, "files", one, Random(1))
        with opened(data, mirror, "mine") as cat:
            assert ("documents", lost) in found(cat)
            assert not cat.repair().complete
            with suppress(CatalogueError):  # who is not told which files there are
                cat.harvest()
        assert two in rows(store)["files"], lost
        assert not define(data, mirror, one, two)
        with opened(data, mirror, "mine") as cat:
            assert cat.repair().complete
        assert sorted(content(store)["files"]) == [one, two]


def test_a_page_of_footers(cat: Catalogue, server: LoopbackServer) -> None:
    """All that is on other pages is kept; what was on it is taken again, and the old store kept."""
    before = content(cat.session.data / STORE)
    data = (cat.session.data / STORE).read_bytes()
    pages = [at for at in range(0, len(data), 4096) if data[at] == 0x0D and b"part-00003-" in data[at : at + 4096]]
    spoil(cat.session.data / STORE, pages[0], 4096)
    cat.path.unlink()
    ran = Command(cat.session.data, server.url, cat.session.data)("repair")
    (aside,) = cat.session.data.glob(f"{STORE}.damaged-*")
    lines = ran.err.splitlines()
    assert lines[0].startswith("found: the file footers.sqlite is damaged: ")
    made = next(line for line in lines if line.startswith("a new store was made of what is whole: "))
    assert made.endswith(f"; the old one is {aside}")
    counted = made.partition("whole: ")[2].partition(";")[0].split(", ")
    kept = {noun: int(count) for count, _, noun in (each.partition(" ") for each in counted)}
    assert 0 < kept["footers"] < FILES
    assert f"{plural(FILES - kept['footers'], 'footer')} taken again; {plural(len(server.log), 'request')}" in lines
    assert lines[-1] == "all is well again"
    assert content(cat.session.data / STORE) == before
    assert len(server.log) <= sum(map(len, before.values())) - sum(kept.values())


def test_another_process_at_work_is_told(cat: Catalogue, server: LoopbackServer) -> None:
    flip_value(cat.session.data / STORE, "files", paths(server.folder)[0], Random(1))
    with FileLock(cat.session.data / "repair.lock"), pytest.raises(StoreLocked):
        cat.repair()
    with (
        FileLock(f"{cat.session.data / STORE}.{CRAWL}.lock"),
        pytest.raises(StoreLocked, match="another process harvests"),
    ):
        cat.repair()
    with closing(sqlite3.connect(cat.session.data / STORE)) as connection:
        connection.execute("DELETE FROM history WHERE change = 1")
        connection.commit()
        with pytest.raises(StoreLocked, match=r"another process has .* open; close it there"):
            cat.repair()
    with (
        FileLock(f"{cat.session.data / STORE}.{CRAWL}.lock"),
        pytest.raises(StoreLocked, match="another process harvests"),
    ):
        cat.repair()
    assert not server.log
    assert not list(cat.session.data.glob(f"{STORE}.damaged-*"))


def test_a_store_that_another_process_holds_is_not_replaced(cat: Catalogue) -> None:
    """It would go on writing to the one that is put aside."""
    path = cat.session.data / STORE
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreLocked, match="is locked by another process"):
            salvage(path, lambda _: True, ())
    assert not list(cat.session.data.glob(f"{STORE}.damaged-*"))


def test_another_object_that_was_served_is_replaced(server: LoopbackServer, tmp_path: Path) -> None:
    """No checksum tells it, but who knows what else there is; and the source may serve the right one now."""
    mirror = Path(shutil.copytree(server.folder, tmp_path / "mirror"))
    one, other, *_ = paths(mirror)
    with catalogue.open(tmp_path / "data", settings=Settings(source=str(mirror), cache=tmp_path)) as cat:
        cat.harvest(CRAWL)
        with Store(cat.session.data / STORE) as store:
            held = store.get("files", other)
            assert held
            store.put("files", [(one, held)])
        done = cat.repair()
        suspects = {str(finding) for finding in done.found if finding.kind == "suspect"}
        for path, same in ((one, other), (other, one)):
            assert f"{path}: its footer is the same as that of {same}: one was served for the other" in suspects
        assert (done.left, done.requests) == ([], 2)
        assert answers_of(cat).num_rows == 4 * FILES


def test_files_of_a_table_that_are_the_same_are_reported(tmp_path: Path) -> None:
    mirror = crawl_of(tmp_path / "mirror", *[table(["com,a)/", "com,b)/"])] * 3)
    shutil.copy(index_path(mirror, 2), index_path(mirror, 1))
    files = [str(index_path(mirror, number).relative_to(mirror)) for number in range(3)]
    failures = define(tmp_path / "data", mirror, *files)
    assert failures.keys() == {*files[1:]}
    assert f"{files[1]} has the same footer or page index as {files[2]}" in failures[files[1]]
    with opened(tmp_path / "data", mirror, "mine") as cat:
        assert not cat.captures("*").complete


def test_a_catalogue_that_is_damaged_says_so_when_it_is_to_be_gone_on_from(cat: Catalogue) -> None:
    """And not that a disk cannot be written to."""
    sound = (cat.session.data / SHOWN).read_bytes()
    first, block = 3 * 4096, 1 << 18  # https://duckdb.org/docs/stable/internals/storage
    said: list[str] = []
    for start in range(first, len(sound), 2 * block):
        fresh(cat.session.data, SHOWN, flip(sound, 8 * (start + 20)))
        try:
            assert len(cat.column_chunks(CRAWL)) > 0
        except DiskFailed as error:
            if not said:  # what repairs one repairs any: each is made anew
                cat.repair()
                assert len(cat.column_chunks(CRAWL)) > 0
            said.append(str(error))
        cat.close()
    assert said
    for each in said:
        assert f"{SHOWN} is damaged (" in each
        assert each.endswith("); run: catalogue repair")


def test_column_chunks_that_are_shown_are_shown_again(cat: Catalogue) -> None:
    chunks = cat.column_chunks(CRAWL)
    assert len(chunks)
    cat.close()
    with duckdb.connect(cat.path) as connection:
        connection.execute("UPDATE derived.files SET num_rows = num_rows + 1")
    assert cat.repair().catalogue
    assert len(cat.sql("FROM column_chunks").fetchall()) == len(chunks)


def test_a_catalogue_is_made_anew(cat: Catalogue, server: LoopbackServer) -> None:
    data = bytearray(cat.path.read_bytes())
    data[len(data) // 2] ^= 16
    cat.path.write_bytes(data)
    command = Command(cat.session.data, server.url, cat.session.data)
    ran = command("repair")
    assert ran.status == 0
    assert ran.err.splitlines()[-2:] == ["the catalogue was made anew", "all is well again"]
    before = (cat.session.data / STORE).read_bytes()
    ran = command("repair")
    assert (ran.status, ran.out, ran.err) == (0, "", "all is well; nothing was to be mended\n")
    assert (cat.session.data / STORE).read_bytes() == before
    assert not server.log


def test_a_harvest_goes_on_past_what_rotted(cat: Catalogue, server: LoopbackServer) -> None:
    """Of every tenth file that is held the footer is looked at for its length."""
    for path in paths(server.folder):
        flip_value(cat.session.data / STORE, "files", path, Random(1))
    flip_value(cat.session.data / STORE, "documents", manifest_path(CRAWL), Random(1))
    flip_value(cat.session.data / STORE, "failures", ABSENT, Random(1))
    (outcome,) = cat.harvest(CRAWL, refresh=True)
    assert list(outcome.failures) == [ABSENT]
    assert cat.check().complete
