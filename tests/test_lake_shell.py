"""``catalogue export ducklake``, and the lake in ``catalogue sql``, as commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from catalogue.demo import LoopbackServer
from catalogue.store import Store
from tests.commands import Command, Ran, ended
from tests.ducklakes import needs_extensions
from tests.warm import Forked

ROOT = Path(__file__).parent.parent


@pytest.fixture
def command(untaught_data: Path, mirror: Path, tmp_path: Path) -> Command:
    """The command line with a folder that may be written to."""
    return Command(Path(shutil.copytree(untaught_data, tmp_path / "data")), str(mirror), tmp_path)


def in_shell(command: Command, script: str, **environment: str) -> Ran:
    """What a shell says to a script."""
    given = f".mode csv\n.headers off\n{script}\n"
    if not environment:
        with Forked(["sql"], command.environment(), command.home, given=given.encode()) as process:
            ran = ended(process)
        return Ran(ran.status, ran.out.replace("\r\n", "\n"), ran.err)
    done = subprocess.run(
        [sys.executable, "-m", "catalogue", "sql"],
        env=command.environment(**{"PYTHONPATH": str(ROOT), **environment}),
        cwd=command.home,
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def forget_a_file(command: Command) -> str:
    with Store(command.data / "footers.sqlite") as store:
        path = store.keys("files")[0]
        store.delete("files", [path])
    return path


def test_it_says_what_was_written(command: Command) -> None:
    ran = command("export", "ducklake", "--json")
    assert ran.status == 0, ran.err
    told = ran.json()
    assert told["complete"]
    assert Path(told["place"]) == command.data / "captures.ducklake"
    newest = told["crawls"][0]
    ran = command("export", "ducklake", "other.ducklake", "--crawl", newest, "--backend", "duckdb")
    assert (ran.status, ran.out) == (0, "")
    assert "of 1 crawl" in ran.err
    assert (command.home / "other.ducklake").exists()


@needs_extensions
def test_what_is_incomplete_says_so_everywhere(command: Command) -> None:
    path = forget_a_file(command)
    ran = command("export", "ducklake")
    assert ran.status == 1
    crawl = path.partition("crawl=")[2].partition("/")[0]
    assert f"files of {crawl}" in ran.err
    said = command("sql", "select comment from duckdb_views() where database_name = 'cc' and view_name = 'captures'")
    assert f"files of {crawl}" in said.out


@needs_extensions
def test_the_shell_has_it_when_it_is_there(command: Command, mirror: Path) -> None:
    before = in_shell(command, "SELECT count(*) FROM duckdb_databases() WHERE database_name = 'cc';")
    assert (before.status, before.out, before.err) == (0, "0\n", "")
    command("export", "ducklake")
    with LoopbackServer(mirror) as server:
        there = Command(command.data, server.url, command.home)
        ran = in_shell(
            there,
            "SELECT count(*) > 0 FROM cc.captures WHERE cc.surt_match(url_surtkey, '*.example.com');\n"
            "SELECT current_setting('autoinstall_known_extensions');\n"
            "SELECT readonly FROM duckdb_databases() WHERE database_name = 'cc';",
        )
        assert (ran.status, ran.out, ran.err) == (0, "true\ntrue\ntrue\n", "")
        assert server.log


@needs_extensions
def test_odd_names_of_folders(command: Command) -> None:
    odd = command.data.rename(command.home / 'it\'s a "folder" [x]*; -- é')
    there = Command(odd, command.source, command.home)
    assert there("export", "ducklake").status == 0
    assert in_shell(there, "SELECT count(*) > 0 FROM cc.captures;").out == "true\n"


@needs_extensions
def test_statements_and_queries_have_it(command: Command) -> None:
    command("export", "ducklake")
    (row,) = command("sql", "--json", "select count(*) as n from cc.captures").json_lines()
    (held,) = command("sql", "--json", "select sum(num_rows)::bigint as n from files").json_lines()
    assert row == held
    names = sorted(path.stem for path in (ROOT / "queries/lake").glob("*.sql"))
    assert names
    for name in names:
        ran = command("sql", name, "--json")
        assert ran.status == 0, ran.err
        assert ran.json_lines()
        assert ran.err == ""


def test_where_there_is_none_a_statement_says_how_to_make_it(command: Command) -> None:
    ran = command("sql", "select count(*) from cc.captures")
    assert ran.status == 2
    assert "run: catalogue export ducklake" in ran.err
    assert command("sql", "select cc.crawl from crawls as cc limit 0").err == ""


def test_without_extensions_an_export_says_what_reads_it(command: Command) -> None:
    """It is made all the same, for other engines."""
    for name in ("ducklake", "sqlite_scanner", "httpfs"):  # as if no wheel had them
        package = command.home / "empty" / f"duckdb_extension_{name}"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    without = {"PYTHONPATH": f"{command.home / 'empty'}{os.pathsep}{ROOT}"}
    ran = command("export", "ducklake", **without)
    assert ran.status == 0
    first, second = ran.err.splitlines()
    assert first.startswith("catalogue sql cannot read it yet: captures.ducklake is not attached, because DuckDB lacks")
    assert "pip install 'commoncrawl-catalogue[lake]'" in first
    assert second.startswith(str(command.data / "captures.ducklake"))
    asked = command("sql", "select count(*) from cc.captures", **without)
    assert asked.status == 2
    assert "pip install 'commoncrawl-catalogue[lake]'" in asked.err
    assert "INSTALL ducklake" in asked.err
    assert len(command("export", "ducklake", "other.ducklake", **without).err.splitlines()) == 1


@needs_extensions
def test_a_lake_that_lacks_a_crawl_says_so(command: Command, whole_crawls: list[str]) -> None:
    command("export", "ducklake", "--crawl", whole_crawls[0])
    for ran in (in_shell(command, "SELECT 1;"), command("sql", "select count(*) as n from cc.captures")):
        assert ran.status == 0
        assert "captures.ducklake lacks " in ran.err
        assert len(ran.err.splitlines()) == 1


@needs_extensions
def test_without_extensions_it_says_what_to_run(command: Command) -> None:
    command("export", "ducklake")
    hiding = command.home / "hiding"
    for name in ("ducklake", "sqlite_scanner", "httpfs"):
        (hiding / f"duckdb_extension_{name}").mkdir(parents=True)
        (hiding / f"duckdb_extension_{name}" / "__init__.py").touch()
    path = f"{hiding}{os.pathsep}{ROOT}"
    ran = in_shell(command, "SELECT count(*) > 0 FROM files;", PYTHONPATH=path)
    assert (ran.status, ran.out) == (0, "true\n")
    assert "INSTALL ducklake" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not list(command.home.rglob("*.duckdb_extension"))


@needs_extensions
def test_something_else_in_its_place_breaks_no_shell(command: Command) -> None:
    (command.data / "captures.ducklake").write_text("somebody's")
    ran = in_shell(command, "SELECT count(*) > 0 FROM files;")
    assert (ran.status, ran.out) == (0, "true\n")
    assert "no lake that this has made" in ran.err
    assert command("sql", "select cc.crawl from crawls as cc limit 1").status == 0
    assert "no lake that this has made" in command("sql", "from cc.captures").err
    assert command("export", "ducklake").status == 2
    assert (command.data / "captures.ducklake").read_text() == "somebody's"


@needs_extensions
def test_a_lake_that_is_older_than_what_is_held_says_so(command: Command) -> None:
    path = forget_a_file(command)
    crawl = path.partition("crawl=")[2].partition("/")[0]
    command("export", "ducklake")
    assert command("harvest", "--crawl", crawl, "--subset", "all").status == 0
    for ran in (in_shell(command, "SELECT 1;"), command("sql", "select count(*) as n from cc.captures")):
        assert ran.status == 0
        assert f"captures.ducklake lacks what is new in {crawl}; run: catalogue export ducklake" in ran.err
    command("export", "ducklake")
    assert command("sql", "select count(*) as n from cc.captures").err == ""
