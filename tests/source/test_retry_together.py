"""Several threads and processes of one host: blocks stop them all, and waits end before ``max_wait``."""

import re
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from math import inf
from pathlib import Path

import pytest

from catalogue.errors import Blocked, CatalogueError, Forbidden, SourceUnavailable, Throttled, Unreachable
from catalogue.source.rate_limit import COMMON_CRAWL, Limiter, Policy
from catalogue.source.retry import PoliteSource
from tests.support.answers import GOOD, Answer, Answers, TimedHost
from tests.support.clocks import START, FakeClock


def blocked_until(seconds: float) -> TimedHost:
    return TimedHost(lambda time, _: Blocked("blocked") if time < seconds else GOOD)


def throttled(request: Callable[..., object], *arguments: object) -> Throttled:
    with pytest.raises(Throttled) as raised:
        request(*arguments)
    assert raised.value.exit_status == 75
    return raised.value


def test_block_pauses_all_threads_for_twenty_minutes() -> None:
    host = blocked_until(inf)
    source = host.open(Policy(rate=5.0, burst=1, connections=4))
    outcomes = host.clock.run(*[lambda: source.get("x")] * 4)
    assert host.times == [0.0, 300.0, 1200.0]
    assert {type(outcome) for outcome in outcomes} == {Blocked}
    assert {getattr(outcome, "exit_status", None) for outcome in outcomes} == {75}
    assert all("Run the same command again after" in str(outcome) for outcome in outcomes)


def test_threads_continue_at_half_the_rate_after_a_block() -> None:
    host = blocked_until(1000)
    source = host.open()
    outcomes = host.clock.run(*[lambda: [source.get("x") for _ in range(15)]] * 4)
    assert outcomes == [[GOOD] * 15] * 4
    assert [time for time in host.times if 0 < time < 1200] == [300.0]
    late = [time for time in host.times if time >= 1200]
    assert len(late) == 60
    # 2.5 per second, and 3.5 after ten seconds.
    assert sum(time < 1210 for time in late) <= 26
    assert 1219 < late[-1] < 1222


def test_403_for_one_file_ends_a_block() -> None:
    host = TimedHost(lambda time, _: Forbidden("x") if time else Blocked("x"))
    source = host.open()
    for _ in range(2):
        with pytest.raises(Forbidden):
            source.get("x")
    assert host.times == [0.0, 300.0, pytest.approx(300.4, abs=0.5)]
    assert source.limiter.state.blocks == 0


def test_waits_only_for_slots_before_the_timeout() -> None:
    clock = FakeClock()
    limiter = Limiter(Policy(rate=5.0, burst=1), clock=clock)
    outcomes = clock.run(*[lambda: limiter.acquire(0.65)] * 10)
    times = sorted(each for each in outcomes if isinstance(each, float))
    refusals = [each for each in outcomes if isinstance(each, Throttled)]
    assert times == pytest.approx([START, START + 0.2, START + 0.4, START + 0.6])
    assert [each.retry_after for each in refusals] == pytest.approx([0.8] * 6)
    assert "the limit of 5 requests per second to this host is reached; try again in 1 s" in str(refusals[0])
    before, waits = limiter.state, [*clock.waits]
    throttled(limiter.acquire, 0.1)
    assert (limiter.state, clock.waits) == (before, waits)
    clock.advance(0.2)
    assert limiter.acquire(0.0) == pytest.approx(START + 0.8)  # the other six used no slot


def test_block_longer_than_max_wait_raises() -> None:
    host = blocked_until(100)
    source = host.open(COMMON_CRAWL, max_wait=60.0)
    error = throttled(source.get, "x")
    assert (str(error), error.retry_after) == ("blocked; try again in 300 s", 300.0)
    host.clock.advance(100.0)
    error = throttled(source.get, "x")
    assert (str(error), error.retry_after) == ("the host blocks this address for now; try again in 200 s", 200.0)
    assert (source.requests, host.clock.waits) == (1, [])
    host.clock.advance(140.0)
    assert source.get("x") is GOOD  # after a wait of a minute
    assert host.clock.waits == [60.0]
    assert source.limiter.state.blocks == 0


