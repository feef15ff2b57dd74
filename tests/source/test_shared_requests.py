"""No byte is fetched twice over a network, though many ask at once, and every answer is right."""

import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from catalogue.errors import CatalogueError, NotFound, SourceUnavailable, Unreachable
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.cache import RangeCache
from catalogue.source.http import HttpSource
from catalogue.source.shared_requests import SharedSource
from tests.support.faults import Fault, FaultServer, Kind, Request, always
from tests.support.shared_source import DATA, LARGE, PATH, SOON, THREADS, Span, large_cache

cache = pytest.fixture(large_cache)


SLOW = 0.3
"""Seconds until an answer, in which all threads have long asked."""


def over(server: FaultServer, cache: RangeCache) -> SharedSource:
    return SharedSource(HttpSource(server.url, user_agent="test", connections=THREADS), cache)


def pin_of(source: SharedSource) -> FileVersion:
    answer = source.get(PATH, SuffixRange(1))
    return FileVersion(answer.total_size, answer.etag)


def together(source: SharedSource, requested: list[list[ByteRange]], pin: FileVersion) -> list[bytes | CatalogueError]:
    """What each of so many threads is answered, which begin at the same moment."""
    start = threading.Barrier(len(requested))

    def ask(ranges: list[ByteRange]) -> list[bytes | CatalogueError]:
        start.wait(SOON)
        outcomes: list[bytes | CatalogueError] = []
        for each in ranges:
            try:
                outcomes.append(source.get(PATH, each, pin=pin).body)
            except CatalogueError as error:
                outcomes.append(error)
        return outcomes

    with ThreadPoolExecutor(len(requested)) as executor:
        return [outcome for outcomes in executor.map(ask, requested) for outcome in outcomes]


def sent(server: FaultServer) -> list[Span]:
    """The ranges that a server was asked for, ascending."""
    texts = (re.fullmatch(r"bytes=(\d+)-(\d+)", each.range_header or "") for each in server.settle())
    return sorted((int(text[1]), int(text[2]) + 1) for text in texts if text)


@pytest.mark.parametrize("seed", range(2))
def test_shared_requests_fetch_each_byte_once(cache: RangeCache, seed: int) -> None:
    dice = Random(seed)
    places = [dice.randrange(len(DATA)) for _ in range(40)]
    requested = [
        [ByteRange(*sorted(dice.sample(places, 2))) if dice.random() < 0.9 else ByteRange(0, 5000) for _ in range(12)]
        for _ in range(THREADS)
    ]
    with FaultServer({PATH: DATA}, latency=0.01) as server, closing(over(server, cache)) as source:
        pin = pin_of(source)
        first = ByteRange(90_000, 110_000)
        source.get(PATH, first, pin=pin)
        answers = together(source, requested, pin)
        assert answers == [DATA[each.start : each.end] for each in chain(*requested)]
        times = Counter(place for start, end in sent(server) for place in range(start, end))
        assert set(times.values()) == {1}
        assert set(times) == {place for each in [first, *chain(*requested)] for place in range(each.start, each.end)}


def test_shared_requests_survive_faults(cache: RangeCache) -> None:
    dice = Random(5)
    places = [dice.randrange(len(DATA)) for _ in range(40)]
    requested = [[ByteRange(*sorted(dice.sample(places, 2))) for _ in range(12)] for _ in range(THREADS)]

    def script(request: Request) -> Fault | None:
        return {1: Fault(Kind.CUT_FIN), 2: Fault(Kind.NOT_FOUND)}.get(request.number % 6)

    with FaultServer({PATH: DATA}, latency=0.01, script=script) as server, closing(over(server, cache)) as source:
        answers = together(source, requested, pin_of(source))
    met = Counter(type(answer) for answer in answers)
    assert met.keys() <= {bytes, NotFound, Unreachable}
    assert met[Unreachable] > 0 < met[bytes]
    assert met[bytes] == sum(
        answer == DATA[each.start : each.end] for answer, each in zip(answers, chain(*requested), strict=True)
    )


@pytest.mark.parametrize("limit", [300_000, 40_000, 8])
def test_shared_requests_survive_eviction(tmp_path: Path, limit: int) -> None:
    dice = Random(limit)
    starts = [dice.randrange(0, 60_000, 500) for _ in range(THREADS * 20)]
    ranges = [ByteRange(start, start + dice.randrange(500, 9000, 500)) for start in starts]
    requested = [ranges[number::THREADS] for number in range(THREADS)]
    cache = RangeCache(tmp_path / "cache", limit)
    with FaultServer({PATH: DATA}) as server, closing(over(server, cache)) as source:
        answers = together(source, requested, pin_of(source))
        assert answers == [DATA[each.start : each.end] for each in chain(*requested)]
        assert 0 < len(sent(server)) <= 2 * len(ranges)


CASES = {"no ETag": (LARGE, True), "no cache": (0, False), "too large for the cache": (40_000, False)}
"""Bytes that a cache may hold, and whether the version's ETag is not known."""


@pytest.mark.parametrize(("limit", "weak"), [(LARGE, False), *CASES.values()], ids=["kept", *CASES])
def test_equal_requests_are_sent_once(tmp_path: Path, limit: int, *, weak: bool) -> None:
    cache = RangeCache(tmp_path / "cache", limit)
    with FaultServer({PATH: DATA}, latency=SLOW) as server, closing(over(server, cache)) as source:
        pin = pin_of(source)
        version = FileVersion(pin.size, None) if weak else pin
        answers = together(source, [[ByteRange(1000, 9000)]] * THREADS, version)
        assert answers == [DATA[1000:9000]] * THREADS
        assert sent(server) == [(1000, 9000)]


@pytest.mark.parametrize(("limit", "weak"), CASES.values(), ids=CASES)
def test_overlapping_requests_are_sent_unchanged_without_cache(tmp_path: Path, limit: int, *, weak: bool) -> None:
    cache = RangeCache(tmp_path / "cache", limit)
    with FaultServer({PATH: DATA}, latency=SLOW) as server, closing(over(server, cache)) as source:
        pin = pin_of(source)
        version = FileVersion(pin.size, None) if weak else pin
        spans = [(1000, 9000), (2000, 10_000), (1000, 10_000)]
        answers = together(source, [[ByteRange(*each)] for each in spans], version)
        assert answers == [DATA[start:end] for start, end in spans]
        assert sent(server) == sorted(spans)


def test_error_reaches_all_waiting_clients(cache: RangeCache) -> None:
    with FaultServer({PATH: DATA}, latency=SLOW, script=always(Kind.NOT_FOUND)) as server:
        with closing(over(server, cache)) as source:
            outcomes = together(source, [[ByteRange(0, 5000)]] * THREADS, FileVersion(len(DATA), '"1"'))
        assert {type(outcome) for outcome in outcomes} == {NotFound}
        assert server.requests == 1


def test_close_ends_shared_waits(cache: RangeCache) -> None:
    arrived = threading.Event()

    def silent(_: object) -> Fault:
        arrived.set()
        return Fault(Kind.SILENT, hold=60)

    with (
        FaultServer({PATH: DATA}, script=silent) as server,
        closing(over(server, cache)) as source,
        ThreadPoolExecutor(THREADS) as executor,
    ):
        question = [
            executor.submit(source.get, PATH, ByteRange(start, 9000), pin=FileVersion(len(DATA), '"1"'))
            for start in range(0, 8000, 1000)
        ]
        assert arrived.wait(SOON)
        source.close()
        for each in question:
            with pytest.raises(SourceUnavailable):
                each.result(SOON)
