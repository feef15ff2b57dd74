"""Limits of memory."""

import os
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa


def resident() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@contextmanager
def memory_below(most: float) -> Iterator[None]:
    """Fail if Python's objects of a block ever take more bytes."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most


def arrow_below(most: float, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches; fail if Arrow's memory ever grows by more bytes."""
    before = pa.total_allocated_bytes()
    for batch in batches:
        assert pa.total_allocated_bytes() - before < most
        yield batch
