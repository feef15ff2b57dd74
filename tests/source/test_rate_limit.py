"""How often a host is asked, by all threads and processes together, in time that the tests make up."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalogue.errors import Blocked, SourceUnavailable
from catalogue.source.rate_limit import Limiter, Policy, SystemClock
from tests.support.clocks import START, FakeClock

POLICY = Policy(rate=5.0, connections=4, slow_down=10.0)


def granted(clock: FakeClock, *limiters: Limiter, each: int, threads: int) -> list[float]:
    """When so many threads got leave, each so many times from each limiter, in order."""

    def work(limiter: Limiter) -> Callable[[], list[float]]:
        return lambda: [limiter.acquire() for _ in range(each)]

    found: list[float] = []
    for times in clock.run(*(work(limiter) for limiter in limiters for _ in range(threads))):
        assert isinstance(times, list), times
        found += times
    return sorted(found)


def test_ten_at_once_and_five_a_second_from_then_on() -> None:
    clock = FakeClock()
    times = granted(clock, Limiter(POLICY, clock=clock), each=30, threads=16)
    assert times == pytest.approx([START] * 10 + [START + number / 5 for number in range(1, 471)], abs=1e-6)


def test_after_a_rest_there_is_one_burst_again() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    for rest, burst in [(0.0, 10), (0.4, 2), (1.0, 5), (3600.0, 10)]:
        clock.advance(rest)
        before = len(clock.waits)
        start = clock.now()
        times = [limiter.acquire() for _ in range(burst + 1)]
        assert times[:-1] == pytest.approx([start] * burst)
        assert times[-1] == pytest.approx(start + 0.2)
        assert sum(wait > 1e-6 for wait in clock.waits[before:]) == 1


def test_two_on_one_file_are_one(tmp_path: Path) -> None:
    clock = FakeClock()
    limiters = [Limiter(POLICY, clock=clock, file=tmp_path / "deep" / "host.json") for _ in range(2)]
    times = granted(clock, *limiters, each=20, threads=3)
    assert times == pytest.approx([START] * 10 + [START + number / 5 for number in range(1, 111)], abs=1e-6)


def test_without_a_rate_nobody_waits() -> None:
    clock = FakeClock()
    limiter = Limiter(Policy(), clock=clock)
    assert granted(clock, limiter, each=100, threads=4) == [START] * 400
    assert clock.waits == []
    limiter.slow_down()
    assert limiter.rate is None


def test_complaints_halve_the_rate_and_peace_brings_it_back() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    rates = []
    for _ in range(6):
        limiter.slow_down()
        limiter.slow_down()  # several at the same time are one
        rates.append(limiter.rate)
        clock.advance(1.5)
    assert rates == [2.5, 1.25, 0.625, 0.5, 0.5, 0.5]
    limiter.slow_down()
    times = [limiter.acquire() for _ in range(20)]
    assert times[-1] - times[-2] == pytest.approx(2.0)
    rates.clear()
    clock.advance(10.5 - (clock.now() - limiter.state.changed))
    for _ in range(11):
        limiter.succeeded(clock.now())
        limiter.succeeded(clock.now())
        rates.append(limiter.rate)
        clock.advance(5.25)
    assert rates == [1.5, 1.5, 2.5, 2.5, 3.5, 3.5, 4.5, 4.5, 5.0, 5.0, 5.0]


def test_no_rate_grows_within_ten_seconds_of_a_complaint() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    limiter.slow_down()
    clock.advance(9.0)
    limiter.succeeded(clock.now())
    limiter.slow_down()
    clock.advance(9.0)
    limiter.succeeded(clock.now())
    assert limiter.rate == 1.25


def test_a_rate_below_the_floor_is_left_as_it_is() -> None:
    clock = FakeClock()
    limiter = Limiter(Policy(rate=0.2), clock=clock)
    limiter.slow_down()
    assert limiter.rate == 0.2


def test_a_slower_process_is_not_sped_up_by_a_faster_one(tmp_path: Path) -> None:
    clock, file = FakeClock(), tmp_path / "host.json"
    fast = Limiter(Policy(rate=100.0), clock=clock, file=file)
    slow = Limiter(POLICY, clock=clock, file=file)
    fast.slow_down()
    assert (fast.rate, slow.rate) == (50.0, 5.0)
    clock.advance(60.0)
    slow.succeeded(clock.now())
    assert (fast.rate, slow.rate) == (50.0, 5.0)
    slow.slow_down()
    assert (fast.rate, slow.rate) == (2.5, 2.5)


# ---- blocks ----


def test_a_block_is_waited_out_twice_and_then_given_up() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    pauses = [limiter.blocked(limiter.acquire()), limiter.blocked(limiter.acquire())]
    with pytest.raises(Blocked, match="Run the same command again after") as raised:
        limiter.blocked(limiter.acquire())
    assert pauses == [300.0, 900.0]
    assert clock.waits == [300.0, 900.0]
    assert raised.value.exit_status == 75
    assert isinstance(raised.value, PermissionError)
    with pytest.raises(Blocked):
        limiter.acquire()  # at once
    assert clock.waits == [300.0, 900.0]
    clock.advance(900.0)
    with pytest.raises(Blocked):
        limiter.blocked(limiter.acquire())
    with pytest.raises(Blocked):
        limiter.acquire()


def test_several_refusals_at_the_same_time_are_one_block() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    asked = [limiter.acquire() for _ in range(4)]
    assert limiter.blocked(asked[0]) == 300.0
    clock.advance(2.0)
    assert [limiter.blocked(when) for when in asked[1:]] == [298.0] * 3
    limiter.succeeded(asked[3])  # an answer to what was asked before the block says nothing
    assert limiter.state.blocks == 1
    assert limiter.acquire() == START + 300.0


def test_a_probe_that_succeeds_ends_the_block_at_half_the_rate_and_without_a_burst() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    for _ in range(2):
        limiter.blocked(limiter.acquire())
    limiter.succeeded(limiter.acquire())
    assert limiter.rate == 2.5
    start = clock.now()
    assert [limiter.acquire() - start for _ in range(4)] == pytest.approx([0.0, 0.4, 0.8, 1.2])
    assert limiter.blocked(limiter.acquire()) == 300.0  # the next block is a first one


def test_one_probes_and_the_others_wait_for_it(tmp_path: Path) -> None:
    clock = FakeClock()
    limiters = [Limiter(POLICY, clock=clock, file=tmp_path / "host.json") for _ in range(2)]
    limiters[0].blocked(limiters[0].acquire())
    order: list[tuple[float, str]] = []
    lock = threading.Lock()

    def work(limiter: Limiter) -> None:
        asked = limiter.acquire()
        with lock:
            order.append((asked, "asked"))
        clock.sleep(7.0)  # the request takes that long
        with lock:
            order.append((clock.now(), "answered"))
        limiter.succeeded(asked)

    assert clock.run(*(lambda limiter=limiter: work(limiter) for limiter in limiters for _ in range(4))) == [None] * 8
    times = [when - START for when, what in order if what == "asked"]
    assert times[0] == 300.0
    assert order[1] == (START + 307.0, "answered")
    assert min(times[1:]) >= 307.0


def test_a_probe_that_never_comes_back_does_not_block_for_ever() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    limiter.blocked(limiter.acquire())
    assert limiter.acquire() == START + 300.0
    assert START + 420.0 <= limiter.acquire() < START + 422.0


def test_who_waits_for_a_turn_when_the_block_comes_waits_it_out() -> None:
    clock = FakeClock()
    limiter = Limiter(Policy(rate=1.0, burst=1), clock=clock)
    asked = limiter.acquire()

    def answered() -> float:
        clock.sleep(0.5)
        return limiter.blocked(asked)

    assert clock.run(limiter.acquire, answered) == [START + 300.5, 300.0]


# ---- the machine's clock ----


def test_the_machines_clock_waits_and_can_be_stopped() -> None:
    clock = SystemClock()
    before = time.monotonic()
    clock.sleep(0.05)
    clock.sleep(-1.0)
    assert before + 0.05 <= clock.now() < before + 5
    with ThreadPoolExecutor(3) as executor:
        sleeping = [executor.submit(clock.sleep, 600.0) for _ in range(3)]
        clock.stop()
        for future in sleeping:
            with pytest.raises(SourceUnavailable, match="closed"):
                future.result(timeout=5)
    with pytest.raises(SourceUnavailable):
        clock.sleep(0.0)
