"""Opening the catalogue to read, and where the SQL is."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import duckdb

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import DiskFailed, QueryError, StoreLocked
from catalogue.formatting import first_paragraph
from catalogue.query.where import literal


def queries_folder() -> Path:
    """Where the SQL is: in the package once installed, beside it in a checkout."""
    inside = Path(__file__).parent.parent / "queries"
    return inside if inside.exists() else inside.parent.parent / "queries"


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """A connection to the catalogue as it is now, read only; it keeps showing that when a newer one takes its place."""
    connection = _empty()
    try:
        _show(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def reading(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same, of those that the process has in common, for questions of ours, which set and leave nothing."""
    with lent() as connection:
        _show(connection, path)
        yield connection
        connection.execute("USE memory")
        connection.execute("DETACH catalogue")


@contextmanager
def lent() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that others have had, since to make one takes longer than most of what it is for.

    Whoever has it leaves it as it was found. After an error it is closed, which detaches all there is.
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
    """Of a process, since threads of a database do not come along to one that is forked. One is enough, mostly."""
    return deque()


def _empty() -> duckdb.DuckDBPyConnection:
    """A connection to a database in memory, to which files are attached.

    Catalogues are not opened by themselves because DuckDB hands out a file that a process has open once more as it was
    then, even if another has been renamed over it.
    """
    return duckdb.connect(config={"python_enable_replacements": "false"})


def _show(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    attach(connection, path, "catalogue")
    connection.execute("USE catalogue")
    connection.execute("SET TimeZone = 'UTC'")


def attach(connection: duckdb.DuckDBPyConnection, path: Path, name: str) -> None:
    """Attach a catalogue to read.

    Raises:
        StoreLocked: if somebody has it open for writing.
    """
    try:
        connection.execute(f"ATTACH {quoted(path)} AS {name} (READ_ONLY)")
    except duckdb.Error as error:
        busy = ("Could not set lock", "Conflicting lock", "handle conflict")  # no class tells them apart
        if not any(sign in str(error) for sign in busy):
            raise
        message = f"{path} is open for writing elsewhere; close it there, or open it read-only"
        raise StoreLocked(message) from error


def log_of(path: Path) -> Path:
    """Where a DuckDB file has what was written to it and is not in it yet; beside ours there is none."""
    return path.with_name(path.name + ".wal")


def statement(name: str, table: Dataset) -> str:
    """One of the statements in ``queries/``, by its path there, in the words of a table."""
    sql = (queries_folder() / name).read_text(encoding="utf-8")
    for bound in ("min", "max"):
        other = f"{bound}_{table.key}"
        if table.key != COMMON_CRAWL.key:
            sql = sql.replace(
                f"{bound}_{COMMON_CRAWL.key}", other if other.isidentifier() else '"' + other.replace('"', '""') + '"'
            )
    return sql


@contextmanager
def answerable() -> Iterator[None]:
    """Turn what DuckDB says of a user's SQL into a ``QueryError``."""
    try:
        yield
    except duckdb.Error as error:
        message = first_paragraph(error)
        if "Table with name captures does not exist" in message:
            message = "captures are not here, but in the DuckLake that catalogue export ducklake writes, as cc.captures"
        raise QueryError(message) from error
    except RuntimeError as error:
        if "interrupted" in str(error):  # DuckDB has no class for it
            raise KeyboardInterrupt from error
        raise QueryError(first_paragraph(error)) from error


@contextmanager
def readable() -> Iterator[None]:
    """Turn what DuckDB says of a statement of ours into a ``DiskFailed``: that is right, so the catalogue is not."""
    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        message = f"the catalogue cannot be read ({first_paragraph(error)}); run: catalogue check --repair"
        raise DiskFailed(message) from error


def quoted(path: Path) -> str:
    """A path as a literal of SQL.

    Raises:
        QueryError: if DuckDB takes no file of such a name.
    """
    text = str(path)
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):  # as which Python has other bytes
        message = f"{text!r} cannot be the name of a file that DuckDB opens; choose another, of Unicode text"
        raise QueryError(message)
    return literal(text)
