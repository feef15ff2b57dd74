"""Query lakes as users do: with DuckDB's shell and extensions from wheels."""

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
    """Return the output of a shell with an attached lake."""
    script = ";\n".join([*attach_statements(lake, source), sql])
    done = subprocess.run(
        [SHELL, "-bail", "-json"], input=script, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_spare: list[duckdb.DuckDBPyConnection] = []
"""Connections with loaded extensions; loading takes longer than most queries."""


@contextmanager
def spare() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with nothing attached."""
    connection = _spare.pop() if _spare else duckdb.connect()
    connection.execute("SET enable_external_file_cache = false")  # tests replace files within its time resolution
    yield connection
    _spare.append(connection)


@contextmanager
def opened(lake: Path, source: str | Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with an attached lake."""
    with spare() as connection:
        assert attach(connection, lake, str(source)) is None
        yield connection
        connection.execute("DETACH cc")
