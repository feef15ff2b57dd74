"""SQL of strangers reads the metadata database, and nothing else; it ends in time and memory."""

import resource
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from catalogue.errors import DiskFailed, QueryError, StoreLocked, TooExpensive
from catalogue.metadata_db.connection import connect
from catalogue.metadata_db.isolated_sql import run_confined, run_isolated

HOSTILE = {
    "SQL reads the metadata database alone": [
        *("from read_csv('/etc/passwd')", "select * from read_text('{there}')", "from glob('/*')"),
        *("from read_blob('http://127.0.0.1:1/x')", "from 's3://bucket/x.parquet'", "from duckdb_extensions()"),
        *("from sniff_csv('{there}')", "from parquet_metadata('{there}')"),
    ],
    "only one statement that reads": [
        *("copy (select 1) to '{out}'", "copy crawls to '{out}'", "export database '{out}'", "attach '{out}'", ""),
        *("install httpfs", "load '{out}'", "use memory", "checkpoint", "set enable_external_access = true"),
        *("reset lock_configuration", "pragma enable_profiling", "call enable_logging()", "detach catalogue"),
        *("create table x as select 1", "create table memory.x as select 1", "explain analyze select 1"),
        *("insert into derived.files (path) values (1)", "select 1; copy (select 1) to '{out}'"),
    ],
    "does not exist": ["from '{there}'"],
    "not in the catalog": ["from sqlite_scan('{there}', 't')"],
    "single SELECT": ["from query('copy (select 1) to ''{out}''')"],
    "getenv": ["select getenv('HOME')"],
}
TOO_LARGE = [
    "select repeat('x', 3000000000)",
    "select unnest(generate_series(1, 1000000000))",
    "select list(range) from range(1000000000)",
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "catalogue.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE crawls AS SELECT 'CC-MAIN-2022-05' AS crawl, range AS number FROM range(1000)")
    return path


def run(database: Path, sql: str, seconds: float = 20.0) -> dict[str, Any]:
    return run_isolated(database, sql, rows=3, characters=1000, seconds=seconds)


def confined(database: Path, sql: str, characters: int = 1000) -> dict[str, Any]:
    with closing(connect(database)) as connection:
        return run_confined(connection, sql, 3, characters)


@pytest.mark.parametrize(("reason", "sql"), [(reason, sql) for reason, every in HOSTILE.items() for sql in every])
def test_refuses_all_but_reading_the_database(database: Path, reason: str, sql: str, tmp_path: Path) -> None:
    there, out = tmp_path / "there", tmp_path / "out"
    there.write_text("secret,1\n", encoding="utf-8")
    with pytest.raises(QueryError) as refused:
        confined(database, sql.format(there=there, out=out))
    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)
    assert [*tmp_path.iterdir()] == [there]


@pytest.mark.in_part(3)
@pytest.mark.parametrize("sql", TOO_LARGE)
def test_memory_is_limited(database: Path, sql: str) -> None:
    with pytest.raises(TooExpensive, match="too much memory"):
        run(database, sql)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1_600_000  # kilobytes


def test_time_is_limited(database: Path) -> None:
    with pytest.raises(TooExpensive, match=r"took over 0\.3 s"):
        run(database, "select count(*) from range(100000000000) a, range(1000000) b", seconds=0.3)


def test_result_is_bounded(database: Path) -> None:
    found = run(database, "from crawls")
    rows = [["CC-MAIN-2022-05", n] for n in range(3)]
    described = {"columns": ["crawl", "number"], "types": ["VARCHAR", "BIGINT"]}
    assert found == described | {"rows": rows, "more": True, "notes": []}
    with pytest.raises(QueryError, match="not Unicode text"):
        run(database, "select '\ud800'")
    assert not confined(database, "from crawls limit 3")["more"]
    with pytest.raises(QueryError, match="select fewer columns"):
        confined(database, "select repeat('x', 100000) as a, 1 as b")
    cut = confined(database, "select repeat('x', 100000) as a", characters=5000)
    assert (cut["rows"], cut["notes"]) == ([["x" * 2000]], ["long texts are cut"])


@pytest.mark.parametrize(
    "sql", ["describe crawls", "show tables", "summarize crawls", "values (1)", "from test_all_types()"]
)
def test_other_statements_that_read_run(database: Path, sql: str) -> None:
    assert confined(database, sql, 100_000)["rows"]


@pytest.mark.in_soak
def test_open_and_damaged_databases_are_errors(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "open.duckdb") as writing:
        writing.execute("CREATE TABLE t AS SELECT 1")
        with pytest.raises(StoreLocked, match="open for writing elsewhere"):
            run(tmp_path / "open.duckdb", "select 1")
    (tmp_path / "damaged.duckdb").write_bytes(b"x" * 100_000)
    with pytest.raises(DiskFailed, match="catalogue check --repair"):
        run(tmp_path / "damaged.duckdb", "select 1")