def test_each_process_reports_each_pause_once(tmp_path: Path) -> None:
    """The process that was blocked, and another one whose four threads make no request before the pause."""
    host = blocked_until(1200.0)
    reports: tuple[list[str], list[str]] = [], []
    first, other = (
        host.open(COMMON_CRAWL, file=tmp_path / "host.json", notify=messages.append) for messages in reports
    )

    def start_later() -> Answer:
        host.clock.sleep(60.0)
        return other.get("x")

    assert host.clock.run(lambda: first.get("x"), *[start_later] * 4) == [GOOD] * 5
    assert host.times[:3] == [0.0, 300.0, 1200.0]
    assert reports[1][0] == f"{other.url}: the host blocks this address for now; waiting 240 s"
    waits = [[int(re.findall(r"; waiting (\d+) s", message)[0]) for message in messages] for messages in reports]
    assert waits == [[300, pytest.approx(900, abs=1)], [240, pytest.approx(900, abs=1)]]


def test_probe_is_sent_by_a_client_that_may_wait(tmp_path: Path) -> None:
    """A client that must not wait does not reserve the probe."""
    clock = FakeClock()
    limiters = [Limiter(COMMON_CRAWL, clock=clock, file=tmp_path / "host.json") for _ in range(2)]
    limiters[0].blocked(limiters[0].acquire())
    for max_wait in (0.0, 299.0):
        throttled(limiters[1].acquire, max_wait)
    clock.advance(300.0)
    requested = limiters[0].acquire(0.0)
    assert requested == START + 300.0
    for max_wait in (0.0, 0.9):
        error = throttled(limiters[1].acquire, max_wait)
        assert error.retry_after == 1.0
        assert "another request is checking whether the host still blocks this address" in str(error)
    before = clock.now()
    throttled(limiters[1].acquire, 5.5)
    assert clock.now() - before == 5.0
    limiters[0].succeeded(requested)
    assert limiters[1].acquire(0.0) == clock.now()


def test_max_wait_covers_all_attempts() -> None:
    host = TimedHost(lambda _, __: Throttled("slow down"))
    source = host.open(COMMON_CRAWL, max_wait=60.0)
    assert throttled(source.get, "x").retry_after == 45.0
    assert host.clock.waits == [11.25, 22.5]  # the next wait of 45 s is too long
    assert source.requests == 3


def test_max_wait_includes_request_time() -> None:
    def fail_late(_: float, __: str) -> Answer:
        host.clock.advance(20.0)
        return Unreachable("no answer")

    host = TimedHost(fail_late)
    source = host.open(Policy(), max_wait=30.0)
    error = throttled(source.get, "x")
    assert (source.requests, str(error)) == (2, "no answer; try again in 1 s")
    source = host.open(Policy(), max_wait=10.0)
    with pytest.raises(Unreachable, match=r"^no answer$"):  # no wait, but no time left
        source.get("x")
    assert source.requests == 1


@pytest.mark.parametrize("max_wait", [inf, 5.0])
def test_unavailable_host_is_retried_after_an_hour(max_wait: float) -> None:
    host = TimedHost(lambda time, _: GOOD if time > 5000 else Unreachable("broken"))
    source = host.open(Policy(), max_wait=max_wait, jitter=0.0)

    def outcome() -> type[Exception] | None:
        try:
            source.get("x")
        except CatalogueError as error:
            return type(error)
        return None

    def outcomes_until_unavailable() -> Iterator[type[Exception] | None]:
        return islice(iter(outcome, SourceUnavailable), 1000)

    assert {*outcomes_until_unavailable()} == {Unreachable}
    assert source.requests == 200
    for _ in range(2):
        host.clock.advance(1799.0)
        assert outcome() is SourceUnavailable
    assert source.requests == 200
    host.clock.advance(3.0)
    assert {*outcomes_until_unavailable()} == {Unreachable}
    assert source.requests == 400  # counted from zero
    host.clock.advance(3600.0)
    assert source.get("x") is GOOD


def test_throttling_count_resets_after_an_hour() -> None:
    clock = FakeClock()
    source = PoliteSource(Answers(cycle([GOOD, Throttled("x")])), Limiter(Policy(slow_down=0.0), clock=clock))
    counts = []
    for _ in range(3):
        before = source.requests
        read = (source.get("x") for _ in range(5000))
        with pytest.raises(SourceUnavailable, match="throttles too many requests"):
            list(read)
        counts.append(source.requests - before)
        clock.advance(3600.0)
    assert counts == [pytest.approx(1250, abs=5)] * 3
