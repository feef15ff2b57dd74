"""``catalogue check`` finds what is not what was taken; ``catalogue repair`` takes that again, and nothing else."""

import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

import catalogue
from catalogue import Catalogue, views
from catalogue.checking import Share
from catalogue.crawl import COLLINFO, manifest_path
from catalogue.demo import LoopbackServer
from catalogue.errors import IncompleteAnswer, QueryError, StoreDamaged, StoreLocked
from catalogue.settings import Settings
from catalogue.store import TABLES, Store, inspected, salvage
from catalogue.table import DEFINITION, INDEX, LISTED
from catalogue.wording import plural
from tests.commands import Command, ended, wait_until
from tests.crawls import CRAWL, crawl_of, index_path, table
from tests.faults import Fault, FaultServer, Kind, Request, always
from tests.rot import ABSENT, FILES, STORE, content, flip_value, harvested, paths, rows
from tests.soak import rot
from tests.warm import Forked

PATTERN = "*.com"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoopbackServer, Path]]:
    """A served crawl, and the folder where it is held."""
    with harvested(tmp_path_factory.mktemp("whole")) as (server, cat):
        yield server, cat.data


@pytest.fixture
def server(whole: tuple[LoopbackServer, Path]) -> LoopbackServer:
    del whole[0].log[:]
    return whole[0]


@pytest.fixture
def cat(whole: tuple[LoopbackServer, Path], server: LoopbackServer, tmp_path: Path) -> Iterator[Catalogue]:
    """A copy, to be damaged."""
    shutil.copytree(whole[1], tmp_path / "data")
    with catalogue.open(tmp_path / "data", settings=Settings(source=server.url, cache=tmp_path / "cache")) as opened:
        yield opened


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


def found(cat: Catalogue) -> list[tuple[str, str]]:
    return [(finding.kind, finding.key) for finding in cat.check().findings]


def sql(cat: Catalogue, statement: str, *parameters: object) -> None:
    cat.close()
    with closing(sqlite3.connect(cat.data / STORE, isolation_level=None)) as connection:
        connection.execute(statement, parameters)


def test_what_was_harvested_is_well(harvested_data: Path, mirror: Path, tmp_path: Path) -> None:
    """Of every era."""
    shutil.copytree(harvested_data, tmp_path / "data")
    with catalogue.open(tmp_path / "data", settings=Settings(source=str(mirror), cache=tmp_path)) as cat:
        cat.captures("*.org").to_arrow()
        files = len(cat.files())
        done = cat.check(read_subset="10%")
        assert done.findings == []
        assert done.complete
        assert done.catalogue
        assert done.compared == done.equal == round(files / 10)
        assert done.values["files"] == files


def test_flips_are_found_or_make_no_difference(tmp_path: Path) -> None:
    figures = rot.run(8, 2, tmp_path)
    assert figures["values found"]
    assert figures["catalogues found"]


