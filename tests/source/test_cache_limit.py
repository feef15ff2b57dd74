"""A cache has a limit, is shared by processes, and its errors do not stop reads."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from catalogue.source.byte_ranges import ByteRange
from catalogue.source.cache import CachedSource, RangeCache
from tests.support.caches import (
    DATA,
    LARGE,
    LONG_AGO,
    PATH,
    PIN,
    WANTED,
    Memory,
    cache_folder,
    cached_ranges,
    files,
    got,
    large_cache,
    put,
    right,
    run_script,
    size,
    the_file,
)
from tests.support.processes import line
from tests.support.read_only import as_nobody

folder = pytest.fixture(cache_folder)
cache = pytest.fixture(large_cache)


def test_does_not_cache_bodies_over_an_eighth_of_the_limit(folder: Path) -> None:
    put(RangeCache(folder, 0), (0, 1))
    put(RangeCache(folder, 807), (0, 101))
    assert not folder.exists()
    cache = RangeCache(folder, 807)
    put(cache, (0, 100))
    assert cached_ranges(cache) == [(0, 100)]


def test_evicts_least_recently_used_entries(folder: Path) -> None:
    cache = RangeCache(folder, 10_160)  # ten entries
    names = [str(number) for number in range(10)]
    for number, name in enumerate(names):
        put(cache, (0, 1000), path=name)
        for file in folder.glob("*/0-1000"):
            if file.stat().st_mtime > LONG_AGO + 100:
                os.utime(file, (LONG_AGO + number,) * 2)
    assert size(folder) == 10_160
    assert cached_ranges(cache, "0") == [(0, 1000)]  # does not count as use
    for used in ("1", "4"):
        assert got(cache, 10, 20, path=used) == DATA[10:20]
    put(cache, (0, 1000), path="new")
    assert [name for name in names if not cached_ranges(cache, name)] == ["0", "2"]
    assert size(folder) == 9 * 1016 <= 0.9 * 10_160
    assert cached_ranges(cache, "new") == [(0, 1000)]
    assert len(list(folder.iterdir())) == 9  # no empty folders


def test_cache_stays_within_its_limit(folder: Path) -> None:
    dice, sizes = Random(1), []
    cache = RangeCache(folder, 20_000)
    for _ in range(300):
        start = dice.randrange(PIN.size - 2500)
        put(cache, (start, start + dice.randrange(1, 2500)), path=dice.choice("abc"))
        sizes.append(size(folder))
    assert 17_000 < max(sizes) <= 20_000
    assert min(sizes[20:]) > 14_000


def test_smaller_limit_applies_at_the_first_put(folder: Path) -> None:
    put(RangeCache(folder, LARGE), *((start, start + 1000) for start in range(0, 50_000, 1000)))
    smaller = RangeCache(folder, 20_000)
    assert len(cached_ranges(smaller)) == 1
    assert got(smaller, 0, 50_000) == DATA[:50_000]
    put(smaller, (60_000, 60_001))
    assert size(folder) <= 18_000
    assert got(smaller, 60_000, 60_001) == DATA[60_000:60_001]


def test_removes_leftovers_of_a_kill(folder: Path) -> None:
    cache = RangeCache(folder, 10_000)
    put(cache, (0, 1000))
    left = the_file(folder).with_name(".ab_c12x9.part")
    left.write_bytes(bytes(9000))
    os.utime(left, (LONG_AGO, LONG_AGO))
    (folder / ("0" * 32)).mkdir()
    put(RangeCache(folder, 10_000), (1000, 2000))
    assert [file.name for file in files(folder)] == ["0-1000", "1000-2000"]
    assert len(list(folder.iterdir())) == 1


def test_cache_folder_is_private(cache: RangeCache, folder: Path) -> None:
    put(cache, (0, 10))
    assert [path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))] == [0, 0, 0]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_threads_get_correct_bytes_during_eviction(folder: Path) -> None:
    inner = Memory()
    sources = [CachedSource(inner, RangeCache(folder, 20_000)) for _ in range(2)]  # as in two processes

    def read(seed: int) -> list[ByteRange]:
        dice, wrong = Random(seed), []
        for _ in range(60):
            start = dice.randrange(0, 40_000, 100)
            requested = ByteRange(start, start + dice.randrange(100, 2500, 100))
            if sources[seed % 2].get(PATH, requested, pin=PIN).body != right(requested):
                wrong.append(requested)
        return wrong

    with ThreadPoolExecutor(8) as executor:
        assert [wrong for wrongs in executor.map(read, range(8)) for wrong in wrongs] == []
    assert 0 < len(inner.asked) < 8 * 60
    assert size(folder) <= 20_000 * 5 // 4


PUT = """
cache, dice = RangeCache(folder, 300_000), Random(1)
for number in range(100_000):
    start = dice.randrange(60_000)
    put(cache, (start, start + dice.randrange(20_000, 37_500)), path=str(number % 20))
    print(number, flush=True)
