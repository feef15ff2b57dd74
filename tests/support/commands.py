"""Run the command line as a user does, in another process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import canaries, warm


def wait_until(process: subprocess.Popen[bytes] | warm.Forked, is_so: Callable[[], bool], pause: float = 0.002) -> None:
    """Wait for a condition or for the end of the process, without using a core; ``pause`` is between checks."""
    while not is_so():
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=pause)
            return


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    def __post_init__(self) -> None:
        assert canaries.MARK not in self.out + self.err

    def json(self) -> Any:
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def ended(process: subprocess.Popen[bytes] | warm.Forked) -> Ran:
    """Return the result of a command when it has ended."""
    out, err = process.communicate(timeout=90)
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


@dataclass(frozen=True)
class Command:
    """The command with a data folder and a source, and without the user's own settings."""

    data: Path
    source: str
    home: Path

    def environment(self, **more: str) -> dict[str, str]:
        remaining = {
            name: os.environ[name] for name in ("PATH", "LANG", "COVERAGE_PROCESS_START") if name in os.environ
        }
        return (
            remaining
            | canaries.ENVIRONMENT
            | {
                "HOME": str(self.home),
                "CATALOGUE_DATA": str(self.data),
                "CATALOGUE_SOURCE": self.source,
                "CATALOGUE_CACHE": str(self.home / "cache"),
                "CATALOGUE_PATIENCE": "0.01",
                "PYTHONWARNINGS": "error",
                **more,
            }
        )

    def start(self, *words: str, **environment: str) -> warm.Forked:
        """Start it in a process that has imported everything; see ``tests.support.warm``."""
        return warm.Forked(words, self.environment(**environment), self.home)

    def start_in_one(self, *words: str, **environment: str) -> warm.Forked:
        """Start it with one stream for output and errors, as a terminal shows them."""
        return warm.Forked(words, self.environment(**environment), self.home, in_one=True)

    def start_on(self, terminal: int, *words: str, keyboard: bool = False, **environment: str) -> warm.Forked:
        """Start it on a terminal, which is an open file; see ``Forked``."""
        return warm.Forked(words, self.environment(**environment), self.home, terminal=terminal, keyboard=keyboard)

    def start_anew(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start it in a new Python interpreter."""
        return subprocess.Popen(
            [sys.executable, "-m", "catalogue", *words],
            env=self.environment(**environment),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, *words: str, **environment: str) -> Ran:
        """Run it."""
        if any(name.startswith("PYTHON") for name in environment):  # which is read when Python starts
            return self.again(*words, **environment)
        with self.start(*words, **environment) as process:
            return ended(process)

    def again(self, *words: str, **environment: str) -> Ran:
        """Run it in a new Python interpreter."""
        with self.start_anew(*words, **environment) as process:
            return ended(process)
