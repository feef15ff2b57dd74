"""Run a stranger's SQL in a process of its own, without files, network or settings.

DuckDB's limit of memory does not include the rows that a function returns, and it cannot be interrupted within a
function: ``repeat('x', 3000000000)`` takes 6 GB and half a minute. The system limits the memory and the time of a
process.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb

from catalogue.errors import CatalogueError, DiskFailed, QueryError, StoreLocked, TooExpensive
from catalogue.formatting import first_paragraph, to_json
from catalogue.isolated_process import limit_resources, start_isolated
from catalogue.metadata_db.connection import check_text, connect, readable

SECONDS = 10.0
_MEMORY = 256 << 20
_MORE_MEMORY = 1 << 30
"""Bytes of the process in addition to those after its start."""
_MAX_TEXT = 2000
_SETTINGS = (
    "threads = 1",
    f"memory_limit = '{_MEMORY}B'",
    "temp_directory = ''",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "allow_community_extensions = false",
    "allow_persistent_secrets = false",
    "enable_external_access = false",
    "lock_configuration = true",
)
_RUN = "from catalogue.metadata_db.isolated_sql import main; main()"
_REFUSED = "SQL reads the metadata database alone: files, network, extensions and settings are not available"
_TOO_LARGE = "the SQL took too much memory; read fewer rows, or aggregate them"
_ONE_SELECT = "only one statement that reads is run, such as SELECT, FROM, DESCRIBE or SUMMARIZE"


def run_isolated(
    path: Path,
    sql: str,
    *,
    rows: int,
    characters: int,
    seconds: float = SECONDS,
    started: Callable[[Callable[[], None]], None] = lambda _: None,
) -> dict[str, Any]:
    """Run one statement that reads the DuckDB file, for at most ``seconds``; see ``run_confined``.

    ``rows`` and ``characters`` limit the result. ``started`` is called with a function for any thread that ends the
    process.

    Raises:
        QueryError: if it is invalid, or does more than read the database.
        TooExpensive: if it takes too much time or memory.
        StoreLocked: if another program has the database open for writing.
    """
    check_text(sql)
    request = json.dumps([str(path.resolve()), sql, rows, characters]).encode()
    with start_isolated(_RUN) as process:
        started(process.kill)
        try:
            written, _ = process.communicate(request, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise TooExpensive(f"the SQL took over {seconds:g} s; read fewer rows, or aggregate them") from error
        finally:
            process.kill()
    try:
        kind, answer = json.loads(written)
    except ValueError as error:  # it was killed
        raise TooExpensive(_TOO_LARGE) from error
    if kind == "rows":
        return dict(answer)
    raise _ERRORS.get(kind, QueryError)(answer)


_ERRORS: dict[str, type[CatalogueError]] = {
    each.__name__: each for each in (QueryError, TooExpensive, StoreLocked, DiskFailed)
}


# ---- in the process ----


def main() -> None:
    """Read a query from the standard input, and write its result as JSON."""
    path, sql, rows, characters = json.loads(sys.stdin.buffer.read())
    limit_resources(memory=_MORE_MEMORY, written=0)
    try:
        with readable(), closing(connect(Path(path))) as connection:
            found: tuple[str, object] = ("rows", run_confined(connection, sql, rows, characters))
    except CatalogueError as error:
        found = (type(error).__name__, str(error))
    except MemoryError:
        found = ("TooExpensive", _TOO_LARGE)
    sys.stdout.buffer.write(json.dumps(found).encode())


def run_confined(connection: duckdb.DuckDBPyConnection, sql: str, rows: int, characters: int) -> dict[str, Any]:
    """Run one statement that reads; the connection is confined afterwards, too.

    Return names and types of the columns, the first rows as values of JSON, whether there are ``more``, and ``notes``.
    """
    for setting in _SETTINGS:
        connection.execute(f"SET {setting}")
    try:
        kinds = [each.type for each in connection.extract_statements(sql)]
        if kinds != [duckdb.StatementType.SELECT]:
            raise QueryError(_ONE_SELECT)
        connection.execute(sql)
        return _first_rows(connection, rows, characters)
    except duckdb.PermissionException as error:
        raise QueryError(_REFUSED) from error
    except duckdb.OutOfMemoryException as error:
        raise MemoryError from error
    except (duckdb.Error, RuntimeError) as error:
        raise QueryError(first_paragraph(error)[:_MAX_TEXT]) from error


def _first_rows(connection: duckdb.DuckDBPyConnection, most: int, characters: int) -> dict[str, Any]:
    described = connection.description or []
    rows: list[list[Any]] = []
    left, cut, more = characters, False, False
    for row in islice(iter(connection.fetchone, None), most + 1):
        values = []
        for value in map(to_json, row):
            text = value if isinstance(value, str) else json.dumps(value)
            cut |= len(text) > _MAX_TEXT
            values.append(value if len(text) <= _MAX_TEXT else text[:_MAX_TEXT])
            left -= min(len(text), _MAX_TEXT)
        if left < 0 and not rows:
            raise QueryError(f"one row has over {characters:,} characters; select fewer columns, or parts of texts")
        more = len(rows) == most or left < 0
        if more:
            break
        rows.append(values)
    return {
        "columns": [str(name)[:_MAX_TEXT] for name, *_ in described],
        "types": [str(kind)[:_MAX_TEXT] for _, kind, *_ in described],
        "rows": rows,
        "more": more,
        "notes": ["long texts are cut"] if cut else [],
    }
