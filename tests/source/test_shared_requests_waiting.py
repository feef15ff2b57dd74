"""Who waits for whom: nobody for ever, and nobody for what is kept already."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from catalogue.errors import Forbidden
from catalogue.source.byte_ranges import ByteRange, FileVersion, resolve
from catalogue.source.cache import RangeCache
from catalogue.source.checks import RequestedRange, Response
from catalogue.source.shared_requests import SharedSource
from tests.support.shared_source import DATA, PATH, SOON, THREADS, Span, large_cache

cache = pytest.fixture(large_cache)


class Interrupted(BaseException):
    """What ends a thread and is no error of the source's, as KeyboardInterrupt does."""


class Gated:
    """A source that answers each range when the test says so, and as it says."""

    url = "test:/"
    connections = 4

    def __init__(self) -> None:
        self.pin = FileVersion(len(DATA), '"1"')
        self.asked: list[RequestedRange] = []
        self._changed = threading.Condition()
        self._gates: dict[Span, Future[None]] = {}

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:  # noqa: ARG002 - all alike
        self.asked.append(requested)
        there = resolve(requested, len(DATA)) if requested else ByteRange(0, len(DATA))
        if pin and isinstance(requested, ByteRange):
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


def test_waits_for_overlaps_and_requests_the_rest(asking: Asking, gated: Gated) -> None:
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
    assert asking.source.cached_ranges(PATH, gated.pin) == [ByteRange(0, 150)]


def test_mutual_overlaps_do_not_deadlock(asking: Asking, gated: Gated) -> None:
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


def test_waiting_client_requests_after_the_other_thread_died(asking: Asking, gated: Gated) -> None:
    first = asking(0, 100)
    gated.arrived(0, 100)
    waiting = [asking(0, 100) for _ in range(8)]
    gated.answer(0, 100, Interrupted())
    with pytest.raises(Interrupted):
        first.result(SOON)
    gated.answer(0, 100)
    assert all(right(each, 0, 100) for each in waiting)
    assert len(gated.asked) == 2  # one of them did, for all


def test_dead_thread_releases_its_other_ranges(asking: Asking, gated: Gated, cache: RangeCache) -> None:
    keep(cache, gated.pin, 40, 60)
    first = asking(0, 100)
    gated.arrived(0, 40)
    waiting = asking(60, 100)
    gated.answer(0, 40, Interrupted())
    gated.answer(60, 100)
    assert right(waiting, 60, 100)
    with pytest.raises(Interrupted):
        first.result(SOON)


def test_later_requests_are_sent_after_an_error(asking: Asking, gated: Gated) -> None:
    first = asking(0, 100)
    gated.answer(0, 100, Forbidden("not now"))
    with pytest.raises(Forbidden):
        first.result(SOON)
    again = asking(0, 100)
    gated.answer(0, 100)
    assert right(again, 0, 100)


def test_does_not_wait_for_other_files_and_versions(asking: Asking, gated: Gated, executor: ThreadPoolExecutor) -> None:
    waiting = asking(0, 100)
    gated.arrived(0, 100)
    others = [(PATH, FileVersion(len(DATA), '"2"'), 110), ("other", gated.pin, 120)]
    for path, pin, end in others:
        other = executor.submit(asking.source.get, path, ByteRange(0, end), pin=pin)
        gated.answer(0, end)
        assert right(other, 0, end)
    gated.answer(0, 100)
    assert right(waiting, 0, 100)
