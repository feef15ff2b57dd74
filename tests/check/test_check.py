"""``catalogue check`` finds what is not what was taken."""

import shutil
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import duckdb
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue, metadata_db
from catalogue.check.findings import Share
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.commoncrawl.manifests import COLLINFO
from catalogue.demo import LoopbackServer
from catalogue.errors import QueryError
from catalogue.selection import stored_crawls
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.store.inspecting import inspected
from catalogue.store.schema import TABLES
from tests.slow import rot
from tests.support.commands import Command, ended
from tests.support.crawls import CRAWL, table
from tests.support.faults import Fault, FaultServer, Kind, Request, always
from tests.support.rot import FILES, STORE, flip_value, paths, rows
from tests.support.rotten import its_copy, its_server, whole_store
from tests.support.warm import Forked

whole = pytest.fixture(scope="module")(whole_store)
server = pytest.fixture(its_server)
cat = pytest.fixture(its_copy)


def found(cat: Catalogue) -> list[tuple[str, str]]:
    return [(finding.kind, finding.key) for finding in cat.check().findings]


def sql(cat: Catalogue, statement: str, *parameters: object) -> None:
    cat.close()
    with closing(sqlite3.connect(cat.session.data / STORE, isolation_level=None)) as connection:
        connection.execute(statement, parameters)


def test_what_was_harvested_is_well(harvested_data: Path, mirror: Path, tmp_path: Path) -> None:
    """Of every era."""
    shutil.copytree(harvested_data, tmp_path / "data")
    with catalogue.open(tmp_path / "data", settings=Settings(source=str(mirror), cache=tmp_path)) as cat:
        cat.captures("*.org", columns=["url"]).to_arrow()
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
    """In every table each value once at least, and no sound one beside it."""
    before = rows(cat.session.data / STORE)
    keys = [(name, key) for name in TABLES for key in before[name]]
    assert {name for name, _ in keys} == {*TABLES}
    assert len(keys) <= 80
    random = Random(7)
    with closing(sqlite3.connect(cat.session.data / STORE, isolation_level=None)) as connection:
        for number in range(80):
            name, key = keys[number % len(keys)]
            value = bytearray(before[name][key])
            bit = random.randrange(8 * len(value))
            value[bit // 8] ^= 1 << bit % 8
            put = f'UPDATE "{name}" SET value = ? WHERE key = ?'  # noqa: S608
            connection.execute(put, [bytes(value), key])
            with inspected(cat.session.data / STORE) as inspection:
                damaged = [seen.key for seen in inspection.values(name) if seen.label is None]
            assert damaged == [key], (name, key, bit)
            connection.execute(put, [before[name][key], key])


def test_a_finding_says_what_it_means_and_what_to_do(cat: Catalogue, server: LoopbackServer) -> None:
    path = paths(server.folder)[0]
    for name, key in (("files", path), ("documents", COLLINFO), ("indexes", f"{path}#1"), ("facts", path)):
        flip_value(cat.session.data / STORE, name, key, Random(1))
    command = Command(cat.session.data, cat.session.settings.source, cat.session.data)
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
    with Store(cat.session.data / STORE) as store:
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


def test_a_share_without_files_is_not_well(cat: Catalogue, server: LoopbackServer) -> None:
    part = next(part for part in range(1, 100) if not Share.of(f"{part}/99").choose(paths(server.folder), len, 0))
    command = Command(cat.session.data, cat.session.settings.source, cat.session.data)
    ran = command("check", "--read-subset", f"{part}/99")
    assert ran.status == 1
    assert "no file was compared with the source, since none is in this share; choose another" in ran.err
    assert "all is well" not in ran.err
    told = command("check", "--read-subset", f"{part}/99", "--json")
    assert (told.status, told.json()["ok"], told.json()["compared"]) == (1, False, 0)
    assert not server.log


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
        catalogue.open(cat.session.data, settings=Settings(source=now.url, cache=tmp_path)) as other,
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
    flip_value(cat.session.data / STORE, "indexes", f"{path}#0", Random(1))
    with FaultServer(server.folder, script=always(Kind.REDIRECT_AWAY)) as down:
        ran = Command(cat.session.data, down.url, cat.session.data)("check", "--read-subset", "1/1")
    assert ran.status == 75
    assert ran.out.startswith(f"indexes: {path}#0: ")
    assert "which is not followed" in ran.err.splitlines()[-1]


def test_ctrl_c_does_not_wait_for_the_source(cat: Catalogue, server: LoopbackServer) -> None:
    started: list[Forked] = []

    def interrupt(_: Request) -> Fault:
        started[0].send_signal(signal.SIGINT)
        return Fault(Kind.SILENT, hold=60.0)

    with FaultServer(server.folder, script=interrupt) as silent:
        command = Command(cat.session.data, silent.url, cat.session.data)
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
    with Store(cat.session.data / STORE) as store:
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
        connection.execute(metadata_db.statement("views/_tables.sql", COMMON_CRAWL))

        def intruders(*extents: tuple[int, int]) -> list[tuple[str, str]]:
            connection.execute("DELETE FROM derived.files; DELETE FROM derived.row_groups")
            for number, (least, greatest) in enumerate(extents):
                add = "INSERT INTO derived.files (file, path, crawl, subset) VALUES (?, ?, 'c', 'warc')"
                connection.execute(add, [number, f"p{number}"])
                add = "INSERT INTO derived.row_groups (file, min_key, max_key) VALUES (?, ?, ?)"
                connection.execute(add, [number, f"{least:03}", f"{greatest:03}"])
            return list(metadata_db.intruders(connection))

        disjoint = [(10 * number, 10 * number + 10) for number in range(12)]  # which may touch
        assert intruders(*disjoint) == []
        assert intruders(*disjoint, (33, 37)) in ([("p12", "p3")], [("p3", "p12")])
        assert intruders(*disjoint, (5, 95)) == [("p12", "p0")]
        assert intruders(*disjoint[:8], (33, 37)) == []
        assert intruders(*disjoint, (33, 37), (51, 52), (61, 62)) == []


def test_a_crawl_is_looked_at_for_itself(untaught_data: Path, settings: Settings, tmp_path: Path) -> None:
    shutil.copytree(untaught_data, tmp_path / "data")
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        latest, *_, oldest = stored_crawls(cat.session)
        rotten = next(path for path in cat.session.create_store().keys("files", f"crawl={latest}/"))
        cat.close()
        flip_value(cat.session.data / STORE, "files", rotten, Random(1))
        done = cat.check(oldest)
        assert done.findings == []
        assert 0 < done.values["files"] < len(cat.session.create_store().keys("files"))
        assert [finding.key for finding in cat.check("latest").findings] == [rotten]
