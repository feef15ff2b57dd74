"""Sort the rows of a table, and cut them into parts of one subset."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import positions, text
from catalogue.parquet.summary import SIGNED


@dataclass(frozen=True, slots=True)
class SortedPart:
    """Consecutive rows of one subset."""

    rows: pa.Table
    subset: str
    unbounded: int
    """Number of rows without bounds, which come first."""
    signed: bool
    least: str
    greatest: str


def sorted_parts(table: pa.Table, most: int) -> list[SortedPart]:
    """Return parts of at most ``most`` rows; in a subset, rows without bounds come first, the others by least key."""
    names = ("subset", "min_key", "path", "row_group")
    rows = enumerate(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    places = [
        row
        for row, _ in sorted(
            rows, key=lambda row: (row[1][0], row[1][1] is not None, row[1][1] or "", row[1][2], row[1][3] or 0)
        )
    ]
    ordered = table.take(positions(np.array(places, np.int64))).combine_chunks()
    subsets = ordered.column("subset").to_pylist()
    starts = [row for row, subset in enumerate(subsets) if row == 0 or subset != subsets[row - 1]]
    parts = []
    for start, end in zip(starts, [*starts[1:], len(subsets)], strict=True):
        parts += [_part(ordered.slice(at, min(most, end - at))) for at in range(start, end, most)]
    return parts


def _part(rows: pa.Table) -> SortedPart:
    least, greatest = (rows.column(name).drop_null() for name in ("min_key", "max_key"))
    signed = pc.equal(rows.column("bounds_from"), text(SIGNED))
    return SortedPart(
        rows,
        rows.column("subset")[0].as_py(),
        rows.column("min_key").null_count,
        bool(pc.any(signed).as_py()),
        min(least.to_pylist(), default=""),
        max(greatest.to_pylist(), default=""),
    )


def rows_where(table: pa.Table, chosen: list[bool]) -> pa.Table:
    """Return the chosen rows."""
    return table.take(positions(np.flatnonzero(np.array(chosen, bool))))
