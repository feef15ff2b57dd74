"""``catalogue export ducklake``, and the lake in ``catalogue sql``, as commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import catalogue
from catalogue.demo import LoopbackServer, Miniature
from catalogue.errors import IncompleteAnswer, QueryError
from catalogue.export.ducklake_sql import connect_for
from catalogue.metadata_db.connection import statement
from catalogue.settings import Settings, install_command
from catalogue.store.database import Store
from tests.support.commands import Command, Ran, ended
from tests.support.lakes import needs_extensions, opened
from tests.support.miniatures import MODERN
from tests.support.warm import Forked

ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(stored: Command) -> Command:
    return stored


@pytest.fixture
def with_lake(command: Command, settings: Settings) -> Command:
    with catalogue.open(command.data, settings=settings) as cat:
        cat.export_ducklake()
    return command


def in_shell(command: Command, script: str, **environment: str) -> Ran:
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


def hidden(folder: Path) -> str:
    """Write a folder of packages that hide the wheels of the extensions."""
    for name in ("ducklake", "sqlite_scanner", "httpfs"):
        package = folder / f"duckdb_extension_{name}"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    return str(folder)


@needs_extensions
@pytest.mark.parametrize("has_others", [True, False])
def test_incomplete_lake_is_reported_everywhere(command: Command, settings: Settings, *, has_others: bool) -> None:
    report = command("export", "ducklake", "--json").json()
    assert (report["complete"], Path(report["place"])) == (True, command.data / "captures.ducklake")
    ran = command("export", "ducklake", "other.ducklake", "--crawl", report["crawls"][0], "--backend", "duckdb")
    assert (ran.status, ran.out, "of 1 crawl" in ran.err) == (0, "", True)
    assert (command.home / "other.ducklake").exists()
    with Store(command.data / "footers.sqlite") as store:
        path = store.keys("files")[0]
        crawl = path.partition("crawl=")[2].partition("/")[0]
        store.delete("files", [path] if has_others else store.keys("files", crawl))
    missing, count = f"files of {crawl}", "select count(*) as n from cc.captures"
    ran = command("export", "ducklake")
    assert ran.status == 1
    assert missing in ran.err
    comment = "SELECT comment FROM duckdb_views() WHERE database_name = 'cc' AND view_name = 'captures'"
    with opened(command.data / "captures.ducklake", command.source) as connection:
        ((message,),) = connection.execute(comment).fetchall()
    assert missing in message
    ran = command("sql", count, "--json", "-q")
    assert ran.status == 1
    assert missing in ran.err
    assert ran.json_lines()[0]["n"] > 0
    assert missing in in_shell(command, "SELECT 1;").err
    assert command("sql", f"from files where crawl = '{crawl}'").status == 0  # this is not SQL over the DuckLake
    with catalogue.open(command.data, settings=settings) as cat:
        for ask in (lambda: cat.sql(count), lambda: cat.connect(lake=True).close()):
            with pytest.warns(IncompleteAnswer, match=missing) as found:
                ask()
            assert {each.filename for each in found} == {__file__}


@needs_extensions
def test_subsets_that_are_not_harvested_are_reported(miniature: Miniature, tmp_path: Path) -> None:
    command = Command(tmp_path / "data", str(miniature.folder), tmp_path)
    assert command("harvest", "--crawl", MODERN).status == 0
    assert command("export", "ducklake").status == 0
    ran = command("sql", "select comment from duckdb_views() where database_name = 'cc' and comment is not null", "-q")
    assert (ran.status, ran.err) == (0, "")
    for text in (ran.out, command("sql", "select count(*) from cc.captures").err):
        assert f"crawldiagnostics of {MODERN} is not harvested" in text


@pytest.mark.in_soak
@needs_extensions
def test_shell_attaches_the_lake_of_any_folder(command: Command, server: LoopbackServer, settings: Settings) -> None:
    odd = command.data.rename(command.home / 'it\'s a "folder" [x]*; -- é')
    there = Command(odd, server.url, command.home)
    before = in_shell(there, "SELECT count(*) FROM duckdb_databases() WHERE database_name = 'cc';")
    assert (before.status, before.out) == (0, "0\n")
    with catalogue.open(odd, settings=settings) as cat:
        cat.export_ducklake()
    ran = in_shell(
        there,
        "SELECT count(*) > 0 FROM cc.captures WHERE cc.surt_match(url_surtkey, '*.example.com');\n"
        "SELECT current_setting('autoinstall_known_extensions');\n"
        "SELECT readonly FROM duckdb_databases() WHERE database_name = 'cc';",
    )
    assert (ran.status, ran.out) == (0, "true\ntrue\ntrue\n")
    assert server.log


@needs_extensions
def test_statements_and_queries_attach_the_lake(with_lake: Command, settings: Settings) -> None:
    first, *others = sorted((ROOT / "queries/lake").glob("*.sql"))
    ran = with_lake("sql", first.stem, "--json")
    assert (ran.status, ran.err) == (0, "")
    assert ran.json_lines()
    with (
        catalogue.open(with_lake.data, settings=settings) as cat,
        connect_for(cat.session, "FROM cc.captures") as connection,
    ):
        expected = connection.execute("SELECT sum(num_rows) FROM files").fetchall()
        assert connection.execute("SELECT count(*) FROM cc.captures").fetchall() == expected
        for path in others:
            assert connection.execute(statement(f"lake/{path.name}", cat.session.dataset)).fetchall()
    assert others


@pytest.mark.in_soak
def test_export_without_extensions_reports_what_reads_it(
    command: Command, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lake is written for other engines."""
    empty = hidden(command.home / "empty")
    ran = command("export", "ducklake", PYTHONPATH=f"{empty}{os.pathsep}{ROOT}")
    assert ran.status == 0
    first, second = ran.err.splitlines()
    assert first.startswith(
        "catalogue sql cannot read it yet: captures.ducklake is not attached, because extensions for this version"
    )
    assert re.search(r"-m pip install .*\[lake\]", first)  # how depends on how it is installed
    assert second.startswith(str(command.data / "captures.ducklake"))
    monkeypatch.syspath_prepend(empty)
    monkeypatch.setenv("HOME", str(command.home))  # where DuckDB installs extensions
    with (
        catalogue.open(command.data, settings=settings) as cat,
        pytest.raises(QueryError, match=f"{re.escape(install_command('lake'))}; or in DuckDB: INSTALL ducklake"),
    ):
        cat.sql("select count(*) from cc.captures")


