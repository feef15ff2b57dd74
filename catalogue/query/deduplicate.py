"""Keep one capture of each page or each content."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import flags, limited, numbers, positions, true_positions


@dataclass(frozen=True, slots=True)
class Distinct:
    """Which duplicates are kept."""

    by: str
    """Column of equal values; rows without a value are all kept."""
    time: str | None
    """Column by which the latest is kept; None for the first, which streams."""
    limit: int | None
    columns: tuple[str, ...]

    def limited(self, limit: int) -> "Distinct":
        return replace(self, limit=limit if self.limit is None else min(limit, self.limit))

    def of(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are kept, in their order; ``time`` needs all rows in memory."""
        if self.limit != 0:
            selected = self._latest(batches, schema) if self.time else self._first(batches)
            yield from limited((batch.select(self.columns) for batch in selected if batch.num_rows), self.limit)

    def _first(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen: set[object] = set()
        for batch in batches:
            new = np.ones(batch.num_rows, np.bool_)
            for place, value in enumerate(batch.column(self.by).to_pylist()):
                if value in seen:
                    new[place] = False
                elif value is not None:
                    seen.add(value)
            yield batch.filter(flags(new))

    def _latest(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches, schema)
        # A column of texts has room for 2 GiB.
        values = rows.column(self.by)
        values = values.cast(pa.large_string()) if values.type == pa.string() else values
        order = pc.sort_indices(
            pa.table([values, rows.column(self.time)], ["value", "time"]),
            sort_keys=[("value", "ascending"), ("time", "descending")],
        )
        inorder = values.take(order).combine_chunks()
        same = pc.equal(inorder.slice(1), inorder.slice(0, max(0, len(inorder) - 1)))
        repeats = order.take(positions(true_positions(same) + 1))
        selected = np.ones(rows.num_rows, np.bool_)
        selected[numbers(pa.chunked_array([repeats]))] = False
        yield from rows.filter(flags(selected)).combine_chunks().to_batches()
