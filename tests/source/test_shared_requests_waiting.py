"""Who waits for whom: nobody for ever, and nobody for what is kept already."""

import os
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from catalogue.errors import Forbidden
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange, resolve
from catalogue.source.cache import RangeCache
from catalogue.source.checks import Response, Wanted
from catalogue.source.shared_requests import SharedSource
from tests.support.caches import beside, line, put
from tests.support.shared_source import DATA, LARGE, PATH, SOON, THREADS, Span, large_cache

cache = pytest.fixture(large_cache)


class Interrupted(BaseException):
    """What ends a thread and is no error of the source's, as KeyboardInterrupt does."""


class Gated:
    """A source that answers each range when the test says so, and as it says."""

    url = "test:/"
    connections = 4

    def __init__(self) -> None:
        self.pin = FileVersion(len(DATA), '"1"')
        self.asked: list[Wanted] = []
        self._changed = threading.Condition()
        self._gates: dict[Span, Future[None]] = {}

    def get(self, path: str, wanted: Wanted = None, *, pin: FileVersion | None = None) -> Response:  # noqa: ARG002 - all alike
        self.asked.append(wanted)
        there = resolve(wanted, len(DATA)) if wanted else ByteRange(0, len(DATA))
        if pin and isinstance(wanted, ByteRange):
            gate: Future[None] = Future()
            with self._changed:
                self._gates[there.start, there.end] = gate
                self._changed.notify_all()
            gate.result(SOON)
        return Response(DATA[there.start : there.end], there.start, len(DATA), self.pin.etag, "yesterday")

    def close(self) -> None:
        """Nothing is open."""

    def answer(self, start: int, end: int, error: BaseException | None = None) -> None:
        """Let the request for a range go on, as soon as it has come."""
        with self._changed:
            assert self._changed.wait_for(lambda: (start, end) in self._gates, SOON), self.asked
            gate = self._gates.pop((start, end))
        if error:
            gate.set_exception(error)
        else:
            gate.set_result(None)

    def arrived(self, start: int, end: int) -> None:
        """Wait until a range is asked for."""
        with self._changed:
            assert self._changed.wait_for(lambda: (start, end) in self._gates, SOON), self.asked


class Asking:
    """Asks a shared source, each time in a thread of its own."""

    def __init__(self, source: SharedSource, pin: FileVersion, executor: ThreadPoolExecutor) -> None:
        self.source = source
        self._pin = pin
        self._executor = executor

    def __call__(self, start: int, end: int) -> "Future[Response]":
        return self._executor.submit(self.source.get, PATH, ByteRange(start, end), pin=self._pin)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS) as running:
        yield running


@pytest.fixture
def gated() -> Gated:
    return Gated()


@pytest.fixture
def asking(gated: Gated, cache: RangeCache, executor: ThreadPoolExecutor) -> Asking:
    return Asking(SharedSource(gated, cache), gated.pin, executor)


def right(answer: "Future[Response]", start: int, end: int) -> bool:
    given = answer.result(SOON)
    return (given.body, given.start, given.total_size) == (DATA[start:end], start, len(DATA))


def keep(cache: RangeCache, pin: FileVersion, start: int, end: int) -> None:
    cache.put(Gated.url, PATH, pin, start, DATA[start:end])


# ---- who waits for whom ----


def test_what_overlaps_is_waited_for_and_only_the_rest_asked_for(asking: Asking, gated: Gated) -> None:
    first = asking(0, 100)
    gated.arrived(0, 100)
    second = asking(50, 150)
    gated.arrived(100, 150)
    third, inside = asking(20, 120), asking(100, 140)
    gated.answer(0, 100)
    assert right(first, 0, 100)
    gated.answer(100, 150)
    assert right(second, 50, 150)
    assert right(third, 20, 120)
    assert right(inside, 100, 140)
    assert len(gated.asked) == 2
    assert asking.source.held(PATH, gated.pin) == [ByteRange(0, 150)]


def test_there_is_one_request_for_each_gap(asking: Asking, gated: Gated, cache: RangeCache) -> None:
    keep(cache, gated.pin, 20, 40)
    under_way = asking(60, 80)
    gated.arrived(60, 80)
    wanted = asking(0, 100)
    for gap in [(0, 20), (40, 60), (80, 100)]:
        gated.answer(*gap)
    gated.answer(60, 80)
    assert right(wanted, 0, 100)
    assert right(under_way, 60, 80)
    assert len(gated.asked) == 4


def test_two_that_want_each_others_parts_both_get_them(asking: Asking, gated: Gated) -> None:
    """Each has a request under way that the other waits for, and another to make."""
    middle = asking(40, 60)
    gated.arrived(40, 60)
    one = asking(30, 70)
    gated.arrived(30, 40)
    other = asking(20, 80)
    gated.answer(20, 30)
    gated.answer(70, 80)
    gated.answer(30, 40)
    gated.answer(60, 70)
    gated.answer(40, 60)
    assert right(one, 30, 70)
    assert right(other, 20, 80)
    assert right(middle, 40, 60)
    assert len(gated.asked) == 5


