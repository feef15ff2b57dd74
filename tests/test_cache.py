"""What was fetched is not asked for again; no damage, kill or full disk ever makes an answer wrong, or fail."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.errors import GivenUp
from catalogue.ranges import ByteRange, Pin, SuffixRange, resolve
from catalogue.source.cache import CachedSource, RangeCache
from catalogue.source.response import Response, Wanted

URL = "https://example.org/"
PATH = "cc-index/crawl=CC-MAIN-2022-05/part 0.parquet"
DATA = Random(1).randbytes(100_000)
PIN = Pin(len(DATA), '"0123456789abcdef-8"')
LARGE = 1 << 30
LONG_AGO = 1_000_000_000
"""Seconds; the time of last use of the first entry, where the order matters."""
WANTED = ByteRange(1000, 1500)


class Memory:
    """A source of files in memory, all of one ETag, that notes what it is asked for."""

    url = URL
    connections = 3

    def __init__(self, etag: str | None = PIN.etag, data: bytes = DATA) -> None:
        self.etag = etag
        self.data = data
        self.asked: list[Wanted] = []
        self._lock = threading.Lock()
        self._closed = False

    def get(self, path: str, wanted: Wanted = None, *, pin: Pin | None = None) -> Response:  # noqa: ARG002 - all alike
        if self._closed:
            message = "closed"
            raise GivenUp(message)
        with self._lock:
            self.asked.append(wanted)
        size = len(self.data)
        given = resolve(wanted, size) if wanted else ByteRange(0, size)
        return Response(self.data[given.start : given.end], given.start, size, self.etag, "yesterday")

    def close(self) -> None:
        self._closed = True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "ranges"


@pytest.fixture
def cache(folder: Path) -> RangeCache:
    return RangeCache(folder, LARGE)


def right(wanted: ByteRange) -> bytes:
    return DATA[wanted.start : wanted.end]


def put(cache: RangeCache, *ranges: tuple[int, int], path: str = PATH) -> None:
    for start, end in ranges:
        cache.put(URL, path, PIN, start, DATA[start:end])


def got(cache: RangeCache, start: int, end: int, path: str = PATH) -> bytes | None:
    return cache.get(URL, path, PIN, ByteRange(start, end))


def held(cache: RangeCache, path: str = PATH) -> list[tuple[int, int]]:
    return [(there.start, there.end) for there in cache.held(URL, path, PIN)]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in files(folder))


def the_file(folder: Path) -> Path:
    (file,) = files(folder)
    return file


# Answers


def test_what_was_fetched_is_not_asked_for_again(cache: RangeCache) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    assert (source.url, source.connections) == (URL, 3)
    fetched = source.get(PATH, WANTED, pin=PIN)
    assert fetched == inner.get(PATH, WANTED, pin=PIN)
    for wanted in (WANTED, ByteRange(1000, 1001), ByteRange(1499, 1500), ByteRange(1100, 1300)):
        expected = Response(right(wanted), wanted.start, PIN.size, PIN.etag, None)
        assert source.get(PATH, wanted, pin=PIN) == expected
    assert inner.asked == [WANTED, WANTED]
    assert source.held(PATH, PIN) == [WANTED]


def test_what_is_held_in_part_is_asked_for_whole(cache: RangeCache) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    wanted = [WANTED, ByteRange(1400, 1600), ByteRange(900, 1600), ByteRange(1700, 1800)]
    for each in [*wanted, *wanted]:
        assert source.get(PATH, each, pin=PIN).body == right(each)
    assert inner.asked == wanted
    assert source.held(PATH, PIN) == [ByteRange(900, 1600), ByteRange(1700, 1800)]


@pytest.mark.parametrize("wanted", [None, SuffixRange(500), WANTED])
def test_other_requests_pass_straight_through(cache: RangeCache, folder: Path, wanted: Wanted) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    pins = [None] if isinstance(wanted, ByteRange) else [None, PIN]
    for pin in pins:
        for _ in range(2):
            assert source.get(PATH, wanted, pin=pin) == Memory().get(PATH, wanted)
    assert len(inner.asked) == 2 * len(pins)
    assert not folder.exists()


@pytest.mark.parametrize("etag", [None, 'W/"0123456789abcdef-8"', "0123456789abcdef-8", ""])
def test_a_version_without_a_strong_etag_is_never_kept(cache: RangeCache, folder: Path, etag: str | None) -> None:
    inner = Memory(etag)
    source = CachedSource(inner, cache)
    pin = Pin(PIN.size, etag)
    for _ in range(2):
        assert source.get(PATH, WANTED, pin=pin).body == right(WANTED)
    cache.put(URL, PATH, pin, 0, b"x")
    assert len(inner.asked) == 2
    assert source.held(PATH, pin) == []
    assert not folder.exists()


@pytest.mark.parametrize(
    "inner",
    [Memory('"other"'), Memory(f"W/{PIN.etag}"), Memory(None), Memory(data=DATA[:-1])],
    ids=["other", "weak", "none", "short"],
)
def test_an_answer_that_is_not_surely_of_the_pinned_version_is_not_kept(
    cache: RangeCache, folder: Path, inner: Memory
) -> None:
    assert CachedSource(inner, cache).get(PATH, WANTED, pin=PIN).body == right(WANTED)
    assert not folder.exists()


def test_other_versions_files_and_sources_are_never_answered(cache: RangeCache) -> None:
    put(cache, (0, 500))
    others = [
        ("https://example.org/cc-index/", PATH.removeprefix("cc-index/"), PIN),
        ("https://example.com/", PATH, PIN),
        (URL, PATH + "2", PIN),
        (URL, PATH, replace(PIN, etag='"other"')),
        (URL, PATH, replace(PIN, size=PIN.size + 1)),
        (URL, "\udcff\0", PIN),
    ]
    for url, path, pin in others:
        assert cache.held(url, path, pin) == []
        assert cache.get(url, path, pin, ByteRange(0, 500)) is None
    for number, (url, path, pin) in enumerate(others):
        cache.put(url, path, pin, 0, bytes([number]) * 500)
    assert got(cache, 0, 500) == DATA[:500]
    for number, (url, path, pin) in enumerate(others):
        assert cache.get(url, path, pin, ByteRange(0, 500)) == bytes([number]) * 500


@pytest.mark.parametrize(("start", "body"), [(0, b""), (-1, b"xx"), (PIN.size - 1, b"xx"), (PIN.size, b"x")])
def test_what_does_not_lie_in_the_file_is_not_kept(cache: RangeCache, folder: Path, start: int, body: bytes) -> None:
    cache.put(URL, PATH, PIN, start, body)
    assert not folder.exists()


def test_a_source_that_is_closed_answers_no_more(cache: RangeCache) -> None:
    source = CachedSource(Memory(), cache)
    source.get(PATH, WANTED, pin=PIN)
    source.close()
    with pytest.raises(GivenUp):
        source.get(PATH, WANTED, pin=PIN)


# Assembling


@pytest.mark.parametrize(
    "ranges",
    [
        [(10, 20), (20, 30), (30, 40)],
        [(30, 40), (10, 20), (20, 30)],
        [(10, 25), (15, 35), (34, 40)],
        [(15, 20), (10, 30), (12, 40)],
        [(10, 11), (11, 40)],
    ],
    ids=str,
)
def test_one_answer_is_made_of_several_entries(cache: RangeCache, ranges: list[tuple[int, int]]) -> None:
    put(cache, *ranges)
    assert held(cache) == [(10, 40)]
    for start in range(10, 40):
        for end in range(start + 1, 41):
            assert got(cache, start, end) == DATA[start:end]
    assert got(cache, 9, 40) is got(cache, 10, 41) is None


def test_what_is_held_wholly_is_not_kept_twice(cache: RangeCache, folder: Path) -> None:
    put(cache, (10, 20), (20, 30), (10, 20), (12, 28), (10, 30))
    assert [file.name for file in files(folder)] == ["10-20", "20-30"]


def test_of_several_entries_that_would_do_the_shortest_is_read(cache: RangeCache, folder: Path) -> None:
    put(cache, (10, 20), (0, 1000))
    (long,) = folder.glob("*/0-1000")
    long.write_bytes(bytes(1016))
    assert got(cache, 12, 20) == DATA[12:20]
    assert long.exists()


SPANS = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda span: (span[0], span[0] + span[1]))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), SPANS), max_size=25))
def test_answers_are_right_and_there_if_all_their_bytes_are(steps: list[tuple[bool, tuple[int, int]]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        cache = RangeCache(Path(name), LARGE)
        kept: set[int] = set()
        for putting, (start, end) in steps:
            if putting:
                put(cache, (start, end))
                kept.update(range(start, end))
            else:
                assert got(cache, start, end) == (DATA[start:end] if kept.issuperset(range(start, end)) else None)
        starts = sorted(place for place in kept if place - 1 not in kept)
        ends = sorted(place + 1 for place in kept if place + 1 not in kept)
        assert held(cache) == list(zip(starts, ends, strict=True))


# Damage


def test_every_flipped_bit_is_noticed_and_the_entry_removed(cache: RangeCache, folder: Path) -> None:
    put(cache, (1000, 1020))
    sound = the_file(folder).read_bytes()
    assert sound[16:] == DATA[1000:1020]
    for place in range(len(sound)):
        put(cache, (1000, 1020))
        rotten = bytearray(sound)
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
def test_what_is_damaged_is_asked_for_again(cache: RangeCache, folder: Path, damage: Callable[[Path], None]) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    source.get(PATH, WANTED, pin=PIN)
    damage(the_file(folder))
    wanted = ByteRange(1001, 1500)  # which all of these names claim to hold
    assert len(source.held(PATH, PIN)) == 1
    for _ in range(2):
        assert source.get(PATH, wanted, pin=PIN).body == right(wanted)
    assert inner.asked == [WANTED, wanted]
    assert the_file(folder).name == "1001-1500"


def test_an_entry_of_another_version_is_no_entry(cache: RangeCache, folder: Path) -> None:
    put(cache, (0, 500))
    put(cache, (0, 500), path="other")
    one, other = files(folder)
    one.write_bytes(other.read_bytes())
    answers = [got(cache, 0, 500), got(cache, 0, 500, path="other")]
    assert sorted(answers, key=bool) == [None, DATA[:500]]


def test_what_claims_to_lie_behind_the_files_end_is_not_held(cache: RangeCache, folder: Path) -> None:
    put(cache, (0, 500))
    the_file(folder).with_name(f"0-{PIN.size + 1}").write_bytes(bytes(PIN.size + 17))
    assert held(cache) == [(0, 500)]


def test_damage_is_got_around_where_that_is_possible(cache: RangeCache, folder: Path) -> None:
    put(cache, (0, 10), (10, 20), (0, 30))
    for file in files(folder):
        if file.name == "0-30":
            file.write_bytes(bytes(46))
    assert got(cache, 5, 20) == DATA[5:20]
    assert got(cache, 5, 30) is None
    assert held(cache) == [(0, 20)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_what_is_strange_is_neither_followed_nor_touched(cache: RangeCache, folder: Path, tmp_path: Path) -> None:
    put(cache, (0, 500))
    genuine = the_file(folder)
    version, elsewhere = genuine.parent, tmp_path / "elsewhere"
    version.rename(elsewhere)
    os.utime(elsewhere / "0-500", (LONG_AGO, LONG_AGO))
    names = ["00-500", "0-0500", "0-500 ", "0-500.part", "-500", "0-", "5-5", "9-5", "0-\u0661", f"0-{'9' * 19}", "x"]

    def make_strange() -> None:
        version.mkdir()
        for name in names:
            shutil.copyfile(elsewhere / "0-500", version / name)
        (version / "0-500").symlink_to(elsewhere / "0-500")
        (version / "0-501").mkdir()
        os.mkfifo(version / "0-502")

    make_strange()
    assert held(cache) == []
    assert got(cache, 0, 500) is None
    put(cache, (0, 501))  # where there is a folder
    (folder / "notes").mkdir()
    (folder / "notes" / "0-500").write_bytes(bytes(500))
    (folder / ("a" * 32)).symlink_to(elsewhere)
    put(RangeCache(folder, 80), (0, 10), path="other")
    assert {path.name for path in version.iterdir()} == {*names, "0-500", "0-501", "0-502"}
    assert held(cache, "other") == [(0, 10)]  # nothing else counts

    shutil.rmtree(version)
    version.symlink_to(elsewhere)
    assert held(cache) == []
    assert got(cache, 0, 500) is None
    put(cache, (500, 600))
    (untouched,) = files(elsewhere)
    assert untouched.stat().st_mtime == LONG_AGO


# The limit


def test_a_body_of_more_than_an_eighth_of_the_limit_is_not_kept(folder: Path) -> None:
    put(RangeCache(folder, 0), (0, 1))
    put(RangeCache(folder, 807), (0, 101))
    assert not folder.exists()
    cache = RangeCache(folder, 807)
    put(cache, (0, 100))
    assert held(cache) == [(0, 100)]


def test_what_was_not_used_for_longest_goes_first(folder: Path) -> None:
    cache = RangeCache(folder, 10_160)  # for ten entries
    names = [str(number) for number in range(10)]
    for number, name in enumerate(names):
        put(cache, (0, 1000), path=name)
        for file in folder.glob("*/0-1000"):
            if file.stat().st_mtime > LONG_AGO + 100:
                os.utime(file, (LONG_AGO + number,) * 2)
    assert size(folder) == 10_160
    assert held(cache, "0") == [(0, 1000)]  # to know that it is there is not to use it
    for used in ("1", "4"):
        assert got(cache, 10, 20, path=used) == DATA[10:20]
    put(cache, (0, 1000), path="new")
    assert [name for name in names if not held(cache, name)] == ["0", "2"]
    assert size(folder) == 9 * 1016 <= 0.9 * 10_160
    assert held(cache, "new") == [(0, 1000)]
    assert len(list(folder.iterdir())) == 9  # no empty folders


def test_the_limit_is_kept_after_every_put(folder: Path) -> None:
    dice, sizes = Random(1), []
    cache = RangeCache(folder, 20_000)
    for _ in range(300):
        start = dice.randrange(PIN.size - 2500)
        put(cache, (start, start + dice.randrange(1, 2500)), path=dice.choice("abc"))
        sizes.append(size(folder))
    assert 17_000 < max(sizes) <= 20_000
    assert min(sizes[20:]) > 14_000


def test_a_smaller_limit_holds_from_the_first_put_on(folder: Path) -> None:
    put(RangeCache(folder, LARGE), *((start, start + 1000) for start in range(0, 50_000, 1000)))
    smaller = RangeCache(folder, 20_000)
    assert len(held(smaller)) == 1
    assert got(smaller, 0, 50_000) == DATA[:50_000]
    put(smaller, (60_000, 60_001))
    assert size(folder) <= 18_000
    assert got(smaller, 60_000, 60_001) == DATA[60_000:60_001]


def test_what_a_kill_may_leave_is_cleared_away(folder: Path) -> None:
    cache = RangeCache(folder, 10_000)
    put(cache, (0, 1000))
    left = the_file(folder).with_name(".ab_c12x9.part")
    left.write_bytes(bytes(9000))
    os.utime(left, (LONG_AGO, LONG_AGO))
    (folder / ("0" * 32)).mkdir()
    put(RangeCache(folder, 10_000), (1000, 2000))
    assert [file.name for file in files(folder)] == ["0-1000", "1000-2000"]
    assert len(list(folder.iterdir())) == 1


# Sharing


def test_two_caches_on_one_folder_share_it_and_its_limit(folder: Path) -> None:
    dice, sizes = Random(2), []
    caches = [RangeCache(folder, 20_000) for _ in range(2)]
    for _ in range(200):
        start = dice.randrange(PIN.size - 2000)
        one, other = dice.sample(caches, 2)
        put(one, (start, start + 1 + dice.randrange(2000)))
        assert got(other, start, start + 1) == DATA[start : start + 1]
        sizes.append(size(folder))
    assert max(sizes) <= 20_000 * 9 // 8  # what the other one adds is noticed late, but not later
    assert held(caches[0]) == held(caches[1]) != []


def test_the_folder_is_the_users_own(cache: RangeCache, folder: Path) -> None:
    put(cache, (0, 10))
    assert [path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))] == [0, 0, 0]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_threads_get_right_answers_whatever_is_evicted_meanwhile(folder: Path) -> None:
    inner = Memory()
    sources = [CachedSource(inner, RangeCache(folder, 20_000)) for _ in range(2)]  # two, as processes would have

    def ask(seed: int) -> list[ByteRange]:
        dice, wrong = Random(seed), []
        for _ in range(60):
            start = dice.randrange(0, 40_000, 100)
            wanted = ByteRange(start, start + dice.randrange(100, 2500, 100))
            if sources[seed % 2].get(PATH, wanted, pin=PIN).body != right(wanted):
                wrong.append(wanted)
        return wrong

    with ThreadPoolExecutor(8) as executor:
        assert [wrong for wrongs in executor.map(ask, range(8)) for wrong in wrongs] == []
    assert 0 < len(inner.asked) < 8 * 60
    assert size(folder) <= 20_000 * 5 // 4


def test_threads_lose_nothing_of_what_has_room(cache: RangeCache) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    asked = [(f"{number % 7}", ByteRange(number * 100, number * 100 + 100)) for number in range(200)]
    for _ in range(2):
        with ThreadPoolExecutor(8) as executor:
            bodies = executor.map(lambda each: source.get(each[0], each[1], pin=PIN).body, asked)
            assert list(bodies) == [right(wanted) for _, wanted in asked]
    assert len(inner.asked) == 200


SCRIPT = """
import os, signal, sys
from pathlib import Path
from random import Random
from catalogue.source.cache import RangeCache
from tests.test_cache import LARGE, files, got, held, put