def test_each_flipped_value_is_named(cat: Catalogue) -> None:
    """In every table, hundreds of bits."""
    before = rows(cat.data / STORE)
    keys = [(name, key) for name in TABLES for key in before[name]]
    assert {name for name, _ in keys} == {*TABLES}
    random = Random(7)
    with closing(sqlite3.connect(cat.data / STORE, isolation_level=None)) as connection:
        for number in range(80):
            name, key = keys[number % len(keys)]
            value = bytearray(before[name][key])
            bit = random.randrange(8 * len(value))
            value[bit // 8] ^= 1 << bit % 8
            put = f'UPDATE "{name}" SET value = ? WHERE key = ?'  # noqa: S608
            connection.execute(put, [bytes(value), key])
            with inspected(cat.data / STORE) as inspection:
                damaged = [seen.key for seen in inspection.values(name) if seen.label is None]
            assert damaged == [key], (name, key, bit)
            connection.execute(put, [before[name][key], key])


def test_a_finding_says_what_it_means_and_what_to_do(cat: Catalogue, server: LoopbackServer) -> None:
    path = paths(server.folder)[0]
    for name, key in (("files", path), ("documents", COLLINFO), ("indexes", f"{path}#1"), ("facts", path)):
        flip_value(cat.data / STORE, name, key, Random(1))
    command = Command(cat.data, cat.settings.source, cat.data)
    ran = command("check")
    assert ran.status == 1
    assert ran.out.splitlines() == [
        f"files: {path}: the footer is not what was written; questions about it fail",
        f"documents: {COLLINFO}: the list is not what was written",
        f"indexes: {path}#1: the page index is not what was written; questions do without it",
        f"facts: {path}: what was found in the footer is not what was written; it is found again when it is needed",
    ]
    assert ran.err.endswith("4 findings\nrun: catalogue repair\n")
    told = command("check", "--json").json()
    assert (told["ok"], [finding["next"] for finding in told["findings"]]) == (False, ["catalogue repair"] * 4)
    other = command("check", "--crawl", "CC-MAIN-2013-20")  # which is not held
    assert (other.status, other.out) == (2, "")
    assert not server.log


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE identity SET changes = changes - 1",
        "DELETE FROM history WHERE change = 1",
        "DELETE FROM touched WHERE kind = 'files'",
        "UPDATE touched SET change = 1000000 WHERE kind = 'documents'",
        "PRAGMA user_version = 12",
        "PRAGMA application_id = 1",
    ],
)
def test_notes_of_what_changed_are_compared(cat: Catalogue, damage: str) -> None:
    """No digest and no integrity check sees these, and a catalogue that goes by them is wrong."""
    sql(cat, damage)
    assert found(cat) == [("store", "")]


def test_what_belongs_to_another_version_is_found(cat: Catalogue, server: LoopbackServer) -> None:
    one, other = paths(server.folder)[:2]
    for name, theirs, ours in (("indexes", f"{one}#0", f"{other}#0"), ("facts", one, other)):
        put = f"UPDATE {name} SET value = (SELECT value FROM {name} WHERE key = ?) WHERE key = ?"  # noqa: S608
        sql(cat, put, theirs, ours)
    assert sorted(found(cat)) == [("facts", other), ("indexes", f"{other}#0")]


def test_a_catalogue_that_says_something_else_is_found(cat: Catalogue) -> None:
    with duckdb.connect(cat.path) as connection:
        connection.execute("UPDATE derived.row_groups SET min_key = 'org' WHERE file = 3 AND row_group = 1")
        connection.execute("DELETE FROM derived.pages WHERE file = 2")
    assert found(cat) == [("catalogue", "")] * 2


def test_a_share_is_compared_by_one_request_a_file(cat: Catalogue, server: LoopbackServer) -> None:
    done = cat.check(read_subset="25%", seed=3)
    assert (done.complete, done.compared, done.equal, done.seed) == (True, 3, 3, 3)
    seen = [exchange.path for exchange in server.log]
    assert len(seen) == cat.requests == len(set(seen)) == 3
    with Store(cat.data / STORE) as store:
        footers = [held.data for path in seen if (held := store.get("files", path))]
    # Page indexes, which are held too, lie before the footer and come with it.
    assert all(exchange.sent_bytes > len(data) + 8 for exchange, data in zip(server.log, footers, strict=True))


def test_what_a_share_is() -> None:
    names = [f"part-{number:05}" for number in range(300)]
    parts = [Share.of(f"{part}/7").choose(names, len, 0) for part in range(1, 8)]
    assert sorted(path for part in parts for path in part) == names
    assert parts[2] == [path for path in Share.of("3/7").choose([*names, "another"], len, 1) if path != "another"]
    drawn = Share.of("10%").choose(names, len, 5)
    assert len({*drawn}) == 30
    assert drawn == Share.of("10%").choose(names[::-1], len, 5) != Share.of("10%").choose(names, len, 6)
    assert len(Share.of("0.01%").choose(names, len, 5)) == 1
    looked_into: list[str] = []

    def length(name: str) -> int:
        looked_into.append(name)
        return 30

    assert len(Share.of("1kB").choose(names, length, 5)) == 33
    assert len(looked_into) == 34  # and not all that are held


