"""Commands that start quickly, since they are forked by a process that has imported everything.

Imports take most of the time of most commands. A forked process has its own arguments, environment, folder, streams,
signals and exit.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import NoReturn, Self
from zlib import crc32

import psutil

from tests.support import canaries

IMPORTED = ["aiohttp", "filelock", "pandas", "pyarrow.parquet", "rich.cells"]
"""Modules that functions of the package import."""

OF_COMMANDS = {
    "export iceberg": "catalogue.export.iceberg",
    "mcp": "catalogue.mcp_server.serve",
    "serve": "catalogue.server",
}
"""Packages and modules that only one command needs, and that take long to import."""
ROOT = Path(__file__).parents[2]


class Forked:
    """A running command, with the methods of ``subprocess.Popen`` that tests need."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        in_one: bool = False,
        terminal: int | None = None,
        keyboard: bool = False,
        given: bytes | int = b"",
        preload: str = "",
    ) -> None:
        """Start a command.

        ``in_one`` gives it one stream for output and errors, ``terminal`` an open terminal for both, which ``keyboard``
        makes the standard input, too. ``given`` is the standard input, or the end of a pipe for it, which is closed
        here; ``preload`` is a library for LD_PRELOAD.
        """
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        requested = json.dumps([list(words), dict(environment), str(folder)]).encode()
        self._status = _connect(preload)
        streams = [out_end, out_end if in_one else err_end] if terminal is None else [terminal, terminal]
        with TemporaryFile() if isinstance(given, bytes) else open(given, "rb") as input_:  # noqa: PTH123
            if isinstance(given, bytes):
                input_.write(given)
                input_.seek(0)
            ends = [terminal if keyboard and terminal else input_.fileno(), *streams]
            socket.send_fds(self._status, [len(requested).to_bytes(4, "little")], ends)
        self._status.sendall(requested)
        os.close(out_end)
        os.close(err_end)
        self.args = list(words)
        self.stdout, self.stderr = open(out, "rb"), open(err, "rb")  # noqa: PTH123, SIM115 - closed by __exit__
        self.returncode: int | None = None
        self.pid = self._number()

    def _number(self) -> int:
        answer = self._status.recv(4, socket.MSG_WAITALL)
        assert len(answer) == 4, "the process that forks commands has died"
        return int.from_bytes(answer, "little", signed=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.kill()
        self.wait()
        self._close()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = self._number()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal if it still runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 90) -> tuple[bytes, bytes]:
        with ThreadPoolExecutor(2) as executor:
            streams = [executor.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except BaseException:
                self.kill()
                raise
            out, err = [stream.result() for stream in streams]
        self._close()
        return out, err

    def _close(self) -> None:
        for each in (self.stdout, self.stderr, self._status):
            each.close()


def _connect(preload: str) -> socket.socket:
    """Connect to the process that forks commands, which all processes of a run of tests share.

    The first of them starts it: where no other process can have the same name, it is free.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone {os.getpid()}")
    name = f"\0catalogue {run} {crc32(preload.encode())}" if sys.platform == "linux" else _path(preload)
    while True:
        with socket.socket(socket.AF_UNIX) as listener, suppress(OSError):
            listener.bind(name)
            listener.listen()
            _start(listener, preload)
        ours = socket.socket(socket.AF_UNIX)
        if not ours.connect_ex(name):
            return ours
        ours.close()  # another process does not listen yet, or no longer


@cache
def _path(_: str) -> str:
    return f"{mkdtemp()}/warm"


def _start(listener: socket.socket, preload: str) -> None:
    names = ("PATH", "PYTHONPATH", "LANG", "COVERAGE_PROCESS_START")
    remaining = {name: os.environ[name] for name in names if name in os.environ}
    owner = os.getppid() if "PYTEST_XDIST_TESTRUNUID" in os.environ else os.getpid()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm", str(listener.fileno()), str(owner)],
        env=remaining | {"PYTHONWARNINGS": "error"} | ({"LD_PRELOAD": preload} if preload else {}),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[listener.fileno()],
    )
    atexit.register(process.poll)  # it ends later, and a Popen without a reference would warn


def main(listener: socket.socket, owner: int) -> None:
    """Fork commands until the process that runs all tests has ended."""
    _import_everything()
    # A test finds the marks in the output of its command.
    canaries.watch(lambda text: os.write(2, text.encode()))
    canaries.stay_at_home(lambda text: os.write(2, text.encode()))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # each command sets its own handler
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes below
    listener.settimeout(1)
    while True:
        try:
            client, _ = listener.accept()
        except TimeoutError:
            if psutil.pid_exists(owner):
                continue
            return
        length, streams, *_ = socket.recv_fds(client, 4, 3)
        words, environment, folder = json.loads(client.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL))
        _import_for(words)
        if not _fork():
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run(client, words, environment, folder, streams)
        client.close()
        for end in streams:
            os.close(end)


def _run(
    client: socket.socket, words: list[str], environment: dict[str, str], folder: str, streams: list[int]
) -> NoReturn:
    """Fork a command; report its number, and its exit status when it has ended."""
    number = _fork()
    if not number:
        client.close()
        _become(words, environment, folder, streams)
    for end in streams:
        os.close(end)
    with suppress(BrokenPipeError):  # the client has ended
        client.sendall(number.to_bytes(4, "little", signed=True))
        status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        client.sendall(status.to_bytes(4, "little", signed=True))
    os._exit(0)


def _import_everything() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "catalogue").rglob("*.py"))
        if path.stem != "__main__"
    ]
    for name in (*names, *IMPORTED):
        if not name.startswith(tuple(OF_COMMANDS.values())):
            import_module(name)
    _freeze()


def _import_for(words: Sequence[str]) -> None:
    command = " ".join(words)
    for beginning, name in OF_COMMANDS.items():
        if command.startswith(beginning) and name not in sys.modules:
            import_module(name)
            _freeze()


def _freeze() -> None:
    """Exclude what is imported from garbage collection, so that commands neither visit nor copy it."""
    gc.collect()
    gc.freeze()


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads belong to libraries that support forks
        return os.fork()


def _become(words: list[str], environment: dict[str, str], folder: str, streams: list[int]) -> NoReturn:
    for number, end in enumerate(streams):
        os.dup2(end, number)
        os.close(end)
    if os.isatty(1):  # where open() buffers lines
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[1:] = words
    status: object = None
    try:
        runpy.run_module("catalogue", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    assert isinstance(status, int)
    # As Python does at its end, without deleting all modules, which takes longer than most commands.
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        main(given, int(sys.argv[2]))
    gc.unfreeze()  # see tests/conftest.py