folder = Path(sys.argv[1])
"""


@contextmanager
def beside(folder: Path, script: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SCRIPT + script, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


PUT = """
cache, dice = RangeCache(folder, 300_000), Random(1)
for number in range(100_000):
    start = dice.randrange(60_000)
    put(cache, (start, start + dice.randrange(20_000, 37_500)), path=str(number % 20))
    print(number, flush=True)
"""


def test_a_kill_leaves_a_cache_that_can_be_used(folder: Path) -> None:
    with beside(folder, PUT) as process:
        for number in range(60):
            assert line(process) == str(number)
        process.send_signal(signal.SIGKILL)
    cache = RangeCache(folder, 300_000)
    found = [(str(name), there) for name in range(20) for there in held(cache, str(name))]
    assert found
    for name, (start, end) in found:
        assert got(cache, start, end, path=name) == DATA[start:end]
    put(cache, (0, 1000), path="new")
    assert got(cache, 0, 1000, path="new") == DATA[:1000]
    assert size(folder) <= 300_000


# Disks that fail


FULL = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
cache = RangeCache(folder, LARGE)
put(cache, (0, 1000))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
put(cache, (1000, 50_000), (50_000, 51_000))
print(held(cache), len(files(folder)), flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
put(cache, (1000, 50_000))
print(held(cache), len(files(folder)), flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="there is no limit to the size of files")
def test_what_a_full_disk_has_no_room_for_is_not_kept(folder: Path) -> None:
    """A limit to the size of files, as room on a disk cannot be taken away without being root."""
    with beside(folder, FULL) as process:
        assert line(process) == "[(0, 1000), (50000, 51000)] 2"
        assert line(process) == "[(0, 51000)] 3"


READ_ONLY = """
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
cache = RangeCache(folder, 100_000)
print(held(cache), got(cache, 100, 900) is not None, flush=True)
put(cache, (1000, 2000))
put(cache, (0, 1000), path="other")
print(got(cache, 2000, 2500), got(cache, 3000, 3500), flush=True)
print(held(cache), held(cache, "other"), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="there is nobody else to be")
def test_a_cache_that_cannot_be_written_still_answers() -> None:
    with tempfile.TemporaryDirectory() as name:  # where everybody may go, as nobody must; pytest's own is private
        folder = Path(name) / "ranges"
        if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in Path(name).parents):
            pytest.skip("nobody may go where temporary files are")
        put(RangeCache(folder, LARGE), (0, 1000), (2000, 2500), (3000, 3500))
        for file in files(folder):
            if file.name == "2000-2500":
                file.write_bytes(bytes(516))  # damage that cannot be removed
            file.chmod(0 if file.name == "3000-3500" else 0o444)
        for path in (*folder.iterdir(), folder):
            path.chmod(0o555)
        Path(name).chmod(0o755)
        try:
            with beside(folder, READ_ONLY) as process:
                assert line(process) == "[(0, 1000), (2000, 2500), (3000, 3500)] True"
                assert line(process) == "None None"
                assert line(process) == "[(0, 1000), (2000, 2500), (3000, 3500)] []"
        finally:
            for path in (folder, *folder.iterdir()):
                path.chmod(0o755)


