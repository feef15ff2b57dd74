"""Arrow tables to pandas DataFrames."""

from typing import TYPE_CHECKING, Any

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


def in_order(frame: "pd.DataFrame", text: str, number: str) -> "pd.DataFrame":
    """Sort a DataFrame by a column of texts and one of numbers that may be texts; invalid numbers come last."""
    import pandas as pd  # noqa: PLC0415 - likewise

    def comparable(column: "pd.Series[Any]") -> "pd.Series[Any]":
        return pd.to_numeric(column, errors="coerce") if column.name == number else column.astype(str)

    return frame.sort_values([text, number], key=comparable, kind="stable")