@pytest.mark.parametrize("text", ["0%", "101%", "5/4", "0/4", "much", ""])
def test_what_is_no_share_is_a_sentence(text: str) -> None:
    with pytest.raises(QueryError, match="is no share of the files; write it as 1%"):
        Share.of(text)


def test_what_changed_at_the_source_is_told(cat: Catalogue, server: LoopbackServer, tmp_path: Path) -> None:
    mirror = Path(shutil.copytree(server.folder, tmp_path / "mirror"))
    changed, gone, flipped, *_ = paths(mirror)
    pq.write_table(table(["com,another)/"]), mirror / changed)
    (mirror / gone).unlink()
    content = bytearray((mirror / flipped).read_bytes())
    content[-30] ^= 1
    (mirror / flipped).write_bytes(content)
    with (
        LoopbackServer(mirror) as now,
        catalogue.open(cat.data, settings=Settings(source=now.url, cache=tmp_path)) as other,
    ):
        done = other.check(read_subset="100%")
        said = {finding.key: finding for finding in done.findings}
        assert (done.compared, done.equal, len(now.log)) == (FILES, FILES - 3, FILES)
        assert {finding.kind for finding in done.findings} == {"source"}
        assert "changed at the source" in said[changed].what
        assert "not there any more" in said[gone].what
        assert "its footer is another" in said[flipped].what
        assert {finding.next for finding in done.findings} == {f"catalogue harvest --crawl {CRAWL} --refresh"}


def test_a_source_that_is_down_is_another_status(cat: Catalogue, server: LoopbackServer) -> None:
    """What else was found is told all the same."""
    path = paths(server.folder)[1]
    flip_value(cat.data / STORE, "indexes", f"{path}#0", Random(1))
    with FaultServer(server.folder, script=always(Kind.REDIRECT_AWAY)) as down:
        ran = Command(cat.data, down.url, cat.data)("check", "--read-subset", "1/1")
    assert ran.status == 75
    assert ran.out.startswith(f"indexes: {path}#0: ")
    assert "which is not followed" in ran.err.splitlines()[-1]


def test_ctrl_c_does_not_wait_for_the_source(cat: Catalogue, server: LoopbackServer) -> None:
    started: list[Forked] = []

    def interrupt(_: Request) -> Fault:
        started[0].send_signal(signal.SIGINT)
        return Fault(Kind.SILENT, hold=60.0)

    with FaultServer(server.folder, script=interrupt) as silent:
        command = Command(cat.data, silent.url, cat.data)
        started.append(command.start("check", "--read-subset", "1/1", CATALOGUE_CONNECTIONS="1"))
        ran = ended(started[0])
        assert (ran.status, len(silent.log)) == (130, 1), ran.err


def test_what_is_no_store_is_left_alone(tmp_path: Path) -> None:
    command = Command(tmp_path, str(tmp_path), tmp_path)
    assert command("check").status == 2
    with closing(sqlite3.connect(tmp_path / STORE)) as connection:
        connection.execute("CREATE TABLE mine (key TEXT)")
    before = (tmp_path / STORE).read_bytes()
    for name in ("check", "repair"):
        ran = command(name)
        assert (ran.status, ran.out) == (74, "")
        assert "is a SQLite file, but not a store of footers; choose another --data folder" in ran.err
    assert (tmp_path / STORE).read_bytes() == before


