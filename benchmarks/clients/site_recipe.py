"""The recipe of skeptric.com, as in ``recipe``, and then its use: row groups that might match are read as they are.

They are found in the table of row groups, by an overlap of intervals where the published test for a single point would
miss some, and read by pyarrow over fsspec, told not to read ahead and to ask for all chunks at once: the kind way.
"""

from typing import Any

import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.clients import asking, recipe
from benchmarks.clients.site_asking import COLUMNS, Ask, Site, Task, start


def harvest(task: Task) -> int:
    """Take the footers of all files, and make the table of row groups."""
    return int(recipe.recipe(asking.Task(task.source, task.manifest, task.folder, None))["files"])


def ask(task: Task) -> Ask:
    """Prepare; the table is read by the first question, and stays."""
    http = fsspec.filesystem("http", cache_type="none")
    held: list[pd.DataFrame] = []

    def asked(site: Site) -> Any:  # noqa: ANN401 - pyarrow has no types
        if not held:
            held.append(pd.read_csv(task.folder / "row_groups.csv.gz"))
        groups = held[0]
        might = groups[(groups["min_url_surtkey"] < site.high) & (groups["max_url_surtkey"] >= site.low)]
        tables = []
        for file, found in might.groupby("path"):
            with http.open(file) as opened:
                parquet = pq.ParquetFile(opened, pre_buffer=True)
                tables.append(parquet.read_row_groups(found["row_group"].to_list(), columns=list(COLUMNS)))
        rows = pa.concat_tables(tables)
        key = rows["url_surtkey"]
        return rows.filter(pc.and_(pc.greater_equal(key, site.low), pc.less(key, site.high)))

    return asked


if __name__ == "__main__":
    start(ask, before=harvest)
