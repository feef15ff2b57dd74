"""Equal requests of several threads are sent once, and no thread waits forever."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from catalogue.errors import CatalogueError, NotFound
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.cache import CachedSource, RangeCache
from catalogue.source.checks import RequestedRange, Response
from tests.support.answers import Memory
from tests.support.faults import FaultServer, Kind, always
from tests.support.sources import open_http

PATH = "cc-index/part 0.parquet"
DATA = Random(3).randbytes(200_000)
PIN = FileVersion(len(DATA), '"1"')
LARGE = 1 << 30
THREADS = 16
SOON = 10
"""Seconds after which a waiting test fails."""
SLOW = 0.3
"""Seconds until a response, so that all threads send their requests before."""


def together(source: CachedSource, requested: ByteRange, pin: FileVersion) -> list[bytes | CatalogueError]:
    """Return the responses of threads that start at the same moment."""
    start = threading.Barrier(THREADS)

    def read(_: int) -> bytes | CatalogueError:
        start.wait(SOON)
        try:
            return source.get(PATH, requested, pin=pin).body
        except CatalogueError as error:
            return error

    with ThreadPoolExecutor(THREADS) as executor:
        return [*executor.map(read, range(THREADS))]


@pytest.mark.parametrize(
    ("limit", "strong"),
    [(LARGE, True), (LARGE, False), (0, True), (40_000, True)],
    ids=["cached", "no ETag", "no cache", "too large for the cache"],
)
def test_equal_requests_are_sent_once(tmp_path: Path, limit: int, *, strong: bool) -> None:
    cache = RangeCache(tmp_path / "cache", limit)
    with FaultServer({PATH: DATA}, latency=SLOW) as server:
        with closing(CachedSource(open_http(server.url, connections=THREADS), cache)) as source:
            etag = source.get(PATH, SuffixRange(1)).etag if strong else None
            answers = together(source, ByteRange(1000, 9000), FileVersion(len(DATA), etag))
        assert answers == [DATA[1000:9000]] * THREADS
        assert server.requests == 1 + strong


def test_errors_reach_all_waiting_threads_and_are_not_remembered(tmp_path: Path) -> None:
    with (
        FaultServer({PATH: DATA}, latency=SLOW, script=always(Kind.NOT_FOUND)) as server,
        closing(CachedSource(open_http(server.url), RangeCache(tmp_path / "cache", LARGE))) as source,
    ):
        for requests in (1, 2):
            outcomes = together(source, ByteRange(0, 5000), PIN)
            assert {type(outcome) for outcome in outcomes} == {NotFound}
            assert server.requests == requests


class Interrupted(BaseException):
    """An exception such as KeyboardInterrupt, which is not an error of the source."""


class Dying(Memory):
    """A source whose first request interrupts its thread, once others wait for it."""

    def __init__(self) -> None:
        super().__init__(DATA)
        self.asked, self.waited = threading.Event(), threading.Event()

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        response = super().get(path, requested, pin=pin)
        if not self.asked.is_set():
            self.asked.set()
            assert self.waited.wait(SOON)
            raise Interrupted
        return response


def test_another_thread_requests_after_the_first_one_died(tmp_path: Path) -> None:
    get = CachedSource(inner := Dying(), RangeCache(tmp_path / "cache", LARGE)).get
    with ThreadPoolExecutor(THREADS) as executor:
        first = executor.submit(get, PATH, ByteRange(0, 100), pin=PIN)
        assert inner.asked.wait(SOON)
        others = [executor.submit(get, PATH, ByteRange(0, 100), pin=PIN) for _ in range(8)]
        inner.waited.set()
        with pytest.raises(Interrupted):
            first.result(SOON)
        assert {other.result(SOON).body for other in others} == {DATA[:100]}
    assert len(inner.log) == 2  # one of them requested it for all
