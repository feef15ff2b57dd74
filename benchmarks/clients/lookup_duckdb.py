"""DuckDB with its extension httpfs.

The connection stays, and with it its cache: the second time all is in memory, which holds for the same question only.
"""

from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.clients.lookup_asking import Question, Steps, start, twice


def connected() -> duckdb.DuckDBPyConnection:
    """A connection that has the extension, as the wheel of it brings it."""
    pa.table({})  # imported for to_arrow_table, which would do it while it is measured
    found = find_spec("duckdb_extension_httpfs")
    assert found
    assert found.origin
    (extension,) = Path(found.origin).parent.rglob("*.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    return connection


def with_httpfs(question: Question) -> Steps:
    """Prepare."""
    connection = connected()

    def ask() -> int:
        query = question.sql.replace("FROM lookup", f"FROM read_parquet('{question.url}')")
        found: pa.Table = connection.execute(query).to_arrow_table()
        return int(found.num_rows)

    return twice(ask)


if __name__ == "__main__":
    start(with_httpfs)
