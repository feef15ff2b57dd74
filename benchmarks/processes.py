"""Programs as processes of their own: what they cost, and the server they talk to.

By itself it runs a command and says as JSON what that took. It is started for each, because it is small: what Linux
reports as the peak memory of a child is never less than what its parent had when it started it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

ROOT = Path(__file__).resolve().parent.parent
_SAMPLED = 0.1
"""Seconds between two looks at a process's children."""
_QUIET = 0.1
"""Seconds of work that a quiet machine does in one."""
_PATIENCE = 900.0
"""Seconds that a command may take."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took."""

    seconds: float
    """From its start to its end, the start of Python included."""
    cpu_seconds: float
    """Its own and its children's."""
    machine_seconds: float
    """What the whole machine computed meanwhile; 0 where the system does not say."""
    peak_bytes: int
    """Most memory that each of its processes had, added up; pages that they share are counted for each."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that succeeded."""

    cost: Cost
    output: str


def wait_for_quiet(*, at_most: float = 5.0) -> None:
    """Wait until nothing else computes on this machine, or that much time has gone by."""
    until = time.monotonic() + at_most
    while time.monotonic() < until:
        before = machine_seconds()
        time.sleep(1.0)
        if machine_seconds() - before < _QUIET:
            return


def machine_seconds() -> float:
    """Seconds that all cores together have computed; 0 where the system does not say."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, *_ = map(int, fields)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A command that did not succeed; a benchmark of it would say nothing."""


def run(command: Sequence[str], *, home: Path) -> Ran:
    """Run a Python module with its arguments and measure it, at ``home`` instead of the user's own folders.

    Raises:
        Failed: if it does not succeed, or has not come to an end after a quarter of an hour.
    """
    supervisor = [sys.executable, "-m", "benchmarks.processes", sys.executable, "-m", *command]
    with subprocess.Popen(
        supervisor,
        cwd=ROOT,
        env=away_from_home(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, errors = process.communicate(timeout=_PATIENCE)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # the command too, not only who supervises it
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            message = f"{' '.join(command)} has not ended after {_PATIENCE:.0f} s"
            raise Failed(message) from error
    if process.returncode:
        message = f"{' '.join(command)} failed:\n{errors or said}"
        raise Failed(message)
    output, _, cost = said.rstrip("\n").rpartition("\n")
    return Ran(Cost(**json.loads(cost)), output)


def away_from_home(home: Path) -> dict[str, str]:
    """No proxies, no settings of the user's, and nothing shared with his other processes but compiled modules."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith(("CATALOGUE_", "PYTHONDONTWRITE"))
    }
    return kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "CATALOGUE_CACHE": str(home / "cache")}


@dataclass(slots=True)
class Counted:
    """What the server was asked since it was last reset."""

    gets: int
    heads: int
    bytes: int
    """Of bodies, sent; a client that hangs up may not have read them all."""
    failed: int
    """Answers that were neither 200 nor 206."""


class Server:
    """The loopback server, in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout
        self._process = process
        self._open = build_opener(ProxyHandler({})).open
        self.url = process.stdout.readline().strip()

    def reset(self) -> None:
        """Forget what was asked."""
        self._open(f"{self.url}-/reset").read()

    def counted(self) -> Counted:
        """What was asked since."""
        report = json.loads(self._open(f"{self.url}-/log").read())
        exchanges = report["exchanges"]
        return Counted(
            gets=sum(one["method"] == "GET" for one in exchanges),
            heads=sum(one["method"] == "HEAD" for one in exchanges),
            bytes=report["body_bytes_sent"],
            failed=sum(one["status"] not in {200, 206} for one in exchanges),
        )

    def cpu_seconds(self) -> float:
        """Seconds that it has computed; 0 where the system does not say."""
        return _cpu_seconds(self._process.pid)


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is measured, in a process of its own."""

    url: str
    """Without a slash at its end."""
    process: int

    def cpu_seconds(self) -> float:
        """Seconds that it and its children have computed; 0 where the system does not say."""
        return sum(_cpu_seconds(process) for process, _ in _peaks(self.process))

    def peak_bytes(self) -> int:
        """Most memory that each of its processes had, added up; 0 where the system does not say."""
        return sum(peak for _, peak in _peaks(self.process))


def _cpu_seconds(process: int) -> float:
    """Of a process and of children of it that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(folder: Path, *, latency: float) -> Iterator[Server]:
    """Serve a folder, each answer ``latency`` seconds late."""
    command = [sys.executable, "-m", "tests.support.faults", str(folder), "--latency", str(latency), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.terminate()


# ---- the supervisor ----


def _peaks(process: int) -> Iterator[tuple[int, int]]:
    """A process and its descendants: number, and most memory so far in bytes."""
    with suppress(OSError, IndexError, ValueError):
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
        yield process, int(status.partition("VmHWM:")[2].split()[0]) * 1024
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text(encoding="ascii").split():
                yield from _peaks(int(child))


def _supervise(command: Sequence[str]) -> int:
    peaks: dict[int, int] = {}
    ended = threading.Event()
    started, busy = time.monotonic(), machine_seconds()
    process = subprocess.Popen(command)

    def sample() -> None:
        while not ended.wait(_SAMPLED):
            peaks.update(_peaks(process.pid))

    sampler = threading.Thread(target=sample)
    sampler.start()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - started
    ended.set()
    sampler.join()
    unit = 1 if sys.platform == "darwin" else 1024
    largest = max(usage.ru_maxrss * unit, *peaks.values(), 0)
    others = sum(sorted(peaks.values())[:-1])
    cost = Cost(seconds, usage.ru_utime + usage.ru_stime, machine_seconds() - busy, largest + others)
    print(f"\n{json.dumps(asdict(cost))}", flush=True)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(_supervise(sys.argv[1:]))
