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
        key = pl.col("url_surtkey")
        return made[0].filter(key >= site.low, key < site.high).select(COLUMNS).collect().to_arrow()

    return asked


if __name__ == "__main__":
    start(ask)
