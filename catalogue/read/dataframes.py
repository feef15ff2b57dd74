"""Arrow tables to DataFrames of pandas and polars."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyarrow as pa

from catalogue.errors import QueryError
from catalogue.settings import install_command

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


def frame_of(table: pa.Table) -> "pd.DataFrame":
    """Convert to pandas; integers stay integers where values are missing, and times keep their zone."""
    import pandas as pd  # noqa: PLC0415 - takes longer to import than many a question to answer

    # What pandas must be told, or a column of integers with a null in it becomes one of floats.
    nullable = {
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    frame: pd.DataFrame = table.to_pandas(types_mapper=nullable.get)
    return frame


def polars_frame(table: pa.Table) -> "pl.DataFrame":
    """Convert to polars.

    Raises:
        QueryError: if polars is not installed.
    """
    check_polars()
    import polars as pl  # noqa: PLC0415 - an extra

    return pl.DataFrame(table)


def check_polars() -> None:
    """Raise QueryError if polars is not installed."""
    if not find_spec("polars"):
        message = f"this needs polars; run: {install_command('polars')}"
        raise QueryError(message)
