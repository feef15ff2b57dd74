"""A harvest that was interrupted: queries and ``status`` say which of the requested files are missing."""

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.crawls import SUBSETS
from catalogue.commoncrawl.datasets import manifest_path
from catalogue.demo import LoopbackServer
from catalogue.errors import NotHarvested
from catalogue.harvest.next_steps import next_steps
from catalogue.progress import Progress
from catalogue.settings import STORE_NAME, Settings
from catalogue.store.database import Store
from catalogue.tables.table_file import TABLES_FOLDER
from tests.support.commands import Command
from tests.support.stores import raw


@pytest.fixture
def cat(tmp_path: Path, server: LoopbackServer, settings: Settings) -> Iterator[Catalogue]:
    """One request at a time, so that files arrive in the order of their requests."""
    one_at_a_time = replace(settings, source=server.url, connections=1)
    with catalogue.open(tmp_path / "data", settings=one_at_a_time) as opened:
        yield opened


@pytest.fixture
def crawl(whole_crawls: list[str]) -> str:
    return whole_crawls[0]


def harvest_part(cat: Catalogue, crawl: str, files: int) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.done >= files:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cat.harvest(crawl, subsets="all", report=interrupt)


def test_subsets_that_were_not_reached_are_reported(cat: Catalogue, command: Command, mirror: Path, crawl: str) -> None:
    warc_files = len(list(mirror.rglob(f"crawl={crawl}/subset=warc/*.parquet")))
    harvest_part(cat, crawl, warc_files)
    found = cat.captures("*.example.com", crawls=crawl, subsets="all", index="columnar")
    assert {*cat.files()["subset"]} == {"warc"}
    assert cat.captures("*.example.com", crawls=crawl, index="columnar").complete
    assert not found.complete
    missing = " ".join(found.plan.missing)
    assert {name for name in ("warc", "crawldiagnostics", "robotstxt") if f"{name}," in missing} == {*SUBSETS[1:]}
    (row,) = cat.crawls().query("files_harvested > 0").to_dict("records")
    first = command("status", "--json").json()["next"][0]
    assert first["why"] == f"{row['files_listed'] - row['files_harvested']} files of {crawl} are not harvested"
    assert first["command"].endswith("--subset crawldiagnostics --subset robotstxt")
    words = ("*.example.com", "--crawl", crawl, "--subset", "all", "--index", "columnar", "-o", "some.warc.gz")
    assert command("fetch", *words, "--json").json()["missing"] == [*found.plan.missing]
    cat.harvest(crawl, subsets="all")
    assert cat.captures("*.example.com", crawls=crawl, subsets="all", index="columnar").complete


def test_tables_are_written_at_once(cat: Catalogue, crawl: str) -> None:
    harvest_part(cat, crawl, 2)
    path = cat.session.data / "tables" / f"{crawl}.parquet"
    written = path.stat()
    paths = {*pq.read_table(path, columns=["path"])["path"].to_pylist()}
    assert len(paths) == len(cat.session.store.keys("files")) == 2
    assert len(cat.files()) == 2
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


def test_only_files_of_requested_subsets_are_missing(cat: Catalogue, command: Command, crawl: str) -> None:
    cat.harvest(crawl, subsets="robotstxt")
    assert cat.captures("*.example.com", crawls=crawl, subsets="robotstxt", index="columnar").complete
    assert not any("not harvested" in step.why for step in next_steps(cat.session))
    requested = {row["subset"]: row["requested"] for row in command("status", "--json").json()["coverage"]}
    assert requested == {"robotstxt": True, "warc": False, "crawldiagnostics": False}
    # As after a pull that was interrupted, or in a store of before requests were stored:
    with Store(cat.session.data / STORE_NAME) as store:
        store.delete("documents", [f"requested/{crawl}/robotstxt"])
    found = cat.captures("*.example.com", crawls=crawl, subsets=["warc", "robotstxt"], index="columnar")
    assert not found.complete
    assert all("warc," in problem for problem in found.plan.missing)
    assert next_steps(cat.session)[0].command.endswith(f"--crawl {crawl}")
    cat.harvest(crawl, subsets="robotstxt")
    assert cat.captures("*.example.com", crawls=crawl, subsets="robotstxt", index="columnar").complete


