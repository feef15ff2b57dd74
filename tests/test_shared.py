"""No byte is fetched twice, though many ask at once; nobody waits for ever, and every answer is right."""

import os
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from catalogue.errors import CatalogueError, Denied, GivenUp, Missing, Unreachable
from catalogue.ranges import ByteRange, Pin, SuffixRange, resolve
from catalogue.source import RangeCache, Response, SharedSource, Wanted
from catalogue.source.http import HttpSource
from tests.faults import Fault, FaultServer, Kind, Request, always
from tests.test_cache import beside, line, put

PATH = "cc-index/part 0.parquet"
DATA = Random(3).randbytes(200_000)
LARGE = 1 << 30
THREADS = 16
SOON = 10
"""Seconds after which a test fails that waits for what must come."""
SLOW = 0.3
"""Seconds until an answer, in which all threads have long asked."""

Span = tuple[int, int]


class Interrupted(BaseException):
    """What ends a thread and is no error of the source's, as KeyboardInterrupt does."""


class Gated:
    """A source that answers each range when the test says so, and as it says."""

    url = "test:/"
    connections = 4

    def __init__(self) -> None:
        self.pin = Pin(len(DATA), '"1"')
        self.asked: list[Wanted] = []
        self._changed = threading.Condition()
        self._gates: dict[Span, Future[None]] = {}

    def get(self, path: str, wanted: Wanted = None, *, pin: Pin | None = None) -> Response:  # noqa: ARG002 - all alike
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

    def __init__(self, source: SharedSource, pin: Pin, executor: ThreadPoolExecutor) -> None:
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
def cache(tmp_path: Path) -> RangeCache:
    return RangeCache(tmp_path / "cache", LARGE)


@pytest.fixture
def asking(gated: Gated, cache: RangeCache, executor: ThreadPoolExecutor) -> Asking:
    return Asking(SharedSource(gated, cache), gated.pin, executor)


def right(answer: "Future[Response]", start: int, end: int) -> bool:
    given = answer.result(SOON)
    return (given.body, given.start, given.total_size) == (DATA[start:end], start, len(DATA))


def keep(cache: RangeCache, pin: Pin, start: int, end: int) -> None:
    cache.put(Gated.url, PATH, pin, start, DATA[start:end])


# ---- over a network ----


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def over(server: FaultServer, cache: RangeCache) -> SharedSource:
    return SharedSource(HttpSource(server.url, user_agent="test", connections=THREADS), cache)


def pin_of(source: SharedSource) -> Pin:
    answer = source.get(PATH, SuffixRange(1))
    return Pin(answer.total_size, answer.etag)


def together(source: SharedSource, wanted: list[list[ByteRange]], pin: Pin) -> list[bytes | CatalogueError]:
    """What each of so many threads is answered, which begin at the same moment."""
    start = threading.Barrier(len(wanted))

    def ask(ranges: list[ByteRange]) -> list[bytes | CatalogueError]:
        start.wait(SOON)
        outcomes: list[bytes | CatalogueError] = []
        for each in ranges:
            try:
                outcomes.append(source.get(PATH, each, pin=pin).body)
            except CatalogueError as error:
                outcomes.append(error)
        return outcomes

    with ThreadPoolExecutor(len(wanted)) as executor:
        return [outcome for outcomes in executor.map(ask, wanted) for outcome in outcomes]


def sent(server: FaultServer) -> list[Span]:
    """The ranges that a server was asked for, ascending."""
    texts = (re.fullmatch(r"bytes=(\d+)-(\d+)", each.range_header or "") for each in server.settle())
    return sorted((int(text[1]), int(text[2]) + 1) for text in texts if text)


@pytest.mark.parametrize("seed", range(4))
def test_every_answer_is_right_and_no_byte_comes_twice(cache: RangeCache, seed: int) -> None:
    dice = Random(seed)
    places = [dice.randrange(len(DATA)) for _ in range(40)]
    wanted = [
        [ByteRange(*sorted(dice.sample(places, 2))) if dice.random() < 0.9 else ByteRange(0, 5000) for _ in range(12)]
        for _ in range(THREADS)
    ]
    with FaultServer({PATH: DATA}, latency=0.01) as server, closing(over(server, cache)) as source:
        pin = pin_of(source)
        first = ByteRange(90_000, 110_000)
        source.get(PATH, first, pin=pin)
        answers = together(source, wanted, pin)
        assert answers == [DATA[each.start : each.end] for each in chain(*wanted)]
        times = Counter(place for start, end in sent(server) for place in range(start, end))
        assert set(times.values()) == {1}
        assert set(times) == {place for each in [first, *chain(*wanted)] for place in range(each.start, each.end)}