"""


def test_cache_survives_a_kill(folder: Path) -> None:
    with run_script(folder, PUT) as process:
        for number in range(60):
            assert line(process) == str(number)
        process.send_signal(signal.SIGKILL)
    cache = RangeCache(folder, 300_000)
    entries = [(str(name), span) for name in range(20) for span in cached_ranges(cache, str(name))]
    assert entries
    for name, (start, end) in entries:
        assert got(cache, start, end, path=name) == DATA[start:end]
    put(cache, (0, 1000), path="new")
    assert got(cache, 0, 1000, path="new") == DATA[:1000]
    assert size(folder) <= 300_000


FULL = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
cache = RangeCache(folder, LARGE)
put(cache, (0, 1000))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
put(cache, (1000, 50_000), (50_000, 51_000))
print(cached_ranges(cache), len(files(folder)), flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
put(cache, (1000, 50_000))
print(cached_ranges(cache), len(files(folder)), flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs a limit on the size of files")
def test_full_disk_disables_caching_of_large_bodies(folder: Path) -> None:
    """Files have a size limit in this test, since only root can fill a disk."""
    with run_script(folder, FULL) as process:
        assert line(process) == "[(0, 1000), (50000, 51000)] 2"
        assert line(process) == "[(0, 51000)] 3"


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="users cannot be changed")
def test_read_only_cache_still_answers() -> None:
    with tempfile.TemporaryDirectory() as name:  # readable for all users, unlike pytest's folder
        folder, stored = Path(name) / "ranges", [(0, 1000), (2000, 2500), (3000, 3500)]
        if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in Path(name).parents):
            pytest.skip("other users cannot read temporary files")
        put(RangeCache(folder, LARGE), *stored)
        for file in files(folder):
            if file.name == "2000-2500":
                file.write_bytes(bytes(516))  # damage that cannot be removed
            file.chmod(0 if file.name == "3000-3500" else 0o444)
        for path in (*folder.iterdir(), folder):
            path.chmod(0o555)
        Path(name).chmod(0o755)
        try:
            with as_nobody():
                cache = RangeCache(folder, 100_000)
                assert cached_ranges(cache) == stored
                assert got(cache, 100, 900) == DATA[100:900]
                put(cache, (1000, 2000))
                put(cache, (0, 1000), path="other")
                assert (got(cache, 2000, 2500), got(cache, 3000, 3500)) == (None, None)
                assert (cached_ranges(cache), cached_ranges(cache, "other")) == (stored, [])
        finally:
            for path in (folder, *folder.iterdir()):
                path.chmod(0o755)


def replace_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


@pytest.mark.parametrize(
    ("happens", "requests", "remaining"),
    [
        (shutil.rmtree, 2, True),
        (replace_by_a_file, 4, False),
        (lambda folder: replace_by_a_file(next(folder.iterdir())), 4, False),
        (lambda folder: folder.chmod(0), 1 if os.geteuid() == 0 else 4, True),
    ],
)
def test_answers_though_the_cache_folder_is_removed(
    cache: RangeCache, folder: Path, happens: Callable[[Path], None], requests: int, *, remaining: bool
) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    source.get(PATH, WANTED, pin=PIN)
    happens(folder)
    for _ in range(3):
        assert source.get(PATH, WANTED, pin=PIN).body == right(WANTED)
    assert len(inner.asked) == requests
    folder.chmod(0o700)
    assert source.cached_ranges(PATH, PIN) == ([WANTED] if remaining else [])
