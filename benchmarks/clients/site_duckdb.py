"""DuckDB with its extension httpfs, on a connection that stays.

Set as its documentation has it for files far away: more threads than there are cores, since each waits for its request,
and caches of footers and of what HEAD said.
"""

import os
from typing import Any

from benchmarks.clients.lookup_duckdb import connected
from benchmarks.clients.site_asking import COLUMNS, Ask, Site, Task, start

_THREADS = 5
"""A core; the most that is advised."""


def ask(task: Task) -> Ask:
    """Prepare."""
    connection = connected()
    connection.execute(f"SET threads = {_THREADS * (os.cpu_count() or 1)}")
    connection.execute("SET parquet_metadata_cache = true")
    connection.execute("SET enable_http_metadata_cache = true")

    def asked(site: Site) -> Any:  # noqa: ANN401 - pyarrow has no types
        query = f"SELECT {', '.join(COLUMNS)} FROM read_parquet({task.urls}) WHERE {site.where}"
        return connection.execute(query).to_arrow_table()

    return asked


if __name__ == "__main__":
    start(ask)
