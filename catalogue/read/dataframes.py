"""Arrow tables to pandas DataFrames."""

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


def frame_of(table: pa.Table) -> "pd.DataFrame":
    """Return a DataFrame; integers stay integers where values are missing, and times keep their zone."""
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
