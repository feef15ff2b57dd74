"""``catalogue sql``."""

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, NoReturn

import click

from catalogue.cli.app import Common, command
from catalogue.cli.messages import report_incomplete
from catalogue.cli.options import OneOf, complete_stored_crawls
from catalogue.cli.tables import as_json, cell, table
from catalogue.errors import CatalogueError, QueryError
from catalogue.formatting import closest_name, printable_lines, to_json
from catalogue.settings import install_command

if TYPE_CHECKING:
    import duckdb

    from catalogue.catalogue import Catalogue
    from catalogue.commoncrawl.datasets import Dataset

_AT_ONCE = 1000
_NAME = re.compile(r"[a-z0-9]+([-_][a-z0-9]+)*", re.IGNORECASE)
"""Matches one word, which may be the misspelled name of a query."""
_VARIABLE = re.compile(r"getvariable\('(\w+)'\)")
_NO_INTERNALS = (
    "CREATE TEMP MACRO duckdb_columns() AS TABLE FROM system.main.duckdb_columns() WHERE schema_name <> 'derived';"
)
"""Makes .tables of the shell, which calls duckdb_columns(), list only the views."""


@command()
@click.argument("statement", metavar="[SQL|NAME]", required=False)
@click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="Value of $NAME, or of a variable of a query."
)
@click.option(
    "--format",
    "format_",
    type=OneOf(["table", "csv", "jsonl", "parquet"]),
    help="Format of the output; in a pipe, times and numbers are not formatted.  [default: table]",
)
@click.option("--json", "json_", is_flag=True, help="Short for --format jsonl.")
@click.option(
    "--column-chunks",
    "chunks_of",
    multiple=True,
    metavar="CRAWL",
    shell_complete=complete_stored_crawls,
    help="Fill the view column_chunks for this crawl.",
)
def sql(
    options: Common,
    *,
    statement: str | None,
    params: tuple[str, ...],
    format_: str | None,
    json_: bool,
    chunks_of: tuple[str, ...],
) -> int:
    """Run SQL over the metadata, or open a DuckDB shell.

    SQL is an argument, the name of a query of the package, or read from stdin. Without SQL, a shell opens on a
    terminal. The views are crawls, files, row_groups, pages, blocks, column_chunks and column_values. After catalogue
    export ducklake, cc.captures is a table of all captures. DuckDB reads it from the source without a rate limit, so
    always filter by crawl and by surt_match(url_surtkey, PATTERN).

    \b
    catalogue sql "select crawl, count(*) from row_groups group by 1"
    catalogue sql coverage --format csv
    catalogue sql "describe row_groups"
    catalogue sql find-url --param 'pattern=example.com/*'
    catalogue sql 'from row_groups where crawl = $crawl' --param crawl=CC-MAIN-2022-05 --format csv > row-groups.csv
    catalogue sql bytes-by-column --column-chunks CC-MAIN-2022-05
    catalogue sql < statements.sql
    catalogue sql
    """
    from catalogue.export.ducklake_sql import add_column_chunks, attach_named, connect, notes_on_views
    from catalogue.metadata_db.connection import answerable

    if json_ and format_ not in {None, "jsonl"}:
        raise QueryError(f"--json means --format jsonl; leave out --json or --format {format_}")
    format_ = format_ or ("jsonl" if json_ else "table")
    if format_ == "parquet" and sys.stdout.isatty():
        raise QueryError("--format parquet cannot be printed on a terminal; add > FILE")
    given = _parameters(params)
    with options.opened() as catalogue:
        if chunks_of:
            add_column_chunks(catalogue.session, chunks_of)
        text = _script() if statement in {None, "-"} else statement
        if text is None:
            catalogue.session.updated_database()
            _shell(options, catalogue)  # does not return
        if not text.strip():
            raise QueryError('no SQL; add some, such as "from crawls", or none on a terminal to open a shell')
        text = _statement(text.strip(), catalogue.session.dataset)
        with connect(catalogue.session) as connection, answerable():
            missing = attach_named(catalogue.session, connection, text)
            if not catalogue.session.metadata().requested_crawls:
                harvest = catalogue.session.dataset.harvest_command("latest")
                options.say(f"no footers are stored, so only the views crawls and blocks can have rows; run: {harvest}")
            for note in () if chunks_of else notes_on_views(catalogue.session, connection, text):
                options.say(note)
            _run_statements(connection, text, given, format_)
    return report_incomplete("the answer may be incomplete", missing)


def _script() -> str | None:
    """Return the SQL on stdin; None for a terminal, and for a script that begins with a dot command of the shell."""
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
        is_text = word == word.encode(errors="replace").decode()
        if not (equals and is_text and re.fullmatch(r"\w+", name)) or name in given:
            raise QueryError(f"invalid or repeated --param {word!r}; write NAME=VALUE, such as pattern=example.com")
        given[name] = value
    return given


def _bind(
    connection: "duckdb.DuckDBPyConnection",
    text: str,
    statements: "Sequence[duckdb.Statement]",
    given: Mapping[str, str],
) -> None:
    needed = {name for each in statements for name in each.named_parameters}
    variables = set(_VARIABLE.findall(text))
    if unknown := given.keys() - needed - variables:
        known = ", ".join(sorted(needed | variables)) or "none"
        raise QueryError(f"unknown parameter {min(unknown)}; the parameters of this SQL are: {known}")
    if missing := needed - given.keys():
        raise QueryError(f"${min(missing)} has no value; add --param {min(missing)}=VALUE")
    for name in given.keys() & variables:
        connection.execute(f"SET VARIABLE {name} = ?", [given[name]])


