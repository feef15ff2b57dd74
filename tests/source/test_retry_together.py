"""Many threads, and several processes, that ask one host: blocks stop them all, and faults lose nothing."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from catalogue.errors import Blocked, Forbidden
from catalogue.source.http import HttpSource
from catalogue.source.rate_limit import Limiter, Policy
from catalogue.source.retry import PoliteSource
from tests.support.clocks import START, FakeClock
from tests.support.faults import Fault, FaultServer, Kind, Request, Script, only
from tests.support.sources import DATA, SUFFIX

POLICY = Policy(rate=5.0, connections=4, slow_down=10.0)
FILES = {f"{number}.parquet": DATA[number : number + 20_000] for number in range(60)}


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


class Timed:
    """A script that notes when, by the fake clock, each request came."""

    def __init__(self, clock: FakeClock, script: Script) -> None:
        self._clock = clock
        self._script = script
        self.times: list[float] = []
        """Since the start."""

    def __call__(self, request: Request) -> Fault | None:
        self.times.append(self._clock.now() - START)
        return self._script(request)


def over(server: FaultServer, clock: FakeClock, policy: Policy = POLICY, file: Path | None = None) -> PoliteSource:
    inner = HttpSource(server.url, user_agent="test", connections=policy.connections)
    return PoliteSource(inner, Limiter(policy, clock=clock, file=file))


def reads(source: PoliteSource, paths: list[str]) -> Callable[[], int]:
    """A worker that reads one file after another, and stops when something fails."""

    def work() -> int:
        return sum(len(source.get(path, SUFFIX).body) for path in paths)

    return work


def shares(count: int) -> list[list[str]]:
    """All files, divided among workers."""
    return [list(FILES)[number::count] for number in range(count)]


def blocked(_: Request) -> Fault:
    return Fault(Kind.BLOCKED)


def test_block_pauses_all_threads_for_twenty_minutes() -> None:
    clock = FakeClock()
    timed = Timed(clock, blocked)
    with (
        FaultServer(FILES, script=timed) as server,
        closing(over(server, clock, Policy(rate=5.0, burst=1, connections=4))) as source,
    ):
        outcomes = clock.run(*(reads(source, paths) for paths in shares(4)))
    assert timed.times == [0.0, 300.0, 1200.0]
    assert {type(outcome) for outcome in outcomes} == {Blocked}
    assert {getattr(outcome, "exit_status", None) for outcome in outcomes} == {75}
    assert all("Run the same command again after" in str(outcome) for outcome in outcomes)


def test_threads_continue_at_half_the_rate_after_a_block() -> None:
    clock = FakeClock()
    timed = Timed(clock, lambda request: blocked(request) if clock.now() < START + 1000 else None)
    with FaultServer(FILES, script=timed) as server, closing(over(server, clock)) as source:
        outcomes = clock.run(*(reads(source, paths) for paths in shares(4)))
        assert outcomes == [15 * 5000] * 4
    late = [when for when in timed.times if when >= 1200]
    assert len(late) == 60
    assert [when for when in timed.times if 0 < when < 1200] == [300.0]
    # Two and a half a second, and after ten seconds one more.
    assert sum(when < 1210 for when in late) <= 26
    assert 1219 < late[-1] < 1222


def test_block_pauses_the_other_process(tmp_path: Path) -> None:
    clock = FakeClock()
    timed = Timed(clock, lambda request: blocked(request) if clock.now() < START + 100 else None)
    with (
        FaultServer(FILES, script=timed) as server,
        closing(over(server, clock, file=tmp_path / "host.json")) as one,
        closing(over(server, clock, file=tmp_path / "host.json")) as other,
    ):
        with pytest.raises(Blocked):
            PoliteSource(one.inner, one.limiter, attempts=1).get("0.parquet", SUFFIX)
        assert timed.times == [0.0]
        assert other.get("1.parquet", SUFFIX).body
        assert one.get("0.parquet", SUFFIX).body
    assert timed.times[1] == 300.0
    assert 300 <= timed.times[2] < 302
    assert one.limiter.rate == other.limiter.rate == 2.5


def test_403_for_one_file_pauses_nothing() -> None:
    clock = FakeClock()
    with (
        FaultServer(FILES, script=only("3.parquet", Kind.DENIED)) as server,
        closing(over(server, clock, Policy())) as source,
    ):
        for path in FILES:
            if path == "3.parquet":
                with pytest.raises(Forbidden, match=r"3\.parquet answered 403: AccessDenied"):
                    source.get(path, SUFFIX)
            else:
                source.get(path, SUFFIX)
        assert server.requests == len(FILES)
    assert clock.waits == []


def test_403_for_one_file_ends_a_block() -> None:
    clock = FakeClock()
    script = Timed(clock, lambda _: Fault(Kind.DENIED if clock.now() > START else Kind.BLOCKED))
    with FaultServer(FILES, script=script) as server, closing(over(server, clock)) as source:
        for _ in range(2):
            with pytest.raises(Forbidden):
                source.get("0.parquet", SUFFIX)
    assert script.times == [0.0, 300.0, pytest.approx(300.4, abs=0.5)]
    assert source.limiter.state.blocks == 0
