"""``catalogue check`` finds and repairs damaged values, and differences from the source."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import duckdb
import pyarrow.parquet as pq
import pytest

from catalogue import Catalogue
from catalogue.check.check import Share
from catalogue.commoncrawl.crawls import COLLINFO
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.demo import LoopbackServer
from catalogue.errors import QueryError, StoreLocked
from catalogue.formatting import size
from catalogue.metadata_db.connection import statement
from catalogue.metadata_db.differences import intruders as intruders_of
from catalogue.store.database import Store
from catalogue.store.layout import TABLES
from tests.support.amounts import part_of
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.crawls import CRAWL, crawl_of, index_path, table
from tests.support.faults import Fault, FaultServer, Kind, Request, always
from tests.support.rot import FILES, STORE, cat, commands, flip, flip_value, harvested_crawl, paths, rows, server, sql
from tests.support.stores import raw

__all__ = ["cat", "harvested_crawl", "server"]  # fixtures


def found(cat: Catalogue) -> list[tuple[str, str]]:
    return [(finding.kind, finding.key) for finding in cat.check().findings]


@pytest.mark.usefixtures("data")
def test_harvested_stores_are_valid_and_checked_by_crawl(mirror: Path, tmp_path: Path) -> None:
    """Of every era."""
    with catalogue_in(tmp_path, mirror) as cat:
        cat.captures("*.org", columns=["url"]).to_arrow()
        files = len(cat.files())
        done = cat.check(read_subset="10%")
        assert (done.findings, done.complete, bool(done.catalogue)) == ([], True, True)
        assert done.compared == done.equal == round(files / 10)
        assert (done.values["files"], done.values["blocks"]) == (files, 0)
        latest, *_, oldest = cat.session.stored_crawls()
        rotten = next(path for path in cat.session.create_store().keys("files", f"crawl={latest}/"))
        cat.close()
        flip_value(cat.session.data / STORE, "files", rotten, Random(1))
        done = cat.check(iter([oldest]))
        assert done.findings == []
        assert 0 < done.values["files"] < files
        assert [finding.key for finding in cat.check("latest").findings] == [rotten]


@pytest.mark.parametrize("event", ["sqlite3.connect", "shutil.rmtree"])  # before a table is read; after an update
def test_change_by_another_process_is_no_finding(cat: Catalogue, event: str) -> None:
    with Store(cat.session.store.path) as store:
        path = store.keys("files")[0]
        index = f"{path.replace('part-0', 'part-9')}#0"
        stored = store.get("files", path)
        assert stored

        def change() -> None:
            store.put("files", [(path, replace(stored, last_modified=event))])
            store.put("indexes", [(index, stored)])

        store.put("files", [(path, stored)])  # so that the database is updated
        changes = [change]
        sys.addaudithook(lambda each, _: changes.pop()() if each == event and changes else None)
        with pytest.raises(StoreLocked, match="during the check; run it again"):
            cat.check()
        store.delete("indexes", [index])
    assert not cat.check().findings


def test_names_each_flipped_value_and_no_other(cat: Catalogue) -> None:
    path = cat.session.data / STORE
    before = rows(path)
    random = Random(7)
    keys = [(table, key) for table in TABLES for key in before[table]]
    assert {table for table, _ in keys} == {*TABLES} - {"facts"}
    with raw(path) as connection:
        for table, key in random.sample(keys, 25):
            put = f'UPDATE "{table}" SET value = ? WHERE key = ?'  # noqa: S608
            connection.execute(put, [flip(before[table][key], random.randrange(8 * len(before[table][key]))), key])
            assert [each for each in found(cat) if each[0] != "catalogue"] == [(table, key)]
            connection.execute(put, [before[table][key], key])
    assert found(cat) == []


def test_findings_name_meaning_and_command(cat: Catalogue, server: LoopbackServer) -> None:
    path = paths(server.folder)[0]
    for name, key in (("files", path), ("documents", COLLINFO), ("indexes", f"{path}#1")):
        flip_value(cat.session.data / STORE, name, key, Random(1))
    command = commands(cat)
    ran = command("check")
    assert ran.status == 1
    assert ran.out.splitlines() == [
        f"files: {path}: the stored footer is damaged; queries cannot use it",
        f"documents: {COLLINFO}: the stored list is damaged",
        f"indexes: {path}#1: the stored page index is damaged; queries run without it",
    ]
    assert ran.err.endswith("3 findings\nrun: catalogue check --repair\n")
    reported = command("check", "--json").json()
    assert not reported["ok"]
    assert [finding["next"] for finding in reported["findings"]] == ["catalogue check --repair"] * 3
    other = command("check", "--crawl", "CC-MAIN-2013-20")  # which is not stored
    assert (other.status, other.out) == (2, "")
    assert not server.log


def test_reports_damaged_pages_of_the_file(cat: Catalogue) -> None:
    path = cat.session.data / STORE
    cat.close()
    data = bytearray(path.read_bytes())
    for start in range(8 * 4096, len(data), 4096):
        data[start : start + 200] = bytes(200)
    path.write_bytes(data)
    ran = commands(cat)("check", "--repair")
    assert (ran.status, ran.out.startswith(f"store: {path} is damaged: ")) == (1, True)
    assert "footers.sqlite .recover | sqlite3 recovered.sqlite; or harvest into another data folder" in ran.err
    assert "check --repair" not in ran.out + ran.err
    assert path.read_bytes() == bytes(data)


DIFFERENCES = [
    "DELETE FROM derived.files WHERE path = (SELECT max(path) FROM derived.files)",
    "UPDATE derived.files SET version = '\\x00'::BLOB WHERE path = (SELECT max(path) FROM derived.files)",
    "DELETE FROM derived.row_groups WHERE path = (SELECT max(path) FROM derived.files) AND row_group = 0",
    "INSERT INTO derived.files (path, crawl) VALUES ('another', 'CC-MAIN-2022-33')",
]


def test_reports_a_database_that_differs(cat: Catalogue) -> None:
    for change in part_of(DIFFERENCES, 3):
        cat.close()
        with duckdb.connect(cat.path) as connection:
            connection.execute(change)
        assert {*found(cat)} == {("catalogue", "")}, change
        done = cat.check(repair=True)
        assert (done.findings, done.complete) == ([], True)


def test_compares_a_share_with_one_request_a_file(cat: Catalogue, server: LoopbackServer) -> None:
    done = cat.check(read_subset="25%", seed=3)
    assert (done.complete, done.compared, done.equal, done.seed) == (True, 3, 3, 3)
    seen = [exchange.path for exchange in server.log]
    assert len(seen) == cat.requests == len(set(seen)) == 3
    with Store(cat.session.data / STORE) as store:
        footers = [stored.data for path in seen if (stored := store.get("files", path))]
    # Page indexes, which are stored too, precede the footer and are in the same range.
    assert all(exchange.sent_bytes > len(data) + 8 for exchange, data in zip(server.log, footers, strict=True))
    received = cat.bytes
    command = commands(cat)
    ran = command("check", "--read-subset", "25%", "--seed", "3")
    assert f"source: 3 of 3 files equal (--seed 3); 3 requests, {size(received)}" in ran.err
    assert command("check", "--read-subset", "25%", "--seed", "3", "--json").json()["requests"] == 3
    unused = command("check", "--seed", "3")
    assert (unused.status, unused.err.count("\n")) == (2, 1)
    assert "a seed needs a share to compare, such as --read-subset 5%" in unused.err
    assert "damaged values" not in command("check", "--repair").err


def test_a_damaged_response_is_no_difference(mirror: Path, crawl: str, tmp_path: Path) -> None:
    def second(request: Request) -> Fault | None:
        """Damage the first response after the harvest."""
        return Fault(Kind.FLIPPED_BIT) if request.attempt == 1 and request.path.endswith(".parquet") else None

    with FaultServer(mirror, script=second) as server, catalogue_in(tmp_path, server.url) as cat:
        cat.harvest(crawl)
        done = cat.check(read_subset="100%")
        assert (done.findings, done.equal) == ([], len(cat.files()))


def test_parses_shares() -> None:
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
    assert len(looked_into) == 34  # and not all stored files
    for text in ("0%", "101%", "5/4", "0/4", "much", ""):
        with pytest.raises(QueryError, match="is not a share of the files; write it as 1%"):
            Share.of(text)


def test_share_without_files_is_not_valid(cat: Catalogue, server: LoopbackServer) -> None:
    part = next(part for part in range(1, 100) if not Share.of(f"{part}/99").choose(paths(server.folder), len, 0))
    command = commands(cat)
    ran = command("check", "--read-subset", f"{part}/99")
    assert ran.status == 1
    assert "no file was compared with the source: the share contains no file; choose another" in ran.err
    assert "no defects" in ran.err
    reported = command("check", "--read-subset", f"{part}/99", "--json")
    assert (reported.status, reported.json()["ok"], reported.json()["compared"]) == (1, False, 0)
    assert not server.log


def test_reports_files_changed_at_the_source(cat: Catalogue, server: LoopbackServer, tmp_path: Path) -> None:
    mirror = Path(shutil.copytree(server.folder, tmp_path / "mirror"))
    changed, removed, flipped, *_ = paths(mirror)
    pq.write_table(table(["com,another)/"]), mirror / changed)
    (mirror / removed).unlink()
    content = bytearray((mirror / flipped).read_bytes())
    content[-30] ^= 1
    (mirror / flipped).write_bytes(content)
    with (
        LoopbackServer(mirror) as now,
        catalogue_in(tmp_path, now.url, data=cat.session.data) as other,
    ):
        done = other.check(read_subset="100%")
        messages = {finding.key: finding for finding in done.findings}
        assert (done.compared, done.equal, len(now.log)) == (FILES, FILES - 3, FILES + 2)  # changes are confirmed
        assert {finding.kind for finding in done.findings} == {"source"}
        assert "has changed at the source" in messages[changed].what
        assert "does not have it any more" in messages[removed].what
        assert "has another footer" in messages[flipped].what
        assert {finding.next for finding in done.findings} == {f"catalogue harvest --crawl {CRAWL} --refresh"}


def test_unreachable_source_has_its_own_status(cat: Catalogue, server: LoopbackServer) -> None:
    """Other findings are reported all the same."""
    path = paths(server.folder)[1]
    flip_value(cat.session.data / STORE, "indexes", f"{path}#0", Random(1))
    with FaultServer(server.folder, script=always(Kind.REDIRECT_AWAY)) as down:
        ran = commands(cat, down.url)("check", "--read-subset", "1/1")
    assert ran.status == 75
    assert ran.out.startswith(f"indexes: {path}#0: ")
    assert "which is not followed" in ran.err.splitlines()[-1]


def test_does_not_touch_other_files(tmp_path: Path) -> None:
    command = Command(tmp_path, str(tmp_path), tmp_path)
    assert command("check").status == 2
    with raw(tmp_path / STORE) as connection:
        connection.execute("CREATE TABLE mine (key TEXT)")
    before = (tmp_path / STORE).read_bytes()
    for words in (["check"], ["check", "--repair"]):
        ran = command(*words)
        assert (ran.status, ran.out) == (74, "")
        assert "is a SQLite file, but not a store of footers; choose another data folder" in ran.err
    assert (tmp_path / STORE).read_bytes() == before


def test_reports_page_indexes_that_differ_from_the_source_or_are_of_another_version(
    cat: Catalogue, server: LoopbackServer
) -> None:
    one, other = paths(server.folder)[:2]
    with Store(cat.session.data / STORE) as store:
        file = store.get("files", one)
        assert file
        wrong = store.indexes(one, [1], file)[1]
        store.delete("indexes", [f"{one}#0"])
        store.add_indexes(one, {0: wrong}, file)
    done = cat.check(read_subset="100%")
    assert [(finding.kind, finding.key) for finding in done.findings] == [("indexes", f"{one}#0")]
    put = "UPDATE indexes SET value = (SELECT value FROM indexes WHERE key = ?) WHERE key = ?"
    sql(cat, put, f"{one}#0", f"{other}#0")
    assert found(cat) == [("indexes", f"{other}#0")]


def test_reports_files_among_the_keys_of_others() -> None:
    """Only in crawls where files hardly overlap."""
    with duckdb.connect() as connection:
        connection.execute(statement("views/_tables.sql", COMMON_CRAWL))

        def intruders(*extents: tuple[int, int]) -> list[tuple[str, str]]:
            connection.execute("DELETE FROM derived.row_groups")
            for number, (least, greatest) in enumerate(extents):
                row = "SELECT ? AS path, 'c' AS crawl, ? AS min_key, ? AS max_key"
                values = [f"p{number}", f"{least:03}", f"{greatest:03}"]
                connection.execute("INSERT INTO derived.row_groups BY NAME " + row, values)
            return list(intruders_of(connection))

        disjoint = [(10 * number, 10 * number + 10) for number in range(12)]  # which may touch
        assert intruders(*disjoint) == []
        assert intruders(*disjoint, (33, 37)) in ([("p12", "p3")], [("p3", "p12")])
        assert intruders(*disjoint, (5, 95)) == [("p12", "p0")]
        assert intruders(*disjoint[:8], (33, 37)) == []
        assert intruders(*disjoint, (33, 37), (51, 52), (61, 62)) == []


def test_takes_equal_files_of_a_dataset(tmp_path: Path) -> None:
    """Its owner may have copied them; those of Common Crawl are suspects."""
    mirror = crawl_of(tmp_path / "mirror", *[table(["com,a)/", "com,b)/"])] * 3)
    shutil.copy(index_path(mirror, 2), index_path(mirror, 1))
    files = [str(index_path(mirror, number).relative_to(mirror)) for number in range(3)]
    with catalogue_in(tmp_path, mirror, table="mine") as cat:
        cat.define("url_surtkey", paths=files)
        assert not [path for outcome in cat.harvest() for path in outcome.failures]
        assert cat.captures("*").count() == 6
        assert not cat.check().findings