def _run_statements(connection: "duckdb.DuckDBPyConnection", text: str, given: Mapping[str, str], format_: str) -> None:
    statements = connection.extract_statements(text)
    if format_ == "parquet" and len(statements) > 1:
        raise QueryError("a Parquet file can have one result only; use one statement")
    _bind(connection, text, statements, given)
    printed = False
    for each in statements:
        values = {name: given[name] for name in each.named_parameters}
        has_result = {kind.name for kind in each.expected_result_type} != {"NOTHING"}
        if has_result and format_ == "parquet":
            _write_parquet(connection.sql(each, params=values))  # DuckDB 2 copies the rows of execute()
            return
        connection.execute(each, values)
        if has_result:
            if printed and format_ in {"table", "csv"}:
                click.echo()
            _print(connection, format_)
            printed = True


def _write_parquet(answer: "duckdb.DuckDBPyRelation | None") -> None:
    from catalogue.cli.row_writer import write

    if answer is not None:  # DuckDB 1 has no result of some statements
        reader = answer.to_arrow_reader(_AT_ONCE)
        names = _distinct(reader.schema.names)
        schema = reader.schema.empty_table().rename_columns(names).schema
        write((batch.rename_columns(names) for batch in reader), schema, "parquet", None)


def _distinct(names: Iterable[str]) -> list[str]:
    """Number repeated names, which objects of JSON and readers of Parquet refuse."""
    found: list[str] = []
    for name in names:
        others = chain([name], (f"{name}_{number}" for number in count(1)))
        found.append(next(each for each in others if each not in found))
    return found


def _print(answer: "duckdb.DuckDBPyConnection", format_: str) -> None:
    given = [column[0] for column in answer.description or ()]
    names = _distinct(given)
    if format_ == "table" and given == ["explain_key", "explain_value"]:
        for _, plan in answer.fetchall():
            click.echo(printable_lines(plan.rstrip()))
        return
    rows: Iterable[Sequence[object]] = chain.from_iterable(iter(partial(answer.fetchmany, _AT_ONCE), []))
    if format_ != "jsonl":  # JSON has null instead
        rows = ([str(value) if _is_not_finite(value) else value for value in row] for row in rows)
    if format_ == "table":
        table(names, rows, format_value=cell if sys.stdout.isatty() else _text, ways=["add --format jsonl"])
    elif format_ == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        show = printable_lines if sys.stdout.isatty() else str
        writer.writerows(["" if to_json(value) is None else show(_text(value)) for value in row] for row in rows)
    else:
        for row in rows:
            as_json(dict(zip(names, row, strict=True)))


def _is_not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _text(value: object) -> str:
    value = to_json(value)
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _statement(text: str, dataset: "Dataset") -> str:
    from catalogue.metadata_db.connection import queries_folder, statement

    folder = queries_folder()
    files = {file.stem: str(file.relative_to(folder)) for kind in ("", "lake/") for file in folder.glob(f"{kind}*.sql")}
    if text in files:
        return statement(files[text], dataset)
    if re.fullmatch(r"\S+\.sql", text):
        raise QueryError(f"to run the statements of a file: catalogue sql < {text}")
    if _NAME.fullmatch(text) and (similar := closest_name(text, files)):
        raise QueryError(f"there is no query {text}; did you mean {similar}?")
    return text


def _shell(options: Common, catalogue: "Catalogue") -> NoReturn:
    installed, path = Path(sys.executable).with_name("duckdb"), catalogue.path
    program = str(installed) if installed.exists() else shutil.which("duckdb")
    if program is None:
        raise QueryError(f"no DuckDB shell is installed; run: {install_command('shell')}; or run: catalogue sql 'SQL'")
    command = [program, "-readonly", str(path), "-cmd", _NO_INTERNALS, *_attach_arguments(options, catalogue, program)]
    if path.is_relative_to(catalogue.session.data):
        catalogue.close()  # which deletes a temporary database
        if os.name == "posix":
            os.execv(program, command)  # noqa: S606
    sys.exit(subprocess.call(command))  # noqa: S603


def _attach_arguments(options: Common, catalogue: "Catalogue", program: str) -> list[str]:
    from catalogue.export.ducklake_sql import NO_DOWNLOADS, attach_statements, lake_path, missing_in_lake, not_attached

    path = lake_path(catalogue.session)
    if not path.exists():
        return []
    try:
        problems = [*missing_in_lake(catalogue.session)]
        version = _run([program, "--version"]).stdout.partition(" ")[0].removeprefix("v")
        statements = ";".join(attach_statements(path, catalogue.session.settings.source, version))
    except CatalogueError as error:
        options.say(f"cannot attach cc: {error}")
        return []
    tried = _run([program, "-bail", "-c", f"{NO_DOWNLOADS};{statements};"])
    for problem in [not_attached(path, tried.stderr)] if tried.returncode else problems:
        options.say(problem)
    return [] if tried.returncode else ["-cmd", f"{statements};"]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
