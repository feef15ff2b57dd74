"""A pyarrow dataset over fsspec, told not to read ahead, which halves the bytes. The dataset stays, and its footer."""

import fsspec
import pyarrow.dataset as ds

from benchmarks.clients.lookup_asking import COLUMNS, Question, Steps, start, twice


def dataset(question: Question) -> Steps:
    """Prepare."""
    http = fsspec.filesystem("http", cache_type="none")
    key = ds.field("url_surtkey")
    wanted = (key >= question.low) & (key < question.high)
    made: list[ds.Dataset] = []

    def ask() -> int:
        if not made:
            made.append(ds.dataset(question.url, filesystem=http, format="parquet"))
        return int(made[0].to_table(columns=list(COLUMNS), filter=wanted).num_rows)

    return twice(ask)


if __name__ == "__main__":
    start(dataset)
