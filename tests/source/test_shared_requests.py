"""Equal requests of several threads are sent once, and no thread waits forever."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from catalogue.errors import CatalogueError, Forbidden, NotFound, SourceUnavailable, Unreachable
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange, resolve
from catalogue.source.cache import RangeCache, SharedSource
from catalogue.source.checks import RequestedRange, Response
from tests.support.amounts import in_part
from tests.support.faults import Fault, FaultServer, Kind, Request, always
from tests.support.sources import Arrivals, open_http

PATH = "cc-index/part 0.parquet"
DATA = Random(3).randbytes(200_000)
LARGE = 1 << 30
THREADS = 16
SOON = 10
"""Seconds after which a waiting test fails."""
SLOW = 0.3
"""Seconds until a response, so that all threads send their requests before."""


@pytest.fixture
def cache(tmp_path: Path) -> RangeCache:
    return RangeCache(tmp_path / "cache", LARGE)


def over(server: FaultServer, cache: RangeCache) -> SharedSource:
    return SharedSource(open_http(server.url, connections=THREADS), cache)


def pin_of(source: SharedSource) -> FileVersion:
    answer = source.get(PATH, SuffixRange(1))
    return FileVersion(answer.total_size, answer.etag)


def together(source: SharedSource, requested: list[list[ByteRange]], pin: FileVersion) -> list[bytes | CatalogueError]:
    """Return the responses of threads that start at the same moment, one for each list."""
    start = threading.Barrier(len(requested))

    def read(ranges: list[ByteRange]) -> list[bytes | CatalogueError]:
        start.wait(SOON)
        outcomes: list[bytes | CatalogueError] = []
        for each in ranges:
            try:
                outcomes.append(source.get(PATH, each, pin=pin).body)
            except CatalogueError as error:
                outcomes.append(error)
        return outcomes

    with ThreadPoolExecutor(len(requested)) as executor:
        return [outcome for outcomes in executor.map(read, requested) for outcome in outcomes]


def sent(server: FaultServer) -> list[tuple[int, int]]:
    """Return the requested ranges in ascending order."""
    texts = (re.fullmatch(r"bytes=(\d+)-(\d+)", each.range_header or "") for each in server.settle())
    return sorted((int(text[1]), int(text[2]) + 1) for text in texts if text)


def random_ranges(seed: int) -> list[list[ByteRange]]:
    dice = Random(seed)
    places = [dice.randrange(len(DATA)) for _ in range(40)]
    return [[ByteRange(*sorted(dice.sample(places, 2))) for _ in range(12)] for _ in range(THREADS)]


def test_shared_requests_survive_faults(cache: RangeCache) -> None:
    requested = random_ranges(5)

    def script(request: Request) -> Fault | None:
        return {1: Fault(Kind.CUT_FIN), 2: Fault(Kind.NOT_FOUND)}.get(request.number % 6)

    with FaultServer({PATH: DATA}, latency=0.01, script=script) as server, closing(over(server, cache)) as source:
        answers = together(source, requested, pin_of(source))
    wrong = [type(a) for a, each in zip(answers, chain(*requested), strict=True) if a != DATA[each.start : each.end]]
    assert set(wrong) <= {NotFound, Unreachable}
    assert wrong.count(Unreachable) > 0
    assert len(wrong) < len(answers)


@in_part(3)
@pytest.mark.parametrize("limit", [300_000, 40_000, 8])
def test_shared_requests_survive_eviction(tmp_path: Path, limit: int) -> None:
    dice = Random(limit)
    starts = [dice.randrange(0, 60_000, 500) for _ in range(THREADS * 20)]
    ranges = [ByteRange(start, start + dice.randrange(500, 9000, 500)) for start in starts]
    requested = [ranges[number::THREADS] for number in range(THREADS)]
    with (
        FaultServer({PATH: DATA}) as server,
        closing(over(server, RangeCache(tmp_path / "cache", limit))) as source,
    ):
        answers = together(source, requested, pin_of(source))
        assert answers == [DATA[each.start : each.end] for each in chain(*requested)]
        assert 0 < len(sent(server)) <= 2 * len(ranges)


@pytest.mark.parametrize(
    ("limit", "strong"),
    [(LARGE, True), (LARGE, False), (0, True), (40_000, True)],
    ids=["cached", "no ETag", "no cache", "too large for the cache"],
)
def test_equal_requests_are_sent_once(tmp_path: Path, limit: int, *, strong: bool) -> None:
    with (
        FaultServer({PATH: DATA}, latency=SLOW) as server,
        closing(over(server, RangeCache(tmp_path / "cache", limit))) as source,
    ):
        pin = pin_of(source)
        pin = pin if strong else FileVersion(pin.size, None)
        assert together(source, [[ByteRange(1000, 9000)]] * THREADS, pin) == [DATA[1000:9000]] * THREADS
        assert sent(server) == [(1000, 9000)]
        if limit == LARGE and strong:
            return
        server.reset()
        spans = [(21_000, 29_000), (22_000, 30_000), (21_000, 30_000)]  # overlapping ranges that cannot be cached
        answers = together(source, [[ByteRange(*each)] for each in spans], pin)
        assert answers == [DATA[start:end] for start, end in spans]
        assert sent(server) == sorted(spans)


def test_error_reaches_all_waiting_clients(cache: RangeCache) -> None:
    with FaultServer({PATH: DATA}, latency=SLOW, script=always(Kind.NOT_FOUND)) as server:
        with closing(over(server, cache)) as source:
            outcomes = together(source, [[ByteRange(0, 5000)]] * THREADS, FileVersion(len(DATA), '"1"'))
        assert {type(outcome) for outcome in outcomes} == {NotFound}
        assert server.requests == 1


def test_close_ends_shared_waits(cache: RangeCache) -> None:
    arrivals, pin = Arrivals(), FileVersion(len(DATA), '"1"')
    with (
        FaultServer({PATH: DATA}, script=arrivals) as server,
        closing(over(server, cache)) as source,
        ThreadPoolExecutor(THREADS) as executor,
    ):
        running = [executor.submit(source.get, PATH, ByteRange(at, 9000), pin=pin) for at in (0, 0, 1000, 1000)]
        arrivals.wait(1)
        source.close()
        for each in running:
            with pytest.raises(SourceUnavailable):
                each.result(SOON)


class Interrupted(BaseException):
    """An exception such as KeyboardInterrupt, which is not an error of the source."""


class Gated:
    """A source whose responses the test triggers, read by threads through a shared source."""

    url = "test:/"
    connections = 4

    def __init__(self, cache: RangeCache, executor: ThreadPoolExecutor) -> None:
        self.pin = FileVersion(len(DATA), '"1"')
        self.requested: list[RequestedRange] = []
        self.shared = SharedSource(self, cache)
        self._executor = executor
        self._changed = threading.Condition()
        self._gates: dict[tuple[int, int], Future[None]] = {}

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:  # noqa: ARG002 - the same for all files
        self.requested.append(requested)
        span = resolve(requested, len(DATA)) if requested else ByteRange(0, len(DATA))
        gate: Future[None] = Future()
        with self._changed:
            self._gates[span.start, span.end] = gate
            self._changed.notify_all()
        gate.result(SOON)
        return Response(DATA[span.start : span.end], span.start, len(DATA), self.pin.etag, "yesterday")

    def close(self) -> None:
        """Nothing is open."""

    def read(self, start: int, end: int, path: str = PATH, pin: FileVersion | None = None) -> "Future[Response]":
        return self._executor.submit(self.shared.get, path, ByteRange(start, end), pin=pin or self.pin)

    def wait(self, start: int, end: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: (start, end) in self._gates, SOON), self.requested

    def answer(self, start: int, end: int, error: BaseException | None = None) -> None:
        """Answer the request for a range as soon as it is sent."""
        self.wait(start, end)
        gate = self._gates.pop((start, end))
        if error:
            gate.set_exception(error)
        else:
            gate.set_result(None)


@pytest.fixture
def gated(cache: RangeCache) -> Iterator[Gated]:
    with ThreadPoolExecutor(THREADS) as executor:
        yield Gated(cache, executor)


def check(answer: "Future[Response]", start: int, end: int) -> None:
    found = answer.result(SOON)
    assert (found.body, found.start, found.total_size) == (DATA[start:end], start, len(DATA))


def test_waiting_client_requests_after_the_other_thread_died(gated: Gated) -> None:
    first = gated.read(0, 100)
    gated.wait(0, 100)
    waiting = [gated.read(0, 100) for _ in range(8)]
    gated.answer(0, 100, Interrupted())
    with pytest.raises(Interrupted):
        first.result(SOON)
    gated.answer(0, 100)
    for each in waiting:
        check(each, 0, 100)
    assert len(gated.requested) == 2  # one of them requested it for all


def test_later_requests_are_sent_after_an_error(gated: Gated) -> None:
    first = gated.read(0, 100)
    gated.answer(0, 100, Forbidden("not now"))
    with pytest.raises(Forbidden):
        first.result(SOON)
    again = gated.read(0, 100)
    gated.answer(0, 100)
    check(again, 0, 100)


def test_does_not_wait_for_other_files_and_versions(gated: Gated) -> None:
    waiting = gated.read(0, 100)
    gated.wait(0, 100)
    for path, pin, end in ((PATH, FileVersion(len(DATA), '"2"'), 110), ("other", gated.pin, 120)):
        other = gated.read(0, end, path, pin)
        gated.answer(0, end)
        check(other, 0, end)
    gated.answer(0, 100)
    check(waiting, 0, 100)
