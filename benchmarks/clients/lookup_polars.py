"""Polars. The same lazy frame is collected again, because it holds the footer."""

import polars as pl  # type: ignore[import-not-found]

from benchmarks.clients.lookup_asking import COLUMNS, Question, Steps, start, twice


def polars(question: Question) -> Steps:
    """Prepare."""
    key = pl.col("url_surtkey")
    frame = pl.scan_parquet(question.url).filter(key >= question.low, key < question.high).select(COLUMNS)
    return twice(lambda: int(frame.collect().height))


if __name__ == "__main__":
    start(polars)
