"""Queries of one process share a DuckDB instance, without effects on each other."""

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from catalogue.metadata_db.connection import reading

COUNT = "SELECT count(*) FROM files"
WRITES = "import sys, duckdb; duckdb.connect(sys.argv[1]).execute('CREATE TABLE note (text VARCHAR)')"


@pytest.fixture
def path(untaught_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(untaught_data / "catalogue.duckdb", tmp_path / "catalogue.duckdb"))


def fewer(path: Path) -> None:
    """Put another catalogue in its place, which lacks a file."""
    temporary = path.with_name("beside.duckdb")
    shutil.copyfile(path, temporary)
    with duckdb.connect(temporary) as connection:
        connection.execute("DELETE FROM derived.files WHERE path = (SELECT min(path) FROM derived.files)")
    temporary.replace(path)


def count(path: Path) -> int:
    with reading(path) as connection:
        ((number,),) = connection.execute(COUNT).fetchall()
    return int(number)


def fail(path: Path) -> None:
    with reading(path) as connection:
        connection.execute("CREATE TEMP TABLE files AS SELECT 1")
        connection.execute("SELECT no_such_column FROM catalogue.files")


def test_sees_a_replaced_file(path: Path) -> None:
    before = count(path)
    fewer(path)
    assert count(path) == before - 1


def test_parallel_readers_see_a_consistent_state(path: Path) -> None:
    with reading(path) as first:
        before = first.execute(COUNT).fetchall()
        fewer(path)
        with reading(path) as second:
            ((after,),) = second.execute(COUNT).fetchall()
            assert first.execute(COUNT).fetchall() == before == [(after + 1,)]


def test_releases_the_file(path: Path) -> None:
    count(path)
    subprocess.run([sys.executable, "-c", WRITES, path], check=True, timeout=60)


def test_failed_query_does_not_affect_the_next(path: Path) -> None:
    right = count(path)
    for _ in range(2):
        with pytest.raises(duckdb.BinderException):
            fail(path)
        assert count(path) == right