def test_crawl_interrupted_before_its_first_file_is_missing(cat: Catalogue, whole_crawls: list[str]) -> None:
    older, newer = whole_crawls[:2]
    cat.harvest(older)
    harvest_part(cat, newer, 0)
    assert cat.captures("*.example.com", crawls=older, index="columnar").complete
    for crawls in (None, newer):  # it is one of the stored crawls
        with pytest.raises(NotHarvested, match=f"harvest --crawl {newer}"):
            cat.captures("*.example.com", crawls=crawls, index="columnar")
    assert next_steps(cat.session)[0].command.endswith(f"harvest --crawl {newer} --subset all")


@pytest.mark.parametrize(
    ("document", "subset"), [("requested/{}/robotstxt", "all"), ("crawl-data/{}/cc-index-table.paths.gz", "warc")]
)
def test_check_repairs_a_damaged_document_and_forget_deletes_it(
    cat: Catalogue, command: Command, crawl: str, document: str, subset: str
) -> None:
    harvest_part(cat, crawl, 2)
    cat.close()
    with raw(command.data / "footers.sqlite") as store:
        store.execute("UPDATE documents SET value = x'00' WHERE key = ?", [document.format(crawl)])
    assert [command("check", *words).status for words in ((), ("--repair",), ())] == [1, 0, 0]
    assert not cat.captures("*.example.com", crawls=crawl, subsets=subset, index="columnar").complete
    cat.forget(crawl)
    cat.harvest(crawl)
    assert cat.captures("*.example.com", crawls=crawl).complete
    assert not any("not harvested" in step.why for step in next_steps(cat.session))


def test_manifest_of_an_older_version_counts_as_not_stored(cat: Catalogue, crawl: str) -> None:
    """Older versions accepted some that are refused now; without an exception, no command could use the folder."""
    cat.harvest(crawl)
    path = manifest_path(crawl)
    stored = cat.session.store.get("documents", path)
    assert stored
    odd = gzip.compress(gzip.decompress(stored.data) + b"cc-index/other.parquet\n")
    cat.session.store.put("documents", [(path, replace(stored, data=odd))])
    found = cat.captures("*.example.com", crawls=crawl, index="columnar")
    assert f"the list of its files is not stored; run: catalogue harvest --crawl {crawl}" in " ".join(
        found.plan.missing
    )
    assert cat.captures("*.example.com", crawls=crawl).complete
    cat.harvest(crawl)
    assert cat.captures("*.example.com", crawls=crawl, index="columnar").complete
    cat.session.store.put("documents", [(path, replace(stored, data=odd))])
    cat.forget(crawl)


def test_harvest_replaces_a_damaged_manifest(cat: Catalogue, crawl: str) -> None:
    cat.harvest(crawl)
    with raw(cat.session.data / STORE_NAME) as store:
        store.execute("UPDATE documents SET value = x'00' WHERE key = ?", [manifest_path(crawl)])
    rmtree(cat.session.data / TABLES_FOLDER)  # as with a new version
    cat.session.forget_tables()
    cat.harvest(crawl)
    assert cat.captures("*.example.com", crawls=crawl, index="columnar").complete


def test_forget_completes_a_killed_forget(cat: Catalogue, tmp_path: Path, crawl: str) -> None:
    cat.harvest(crawl)
    left = cat.session.data / "catalogue.duckdb.new"
    left.mkdir()
    for table in ("documents", "files"):
        cat.session.store.delete(table, [key for key in cat.session.store.keys(table) if crawl in key])
    command = Command(cat.session.data, cat.session.settings.source, tmp_path)
    again = command("forget", "--crawl", crawl, "--yes")
    assert (again.status, f"nothing of {crawl} is stored" in again.err, left.exists()) == (2, True, False)
