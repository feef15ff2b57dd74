"""Polars. The lazy frame stays, and with it whatever it holds."""

from typing import Any

import polars as pl

from benchmarks.clients.site_asking import COLUMNS, Ask, Site, Task, start


def ask(task: Task) -> Ask:
    """Prepare."""
    made: list[Any] = []

    def asked(site: Site) -> Any:  # noqa: ANN401 - polars is not there to be looked at
        if not made:
            made.append(pl.scan_parquet(task.urls))
        key, mime = pl.col("url_surtkey"), pl.col("content_mime_detected")
        conditions = [mime == site.mime] if site.mime else [key >= site.low, key < site.high]
        return made[0].filter(*conditions).select(COLUMNS).collect().to_arrow()

    return asked


if __name__ == "__main__":
    start(ask)
