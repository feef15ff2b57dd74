"""Run the command line: in this process, in a forked one, or in a new interpreter."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest.mock import patch

from catalogue.cli import main
from catalogue.cli.process import release
from tests.support import canaries, warm

ENDLESS = {"demo", "mcp", "serve"}
"""Commands that run until a signal or the end of their input, or that change the environment."""


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
    out, err = process.communicate(timeout=90)
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


@contextmanager
def _as_process(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, streams: tuple[int, int, int]
) -> Iterator[None]:
    """Give this process the arguments, environment, folder and streams of a command, and restore its own at the end."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    threshold = gc.get_threshold()
    input_, out, err = streams
    with (
        open(input_, encoding="utf-8", closefd=False) as stdin,
        open(out, "w", encoding="utf-8", closefd=False) as stdout,
        open(err, "w", buffering=1, encoding="utf-8", closefd=False) as stderr,
        chdir(folder),
        patch.dict(os.environ, environment, clear=True),
        patch.multiple(sys, argv=["catalogue", *words], stdin=stdin, stdout=stdout, stderr=stderr),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        try:
            yield
        finally:
            gc.set_threshold(*threshold)
            release()
            for number, handler in handlers.items():
                signal.signal(number, handler)


def run_here(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, *, given: bytes = b"", in_one: bool = False
) -> Ran:
    """Run a command in this process, which saves the time of a fork. It needs neither a terminal nor a signal.

    ``given`` is the standard input; output and errors are one stream if ``in_one``.
    """
    with TemporaryFile() as input_, TemporaryFile("a+b") as out, TemporaryFile("a+b") as err:
        input_.write(given)
        input_.seek(0)
        status: object = None
        streams = input_.fileno(), out.fileno(), (out if in_one else err).fileno()
        with _as_process(words, environment, folder, streams):
            try:
                main()
            except SystemExit as end:
                status = end.code
        assert isinstance(status, int)
        texts = []
        for each in (out, err):
            each.seek(0)
            texts.append(each.read().decode())
    return Ran(status, *texts)


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
        return subprocess.Popen(
            [sys.executable, "-m", "catalogue", *words],
            env=self.environment(**environment),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, *words: str, **environment: str) -> Ran:
        """Run it in this process if it can be; only the main thread may set handlers of signals."""
        if any(name.startswith("PYTHON") for name in environment):  # which is read when Python starts
            return self.again(*words, **environment)
        if ENDLESS & {*words} or words == ("sql",) or threading.current_thread() is not threading.main_thread():
            return self.apart(*words, **environment)
        return run_here(words, self.environment(**environment), self.home)

    def apart(self, *words: str, **environment: str) -> Ran:
        """Run it in a forked process."""
        with self.start(*words, **environment) as process:
            return ended(process)

    def again(self, *words: str, **environment: str) -> Ran:
        """Run it in a new Python interpreter."""
        with self.start_anew(*words, **environment) as process:
            return ended(process)
