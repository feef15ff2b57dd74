"""Defaults: the data folder, and the source of the stored files."""

from pathlib import Path
from shutil import copyfile, copytree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue.demo import LoopbackServer
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.store.folder_settings import stored_sources
from tests.support.commands import Command, Ran

HOME_DATA = ".local/share/catalogue"


def paths_of(ran: Ran) -> dict[str, str]:
    assert ran.status == 0, ran.err
    paths: dict[str, str] = ran.json()["paths"]
    return paths


def test_default_data_folder_belongs_to_the_user(command: Command, tmp_path: Path, crawl: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/.gitkeep").touch()  # as in a checkout, which is no store
    ran = command("harvest", "--crawl", crawl, CATALOGUE_DATA="")
    assert (ran.status, ran.err.splitlines()[0]) == (0, f"new data folder: {tmp_path / HOME_DATA}")
    assert paths_of(command("status", "--json", CATALOGUE_DATA="")) == {
        "store": f"{tmp_path / HOME_DATA}/footers.sqlite",
        "catalogue": f"{tmp_path / HOME_DATA}/catalogue.duckdb",
        "config": str(tmp_path / ".config/catalogue/config.toml"),
        "cache": str(tmp_path / "cache"),
    }
    shown = command("status", CATALOGUE_DATA="").out
    assert f"store     {tmp_path / HOME_DATA}/footers.sqlite\n" in shown
    assert f"config    {tmp_path}/.config/catalogue/config.toml (does not exist)\n" in shown


def test_uses_the_data_folder_of_config(command: Command, harvested_data: Path, tmp_path: Path) -> None:
    config = tmp_path / ".config/catalogue/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('data = "~/mine"\n', encoding="utf-8")
    (tmp_path / "mine").symlink_to(harvested_data)
    (tmp_path / "data").symlink_to(harvested_data)
    assert paths_of(command("status", "--json", CATALOGUE_DATA=""))["store"] == f"{tmp_path}/mine/footers.sqlite"
    with_option = command("status", "--json", "--data", "data", CATALOGUE_DATA="elsewhere")
    assert paths_of(with_option)["store"] == f"{tmp_path}/data/footers.sqlite"


def test_python_uses_the_same_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CATALOGUE_DATA", raising=False)
    assert catalogue.open().session.data == tmp_path / "home/catalogue"
    for name in ("data/hosts", "data"):
        with Store(tmp_path / name / "footers.sqlite", create=True):
            assert catalogue.open().session.data == tmp_path / "data"
    monkeypatch.setenv("CATALOGUE_DATA", "other")
    assert catalogue.open().session.data == tmp_path / "other"
    assert catalogue.open("given").session.data == tmp_path / "given"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert catalogue.open("~/given").session.data == tmp_path / "given"
    assert catalogue.open("given", source=tmp_path).session.settings.source == str(tmp_path)


def test_the_current_folder_may_change(
    whole_mirror: Path, crawl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mirror").symlink_to(whole_mirror)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with catalogue.open("data", source="mirror") as cat:
        assert repr(cat) == "<Catalogue in data, of mirror>"
        cat.harvest(crawl)
        monkeypatch.chdir("elsewhere")
        assert cat.captures("*.example.com", crawls=crawl).count()
        cat.close()
        cat.harvest(crawl, subsets="robotstxt")
        assert not cat.check().findings
    assert not [*Path().iterdir()]


@pytest.mark.parametrize("names", [("", "-wal"), ("", "-wal", "-shm")])
def test_uses_the_source_in_the_log_of_a_killed_process(
    whole_mirror: Path, crawl: str, tmp_path: Path, names: tuple[str, ...]
) -> None:
    (tmp_path / "copy").mkdir()
    with catalogue.open(tmp_path / "data", source=whole_mirror) as cat:
        cat.harvest(crawl)
        for name in names:
            copyfile(tmp_path / f"data/footers.sqlite{name}", tmp_path / f"copy/footers.sqlite{name}")
    assert stored_sources(tmp_path / "copy/footers.sqlite") == [f"{whole_mirror.as_uri()}/"]


@pytest.mark.parametrize("index", ["columnar", "cdx"])
def test_uses_the_source_of_stored_files(command: Command, whole_mirror: Path, crawl: str, index: str) -> None:
    for source in (str(whole_mirror), None):  # the second time that of the harvest
        given = {"CATALOGUE_SOURCE": source or ""}
        assert command("harvest", "--crawl", crawl, "--index", index, **given).status == 0
        ran = command("query", "*.example.com", "--count", "--yes", **given)
        assert (ran.status, ran.err) == (0, "")
        assert int(ran.out)


def test_dataset_has_its_own_source(command: Command, tmp_path: Path, server: LoopbackServer, crawl: str) -> None:
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"name": ["a", "b"]}), tmp_path / "files/a.parquet")
    assert command("harvest", "--crawl", crawl, CATALOGUE_SOURCE=server.url).status == 0
    define = ("harvest", "--table", "mine", "--key", "name", "a.parquet", "--source", "files")
    assert command(*define).status == 0
    ran = command("query", "*", "--table", "mine", "--count", "--yes", CATALOGUE_SOURCE="")
    assert (ran.status, ran.out, ran.err) == (0, "2\n", "")


def test_warns_of_a_source_that_differs_from_that_of_the_files(
    command: Command, server: LoopbackServer, mirror: Path, whole_crawls: list[str]
) -> None:
    assert command("harvest", "--crawl", whole_crawls[0]).status == 0
    reported = f"files in {command.data} came from {mirror}, but the source is now {server.url}; "
    other = {"CATALOGUE_SOURCE": server.url}
    asked = ("query", "example.com", "--count", "--yes")
    ran = command(*asked, **other)
    assert f"{reported}use another data folder for it, or --source {mirror}\n" in ran.err
    ran = command(*asked, "--source", server.url)
    assert f"{reported}use another data folder for it, or leave out the source\n" in ran.err
    with pytest.warns(UserWarning, match=reported):
        catalogue.open(command.data, source=server.url).close()
    assert reported in command("harvest", "--crawl", whole_crawls[1], **other).err
    ran = command(*asked, CATALOGUE_SOURCE="")  # the latest harvest decides
    assert (ran.status, f"{reported}if that is not intended, choose the other source\n" in ran.err) == (0, True)
    assert command(*asked, "--quiet", CATALOGUE_SOURCE="").err == ""
    nowhere = command("harvest", "--crawl", whole_crawls[1], "--source", "no/such/folder")
    assert (nowhere.status, nowhere.err.count("\n")) == (2, 1)
    assert "there is no folder 'no/such/folder'" in nowhere.err


def test_pulled_files_have_the_configured_source(
    untaught_data: Path, settings: Settings, server: LoopbackServer, crawl: str, tmp_path: Path
) -> None:
    with catalogue.open(copytree(untaught_data, tmp_path / "theirs"), settings=settings) as cat:
        cat.captures("*.example.com", crawls=crawl).count()
        cat.export_snapshot(tmp_path / "snapshot", crawls=crawl)
    with catalogue.open(tmp_path / "ours", source=server.url) as cat:
        assert cat.pull(str(tmp_path / "snapshot")).files
        known = cat.captures("*.example.com", crawls=crawl).count()
        assert not cat.check().findings
    assert stored_sources(tmp_path / "ours/footers.sqlite") == [server.url]
    with catalogue.open(tmp_path / "ours") as cat:
        assert cat.session.settings.source == server.url
        assert cat.captures("*.example.com", crawls=crawl).count() == known > 0