@pytest.mark.in_soak
@needs_extensions
def test_lake_without_a_crawl_is_reported(command: Command, settings: Settings, whole_crawls: list[str]) -> None:
    with catalogue.open(command.data, settings=settings) as cat:
        cat.export_ducklake(crawls=whole_crawls[0])
    ran = in_shell(command, "SELECT 1;")
    assert ran.status == 0
    (line,) = ran.err.splitlines()
    assert "captures.ducklake does not have " in line
    ran = command("sql", "select count(*) from cc.captures")
    assert (ran.status, ran.err) == (1, f"catalogue: the answer may be incomplete: {line}\n")


@needs_extensions
def test_without_extensions_the_error_names_the_command(with_lake: Command) -> None:
    path = f"{hidden(with_lake.home / 'hiding')}{os.pathsep}{ROOT}"
    ran = in_shell(with_lake, "SELECT count(*) > 0 FROM files;", PYTHONPATH=path)
    assert (ran.status, ran.out) == (0, "true\n")
    assert "INSTALL ducklake" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not list(with_lake.home.rglob("*.duckdb_extension"))


@pytest.mark.in_soak
@needs_extensions
def test_shell_works_with_another_file_at_its_path(command: Command) -> None:
    (command.data / "captures.ducklake").write_text("other text")
    ran = in_shell(command, "SELECT count(*) > 0 FROM files;")
    assert (ran.status, ran.out) == (0, "true\n")
    assert "was not made by this tool" in ran.err
    assert command("sql", "select cc.crawl from crawls as cc limit 1").status == 0
    assert "was not made by this tool" in command("sql", "from cc.captures").err
    assert command("export", "ducklake").status == 2
    ran = command("export", "ducklake", "other.ducklake")  # without a message: no shell attaches it
    assert (ran.status, len(ran.err.splitlines())) == (0, 1)
    assert (command.data / "captures.ducklake").read_text() == "other text"
