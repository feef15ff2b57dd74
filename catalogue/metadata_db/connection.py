"""Open the metadata database for reading; the SQL of ``queries/``."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

import duckdb

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import DiskFailed, QueryError, StoreLocked
from catalogue.formatting import first_paragraph
from catalogue.query.literals import literal
from catalogue.surt.macros import MACROS


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """Connect to the present file, read-only; the connection keeps it after it is replaced."""
    connection = _empty()
    try:
        _show(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def reading(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a shared connection, for statements that change no settings."""
    with lent() as connection:
        _show(connection, path)
        yield connection
        connection.execute("USE memory")
        connection.execute("DETACH catalogue")


@contextmanager
def lent() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a database in memory that is reused, because creating one takes longer than most queries.

    It must be left as it was. After an error it is closed.
    """
    idle = _idle(os.getpid())
    try:
        connection = idle.pop()
    except IndexError:
        connection = _empty()
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    if idle:
        connection.close()
    else:
        idle.append(connection)


@cache
def _idle(_process: int) -> deque[duckdb.DuckDBPyConnection]:
    """Return idle connections; a forked process has no threads for them."""
    return deque()


def _empty() -> duckdb.DuckDBPyConnection:
    """Connect to a database in memory, to which files are attached.

    Opened directly, DuckDB would return a file that is open already, even if it was replaced.
    """
    return duckdb.connect(config={"python_enable_replacements": "false"})


def _show(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    attach(connection, path, "catalogue")
    connection.execute("USE catalogue")
    connection.execute("SET TimeZone = 'UTC'")


def attach(connection: duckdb.DuckDBPyConnection, path: Path, name: str) -> None:
    """Attach a database read-only."""
    try:
        connection.execute(f"ATTACH {quoted(path)} AS {name} (READ_ONLY)")
    except duckdb.Error as error:
        busy = ("Could not set lock", "Conflicting lock", "handle conflict")  # no class tells them apart
        if not any(sign in str(error) for sign in busy):
            raise
        raise StoreLocked(f"{path} is open for writing elsewhere; close it there, or open it read-only") from error


@contextmanager
def writable(path: Path) -> Iterator[Path]:
    """Yield a path where DuckDB can write the database, which is at ``path`` afterwards.

    DuckDB puts ``.wal`` before the first ``?`` of a path, as if it were an address, so the log would be elsewhere.
    """
    if "?" not in str(path.resolve()):
        yield path
        return
    with TemporaryDirectory(prefix="catalogue-") as folder:
        copy = Path(folder) / "copy.duckdb"
        if path.exists():
            copyfile(path, copy)
        yield copy
        copyfile(copy, path)


def log_of(path: Path) -> Path:
    return path.with_name(path.name + ".wal")


def check_text(sql: str) -> None:
    """Raise QueryError for SQL that is not Unicode text."""
    if any("\ud800" <= character <= "\udfff" for character in sql):
        raise QueryError("this SQL is not Unicode text; write it in UTF-8")


@contextmanager
def answerable() -> Iterator[None]:
    """Raise DuckDB's errors of a user's SQL as ``QueryError``."""
    try:
        yield
    except duckdb.Error as error:
        if "Corrupt database file" in str(error):
            raise _damaged(error) from error
        message = first_paragraph(error)
        if "Table with name captures does not exist" in message:
            message = "captures are in the DuckLake that catalogue export ducklake writes, as cc.captures"
        if any(f"with name {macro.name} does not exist" in message for macro in MACROS):
            message = "the macros for patterns need keys that are made of URLs; for others run: catalogue sql find-key"
        raise QueryError(message) from error
    except RuntimeError as error:
        if "interrupted" in str(error):  # DuckDB has no class for it
            raise KeyboardInterrupt from error
        raise QueryError(first_paragraph(error)) from error


@contextmanager
def readable() -> Iterator[None]:
    """Raise DuckDB's errors of our statements as ``DiskFailed``: the file must be damaged."""
    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise _damaged(error) from error


def _damaged(error: duckdb.Error) -> DiskFailed:
    return DiskFailed(f"the metadata database cannot be read ({first_paragraph(error)}); run: catalogue check --repair")


def quoted(path: Path) -> str:
    """Return a path as an SQL literal.

    Raises:
        QueryError: if DuckDB cannot open such a file.
    """
    text = str(path)
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):  # bytes that are no text
        raise QueryError(f"{text!r} cannot be the name of a file that DuckDB opens; choose another, of Unicode text")
    return literal(text)


def queries_folder() -> Path:
    """Return the folder: in the installed package, or next to it in a checkout."""
    inside = Path(__file__).parent.parent / "queries"
    return inside if inside.exists() else inside.parent.parent / "queries"


def statement(name: str, table: Dataset) -> str:
    sql = (queries_folder() / name).read_text(encoding="utf-8")
    for bound in ("min", "max") if table.key != COMMON_CRAWL.key else ():
        column = f"{bound}_{table.key}".replace('"', '""')
        sql = sql.replace(f"{bound}_{COMMON_CRAWL.key}", f'"{column}"')
    return sql
