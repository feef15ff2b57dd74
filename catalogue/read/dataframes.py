"""DataFrames of pandas, polars and Dask."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from catalogue.settings import needing

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd
    import polars as pl

    from catalogue.read.workers import Task


def frame_of(table: pa.Table) -> "pd.DataFrame":
    """Convert to pandas; integers stay integers where values are missing, and times keep their zone."""
    import pandas as pd  # noqa: PLC0415 - takes longer to import than many a question to answer

    # By default, a column of integers with a null becomes one of floats, and Dask decodes bytes as text.
    nullable = {
        pa.binary(): pd.ArrowDtype(pa.binary()),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    frame: pd.DataFrame = table.to_pandas(types_mapper=nullable.get)
    return frame


def polars_frame(table: pa.Table) -> "pl.DataFrame":
    """Convert to polars; raise QueryError if it is not installed."""
    with needing("polars", "this"):
        import polars as pl  # noqa: PLC0415 - an extra

    return pl.DataFrame(table)


def dask_frame(tasks: "Sequence[Task]", nothing: pa.Table) -> "dd.DataFrame":
    """Return a Dask DataFrame with a partition for each task; ``nothing`` is an empty table with its columns.

    Raises:
        QueryError: if Dask is not installed.
    """
    with needing("dask", "to_dask"):
        import dask.dataframe as dd  # noqa: PLC0415 - an extra, and slow to import
    like = frame_of(nothing)
    frame: dd.DataFrame = (
        dd.from_map(_run, tasks, meta=like, label="captures") if tasks else dd.from_pandas(like, npartitions=1)
    )
    return frame


def _run(task: "Task") -> "pd.DataFrame":
    from catalogue.read.workers import run  # noqa: PLC0415 - plans do not need it

    rows, _ = run(task).value
    return frame_of(rows)
