"""``pq.read_metadata`` of files that fsspec opens, in 16 threads; nothing but the table is kept.

To open a file is a HEAD for its length; then pyarrow asks for the last 64 KiB, and again if the footer is longer. There
is a dearer way: ``read_metadata(path, filesystem=...)`` asks first whether the path exists, by a GET of the whole file
that is broken off when the answer has begun, which comes to 600 GETs and 150 MB for 300 files of 3 MB.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
import pyarrow.parquet as pq

from benchmarks.clients.asking import Task, start
from benchmarks.clients.rows import row_groups, write
from benchmarks.clients.tracing import traces

_THREADS = 16


def fsspec_pyarrow(task: Task) -> dict[str, float]:
    """Do it."""
    http = fsspec.filesystem("http", client_kwargs={"trace_configs": traces(task.limit)})

    def read(file: str) -> list[dict[str, Any]]:
        with http.open(file) as opened:
            return row_groups(file, pq.read_metadata(opened))

    started = time.monotonic()
    files = task.files()
    with ThreadPoolExecutor(_THREADS) as executor:
        rows = [row for found in executor.map(read, files) for row in found]
    fetched = time.monotonic()
    write(rows, task.folder)
    return {"files": len(files), "fetch": fetched - started, "table": time.monotonic() - fetched}


if __name__ == "__main__":
    start(fsspec_pyarrow)
