"""SQL over the catalogue."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

import click

from catalogue.cli.app import Command, Common, OneOf, common
from catalogue.cli.completion import crawls_held
from catalogue.cli.tables import as_json, cell, table
from catalogue.errors import CatalogueError, QueryError
from catalogue.formatting import to_json
from catalogue.metadata_db.connection import answerable, queries_folder
from catalogue.metadata_db.connection import statement as queries_statement
from catalogue.settings import install_command

_AT_ONCE = 1000
_VARIABLE = re.compile(r"getvariable\('(\w+)'\)")
_NO_INTERNALS = (
    "CREATE TEMP MACRO duckdb_columns() AS TABLE FROM system.main.duckdb_columns() WHERE schema_name <> 'derived';"
)
"""Lets .tables of the shell, which asks duckdb_columns(), list the views alone."""


@click.command(cls=Command)
@click.argument("statement", metavar="[SQL|NAME]", required=False)
@click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="Value of $NAME, or of a query's variable."
)
@click.option(
    "--format",
    "format_",
    type=OneOf(["table", "csv", "jsonl", "parquet"]),
    help="[default: table, in a pipe with plain values]",
)
@click.option("--json", "json_", is_flag=True, help="Short for --format jsonl.")
@click.option(
    "--column-chunks",
    "chunks_of",
    multiple=True,
    metavar="CRAWL",
    shell_complete=crawls_held,
    help="Fill the view column_chunks for it.",
)
@common
def sql(
    options: Common,
    *,
    statement: str | None,
    params: tuple[str, ...],
    format_: str | None,
    json_: bool,
    chunks_of: tuple[str, ...],
) -> None:
    """SQL over the catalogue, also from stdin; on a terminal without any, a DuckDB shell on it.

    The views are crawls, files, row_groups, pages and column_chunks; a name of a file of queries/ is run too. After
    catalogue export ducklake there are captures, too, as cc.captures: DuckDB reads them from the source, without our
    limit on requests, so ask for crawls, and for URLs by surt_match(url_surtkey, PATTERN).

    \b
    catalogue sql "select crawl, count(*) from row_groups group by 1"
    catalogue sql coverage --format csv
    catalogue sql "describe row_groups"
    catalogue sql find-url --param 'pattern=example.com/*'
    catalogue sql 'from row_groups where crawl = $crawl' --param crawl=CC-MAIN-2022-05 --format csv > row-groups.csv
    catalogue sql bytes-by-column --column-chunks CC-MAIN-2022-05
    catalogue sql < statements.sql
    catalogue sql
    """  # noqa: D301
    from catalogue.reports import add_column_chunks  # noqa: PLC0415 - --help needs none of what this imports
    from catalogue.sql import connect_for  # noqa: PLC0415 - --help needs none of what this imports

    if json_ and format_ not in {None, "jsonl"}:
        message = f"--json is short for --format jsonl; leave it or --format {format_} out"
        raise QueryError(message)
    format_ = format_ or ("jsonl" if json_ else "table")
    if format_ == "parquet" and sys.stdout.isatty():
        message = "--format parquet is no text for a terminal; add > FILE"
        raise QueryError(message)
    given = _parameters(params)
    with options.opened() as catalogue:
        if chunks_of:
            add_column_chunks(catalogue.session, chunks_of)
        text = _script() if statement in {None, "-"} else statement
        if text is None:
            catalogue.update()
            _shell(options, catalogue)  # never comes back
        if not text.strip():
            message = 'no SQL is given; write some, such as "from crawls", or on a terminal nothing at all for a shell'
            raise QueryError(message)
        question = _question(text.strip(), catalogue.session.dataset)
        with connect_for(catalogue.session, question) as connection, answerable():
            statements = connection.extract_statements(question)
            if format_ == "parquet" and len(statements) > 1:
                message = "a Parquet file holds one result; give one statement"
                raise QueryError(message)
            _bind(connection, question, statements, given)
            printed = False
            for each in statements:
                connection.execute(each, {name: given[name] for name in each.named_parameters})
                if {kind.name for kind in each.expected_result_type} != {"NOTHING"}:
                    if printed and format_ in {"table", "csv"}:
                        click.echo()
                    _print(connection, format_)
                    printed = True


def _script() -> str | None:
    """The statements on stdin; None on a terminal, and for a script that begins with a dot command of the shell."""
    if sys.stdin.isatty():
        return None
    text = sys.stdin.buffer.read()
    if not text.lstrip().startswith(b"."):
        return text.decode(errors="replace")
    with TemporaryFile() as script:
        script.write(text)
        script.seek(0)
        os.dup2(script.fileno(), sys.stdin.fileno())
    return None


def _parameters(words: Iterable[str]) -> dict[str, str]:
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (equals and re.fullmatch(r"\w+", name)) or name in given:
            message = f"invalid or repeated --param {word!r}; write NAME=VALUE, such as pattern=example.com"
            raise QueryError(message)
        given[name] = value
    return given


def _bind(connection: Any, question: str, statements: Sequence[Any], given: Mapping[str, str]) -> None:  # noqa: ANN401 - DuckDB's
    """Set the variables that SQL reads, after a check that it takes just these parameters and has all it needs."""
    needed = {name for each in statements for name in each.named_parameters}
    variables = set(_VARIABLE.findall(question))
    if unknown := given.keys() - needed - variables:
        there_are = ", ".join(sorted(needed | variables)) or "no parameter"
        message = f"there is no parameter {min(unknown)} in this SQL; it has {there_are}"
        raise QueryError(message)
    if lacking := needed - given.keys():
        message = f"${min(lacking)} has no value; add --param {min(lacking)}=VALUE"
        raise QueryError(message)
    for name in given.keys() & variables:
        connection.execute(f"SET VARIABLE {name} = ?", [given[name]])


def _print(answer: Any, format_: str) -> None:  # noqa: ANN401 - DuckDB's
    """Print a result."""
    names = _distinct([column[0] for column in answer.description or ()])
    if format_ == "parquet":
        from catalogue.cli.row_writer import write  # noqa: PLC0415 - --help needs none of what this imports

        batches = answer.to_arrow_reader(_AT_ONCE)
        write(batches, batches.schema, format_, None, chosen_columns=True)
        return
    rows = chain.from_iterable(iter(partial(answer.fetchmany, _AT_ONCE), []))
    if format_ == "table":
        table(names, rows, format_value=cell if sys.stdout.isatty() else _text)
    elif format_ == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(["" if to_json(value) is None else _text(value) for value in row] for row in rows)
    else:
        for row in rows:
            as_json(dict(zip(names, row, strict=True)))


def _text(value: object) -> str:
    """A value as programs read it."""
    value = to_json(value)
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
    command = [program, "-readonly", str(path), "-cmd", _NO_INTERNALS, *(_attaching(options, catalogue, program))]
    if not path.is_relative_to(catalogue.session.data):  # it is temporary, and gone when the catalogue is closed
        sys.exit(subprocess.call(command))  # noqa: S603
    catalogue.close()
    if os.name == "posix":
        os.execv(program, command)  # noqa: S606 - no shell is what we want
    sys.exit(subprocess.call(command))  # noqa: S603


def _attaching(options: Common, catalogue: Any, program: str) -> list[str]:  # noqa: ANN401 - likewise
    """Words with which a shell attaches the DuckLake in the folder, if there is one and that works."""
    from catalogue.export.ducklake_attach import NO_DOWNLOADS, attach_statements, not_attached  # noqa: PLC0415 - --help needs none of it
    from catalogue.sql import lake_path, missing_in_lake  # noqa: PLC0415 - --help needs none of what this imports

    if not lake_path(catalogue.session).exists():
        return []
    try:
        lacking = missing_in_lake(catalogue.session)
        version = _run([program, "--version"]).stdout.partition(" ")[0].removeprefix("v")
        statements = ";".join(
            attach_statements(lake_path(catalogue.session), catalogue.session.settings.source, version)
        )
    except CatalogueError as error:
        options.say(f"cannot attach cc: {error}")
        return []
    tried = _run([program, "-bail", "-c", f"{NO_DOWNLOADS};{statements};"])
    if problem := not_attached(lake_path(catalogue.session), tried.stderr) if tried.returncode else lacking:
        options.say(problem)
    return [] if tried.returncode else ["-cmd", f"{statements};"]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
