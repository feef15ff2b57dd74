"""A pyarrow dataset over fsspec without read-ahead, which halves the bytes. The dataset caches the footer."""

import fsspec
import pyarrow.dataset as ds

from benchmarks.clients.lookup_asking import COLUMNS, Query, Steps, start, twice


def dataset(query: Query) -> Steps:
    """Prepare."""
    http = fsspec.filesystem("http", cache_type="none")
    key = ds.field("url_surtkey")
    wanted = (key >= query.low) & (key < query.high)
    datasets: list[ds.Dataset] = []

    def ask() -> int:
        if not datasets:
            datasets.append(ds.dataset(query.url, filesystem=http, format="parquet"))
        return int(datasets[0].to_table(columns=list(COLUMNS), filter=wanted).num_rows)

    return twice(ask)


if __name__ == "__main__":
    start(dataset)
