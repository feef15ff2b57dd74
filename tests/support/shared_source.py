"""What many ask for at once, and the cache that they share."""

from pathlib import Path
from random import Random

from catalogue.source.cache import RangeCache

PATH = "cc-index/part 0.parquet"

DATA = Random(3).randbytes(200_000)

LARGE = 1 << 30

THREADS = 16

SOON = 10
"""Seconds after which a test fails that waits for what must come."""

Span = tuple[int, int]


def large_cache(tmp_path: Path) -> RangeCache:
    return RangeCache(tmp_path / "cache", LARGE)
