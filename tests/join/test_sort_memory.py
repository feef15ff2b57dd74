"""The memory that sorting a list takes."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa

from catalogue.join.slices import Sizes
from catalogue.join.sort_keys import _Sorter


def test_rows_of_one_key_are_not_all_in_memory(tmp_path: Path) -> None:
    """As those of a list of URLs that is matched by host."""
    count, step = 60_000, 1000
    schema = pa.schema([("key", pa.binary()), ("row", pa.int64()), ("note", pa.string())])
    note, rows, most = "x" * 200, [], 0
    with closing(_Sorter(schema, ("key", "row"), tmp_path, Sizes(sorted=1 << 20))) as sorter:
        before = pa.total_allocated_bytes()
        for start in range(0, count, step):
            columns = [pa.array([b"key"] * step), pa.array(np.arange(start, start + step)), pa.array([note] * step)]
            sorter.add(pa.RecordBatch.from_arrays(columns, schema=schema))
        for batch in sorter.batches():
            rows.append(batch.column("row").to_numpy())
            most = max(most, pa.total_allocated_bytes() - before)
    assert np.array_equal(np.concatenate(rows), np.arange(count))
    assert most < 6 << 20  # of 13 MB