def test_what_is_whole_but_wrong(cat: Catalogue, server: LoopbackServer) -> None:
    """As a bug would leave it: a page index that the file has otherwise, and what is known of a footer."""
    one, other, *_ = paths(server.folder)
    with Store(cat.data / STORE) as store:
        held = store.get("files", one)
        assert held
        wrong = store.indexes(one, [1], held)[1]
        store.delete("indexes", [f"{one}#0"])
        store.add_indexes(one, {0: wrong}, held)
        facts = store.facts([other])[other]
        store.add_facts([(other, replace(facts, data=facts.data.replace(b"com,example01)/b", b"com,example01)/a")))])
    done = cat.check(read_subset="100%")
    assert {("indexes", f"{one}#0"), ("facts", other)} <= {(finding.kind, finding.key) for finding in done.findings}


def test_a_file_among_the_keys_of_another_is_suspect() -> None:
    """Where hardly any is: of a crawl that is sorted otherwise nothing is said."""
    with duckdb.connect() as connection:
        connection.execute(views.statement("views/_tables.sql", INDEX))

        def intruders(*extents: tuple[int, int]) -> list[tuple[str, str]]:
            connection.execute("DELETE FROM derived.files; DELETE FROM derived.row_groups")
            for number, (least, greatest) in enumerate(extents):
                add = "INSERT INTO derived.files (file, path, crawl, subset) VALUES (?, ?, 'c', 'warc')"
                connection.execute(add, [number, f"p{number}"])
                add = "INSERT INTO derived.row_groups (file, min_key, max_key) VALUES (?, ?, ?)"
                connection.execute(add, [number, f"{least:03}", f"{greatest:03}"])
            return list(views.intruders(connection))

        disjoint = [(10 * number, 10 * number + 10) for number in range(12)]  # which may touch
        assert intruders(*disjoint) == []
        assert intruders(*disjoint, (33, 37)) in ([("p12", "p3")], [("p3", "p12")])
        assert intruders(*disjoint, (5, 95)) == [("p12", "p0")]
        assert intruders(*disjoint[:8], (33, 37)) == []
        assert intruders(*disjoint, (33, 37), (51, 52), (61, 62)) == []


def test_a_crawl_is_looked_at_for_itself(untaught_data: Path, settings: Settings, tmp_path: Path) -> None:
    shutil.copytree(untaught_data, tmp_path / "data")
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        latest, *_, oldest = cat.held()
        rotten = next(path for path in cat.create().keys("files", f"crawl={latest}/"))
        cat.close()
        flip_value(cat.data / STORE, "files", rotten, Random(1))
        done = cat.check(oldest)
        assert done.findings == []
        assert 0 < done.values["files"] < len(cat.create().keys("files"))
        assert [finding.key for finding in cat.check("latest").findings] == [rotten]


# ---- repair ----


def test_what_rotted_is_asked_for_and_nothing_else(cat: Catalogue, server: LoopbackServer) -> None:
    before = content(cat.data / STORE)
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
        flip_value(cat.data / STORE, name, key, Random(3))
    done = cat.repair()
    assert sorted((finding.kind, finding.key) for finding in done.found) == sorted(rotten)
    assert (done.left, done.taken, list(done.failures), done.aside) == ([], [one, two], [ABSENT], None)
    assert asked(server) == Counter([one, two, three, ABSENT, COLLINFO, manifest_path(CRAWL)])
    assert done.requests == len(server.log)
    assert content(cat.data / STORE) == before
    server.log.clear()
    assert cat.check().complete
    assert answers_of(cat).num_rows == 4 * FILES
    assert {*asked(server)} <= {*paths(server.folder)}


def test_a_file_that_the_source_has_no_more(cat: Catalogue, server: LoopbackServer, tmp_path: Path) -> None:
    """Then nothing is held of it, and answers say so."""
    mirror = Path(shutil.copytree(server.folder, tmp_path / "mirror"))
    gone, other, *_ = paths(mirror)
    (mirror / gone).unlink()
    flip_value(cat.data / STORE, "files", gone, Random(1))
    flip_value(cat.data / STORE, "files", other, Random(1))
    with LoopbackServer(mirror) as now:
        ran = Command(cat.data, now.url, cat.data)("repair")
        assert (ran.status, ran.out) == (1, f"failed: {now.url}{gone} does not exist\n")
        assert asked(now) == Counter([gone, other])
        missing = Command(cat.data, now.url, cat.data)("query", PATTERN, "--count")
    assert missing.status == 1
    with Store(cat.data / STORE) as store:
        assert gone not in store.keys("files")
        assert gone in store.keys("failures")
    assert cat.check().complete


