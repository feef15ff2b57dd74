"""Whoever has little patience is told at once when to come back, and costs neither the host nor others anything."""

from collections.abc import Callable
from itertools import cycle, islice
from math import inf
from pathlib import Path

import pytest

from catalogue.errors import Blocked, CatalogueError, NotFound, SourceUnavailable, Throttled, Unreachable
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


def test_who_cannot_wait_for_a_turn_takes_none() -> None:
    clock = FakeClock()
    limiter = Limiter(Policy(rate=5.0, burst=1), clock=clock)
    limiter.acquire()
    before = limiter.state
    error = refused(limiter.acquire, 0.1)
    assert error.retry_after == pytest.approx(0.2)
    assert "the host is asked 5 times a second, and others were first; ask again in 1 s" in str(error)
    assert limiter.state == before
    assert clock.waits == []
    assert limiter.acquire(0.25) == pytest.approx(START + 0.2)


def test_of_many_those_wait_whose_turn_comes_in_time() -> None:
    clock = FakeClock()
    limiter = Limiter(Policy(rate=1.0, burst=1), clock=clock)
    outcomes = clock.run(*[lambda: limiter.acquire(3.0)] * 10)
    times = sorted(each for each in outcomes if isinstance(each, float))
    refusals = [each for each in outcomes if isinstance(each, Throttled)]
    assert times == pytest.approx([START, START + 1, START + 2, START + 3])
    assert [each.retry_after for each in refusals] == pytest.approx([4.0] * 6)
    clock.advance(1.0)
    assert limiter.acquire(0.0) == START + 4.0  # none of those six took a turn


def test_leave_that_needs_no_wait_is_given_to_whoever_has_no_patience_left() -> None:
    limiter = Limiter(POLICY, clock=FakeClock())
    assert limiter.acquire(-5.0) == START


# ---- blocks ----


def test_a_block_is_not_waited_out() -> None:
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


def test_the_one_request_that_finds_out_is_made_by_whoever_may(tmp_path: Path) -> None:
    """Nobody takes the right to it without making it, however impatient."""
    clock = FakeClock()
    limiters = [Limiter(POLICY, clock=clock, file=tmp_path / "host.json") for _ in range(2)]
    limiters[0].blocked(limiters[0].acquire())
    for patience in (0.0, 299.0):
        refused(limiters[1].acquire, patience)
    clock.advance(300.0)
    asked = limiters[0].acquire(0.0)
    assert asked == START + 300.0
    for patience in (0.0, 0.9):
        error = refused(limiters[1].acquire, patience)
        assert error.retry_after == 1.0
        assert "another request is finding out whether the host still blocks this address" in str(error)
    before = clock.now()
    error = refused(limiters[1].acquire, 5.5)
    assert clock.now() - before == 5.0
    limiters[0].succeeded(asked)
    assert limiters[1].acquire(0.0) == clock.now()


def test_who_is_impatient_asks_a_host_that_blocks_no_more_than_the_patient() -> None:
    clock = FakeClock()
    inner = Answers(cycle([Blocked("blocked")]))
    source = PoliteSource(inner, Limiter(POLICY, clock=clock), patience=20.0)
    for _ in range(200):
        with pytest.raises((Throttled, Blocked)):
            source.get("x")
        clock.advance(10.0)
    # At the start, after 300 s, and after 900 s twice, the last time without hope.
    assert inner.asked == 3


# ---- waits between attempts ----


@pytest.mark.parametrize(("asked_for", "wait"), [(None, 11.25), (120.0, 120.0), (86400.0, 300.0)])
def test_a_host_that_wants_patience_is_left_alone_by_all(asked_for: float | None, wait: float) -> None:
    clock = FakeClock()
    source = polite(Throttled("slow down", retry_after=asked_for), GOOD, clock=clock, patience=10.0)
    error = refused(source.get, "x")
    assert error.retry_after == wait
    assert str(error).startswith("slow down; ask again in ")
    clock.advance(1.0)
    error = refused(source.get, "y")  # another thread's, for one
    assert error.retry_after == wait - 1
    assert str(error).startswith("test:/ asked for patience; ask again in ")
    assert (source.requests, clock.waits) == (1, [])
    clock.advance(wait - 6)
    assert source.get("y") is GOOD
    assert clock.waits == [5.0]


def test_the_bound_is_for_all_attempts_together() -> None:
    clock = FakeClock()
    source = polite(Throttled("slow down"), clock=clock, patience=60.0)
    error = refused(source.get, "x")
    assert clock.waits == [11.25, 22.5]  # and not 45 more
    assert error.retry_after == 45.0
    assert source.requests == 3


def test_time_that_requests_take_counts_too() -> None:
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


def test_short_waits_are_waited() -> None:
    clock = FakeClock()
    source = polite(*[Unreachable("broken")] * 3, GOOD, clock=clock, patience=2.0)
    assert source.get("x") is GOOD
    assert clock.waits == [0.5, 1.0]


def test_what_is_said_of_a_file_is_said_however_little_patience_there_is() -> None:
    source = polite(NotFound("x"), clock=FakeClock(), patience=0.0)
    with pytest.raises(NotFound):
        source.get("x")


def test_nobody_is_told_of_a_wait_that_is_not_made() -> None:
    for error in (Throttled("x"), Blocked("x")):
        said: list[str] = []
        limiter = Limiter(POLICY, clock=FakeClock())
        source = PoliteSource(Answers([error]), limiter, notify=said.append, patience=5.0)
        refused(source.get, "x")
        assert said == []


# ---- a host that was given up ----


@pytest.mark.parametrize("patience", [inf, 5.0])
def test_a_host_that_was_given_up_is_asked_again_after_an_hour(patience: float) -> None:
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


def test_complaints_are_counted_anew_after_an_hour() -> None:
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
