"""A DuckDB database in memory that is bounded, and spills to a folder."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from catalogue.atomic_files import room
from catalogue.errors import DiskFailed, QueryError
from catalogue.formatting import first_paragraph
from catalogue.query.literals import literal

if TYPE_CHECKING:
    import duckdb

_MEMORY = "512MB"
SPILLED = "spilled"
"""Name of the folder."""


@contextmanager
def database(folder: Path) -> "Iterator[duckdb.DuckDBPyConnection]":
    """Open a database in memory that spills to a folder.

    Raises:
        DiskFailed: if the folder has no room.
        QueryError: if rows are too large for its memory, or have a type that it does not read.
    """
    import duckdb

    spilled = folder / SPILLED
    try:
        with duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
            connection.execute(f"SET memory_limit = '{_MEMORY}'; SET threads = 2; SET TimeZone = 'UTC'")
            connection.execute(f"SET temp_directory = {literal(str(spilled))}")
            yield connection
    except duckdb.OutOfMemoryException as error:
        message = f"rows of the input are too large to be sorted in {_MEMORY}; leave out columns with long texts"
        raise QueryError(message) from error
    except (duckdb.NotImplementedException, duckdb.InvalidInputException) as error:
        message = f"a column of the input has a type that DuckDB does not read: {first_paragraph(error)}"
        raise QueryError(message) from error
    except duckdb.Error as error:
        message = f"the join cannot go on in {folder}: {first_paragraph(error)}{room(folder, error)}"
        raise DiskFailed(f"{message}; what was finished is not lost") from error


def parquet_files(paths: Sequence[Path]) -> str:
    """Return a call of DuckDB that reads files, whose names are no patterns and say nothing of columns."""
    return f"read_parquet({literal([plain_name(path) for path in paths])}, hive_partitioning = false)"


def plain_name(path: Path) -> str:
    """Return the name of a file for DuckDB, in which ``*``, ``?`` and ``[`` stand for themselves."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in str(path))