def test_a_crawl_that_the_source_lists_no_more(cat: Catalogue, server: LoopbackServer, tmp_path: Path) -> None:
    """Its damaged file is lacking, and not only gone."""
    mirror = Path(shutil.copytree(server.folder, tmp_path / "mirror"))
    (mirror / manifest_path(CRAWL)).unlink()
    one, *_ = paths(mirror)
    flip_value(cat.data / STORE, "files", one, Random(1))
    flip_value(cat.data / STORE, "documents", manifest_path(CRAWL), Random(1))
    with LoopbackServer(mirror) as now:
        assert Command(cat.data, now.url, cat.data)("repair").status == 1
    with Store(cat.data / STORE) as store:
        assert one not in store.keys("files")
        assert one in store.keys("failures")
    assert cat.repair().left == []
    assert asked(server) == Counter([manifest_path(CRAWL), one])


def test_a_source_that_is_down(cat: Catalogue, server: LoopbackServer) -> None:
    """Nothing that is held is let go of for what cannot be had; it is mended later."""
    before = content(cat.data / STORE)
    one, two, *_ = paths(server.folder)
    flip_value(cat.data / STORE, "files", one, Random(1))
    flip_value(cat.data / STORE, "documents", manifest_path(CRAWL), Random(1))
    spoil(cat.data / STORE, 0, 4096)  # the page that leads to all others
    for left in (".new", ".new-wal", ".new.lock", ".copy", ".copy-wal"):
        (cat.data / f"{STORE}{left}").write_bytes(b"of a repair that was broken off")
    with pytest.raises(StoreDamaged, match="run: catalogue repair"):
        Store(cat.data / STORE)
    with FaultServer(server.folder, script=always(Kind.REDIRECT_AWAY)) as down:
        ran = Command(cat.data, down.url, cat.data)("repair")
    assert ran.status == 75
    assert not [path.name for path in cat.data.glob(f"{STORE}.*") if ".new" in path.name or ".copy" in path.name]
    findings = {(finding.kind, finding.key) for finding in cat.check().findings}
    assert findings >= {("failures", one)}
    assert cat.repair().left == []
    assert asked(server) == Counter([one, manifest_path(CRAWL)])
    assert content(cat.data / STORE) == before
    assert two in content(cat.data / STORE)["files"]


def test_killed_in_the_middle_it_can_be_run_again(cat: Catalogue, server: LoopbackServer) -> None:
    before = content(cat.data / STORE)
    one, two, *_ = paths(server.folder)
    for path in (one, two):
        flip_value(cat.data / STORE, "files", path, Random(1))
    spoil(cat.data / STORE, 16, 8)
    with (
        FaultServer(server.folder, script=always(Kind.SILENT)) as slow,
        Command(cat.data, slow.url, cat.data).start("repair") as process,
    ):
        wait_until(process, lambda: bool(slow.log))
        process.kill()
    assert list(cat.data.glob(f"{STORE}.damaged-*"))  # so far it had come
    done = cat.repair()
    assert done.left == []
    assert asked(server) == Counter([one, two])
    assert content(cat.data / STORE) == before


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
        before = content(cat.data / STORE)
        assert before["indexes"].keys() == {f"{path}#0", f"{path}#1"}
        cat.close()
        flip_value(cat.data / STORE, "indexes", f"{path}#1", Random(1))
        done = cat.repair()
        assert (done.forgotten, done.left, done.requests) == ([f"{path}#1"], [], 0)
        cat.backfill().run()
        assert content(cat.data / STORE)["indexes"] == before["indexes"]


