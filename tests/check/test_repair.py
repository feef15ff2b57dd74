"""``catalogue check --repair`` and harvests replace what is damaged."""

import re
import shutil
from pathlib import Path
from random import Random

import pytest

from catalogue import Catalogue
from catalogue.commoncrawl.datasets import DATASET_DOCUMENT, manifest_path
from catalogue.demo import LoopbackServer
from catalogue.errors import IncompleteAnswer
from catalogue.store.database import Store
from catalogue.store.layout import TABLES
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.crawls import ABSENT, CRAWL, crawl_of, index_path, table
from tests.support.rot import FILES, STORE, cat, commands, content, flip_value, harvested_crawl, paths, server, sql

__all__ = ["cat", "harvested_crawl", "server"]  # fixtures


def test_repair_drops_damaged_values_and_harvest_fetches_them(cat: Catalogue, server: LoopbackServer) -> None:
    before = content(cat.session.data / STORE)
    one, _, three, *_ = paths(server.folder)
    damaged = [("files", one), ("documents", manifest_path(CRAWL)), *(("indexes", f"{three}#{n}") for n in range(2))]
    for name, key in damaged:
        flip_value(cat.session.data / STORE, name, key, Random(3))
    command = commands(cat)
    ran = command("check", "--repair")
    assert ran.status == 1
    in_order = sorted(damaged, key=lambda each: TABLES.index(each[0]))
    assert [line.split(": ")[1] for line in ran.out.splitlines()] == [key for _, key in in_order]
    assert ran.err.splitlines()[-3:] == [
        "damaged values are deleted, and the metadata database is rebuilt",
        "1 footer to be harvested again",
        f"run: catalogue harvest --crawl {CRAWL}",
    ]
    assert command("check", "--repair").err.splitlines()[-2:] == ran.err.splitlines()[-2:]  # until it is harvested
    assert not server.log
    with pytest.warns(IncompleteAnswer):
        assert cat.captures("*.com").to_arrow().num_rows == 4 * (FILES - 1)
    server.log.clear()
    cat.harvest(CRAWL)
    assert {each.path for each in server.log} == {one, ABSENT, manifest_path(CRAWL)}
    assert content(cat.session.data / STORE)["files"] == before["files"]
    assert cat.check().complete


def test_harvest_fetches_footers_that_cannot_be_decoded(cat: Catalogue, server: LoopbackServer) -> None:
    one, *_ = paths(server.folder)
    flip_value(cat.session.data / STORE, "files", one, Random(3))
    cat.close()
    shutil.rmtree(cat.session.data / "tables")
    missing = " ".join(cat.captures("*.com", crawls=CRAWL, index="columnar").plan.missing)
    (harvested,) = cat.harvest(CRAWL)
    assert harvested.fetched == {one}
    left = " ".join(cat.captures("*.com", crawls=CRAWL, index="columnar").plan.missing)
    assert (missing[:2], left[:2]) == ("2 ", "1 ")  # one is absent at the source


def test_repair_drops_files_that_the_source_served_for_others(server: LoopbackServer, tmp_path: Path) -> None:
    with catalogue_in(tmp_path, server.url) as cat:
        cat.harvest(CRAWL)
        one, other, *_ = paths(server.folder)
        with Store(cat.session.data / STORE) as store:
            footer = store.get("files", other)
            assert footer
            store.put("files", [(one, footer)])
        assert {(each.kind, each.key) for each in cat.check().findings} == {("suspect", one), ("suspect", other)}
        done = cat.check(repair=True)
        assert (sorted(done.dropped), done.complete) == ([one, other], False)
        assert not cat.captures("*.com", index="columnar").complete
        cat.harvest(CRAWL)
        assert cat.check().complete


def test_repair_rebuilds_a_damaged_database(cat: Catalogue) -> None:
    chunks = len(cat.column_chunks(CRAWL))
    cat.close()
    data = cat.path.read_bytes()
    for place in range(3 * 4096, len(data), 1 << 21):
        cat.path.write_bytes(data[:place] + Random(place).randbytes(5000) + data[place + 5000 :])
        ran = commands(cat)("check", "--repair")
        assert ran.status == 0, ran.err
    assert len(cat.column_chunks(CRAWL)) == chunks > 0


def test_repair_of_a_damaged_definition_names_the_command(tmp_path: Path) -> None:
    mirror = crawl_of(tmp_path / "mirror", table(["com,a)/", "com,b)/"]))
    path = str(index_path(mirror).relative_to(mirror))
    command = Command(tmp_path / "data", str(mirror), tmp_path)
    define = ["harvest", "--table", "mine", "--key", "url_surtkey", path]
    assert command(*define).status == 0
    flip_value(tmp_path / "data" / "mine" / STORE, "documents", DATASET_DOCUMENT, Random(1))
    for words in (["check"], ["check", "--repair"]):
        ran = command(*words, "--table", "mine")
        assert ran.status == 1
        assert ran.err.splitlines()[-1].startswith("run: catalogue harvest --table mine --key COLUMN")
    assert command(*define).status == 0
    assert command("check", "--table", "mine").status == 0


def test_harvest_replaces_damaged_values(cat: Catalogue, server: LoopbackServer) -> None:
    for path in paths(server.folder):
        flip_value(cat.session.data / STORE, "files", path, Random(1))
    flip_value(cat.session.data / STORE, "documents", manifest_path(CRAWL), Random(1))
    flip_value(cat.session.data / STORE, "failures", ABSENT, Random(1))
    (outcome,) = cat.harvest(CRAWL, refresh=True)
    assert list(outcome.failures) == [ABSENT]
    assert cat.check().complete


@pytest.mark.in_part(2)
@pytest.mark.parametrize(("place", "byte"), [(0, b"k"), (0, b"\xff"), (1, b"\xff")])
def test_damaged_keys_are_repaired(cat: Catalogue, server: LoopbackServer, place: int, byte: bytes) -> None:
    """In a row or in the index of the table: the first byte of a part of a key is another one."""
    path, one = cat.session.data / STORE, paths(server.folder)[3]
    for change in ("DELETE FROM indexes", "DELETE FROM facts", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
        sql(cat, change)  # keys of indexes begin with the path
    content = path.read_bytes()
    at = [found.start() for found in re.finditer(re.escape(one.encode()), content)][place] + len("cc-index/table/")
    path.write_bytes(content[:at] + byte + content[at + 1 :])
    for repair in (False, True):
        cat.check(repair=repair)
        cat.close()
    cat.harvest(CRAWL)
    assert cat.check().findings == []
    assert one in {*cat.files()["path"]}
    assert len(cat.files()) == FILES
