"""Fetched ranges are not requested again, damaged ones are; a cache has a limit, and its errors do not stop reads."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.cache import CachedSource, RangeCache
from catalogue.source.checks import RequestedRange, Response
from tests.support.amounts import EXAMPLES
from tests.support.answers import Memory
from tests.support.caches import (
    DATA,
    LARGE,
    LONG_AGO,
    PATH,
    PIN,
    URL,
    WANTED,
    cached_ranges,
    files,
    got,
    memory,
    put,
    right,
    run_script,
    size,
    the_file,
)
from tests.support.processes import line
from tests.support.read_only import as_nobody


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "ranges"


@pytest.fixture
def cache(folder: Path) -> RangeCache:
    return RangeCache(folder, LARGE)


def test_fetched_ranges_are_served_from_cache(cache: RangeCache) -> None:
    inner = memory()
    source = CachedSource(inner, cache)
    assert (source.url, source.connections) == (URL, 3)
    fetched = source.get(PATH, WANTED, pin=PIN)
    assert fetched == inner.get(PATH, WANTED, pin=PIN)
    for requested in (WANTED, ByteRange(1000, 1001), ByteRange(1499, 1500), ByteRange(1100, 1300)):
        expected = Response(right(requested), requested.start, PIN.size, PIN.etag, None)
        assert source.get(PATH, requested, pin=PIN) == expected
    assert inner.log == [WANTED, WANTED]
    assert source.cached_ranges(PATH, PIN) == [WANTED]


def test_partly_cached_ranges_are_fetched_again(cache: RangeCache) -> None:
    inner = memory()
    source = CachedSource(inner, cache)
    requested = [WANTED, ByteRange(1400, 1600), ByteRange(900, 1600), ByteRange(1700, 1800)]
    for each in [*requested, *requested]:
        assert source.get(PATH, each, pin=PIN).body == right(each)
    assert inner.log == requested
    assert source.cached_ranges(PATH, PIN) == [ByteRange(900, 1600), ByteRange(1700, 1800)]


def test_ranges_of_an_unknown_version_are_cached_for_requests_that_name_it(cache: RangeCache) -> None:
    inner = memory()
    source = CachedSource(inner, cache)
    for _ in range(2):
        assert source.get(PATH, WANTED) == memory().get(PATH, WANTED)
    assert source.get(PATH, WANTED, pin=PIN).body == right(WANTED)
    assert inner.log == [WANTED, WANTED]


@pytest.mark.parametrize("requested", [None, SuffixRange(500)])
def test_other_requests_pass_straight_through(cache: RangeCache, folder: Path, requested: RequestedRange) -> None:
    inner = memory()
    source = CachedSource(inner, cache)
    pins = [None, PIN]
    for pin in pins:
        for _ in range(2):
            assert source.get(PATH, requested, pin=pin) == memory().get(PATH, requested)
    assert len(inner.log) == 2 * len(pins)
    assert not folder.exists()


@pytest.mark.parametrize("etag", [None, 'W/"0123456789abcdef-8"', "0123456789abcdef-8", ""])
def test_never_caches_without_a_strong_etag(cache: RangeCache, folder: Path, etag: str | None) -> None:
    inner = memory(etag)
    source = CachedSource(inner, cache)
    pin = FileVersion(PIN.size, etag)
    for _ in range(2):
        assert source.get(PATH, WANTED, pin=pin).body == right(WANTED)
    cache.put(URL, PATH, pin, 0, b"x")
    assert len(inner.log) == 2
    assert source.cached_ranges(PATH, pin) == []
    assert not folder.exists()


@pytest.mark.parametrize(
    "inner",
    [memory('"other"'), memory(f"W/{PIN.etag}"), memory(None), memory(data=DATA[:-1])],
    ids=["other", "weak", "none", "short"],
)
def test_never_caches_other_versions_than_the_pinned_one(cache: RangeCache, folder: Path, inner: Memory) -> None:
    assert CachedSource(inner, cache).get(PATH, WANTED, pin=PIN).body == right(WANTED)
    assert not folder.exists()


def test_cache_separates_sources_files_and_versions(cache: RangeCache) -> None:
    put(cache, (0, 500))
    others = [
        ("https://example.org/cc-index/", PATH.removeprefix("cc-index/"), PIN),
        ("https://example.com/", PATH, PIN),
        (URL, PATH + "2", PIN),
        (URL, PATH, PIN._replace(etag='"other"')),
        (URL, PATH, PIN._replace(size=PIN.size + 1)),
        (URL, "\udcff\0", PIN),
    ]
    for url, path, pin in others:
        assert cache.cached_ranges(url, path, pin) == []
        assert cache.get(url, path, pin, ByteRange(0, 500)) is None
    for number, (url, path, pin) in enumerate(others):
        cache.put(url, path, pin, 0, bytes([number]) * 500)
    assert got(cache, 0, 500) == DATA[:500]
    for number, (url, path, pin) in enumerate(others):
        assert cache.get(url, path, pin, ByteRange(0, 500)) == bytes([number]) * 500


SPANS = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda span: (span[0], span[0] + span[1]))


@settings(max_examples=3 * EXAMPLES)
@given(st.lists(st.tuples(st.booleans(), SPANS), max_size=25))
def test_cache_joins_entries(steps: list[tuple[bool, tuple[int, int]]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        cache = RangeCache(Path(name), LARGE)
        remaining: set[int] = set()
        for putting, (start, end) in steps:
            if putting:
                put(cache, (start, end))
                remaining.update(range(start, end))
            else:
                assert got(cache, start, end) == (DATA[start:end] if remaining.issuperset(range(start, end)) else None)
        starts = sorted(place for place in remaining if place - 1 not in remaining)
        ends = sorted(place + 1 for place in remaining if place + 1 not in remaining)
        assert cached_ranges(cache) == list(zip(starts, ends, strict=True))


def test_removes_entries_with_a_flipped_bit(cache: RangeCache, folder: Path) -> None:
    put(cache, (1000, 1020))
    is_valid = the_file(folder).read_bytes()
    assert is_valid[16:] == DATA[1000:1020]
    for place in range(len(is_valid)):
        put(cache, (1000, 1020))
        rotten = bytearray(is_valid)
        rotten[place] ^= 1 << place % 8
        the_file(folder).write_bytes(rotten)
        assert got(cache, 1005, 1010) is None
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: os.truncate(file, 515),
        lambda file: os.truncate(file, 517),
        lambda file: os.truncate(file, 16),
        lambda file: os.truncate(file, 0),
        lambda file: file.rename(file.with_name("1001-1501")),
        lambda file: file.rename(file.with_name("999-99999")),
    ],
    ids=["shorter", "longer", "digest alone", "empty", "moved", "renamed"],
)
def test_requests_damaged_entries_again(cache: RangeCache, folder: Path, damage: Callable[[Path], None]) -> None:
    inner = memory()
    source = CachedSource(inner, cache)
    source.get(PATH, WANTED, pin=PIN)
    damage(the_file(folder))
    requested = ByteRange(1001, 1500)  # inside the range of each name
    assert len(source.cached_ranges(PATH, PIN)) == 1
    for _ in range(2):
        assert source.get(PATH, requested, pin=PIN).body == right(requested)
    assert inner.log == [WANTED, requested]
    assert the_file(folder).name == "1001-1500"


def test_ignores_links_and_foreign_files_in_the_cache_folder(cache: RangeCache, folder: Path, tmp_path: Path) -> None:
    put(cache, (0, 500))
    version, elsewhere = the_file(folder).parent, tmp_path / "elsewhere"
    version.rename(elsewhere)
    os.utime(elsewhere / "0-500", (LONG_AGO, LONG_AGO))
    names = ["00-500", "0-0500", "0-500 ", "0-500.part", "-500", "0-", "5-5", "9-5", "0-\u0661", f"0-{'9' * 19}", "x"]
    version.mkdir()
    for name in names:
        shutil.copyfile(elsewhere / "0-500", version / name)
    (version / "0-500").symlink_to(elsewhere / "0-500")
    (version / "0-501").mkdir()
    os.mkfifo(version / "0-502")
    assert cached_ranges(cache) == []
    assert got(cache, 0, 500) is None
    put(cache, (0, 501))  # a folder has this name
    (folder / ("a" * 32)).symlink_to(elsewhere)
    put(RangeCache(folder, 80), (0, 10), path="other")
    assert {path.name for path in version.iterdir()} == {*names, "0-500", "0-501", "0-502"}
    assert cached_ranges(cache, "other") == [(0, 10)]  # only the regular file

    shutil.rmtree(version)
    version.symlink_to(elsewhere)
    assert cached_ranges(cache) == []
    put(cache, (500, 600))
    (untouched,) = files(elsewhere)
    assert untouched.stat().st_mtime == LONG_AGO


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
    inner = memory()
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
    assert 0 < len(inner.log) < 8 * 60
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


def test_full_disk_disables_caching_of_large_bodies(folder: Path) -> None:
    """Files have a size limit in this test, since only root can fill a disk."""
    with run_script(folder, FULL) as process:
        assert line(process) == "[(0, 1000), (50000, 51000)] 2"
        assert line(process) == "[(0, 51000)] 3"


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
    inner = memory()
    source = CachedSource(inner, cache)
    source.get(PATH, WANTED, pin=PIN)
    happens(folder)
    for _ in range(3):
        assert source.get(PATH, WANTED, pin=PIN).body == right(WANTED)
    assert len(inner.log) == requests
    folder.chmod(0o700)
    assert source.cached_ranges(PATH, PIN) == ([WANTED] if remaining else [])
