"""Fetched ranges are not requested again; damaged ones are."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.cache import CachedSource, RangeCache
from catalogue.source.checks import RequestedRange, Response
from tests.support.amounts import EXAMPLES
from tests.support.caches import (
    DATA,
    LARGE,
    LONG_AGO,
    PATH,
    PIN,
    URL,
    WANTED,
    Memory,
    cache_folder,
    cached_ranges,
    files,
    got,
    large_cache,
    put,
    right,
    the_file,
)

folder = pytest.fixture(cache_folder)
cache = pytest.fixture(large_cache)


def test_fetched_ranges_are_served_from_cache(cache: RangeCache) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    assert (source.url, source.connections) == (URL, 3)
    fetched = source.get(PATH, WANTED, pin=PIN)
    assert fetched == inner.get(PATH, WANTED, pin=PIN)
    for requested in (WANTED, ByteRange(1000, 1001), ByteRange(1499, 1500), ByteRange(1100, 1300)):
        expected = Response(right(requested), requested.start, PIN.size, PIN.etag, None)
        assert source.get(PATH, requested, pin=PIN) == expected
    assert inner.asked == [WANTED, WANTED]
    assert source.cached_ranges(PATH, PIN) == [WANTED]


def test_partly_cached_ranges_are_fetched_again(cache: RangeCache) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    requested = [WANTED, ByteRange(1400, 1600), ByteRange(900, 1600), ByteRange(1700, 1800)]
    for each in [*requested, *requested]:
        assert source.get(PATH, each, pin=PIN).body == right(each)
    assert inner.asked == requested
    assert source.cached_ranges(PATH, PIN) == [ByteRange(900, 1600), ByteRange(1700, 1800)]


def test_ranges_of_an_unknown_version_are_cached_for_requests_that_name_it(cache: RangeCache) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    for _ in range(2):
        assert source.get(PATH, WANTED) == Memory().get(PATH, WANTED)
    assert source.get(PATH, WANTED, pin=PIN).body == right(WANTED)
    assert inner.asked == [WANTED, WANTED]


@pytest.mark.parametrize("requested", [None, SuffixRange(500)])
def test_other_requests_pass_straight_through(cache: RangeCache, folder: Path, requested: RequestedRange) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    pins = [None, PIN]
    for pin in pins:
        for _ in range(2):
            assert source.get(PATH, requested, pin=pin) == Memory().get(PATH, requested)
    assert len(inner.asked) == 2 * len(pins)
    assert not folder.exists()


@pytest.mark.parametrize("etag", [None, 'W/"0123456789abcdef-8"', "0123456789abcdef-8", ""])
def test_never_caches_without_a_strong_etag(cache: RangeCache, folder: Path, etag: str | None) -> None:
    inner = Memory(etag)
    source = CachedSource(inner, cache)
    pin = FileVersion(PIN.size, etag)
    for _ in range(2):
        assert source.get(PATH, WANTED, pin=pin).body == right(WANTED)
    cache.put(URL, PATH, pin, 0, b"x")
    assert len(inner.asked) == 2
    assert source.cached_ranges(PATH, pin) == []
    assert not folder.exists()


@pytest.mark.parametrize(
    "inner",
    [Memory('"other"'), Memory(f"W/{PIN.etag}"), Memory(None), Memory(data=DATA[:-1])],
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
    inner = Memory()
    source = CachedSource(inner, cache)
    source.get(PATH, WANTED, pin=PIN)
    damage(the_file(folder))
    requested = ByteRange(1001, 1500)  # inside the range of each name
    assert len(source.cached_ranges(PATH, PIN)) == 1
    for _ in range(2):
        assert source.get(PATH, requested, pin=PIN).body == right(requested)
    assert inner.asked == [WANTED, requested]
    assert the_file(folder).name == "1001-1500"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
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
