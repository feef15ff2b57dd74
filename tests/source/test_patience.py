"""Whoever has little patience is told at once when to come back, and costs neither the host nor others anything."""

from collections.abc import Callable
from itertools import cycle, islice
from math import inf
from pathlib import Path

import pytest

from catalogue.errors import Blocked, CatalogueError, SourceUnavailable, Throttled, Unreachable
from catalogue.source.checks import Response
from catalogue.source.rate_limit import Limiter, Policy
from catalogue.source.retry import PoliteSource
from tests.source.test_retry import GOOD, POLICY, Answers
from tests.support.clocks import START, FakeClock

Answer = Response | CatalogueError


def polite(
    *answers: Answer, clock: FakeClock, patience: float, policy: Policy = POLICY, attempts: int = 12
) -> PoliteSource:
    limiter = Limiter(policy, clock=clock)
    return PoliteSource(Answers(cycle(answers)), limiter, jitter=lambda: 0.5, patience=patience, attempts=attempts)


def refused(ask: Callable[..., object], *with_: object) -> Throttled:
    with pytest.raises(Throttled) as raised:
        ask(*with_)
    assert raised.value.exit_status == 75
    return raised.value


# ---- turns ----


def test_timeout_while_waiting_for_a_turn_takes_no_turn() -> None:
    clock = FakeClock()
    limiter = Limiter(Policy(rate=5.0, burst=1), clock=clock)
    limiter.acquire()
    before = limiter.state
    error = refused(limiter.acquire, 0.1)
    assert error.retry_after == pytest.approx(0.2)
    assert "the host gets 5 requests per second, and other processes were first; ask again in 1 s" in str(error)
    assert limiter.state == before
    assert clock.waits == []
    assert limiter.acquire(0.25) == pytest.approx(START + 0.2)


def test_waits_only_for_turns_that_come_in_time() -> None:
    clock = FakeClock()
    limiter = Limiter(Policy(rate=1.0, burst=1), clock=clock)
    outcomes = clock.run(*[lambda: limiter.acquire(3.0)] * 10)
    times = sorted(each for each in outcomes if isinstance(each, float))
    refusals = [each for each in outcomes if isinstance(each, Throttled)]
    assert times == pytest.approx([START, START + 1, START + 2, START + 3])
    assert [each.retry_after for each in refusals] == pytest.approx([4.0] * 6)
    clock.advance(1.0)
    assert limiter.acquire(0.0) == START + 4.0  # none of those six took a turn


# ---- blocks ----


def test_block_longer_than_max_wait_raises() -> None:
    clock = FakeClock()
    source = polite(Blocked("blocked"), GOOD, clock=clock, patience=60.0)
    error = refused(source.get, "x")
    assert str(error) == "blocked; ask again in 300 s"
    assert error.retry_after == 300.0
    clock.advance(100.0)
    error = refused(source.get, "x")
    assert (str(error), error.retry_after) == ("the host blocks this address for now; ask again in 200 s", 200.0)
    assert (source.requests, clock.waits) == (1, [])
    clock.advance(140.0)
    assert source.get("x") is GOOD  # which is worth a minute
    assert clock.waits == [60.0]
    assert source.limiter.state.blocks == 0


def test_probe_is_sent_by_a_client_that_may_wait(tmp_path: Path) -> None:
    """Nobody takes the right to it without making it, however impatient."""
    clock = FakeClock()
    limiters = [Limiter(POLICY, clock=clock, file=tmp_path / "host.json") for _ in range(2)]
    limiters[0].blocked(limiters[0].acquire())
    for patience in (0.0, 299.0):
        refused(limiters[1].acquire, patience)
    clock.advance(300.0)
    requested = limiters[0].acquire(0.0)
    assert requested == START + 300.0
    for patience in (0.0, 0.9):
        error = refused(limiters[1].acquire, patience)
        assert error.retry_after == 1.0
        assert "another request is finding out whether the host still blocks this address" in str(error)
    before = clock.now()
    error = refused(limiters[1].acquire, 5.5)
    assert clock.now() - before == 5.0
    limiters[0].succeeded(requested)
    assert limiters[1].acquire(0.0) == clock.now()


# ---- waits between attempts ----


def test_max_wait_covers_all_attempts() -> None:
    clock = FakeClock()
    source = polite(Throttled("slow down"), clock=clock, patience=60.0)
    error = refused(source.get, "x")
    assert clock.waits == [11.25, 22.5]  # and not 45 more
    assert error.retry_after == 45.0
    assert source.requests == 3


def test_max_wait_includes_request_time() -> None:
    clock = FakeClock()

    class Late(Answers):
        def get(self, *_: object, **__: object) -> Response:
            clock.advance(20.0)
            message = "no answer"
            raise Unreachable(message)

    limiter = Limiter(Policy(), clock=clock)
    source = PoliteSource(Late([]), limiter, jitter=lambda: 0.5, patience=30.0)
    error = refused(source.get, "x")
    assert (source.requests, str(error)) == (2, "no answer; ask again in 1 s")
    source = PoliteSource(Late([]), limiter, jitter=lambda: 0.5, patience=10.0)
    with pytest.raises(Unreachable, match=r"^no answer$"):  # after which nothing is to be waited for, but it is late
        source.get("x")
    assert source.requests == 1


# ---- a host that was given up ----


@pytest.mark.parametrize("patience", [inf, 5.0])
def test_unavailable_host_is_retried_after_an_hour(patience: float) -> None:
    clock = FakeClock()

    class Ill(Answers):
        def get(self, *_: object, **__: object) -> Response:
            self.asked += 1
            if clock.now() > START + 5000:
                return GOOD
            message = "broken"
            raise Unreachable(message)

    inner = Ill([])
    source = PoliteSource(inner, Limiter(Policy(), clock=clock), jitter=lambda: 0.0, patience=patience)

    def outcome() -> type[Exception] | None:
        try:
            source.get("x")
        except CatalogueError as error:
            return type(error)
        return None

    assert set(islice(iter(outcome, SourceUnavailable), 1000)) == {Unreachable}
    assert inner.asked == 200
    for _ in range(2):
        clock.advance(1799.0)
        assert outcome() is SourceUnavailable
    assert inner.asked == 200
    clock.advance(3.0)
    assert set(islice(iter(outcome, SourceUnavailable), 1000)) == {Unreachable}
    assert inner.asked == 400  # counted anew
    assert outcome() is SourceUnavailable
    clock.advance(3600.0)
    assert source.get("x") is GOOD
    assert source.requests == inner.asked == 401


def test_throttling_count_resets_after_an_hour() -> None:
    clock = FakeClock()
    inner = Answers(cycle([GOOD, Throttled("x")]))
    source = PoliteSource(inner, Limiter(Policy(slow_down=0.0), clock=clock))
    counts = []
    for _ in range(3):
        before = inner.asked
        read = (source.get("x") for _ in range(5000))
        with pytest.raises(SourceUnavailable, match="keeps asking to slow down"):
            list(read)
        counts.append(inner.asked - before)
        clock.advance(3600.0)
    assert counts == [pytest.approx(1250, abs=5)] * 3
    assert source.requests == sum(counts)