def test_among_faults_answers_are_right_or_errors_and_nobody_waits_for_ever(cache: RangeCache) -> None:
    dice = Random(5)
    places = [dice.randrange(len(DATA)) for _ in range(40)]
    wanted = [[ByteRange(*sorted(dice.sample(places, 2))) for _ in range(12)] for _ in range(THREADS)]

    def script(request: Request) -> Fault | None:
        return {1: Fault(Kind.CUT_FIN), 2: Fault(Kind.NOT_FOUND)}.get(request.number % 6)

    with FaultServer({PATH: DATA}, latency=0.01, script=script) as server, closing(over(server, cache)) as source:
        answers = together(source, wanted, pin_of(source))
    met = Counter(type(answer) for answer in answers)
    assert met.keys() <= {bytes, Missing, Unreachable}
    assert met[Unreachable] > 0 < met[bytes]
    assert met[bytes] == sum(
        answer == DATA[each.start : each.end] for answer, each in zip(answers, chain(*wanted), strict=True)
    )


@pytest.mark.parametrize("limit", [300_000, 40_000, 8])
def test_answers_are_right_whatever_is_evicted_meanwhile(tmp_path: Path, limit: int) -> None:
    dice = Random(limit)
    starts = [dice.randrange(0, 60_000, 500) for _ in range(THREADS * 20)]
    ranges = [ByteRange(start, start + dice.randrange(500, 9000, 500)) for start in starts]
    wanted = [ranges[number::THREADS] for number in range(THREADS)]
    cache = RangeCache(tmp_path / "cache", limit)
    with FaultServer({PATH: DATA}) as server, closing(over(server, cache)) as source:
        answers = together(source, wanted, pin_of(source))
        assert answers == [DATA[each.start : each.end] for each in chain(*wanted)]
        assert 0 < len(sent(server)) <= 2 * len(ranges)


CASES = {"no ETag": (LARGE, True), "no cache": (0, False), "too large for the cache": (40_000, False)}
"""Bytes that a cache may hold, and whether the version's ETag is not known."""


@pytest.mark.parametrize(("limit", "weak"), [(LARGE, False), *CASES.values()], ids=["kept", *CASES])
def test_what_many_want_at_once_is_asked_for_once(tmp_path: Path, limit: int, *, weak: bool) -> None:
    cache = RangeCache(tmp_path / "cache", limit)
    with FaultServer({PATH: DATA}, latency=SLOW) as server, closing(over(server, cache)) as source:
        pin = pin_of(source)
        version = Pin(pin.size, None) if weak else pin
        answers = together(source, [[ByteRange(1000, 9000)]] * THREADS, version)
        assert answers == [DATA[1000:9000]] * THREADS
        assert sent(server) == [(1000, 9000)]


@pytest.mark.parametrize(("limit", "weak"), CASES.values(), ids=CASES)
def test_what_cannot_be_kept_is_asked_for_as_it_is_wanted(tmp_path: Path, limit: int, *, weak: bool) -> None:
    cache = RangeCache(tmp_path / "cache", limit)
    with FaultServer({PATH: DATA}, latency=SLOW) as server, closing(over(server, cache)) as source:
        pin = pin_of(source)
        version = Pin(pin.size, None) if weak else pin
        spans = [(1000, 9000), (2000, 10_000), (1000, 10_000)]
        answers = together(source, [[ByteRange(*each)] for each in spans], version)
        assert answers == [DATA[start:end] for start, end in spans]
        assert sent(server) == sorted(spans)


def test_an_error_is_everybodys_who_waits_for_the_request(cache: RangeCache) -> None:
    with FaultServer({PATH: DATA}, latency=SLOW, script=always(Kind.NOT_FOUND)) as server:
        with closing(over(server, cache)) as source:
            outcomes = together(source, [[ByteRange(0, 5000)]] * THREADS, Pin(len(DATA), '"1"'))
        assert {type(outcome) for outcome in outcomes} == {Missing}
        assert server.requests == 1


def test_closing_lets_nobody_wait(cache: RangeCache) -> None:
    arrived = threading.Event()

    def silent(_: object) -> Fault:
        arrived.set()
        return Fault(Kind.SILENT, hold=60)

    with (
        FaultServer({PATH: DATA}, script=silent) as server,
        closing(over(server, cache)) as source,
        ThreadPoolExecutor(THREADS) as executor,
    ):
        asked = [
            executor.submit(source.get, PATH, ByteRange(start, 9000), pin=Pin(len(DATA), '"1"'))
            for start in range(0, 8000, 1000)
        ]
        assert arrived.wait(SOON)
        source.close()
        for each in asked:
            with pytest.raises(GivenUp):
                each.result(SOON)


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
    gated.answer(0, 100, Denied("not now"))
    with pytest.raises(Denied):
        first.result(SOON)
    again = asking(0, 100)
    gated.answer(0, 100)
    assert right(again, 0, 100)


def test_other_files_and_versions_are_not_waited_for(
    asking: Asking, gated: Gated, executor: ThreadPoolExecutor
) -> None:
    waiting = asking(0, 100)
    gated.arrived(0, 100)
    others = [(PATH, Pin(len(DATA), '"2"'), 110), ("other", gated.pin, 120)]
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
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
from catalogue.ranges import ByteRange
from catalogue.source import SharedSource
from tests.test_cache import DATA, PATH, PIN, Memory
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
