"""The rate of requests of all threads and processes of a host."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalogue.errors import SourceUnavailable
from catalogue.source.rate_limit import Limiter, Policy, SystemClock
from tests.support.clocks import START, FakeClock

POLICY = Policy(rate=5.0, connections=4, slow_down=10.0)


def granted(clock: FakeClock, *limiters: Limiter, count: int, threads: int) -> list[float]:
    """Return the times at which threads acquired permission, in order; ``count`` times in each thread."""

    def work(limiter: Limiter) -> Callable[[], list[float]]:
        return lambda: [limiter.acquire() for _ in range(count)]

    granted_at: list[float] = []
    for times in clock.run(*(work(limiter) for limiter in limiters for _ in range(threads))):
        assert isinstance(times, list), times
        granted_at += times
    return sorted(granted_at)


def test_burst_of_ten_then_five_per_second() -> None:
    clock = FakeClock()
    times = granted(clock, Limiter(POLICY, clock=clock), count=30, threads=16)
    assert times == pytest.approx([START] * 10 + [START + number / 5 for number in range(1, 471)], abs=1e-6)


def test_burst_refills_after_a_pause() -> None:
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


def test_no_rate_means_no_waits() -> None:
    clock = FakeClock()
    limiter = Limiter(Policy(), clock=clock)
    assert granted(clock, limiter, count=100, threads=4) == [START] * 400
    assert clock.waits == []
    limiter.slow_down()
    assert limiter.rate is None


def test_throttling_halves_the_rate_and_success_restores_it() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    rates = []
    for _ in range(6):
        limiter.slow_down()
        limiter.slow_down()  # simultaneous ones count once
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


def test_slower_process_keeps_its_rate(tmp_path: Path) -> None:
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


def test_simultaneous_403s_are_one_block() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    requested = [limiter.acquire() for _ in range(4)]
    assert limiter.blocked(requested[0]) == 300.0
    clock.advance(2.0)
    assert [limiter.blocked(when) for when in requested[1:]] == [298.0] * 3
    limiter.succeeded(requested[3])  # a response to an earlier request does not end the block
    assert limiter.state.blocks == 1
    assert limiter.acquire() == START + 300.0


def test_only_one_client_probes(tmp_path: Path) -> None:
    clock = FakeClock()
    limiters = [Limiter(POLICY, clock=clock, file=tmp_path / "host.json") for _ in range(2)]
    limiters[0].blocked(limiters[0].acquire())
    order: list[tuple[float, str]] = []
    lock = threading.Lock()

    def work(limiter: Limiter) -> None:
        requested = limiter.acquire()
        with lock:
            order.append((requested, "requested"))
        clock.sleep(7.0)  # the request takes that long
        with lock:
            order.append((clock.now(), "answered"))
        limiter.succeeded(requested)

    assert clock.run(*(lambda limiter=limiter: work(limiter) for limiter in limiters for _ in range(4))) == [None] * 8
    times = [when - START for when, what in order if what == "requested"]
    assert times[0] == 300.0
    assert order[1] == (START + 307.0, "answered")
    assert min(times[1:]) >= 307.0


def test_lost_probe_does_not_block_forever() -> None:
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock)
    limiter.blocked(limiter.acquire())
    assert limiter.acquire() == START + 300.0
    assert START + 420.0 <= limiter.acquire() < START + 422.0


def test_block_applies_to_clients_that_wait_for_a_slot() -> None:
    clock = FakeClock()
    limiter = Limiter(Policy(rate=1.0, burst=1), clock=clock)
    requested = limiter.acquire()

    def answered() -> float:
        clock.sleep(0.5)
        return limiter.blocked(requested)

    assert clock.run(limiter.acquire, answered) == [START + 300.5, 300.0]


def test_system_clock_waits_and_can_be_stopped() -> None:
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
