"""A pyarrow dataset over fsspec, which stays, and with it the footers."""

from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.clients.site_asking import COLUMNS, Ask, Site, Task, start

_THREADS = 32
"""Its documentation advises more threads for a file system far away; as many files are opened at once."""


def ask(task: Task) -> Ask:
    """Prepare."""
    # Told not to read ahead, which halves the bytes.
    http = fsspec.filesystem("http", cache_type="none")
    made: list[ds.Dataset] = []

    def asked(site: Site) -> Any:  # noqa: ANN401 - pyarrow has no types
        if not made:
            made.append(ds.dataset(task.urls, filesystem=http, format="parquet"))
        key = ds.field("url_surtkey")
        wanted = (key >= site.low) & (key < site.high)
        return made[0].to_table(columns=list(COLUMNS), filter=wanted, fragment_readahead=_THREADS)

    return asked


if __name__ == "__main__":
    pa.set_io_thread_count(_THREADS)
    start(ask)
