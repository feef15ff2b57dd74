"""DuckDB with its extension httpfs.

The connection stays open and caches what was read: a repeated query is answered from memory.
"""

from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.clients.lookup_asking import Query, Steps, start, twice


def connected() -> duckdb.DuckDBPyConnection:
    """Connect with the extension of its wheel."""
    pa.table({})  # otherwise to_arrow_table would import pyarrow while it is measured
    found = find_spec("duckdb_extension_httpfs")
    assert found
    assert found.origin
    (extension,) = Path(found.origin).parent.rglob("*.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    return connection


def with_httpfs(query: Query) -> Steps:
    """Prepare."""
    connection = connected()

    def ask() -> int:
        sql = query.sql.replace("FROM lookup", f"FROM read_parquet('{query.url}')")
        found: pa.Table = connection.execute(sql).to_arrow_table()
        return int(found.num_rows)

    return twice(ask)


if __name__ == "__main__":
    start(with_httpfs)