def forbid(folder: Path) -> None:
    """Let nobody in; to root this is as if nothing had happened."""
    folder.chmod(0)


def replace_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


def replace_a_version_by_a_file(folder: Path) -> None:
    (version,) = folder.iterdir()
    shutil.rmtree(version)
    version.write_text("")


@pytest.mark.parametrize(
    ("happens", "requests", "kept"),
    [
        (shutil.rmtree, 2, True),
        (replace_by_a_file, 4, False),
        (replace_a_version_by_a_file, 4, False),
        (forbid, 1 if os.geteuid() == 0 else 4, True),
    ],
)
def test_whatever_happens_to_the_folder_answers_come(
    cache: RangeCache, folder: Path, happens: Callable[[Path], None], requests: int, *, kept: bool
) -> None:
    inner = Memory()
    source = CachedSource(inner, cache)
    source.get(PATH, WANTED, pin=PIN)
    happens(folder)
    for _ in range(3):
        assert source.get(PATH, WANTED, pin=PIN).body == right(WANTED)
    assert len(inner.asked) == requests
    folder.chmod(0o700)
    assert source.held(PATH, PIN) == ([WANTED] if kept else [])


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inner = Memory()
    source = CachedSource(inner, RangeCache(tmp_path / "file" / "ranges", LARGE))
    for _ in range(2):
        assert source.get(PATH, WANTED, pin=PIN).body == right(WANTED)
    assert len(inner.asked) == 2
    assert source.held(PATH, PIN) == []
