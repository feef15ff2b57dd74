"""Child processes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def run_script(path: Path, script: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python code with a path as its argument; it is killed at the end."""
    command = [sys.executable, "-B", "-c", script, str(path)]  # a limit of file sizes would cut compiled modules
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=Path(__file__).parents[2]
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def children() -> set[int]:
    """The processes that this one started and that did not end yet."""
    if Path("/proc/self/status").exists():
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
            except OSError:  # ended meanwhile
                continue
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(folder.name))
        return found
    listed = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=False)
    return set(map(int, listed.stdout.split()))


def handles_sigterm(pid: int) -> bool:
    """Return whether a process handles SIGTERM, as commands do before they import their modules."""
    with suppress(OSError):
        (caught,) = re.findall(r"SigCgt:\t(\w+)", Path(f"/proc/{pid}/status").read_text())
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
    return False