def test_the_definition_of_a_table_is_told_to_be_given_again(tmp_path: Path) -> None:
    """No source has it."""
    mirror = crawl_of(tmp_path / "mirror", table(["com,a)/", "com,b)/"]))
    path = str(index_path(mirror).relative_to(mirror))
    command = Command(tmp_path / "data", str(mirror), tmp_path)
    define = ("harvest", "--table", "mine", "--key", "url_surtkey", path)
    assert command(*define).status == 0
    flip_value(tmp_path / "data" / "mine" / STORE, "documents", "table.json", Random(1))
    for verb in ("check", "repair"):
        ran = command(verb, "--table", "mine")
        assert ran.status == 1
        assert ran.err.splitlines()[-1].startswith("run: catalogue harvest --table mine --key COLUMN")
    assert command(*define).status == 0
    assert command("check", "--table", "mine").status == 0


def test_where_the_list_of_a_table_is_lost_its_footers_are_kept(tmp_path: Path) -> None:
    """As by a salvage: nobody knows any more which files there are, but those that are held."""
    mirror = crawl_of(tmp_path / "mirror", table(["com,a)/", "com,b)/"]), table(["com,c)/", "com,d)/"]))
    one, two = (str(index_path(mirror, number).relative_to(mirror)) for number in range(2))
    command = Command(tmp_path / "data", str(mirror), tmp_path)
    define = ("harvest", "--table", "mine", "--key", "url_surtkey", one, two)
    assert command(*define).status == 0
    store = tmp_path / "data" / "mine" / STORE
    for lost in (LISTED, DEFINITION):
        with closing(sqlite3.connect(store, isolation_level=None)) as connection:
            connection.execute("DELETE FROM documents WHERE key = ?", [lost])
        flip_value(store, "files", one, Random(1))
        told = command("check", "--table", "mine", "--json").json()
        assert ("documents", lost) in [(finding["kind"], finding["key"]) for finding in told["findings"]]
        assert command("repair", "--table", "mine").status == 1
        command("harvest", "--table", "mine")
        assert two in rows(store)["files"], lost
        assert command(*define).status == 0
        assert command("repair", "--table", "mine").status == 0
        assert sorted(content(store)["files"]) == [one, two]


def test_a_page_of_footers(cat: Catalogue, server: LoopbackServer) -> None:
    """All that is on other pages is kept; what was on it is taken again, and the old store kept."""
    before = content(cat.data / STORE)
    data = (cat.data / STORE).read_bytes()
    pages = [at for at in range(0, len(data), 4096) if data[at] == 0x0D and b"part-00003-" in data[at : at + 4096]]
    spoil(cat.data / STORE, pages[0], 4096)
    cat.path.unlink()
    ran = Command(cat.data, server.url, cat.data)("repair")
    (aside,) = cat.data.glob(f"{STORE}.damaged-*")
    lines = ran.err.splitlines()
    assert lines[0].startswith("found: the file footers.sqlite is damaged: ")
    made = next(line for line in lines if line.startswith("a new store was made of what is whole: "))
    assert made.endswith(f"; the old one is {aside}")
    counted = made.partition("whole: ")[2].partition(";")[0].split(", ")
    kept = {noun: int(count) for count, _, noun in (each.partition(" ") for each in counted)}
    assert 0 < kept["footers"] < FILES
    assert f"{plural(FILES - kept['footers'], 'footer')} taken again; {plural(len(server.log), 'request')}" in lines
    assert lines[-1] == "all is well again"
    assert content(cat.data / STORE) == before
    assert len(server.log) <= sum(map(len, before.values())) - sum(kept.values())


