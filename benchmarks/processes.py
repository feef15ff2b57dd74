"""Run programs in separate processes and measure them; the server of the benchmarks.

As a script, it runs a command and prints its cost as JSON. Each command gets such a small parent, because Linux
never reports less peak memory for a child than its parent had when it started it.
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
_SAMPLE_INTERVAL = 0.1
"""Seconds between two samples of the process tree."""
_QUIET = 0.1
"""CPU seconds per second below which a machine counts as idle."""
_TIMEOUT = 900.0
"""Seconds until a command is killed."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a command."""

    seconds: float
    """Wall time, including the start of Python."""
    cpu_seconds: float
    """CPU time, including children."""
    machine_seconds: float
    """CPU time of the whole machine; 0 where unavailable."""
    peak_bytes: int
    """Sum of the peak memory of its processes; shared pages count for each."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that succeeded."""

    cost: Cost
    output: str


def wait_for_quiet(*, at_most: float = 5.0) -> None:
    """Wait until this machine is idle, at most so many seconds."""
    until = time.monotonic() + at_most
    while time.monotonic() < until:
        before = machine_seconds()
        time.sleep(1.0)
        if machine_seconds() - before < _QUIET:
            return


def machine_seconds() -> float:
    """Return the CPU seconds of all cores; 0 where unavailable."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, *_ = map(int, fields)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A command failed, so there is nothing to measure."""


def run(command: Sequence[str], *, home: Path) -> Ran:
    """Run a Python module with arguments and measure it, with ``home`` instead of the user's folders.

    Raises:
        Failed: if it fails, or runs for longer than a quarter of an hour.
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
            printed, errors = process.communicate(timeout=_TIMEOUT)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # the supervisor and the command
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            message = f"{' '.join(command)} still runs after {_TIMEOUT:.0f} s"
            raise Failed(message) from error
    if process.returncode:
        message = f"{' '.join(command)} failed:\n{errors or printed}"
        raise Failed(message)
    output, _, cost = printed.rstrip("\n").rpartition("\n")
    return Ran(Cost(**json.loads(cost)), output)


def away_from_home(home: Path) -> dict[str, str]:
    """Return an environment without proxies and user settings, and with folders below ``home``."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith(("CATALOGUE_", "PYTHONDONTWRITE"))
    }
    return environment | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "CATALOGUE_CACHE": str(home / "cache")}


@dataclass(slots=True)
class Counted:
    """Requests to the server since the last reset."""

    gets: int
    heads: int
    bytes: int
    """Bytes of bodies sent; a client that closes its connection may have read fewer."""
    failed: int
    """Responses with a status other than 200 and 206."""


class Server:
    """The loopback server, in a separate process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout
        self._process = process
        self._open = build_opener(ProxyHandler({})).open
        self.url = process.stdout.readline().strip()

    def reset(self) -> None:
        """Clear the log of requests."""
        self._open(f"{self.url}-/reset").read()

    def counted(self) -> Counted:
        """Return the requests since the last reset."""
        report = json.loads(self._open(f"{self.url}-/log").read())
        exchanges = report["exchanges"]
        return Counted(
            gets=sum(exchange["method"] == "GET" for exchange in exchanges),
            heads=sum(exchange["method"] == "HEAD" for exchange in exchanges),
            bytes=report["body_bytes_sent"],
            failed=sum(exchange["status"] not in {200, 206} for exchange in exchanges),
        )

    def cpu_seconds(self) -> float:
        """Return its CPU seconds; 0 where unavailable."""
        return _cpu_seconds(self._process.pid)


@dataclass(frozen=True, slots=True)
class Served:
    """A measured server, in a separate process."""

    url: str
    """URL without a trailing slash."""
    process: int

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of it and its children; 0 where unavailable."""
        return sum(_cpu_seconds(process) for process, _ in _peaks(self.process))

    def peak_bytes(self) -> int:
        """Return the sum of the peak memory of its processes; 0 where unavailable."""
        return sum(peak for _, peak in _peaks(self.process))

    def memory_bytes(self) -> int:
        """Return the present memory of its processes, in which shared pages count once; 0 where unavailable."""
        return sum(_memory_bytes(process) for process, _ in _peaks(self.process))


def _memory_bytes(process: int) -> int:
    """Return the proportional set size of a process, or its resident size where the kernel has no other."""
    for name, field in (("smaps_rollup", "\nPss:"), ("status", "\nVmRSS:")):
        with suppress(OSError, IndexError, ValueError):
            text = Path(f"/proc/{process}/{name}").read_text(encoding="utf-8")
            return int(text.partition(field)[2].split()[0]) * 1024
    return 0


def _cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process and of its children that ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(folder: Path, *, latency: float) -> Iterator[Server]:
    """Serve a folder, with ``latency`` seconds of delay per response."""
    command = [sys.executable, "-m", "tests.support.faults", str(folder), "--latency", str(latency), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.terminate()


# ---- the supervisor ----


def _peaks(process: int) -> Iterator[tuple[int, int]]:
    """Yield process id and peak memory in bytes of a process and its descendants."""
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
        while not ended.wait(_SAMPLE_INTERVAL):
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
