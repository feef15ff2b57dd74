"""Lakes as users ask them: by DuckDB's own shell, with extensions from wheels."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from catalogue.export.ducklake_attach import attach, attach_statements
from tests.support.lakes import SHELL, extension

needs_extensions = pytest.mark.skipif(
    not all(map(extension, ["ducklake", "httpfs", "sqlite_scanner"])),
    reason="DuckDB's shell, and wheels of its extensions, are not installed: pip install '.[lake,shell]'",
)


def ask_shell(lake: Path, source: str, sql: str) -> str:
    """What a shell writes in which a lake is attached."""
    script = ";\n".join([*attach_statements(lake, source), sql])
    done = subprocess.run(
        [SHELL, "-bail", "-json"], input=script, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_spare: list[duckdb.DuckDBPyConnection] = []
"""Connections that have loaded the extensions, which takes longer than most questions."""


@contextmanager
def spare() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to which nothing is attached, and which is left so."""
    connection = _spare.pop() if _spare else duckdb.connect()
    connection.execute("SET enable_external_file_cache = false")  # which tests would be too quick for
    yield connection
    _spare.append(connection)


@contextmanager
def opened(lake: Path, source: str | Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to which a lake is attached."""
    with spare() as connection:
        assert attach(connection, lake, str(source)) is None
        yield connection
        connection.execute("DETACH cc")
