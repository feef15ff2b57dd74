"""A source with a cache on disk, and other processes that use the same cache."""

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.source.cache import RangeCache
from tests.support import processes
from tests.support.answers import Memory

URL = "https://example.org/"
PATH = "cc-index/crawl=CC-MAIN-2022-05/part 0.parquet"
DATA = Random(1).randbytes(100_000)
PIN = FileVersion(len(DATA), '"0123456789abcdef-8"')
LARGE = 1 << 30
LONG_AGO = 1_000_000_000
"""Time of last use of the first entry, where the order matters."""
WANTED = ByteRange(1000, 1500)


def memory(etag: str | None = PIN.etag, data: bytes = DATA) -> Memory:
    return Memory(data, etag, URL)


def right(requested: ByteRange) -> bytes:
    return DATA[requested.start : requested.end]


def put(cache: RangeCache, *ranges: tuple[int, int], path: str = PATH) -> None:
    for start, end in ranges:
        cache.put(URL, path, PIN, start, DATA[start:end])


def got(cache: RangeCache, start: int, end: int, path: str = PATH) -> bytes | None:
    return cache.get(URL, path, PIN, ByteRange(start, end))


def cached_ranges(cache: RangeCache, path: str = PATH) -> list[tuple[int, int]]:
    return [(there.start, there.end) for there in cache.cached_ranges(URL, path, PIN)]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in files(folder))


def the_file(folder: Path) -> Path:
    (file,) = files(folder)
    return file


SCRIPT = """
import os, signal, sys
from pathlib import Path
from random import Random
from catalogue.source.cache import RangeCache
from tests.support.caches import LARGE, files, got, cached_ranges, put

folder = Path(sys.argv[1])
"""


def run_script(folder: Path, script: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return processes.run_script(folder, SCRIPT + script)
