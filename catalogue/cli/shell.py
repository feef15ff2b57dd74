"""SQL over the catalogue."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from catalogue.cli.app import Command, Common, common
from catalogue.cli.completing import crawls_held
from catalogue.cli.showing import Table, as_json
from catalogue.errors import CatalogueError, QueryError
from catalogue.settings import install_command
from catalogue.views import answerable, queries_folder
from catalogue.views import statement as queries_statement

_AT_ONCE = 1000


@click.command(cls=Command)
@click.argument("statement", metavar="[SQL]", required=False)
@click.option("--json", "json_", is_flag=True, help="One JSON object a row.")
@click.option(
    "--column-chunks",
    "chunks_of",
    multiple=True,
    metavar="CRAWL",
    shell_complete=crawls_held,
    help="Fill the view column_chunks for it.",
)
@common
def sql(options: Common, *, statement: str | None, json_: bool, chunks_of: tuple[str, ...]) -> None:
    """SQL over the catalogue; without any, a DuckDB shell on it.

    The views are crawls, files, row_groups, pages and column_chunks; a name of a file of queries/ is run too. After
    catalogue export ducklake there are captures, too, as cc.captures: DuckDB reads them from the source, without our
    limit on requests, so ask for crawls, and for URLs by surt_match(url_surtkey, PATTERN).

    \b
    catalogue sql "select crawl, count(*) from row_groups group by 1"
    catalogue sql coverage
    catalogue sql "describe row_groups"
    catalogue sql "from row_groups where surt_overlaps(min_url_surtkey, max_url_surtkey, '*.example.com')"
    catalogue sql bytes-by-column --column-chunks CC-MAIN-2022-05
    catalogue sql
    """  # noqa: D301
    with options.opened() as catalogue:
        if chunks_of:
            catalogue.show_column_chunks(chunks_of)
        if statement is not None and not statement.strip():
            message = 'no SQL is given; write some, such as "from crawls", or nothing at all for a shell'
            raise QueryError(message)
        if statement is None:
            catalogue.update()
            _shell(options, catalogue)  # never comes back
        question = _question(statement, catalogue.table)
        with catalogue.connect_for(question) as connection, answerable():
            answer = connection.execute(question)
            names = _distinct([column[0] for column in answer.description or ()])
            printer = None if json_ else Table(names)
            while rows := answer.fetchmany(_AT_ONCE):
                if printer:
                    printer.add(rows)
                else:
                    for row in rows:
                        as_json(dict(zip(names, row, strict=True)))
            if printer:
                printer.close()


def _distinct(names: list[str]) -> list[str]:
    """Names of columns as keys of one object: those that come again are numbered."""
    return [name if name not in names[:at] else f"{name}_{names[:at].count(name)}" for at, name in enumerate(names)]


def _question(text: str, table: Any) -> str:  # noqa: ANN401 - importing its type is slow
    """The SQL itself, or that of a file of ``queries/``."""
    folder = queries_folder()
    there_are = {
        file.stem: str(file.relative_to(folder)) for kind in ("", "lake/") for file in folder.glob(f"{kind}*.sql")
    }
    return queries_statement(there_are[text], table) if text in there_are else text


def _shell(options: Common, catalogue: Any) -> NoReturn:  # noqa: ANN401 - importing its type is slow
    """Become DuckDB's own shell."""
    beside, path = Path(sys.executable).with_name("duckdb"), catalogue.path
    program = str(beside) if beside.exists() else shutil.which("duckdb")
    if program is None:
        message = f"no DuckDB shell is installed; run: {install_command('shell')}; or run: catalogue sql 'SQL'"
        raise QueryError(message)
    command = [program, "-readonly", str(path), *(_attaching(options, catalogue, program))]
    if not path.is_relative_to(catalogue.data):  # it is temporary, and gone when the catalogue is closed
        sys.exit(subprocess.call(command))  # noqa: S603
    catalogue.close()
    if os.name == "posix":
        os.execv(program, command)  # noqa: S606 - no shell is what we want
    sys.exit(subprocess.call(command))  # noqa: S603


def _attaching(options: Common, catalogue: Any, program: str) -> list[str]:  # noqa: ANN401 - likewise
    """Words with which a shell attaches the DuckLake in the folder, if there is one and that works."""
    from catalogue.ducklake import NO_DOWNLOADS, attach_statements, not_attached  # noqa: PLC0415 - --help needs none of it

    if not catalogue.lake_path.exists():
        return []
    try:
        lacking = catalogue.lake_lacks()
        version = _run([program, "--version"]).stdout.partition(" ")[0].removeprefix("v")
        statements = ";".join(attach_statements(catalogue.lake_path, catalogue.settings.source, version))
    except CatalogueError as error:
        options.say(f"cc is not there: {error}")
        return []
    tried = _run([program, "-bail", "-c", f"{NO_DOWNLOADS};{statements};"])
    if tried.returncode or lacking:
        options.say(not_attached(catalogue.lake_path, tried.stderr) if tried.returncode else lacking)
    return [] if tried.returncode else ["-cmd", f"{statements};"]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
