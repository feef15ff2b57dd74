"""Child processes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


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


def children(parent: int = 0, word: str = "") -> set[int]:
    """Return the running processes that this one, or another one, has started, with a word in their commands."""
    found = [each.info for each in psutil.process_iter(["pid", "ppid", "status", "cmdline"])]
    running = [each for each in found if each["ppid"] == (parent or os.getpid()) and each["status"] != "zombie"]
    return {each["pid"] for each in running if word in " ".join(each["cmdline"] or ())}


def handles_sigterm(pid: int) -> bool:
    """Return whether a process handles SIGTERM, as commands do before they import their modules."""
    with suppress(OSError):
        (caught,) = re.findall(r"SigCgt:\t(\w+)", Path(f"/proc/{pid}/status").read_text())
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
    return False