def test_another_process_at_work_is_told(cat: Catalogue, server: LoopbackServer) -> None:
    flip_value(cat.data / STORE, "files", paths(server.folder)[0], Random(1))
    with FileLock(cat.data / "repair.lock"), pytest.raises(StoreLocked):
        cat.repair()
    with FileLock(f"{cat.data / STORE}.{CRAWL}.lock"), pytest.raises(StoreLocked, match="another process harvests"):
        cat.repair()
    with closing(sqlite3.connect(cat.data / STORE)) as connection:
        connection.execute("DELETE FROM history WHERE change = 1")
        connection.commit()
        with pytest.raises(StoreLocked, match=r"another process has .* open; close it there"):
            cat.repair()
    with FileLock(f"{cat.data / STORE}.{CRAWL}.lock"), pytest.raises(StoreLocked, match="another process harvests"):
        cat.repair()
    assert not server.log
    assert not list(cat.data.glob(f"{STORE}.damaged-*"))


def test_a_store_that_another_process_holds_is_not_replaced(cat: Catalogue) -> None:
    """It would go on writing to the one that is put aside."""
    path = cat.data / STORE
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreLocked, match="is locked by another process"):
            salvage(path, lambda _: True, ())
    assert not list(cat.data.glob(f"{STORE}.damaged-*"))


def test_another_object_that_was_served_is_replaced(server: LoopbackServer, tmp_path: Path) -> None:
    """No checksum tells it, but who knows what else there is; and the source may serve the right one now."""
    mirror = Path(shutil.copytree(server.folder, tmp_path / "mirror"))
    one, other, *_ = paths(mirror)
    right = (mirror / one).read_bytes()
    shutil.copy(mirror / other, mirror / one)
    with catalogue.open(tmp_path / "data", settings=Settings(source=str(mirror), cache=tmp_path)) as cat:
        cat.harvest(CRAWL)
        suspects = {str(finding) for finding in cat.check().findings if finding.kind == "suspect"}
        for path, same in ((one, other), (other, one)):
            assert f"{path}: its footer is the same as that of {same}: one was served for the other" in suspects
        (mirror / one).write_bytes(right)
        done = cat.repair()
        assert (done.left, done.requests) == ([], 2)
        assert answers_of(cat).num_rows == 4 * FILES


def test_files_of_a_table_may_be_alike(tmp_path: Path) -> None:
    """Whose it is nobody knows; of Common Crawl's index all files have keys of their own."""
    mirror = crawl_of(tmp_path / "mirror", *[table(["com,a)/", "com,b)/"])] * 2)
    both = [str(index_path(mirror, number).relative_to(mirror)) for number in range(2)]
    command = Command(tmp_path / "data", str(mirror), tmp_path)
    assert command("harvest", "--table", "mine", "--key", "url_surtkey", *both).status == 0
    assert command("check", "--table", "mine").status == 0
    assert command("harvest", "--crawl", CRAWL).status == 0
    told = command("check", "--json").json()
    assert [(finding["kind"], finding["key"]) for finding in told["findings"]] == [("suspect", path) for path in both]


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
    command = Command(cat.data, server.url, cat.data)
    ran = command("repair")
    assert ran.status == 0
    assert ran.err.splitlines()[-2:] == ["the catalogue was made anew", "all is well again"]
    before = (cat.data / STORE).read_bytes()
    ran = command("repair")
    assert (ran.status, ran.out, ran.err) == (0, "", "all is well; nothing was to be mended\n")
    assert (cat.data / STORE).read_bytes() == before
    assert not server.log


def test_a_harvest_goes_on_past_what_rotted(cat: Catalogue, server: LoopbackServer) -> None:
    """Of every tenth file that is held the footer is looked at for its length."""
    for path in paths(server.folder):
        flip_value(cat.data / STORE, "files", path, Random(1))
    flip_value(cat.data / STORE, "documents", manifest_path(CRAWL), Random(1))
    flip_value(cat.data / STORE, "failures", ABSENT, Random(1))
    (outcome,) = cat.harvest(CRAWL, refresh=True)
    assert list(outcome.failures) == [ABSENT]
    assert cat.check().complete
