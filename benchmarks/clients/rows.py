"""The table that the others make: a row group a row, with the bounds of its keys, as published by skeptric.com."""

from pathlib import Path
from typing import Any

import pandas as pd


def row_groups(file: str, metadata: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - pyarrow has no types
    """The rows of a file."""
    rows = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        bounds = group.column(0).statistics
        rows.append(
            {
                "path": file,
                "row_group": number,
                "num_rows": group.num_rows,
                "byte_size": group.total_byte_size,
                "min_url_surtkey": bounds.min,
                "max_url_surtkey": bounds.max,
            }
        )
    return rows


def write(rows: list[dict[str, Any]], folder: Path) -> None:
    """Write the table."""
    pd.DataFrame(rows).to_csv(folder / "row_groups.csv.gz", index=False)