def test_whoever_waits_for_a_thread_that_dies_asks_instead(asking: Asking, gated: Gated) -> None:
    first = asking(0, 100)
    gated.arrived(0, 100)
    waiting = [asking(0, 100) for _ in range(8)]
    gated.answer(0, 100, Interrupted())
    with pytest.raises(Interrupted):
        first.result(SOON)
    gated.answer(0, 100)
    assert all(right(each, 0, 100) for each in waiting)
    assert len(gated.asked) == 2  # one of them did, for all


def test_what_a_thread_that_dies_had_still_to_ask_for_is_free_again(
    asking: Asking, gated: Gated, cache: RangeCache
) -> None:
    keep(cache, gated.pin, 40, 60)
    first = asking(0, 100)
    gated.arrived(0, 40)
    waiting = asking(60, 100)
    gated.answer(0, 40, Interrupted())
    gated.answer(60, 100)
    assert right(waiting, 60, 100)
    with pytest.raises(Interrupted):
        first.result(SOON)


def test_an_error_is_nobodys_who_asks_later(asking: Asking, gated: Gated) -> None:
    first = asking(0, 100)
    gated.answer(0, 100, Forbidden("not now"))
    with pytest.raises(Forbidden):
        first.result(SOON)
    again = asking(0, 100)
    gated.answer(0, 100)
    assert right(again, 0, 100)


def test_other_files_and_versions_are_not_waited_for(
    asking: Asking, gated: Gated, executor: ThreadPoolExecutor
) -> None:
    waiting = asking(0, 100)
    gated.arrived(0, 100)
    others = [(PATH, FileVersion(len(DATA), '"2"'), 110), ("other", gated.pin, 120)]
    for path, pin, end in others:
        other = executor.submit(asking.source.get, path, ByteRange(0, end), pin=pin)
        gated.answer(0, end)
        assert right(other, 0, end)
    gated.answer(0, 100)
    assert right(waiting, 0, 100)


@pytest.mark.parametrize("wanted", [None, SuffixRange(50), ByteRange(0, 50)])
def test_other_requests_pass_straight_through(asking: Asking, gated: Gated, wanted: Wanted) -> None:
    pins = [None] if isinstance(wanted, ByteRange) else [None, gated.pin]
    for pin in [*pins, *pins]:
        assert asking.source.get(PATH, wanted, pin=pin).last_modified == "yesterday"
    assert gated.asked == [wanted] * 2 * len(pins)


# ---- a cache that is not what it says ----


def test_what_is_damaged_is_asked_for_again(asking: Asking, gated: Gated, cache: RangeCache) -> None:
    keep(cache, gated.pin, 0, 50)
    [entry] = cache.folder.glob("*/0-50")
    entry.write_bytes(bytes(66))
    wanted = asking(0, 100)
    gated.answer(50, 100)
    gated.answer(0, 50)
    assert right(wanted, 0, 100)


def test_without_room_nothing_is_looked_up(asking: Asking, gated: Gated, cache: RangeCache) -> None:
    keep(cache, gated.pin, 0, 100)
    asking.source = SharedSource(gated, RangeCache(cache.folder, 0))
    assert asking.source.held(PATH, gated.pin) == []
    wanted = asking(0, 100)
    gated.answer(0, 100)
    assert right(wanted, 0, 100)


DAMAGED = """
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.shared_requests import SharedSource
from tests.support.caches import DATA, PATH, PIN, Memory
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
source = SharedSource(Memory(), RangeCache(folder, LARGE))
print(source.held(PATH, PIN), flush=True)
print(source.get(PATH, ByteRange(0, 700), pin=PIN).body == DATA[:700], source.inner.asked, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="there is nobody else to be")
def test_damage_that_cannot_be_removed_is_got_around() -> None:
    """The cache speaks of it for ever."""
    with tempfile.TemporaryDirectory() as name:  # where everybody may go, as nobody must; pytest's own is private
        folder = Path(name) / "ranges"
        if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in Path(name).parents):
            pytest.skip("nobody may go where temporary files are")
        put(RangeCache(folder, LARGE), (0, 500))
        [entry] = folder.glob("*/0-500")
        entry.write_bytes(bytes(516))
        entry.chmod(0o444)
        for path in (*folder.iterdir(), folder):
            path.chmod(0o555)
        Path(name).chmod(0o755)
        try:
            with beside(folder, DAMAGED) as process:
                assert line(process) == "[ByteRange(start=0, end=500)]"
                assert line(process) == "True [ByteRange(start=500, end=700), ByteRange(start=0, end=500)]"
        finally:
            for path in (folder, *folder.iterdir()):
                path.chmod(0o755)
