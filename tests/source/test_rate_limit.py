"""The rate of requests of all threads and processes of a host, whose state is in a file; none is needed."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalogue.errors import SourceUnavailable
from catalogue.source.rate_limit import Clock, Limiter, Policy
from tests.support.clocks import START, FakeClock

POLICY = Policy(rate=5.0, connections=4, slow_down=10.0)
ROOT = Path(__file__).parents[2]


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
    clock = Clock()
    before = time.monotonic()
    clock.sleep(0.05)
    clock.sleep(-1.0)
    assert before + 0.05 <= clock.now() < before + 5
    clock.stop()
    with pytest.raises(SourceUnavailable, match="closed"):
        clock.sleep(0.0)


def test_two_processes_share_the_rate(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from catalogue.source.rate_limit import Limiter, Policy, Clock\n"
        "limiter = Limiter(Policy(rate=100.0, burst=5), clock=Clock(), file=Path(sys.argv[1]))\n"
        "sys.stdin.readline()\n"
        "print(Clock().now(), *(limiter.acquire() for _ in range(40)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "host.json")]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    with ThreadPoolExecutor() as executor:
        outputs = list(executor.map(lambda process: process.communicate("go\n", timeout=60)[0], processes))
    starts, *times = zip(*([float(word) for word in output.split()] for output in outputs), strict=True)
    for number, when in enumerate(sorted(sum(times, ()))):
        # No request is early; delays depend on the machine.
        assert when >= min(starts) + (number - 4) / 100 - 1e-6


class _WatchedClock(FakeClock):
    """A clock that says when a limiter has read it for a request and goes on to the lock."""

    def __init__(self) -> None:
        super().__init__()
        self._reads = 0
        self.read = threading.Event()

    def now(self) -> float:
        self._reads += 1
        if self._reads == 2:
            self.read.set()
        return super().now()


def test_keeps_what_another_process_writes_during_the_wait_for_the_lock(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    file.touch()
    clock = _WatchedClock()
    limiter = Limiter(POLICY, clock=clock, file=file)
    with ThreadPoolExecutor() as executor, file.open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        acquired = executor.submit(limiter.acquire)
        assert clock.read.wait(10)
        clock.advance(0.5)
        other.write(_state(next_slot=START + 20, noted=START + 0.5).encode())
        other.flush()
        fcntl.flock(other, fcntl.LOCK_UN)
        assert acquired.result(timeout=10) >= START + 20


def test_forgets_state_from_before_a_reboot(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    before = Limiter(POLICY, clock=FakeClock(500.0), file=file)
    before.note_suffixes(ignored=True)
    before.blocked(before.acquire())
    clock = FakeClock(400.0)  # earlier than the time of the state
    after = Limiter(POLICY, clock=clock, file=file)
    assert not after.state.ignores_suffixes
    assert [after.acquire() for _ in range(10)] == [400.0] * 10
    assert clock.waits == []
    later = Limiter(POLICY, clock=FakeClock(600.0), file=file)
    assert later.state.paused_until == 0.0  # it was overwritten


def _state(**changed: object) -> str:
    state = {
        "next_slot": 990.0,
        "rate": 2.5,
        "changed": 980.0,
        "blocks": 0,
        "paused_until": 0.0,
        "probed": None,
        "ignores_suffixes": True,
        "noted": 990.0,
    }
    return json.dumps(state | changed)


def test_reads_valid_state(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    for rate in (2.5, 0.5):
        file.write_text(_state(rate=rate))
        assert Limiter(POLICY, clock=FakeClock(), file=file).rate == rate
    file.write_text(_state(blocks=1, paused_until=START + 900))
    clock = FakeClock()
    Limiter(POLICY, clock=clock, file=file).acquire()
    assert clock.waits == [900.0]


NAN = float("nan")
DAMAGED: dict[str, list[object]] = {
    "next_slot": ["soon", 1e300, NAN, -1, None],
    "changed": [[]],
    "paused_until": [1e9],
    "probed": ["x"],
    "blocks": [-7, "x", None],
    "rate": [0, -1, 1e-300, NAN, "x"],
    "noted": [START + 1, None],
}
TEXTS = ["", "x", "[]", "3", "[" * 100_000, "{}{}", '{"unknown": 1}', "\x00\xff"]
TEXTS += [_state(**{name: value}) for name, values in DAMAGED.items() for value in values]


@pytest.mark.parametrize("text", TEXTS)
def test_damaged_state_file_is_replaced(tmp_path: Path, text: str) -> None:
    file = tmp_path / "host.json"
    file.write_text(text, encoding="latin-1")
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock, file=file)
    assert [limiter.acquire() for _ in range(11)] == pytest.approx([START] * 10 + [START + 0.2])
    limiter.slow_down()
    assert Limiter(POLICY, clock=clock, file=file).rate == 2.5


@pytest.mark.parametrize("obstacle", ["folder instead of file", "file instead of folder", "pipe instead of file"])
def test_works_without_a_writable_state_file(tmp_path: Path, obstacle: str) -> None:
    file = tmp_path / "cache" / "host.json"
    match obstacle:
        case "folder instead of file":
            (file / "x").mkdir(parents=True)
        case "file instead of folder":
            file.parent.write_text("")
        case _:
            file.parent.mkdir()
            os.mkfifo(file)
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock, file=file)
    assert [limiter.acquire() for _ in range(12)] == pytest.approx([START] * 10 + [START + 0.2, START + 0.4])


def test_waits_once_for_a_suspended_process_with_the_lock(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    clock = FakeClock()
    ours, others = (Limiter(POLICY, clock=clock, file=file) for _ in range(2))
    with file.open("wb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        assert ours.acquire() == START
    assert not file.read_bytes()
    others.blocked(others.acquire())
    ours.acquire()
    assert clock.waits == [300.0]


def test_keeps_state_when_the_file_becomes_unwritable(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "host.json"
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock, file=file)
    limiter.blocked(limiter.acquire())
    file.unlink()
    (file / "x").mkdir(parents=True)
    limiter.acquire()
    assert clock.waits == [300.0]
    assert limiter.state.blocks == 1


def test_shares_its_state_once_the_file_is_usable_again(tmp_path: Path) -> None:
    """A process may have had no free file descriptor."""
    file = tmp_path / "cache" / "host.json"
    file.parent.write_text("")
    clock = FakeClock()
    limiter = Limiter(POLICY, clock=clock, file=file)
    limiter.acquire()
    file.parent.unlink()
    limiter.slow_down()
    assert Limiter(POLICY, clock=clock, file=file).rate == limiter.rate == 2.5
