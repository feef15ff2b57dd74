"""Polars. The same lazy frame is collected twice, because it caches the footer."""

import polars as pl

from benchmarks.clients.lookup_asking import COLUMNS, Query, Steps, start, twice


def polars(query: Query) -> Steps:
    """Prepare."""
    key = pl.col("url_surtkey")
    frame = pl.scan_parquet(query.url).filter(key >= query.low, key < query.high).select(COLUMNS)
    return twice(lambda: int(frame.collect().height))


if __name__ == "__main__":
    start(polars)
