"""A DuckDB database in memory that is bounded, and spills to a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from catalogue.atomic_files import room
from catalogue.errors import DiskFailed, QueryError
from catalogue.formatting import first_paragraph
from catalogue.query.literals import literal

_MEMORY = "512MB"


@contextmanager
def database(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in memory that spills to a folder.

    Raises:
        DiskFailed: if the folder has no room.
    """
    spilled = folder / "spilled"
    try:
        with duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
            connection.execute(f"SET memory_limit = '{_MEMORY}'; SET threads = 2; SET TimeZone = 'UTC'")
            connection.execute(f"SET temp_directory = {literal(str(spilled))}")
            yield connection
    except (duckdb.NotImplementedException, duckdb.InvalidInputException) as error:
        message = f"a column of the input has a type that DuckDB does not read: {first_paragraph(error)}"
        raise QueryError(message) from error
    except duckdb.Error as error:
        message = f"{folder} cannot be written: {first_paragraph(error)}{room(folder, error)}"
        raise DiskFailed(f"{message}; what was finished is not lost") from error
