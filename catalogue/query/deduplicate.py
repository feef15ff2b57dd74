"""Of captures that are of one page, or have one content, a single one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import flags, numbers, positions, true_positions


@dataclass(frozen=True, slots=True)
class Distinct:
    """What makes captures the same, and which of them is wanted."""

    by: str
    """A column; rows without a value there are all different."""
    time: str | None
    """The column by which the latest is chosen; None for the first that comes, so that nothing waits for the last."""
    limit: int | None
    """Of those that are left."""
    columns: tuple[str, ...]
    """That are wanted of them."""

    def limited(self, limit: int) -> "Distinct":
        """The same with no more rows than this."""
        return replace(self, limit=limit if self.limit is None else min(limit, self.limit))

    def of(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows that are left of all, in their order.

        Args:
            batches: all rows; with ``time`` they are in memory together, else only what makes them different.
            schema: theirs.
        """
        left = self.limit
        if left == 0:
            return
        kept = self._latest(batches, schema) if self.time else self._first(batches)
        for batch in kept:
            rows = batch.select(self.columns).slice(0, left)
            if rows.num_rows:
                yield rows
            if left is not None:
                left -= rows.num_rows
                if left <= 0:
                    return

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
        # Texts of more than 2 GiB in one column are sorted by way of a type that has room for them.
        values = rows.column(self.by)
        values = values.cast(pa.large_string()) if values.type == pa.string() else values
        order = pc.sort_indices(
            pa.table([values, rows.column(self.time)], ["value", "time"]),
            sort_keys=[("value", "ascending"), ("time", "descending")],
        )
        inorder = values.take(order).combine_chunks()
        same = pc.equal(inorder.slice(1), inorder.slice(0, max(0, len(inorder) - 1)))
        repeats = order.take(positions(true_positions(pa.chunked_array([same])) + 1))
        kept = np.ones(rows.num_rows, np.bool_)
        kept[numbers(pa.chunked_array([repeats]))] = False
        yield from rows.filter(flags(kept)).combine_chunks().to_batches()
