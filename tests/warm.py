"""Commands that start at once: forked by a process that has imported what they need.

Importing takes most of the time of most commands. What is forked is a process as a command is one, with arguments,
environment, folder, streams, signals and exit of its own.
"""

import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import NoReturn

from tests import canaries

IMPORTED = ["aiohttp", "pandas", "pyarrow.parquet"]
"""By functions of the package, besides its own modules, and so not imported with these."""

ROOT = Path(__file__).parent.parent


def run(
    words: tuple[str, ...], environment: dict[str, str], folder: Path, *, preload: str = "", seconds: float = 600.0
) -> tuple[int, bytes, bytes]:
    """The exit status of a command, and what it wrote.

    Args:
        words: its arguments.
        environment: all of it.
        folder: the current one.
        preload: a library that the process is loaded with before any other.
        seconds: after which it is killed.
    """
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    asked = json.dumps([words, environment, str(folder)]).encode()
    parent = _parent(preload)
    socket.send_fds(parent, [len(asked).to_bytes(4, "little")], [out_end, err_end])
    parent.sendall(asked)
    os.close(out_end)
    os.close(err_end)
    with open(out, "rb") as outs, open(err, "rb") as errs, ThreadPoolExecutor(1) as executor:  # noqa: PTH123
        number = _number(parent)
        alarm = Timer(seconds, os.kill, [number, signal.SIGKILL])
        alarm.start()
        try:
            printed = executor.submit(errs.read)
            written = outs.read()
        except BaseException:
            os.kill(number, signal.SIGKILL)
            raise
        finally:
            status = _number(parent)
            alarm.cancel()
        return status, written, printed.result()


def _number(parent: socket.socket) -> int:
    answer = parent.recv(4, socket.MSG_WAITALL)
    assert len(answer) == 4, "the process that forks commands has died"
    return int.from_bytes(answer, "little", signed=True)


@cache
def _parent(preload: str) -> socket.socket:
    """Where that process is asked."""
    ours, theirs = socket.socketpair()
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "COVERAGE_PROCESS_START") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
        env=kept | {"PYTHONWARNINGS": "error"} | ({"LD_PRELOAD": preload} if preload else {}),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# ---- in that process ----


def main(asked: socket.socket) -> None:
    """Fork commands until nobody asks for more."""
    for path in sorted((ROOT / "catalogue").rglob("*.py")):
        if path.stem != "__main__":
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    for name in IMPORTED:
        import_module(name)
    # By which whoever ran the command finds out.
    canaries.watch(lambda text: os.write(2, text.encode()))
    canaries.stay_at_home(lambda text: os.write(2, text.encode()))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # each command decides what that means
    while True:
        length, ends, *_ = socket.recv_fds(asked, 4, 2)
        if not length:
            return
        words, environment, folder = json.loads(asked.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the threads are those of libraries that know of forks
            number = os.fork()
        if not number:
            asked.close()
            for end, stream in zip(ends, (sys.stdout, sys.stderr), strict=True):
                os.dup2(end, stream.fileno())
                os.close(end)
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
            _become(words)
        for end in ends:
            os.close(end)
        asked.sendall(number.to_bytes(4, "little"))
        status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        asked.sendall(status.to_bytes(4, "little", signed=True))


def _become(words: list[str]) -> NoReturn:
    sys.argv[1:] = words
    status: object = None
    try:
        runpy.run_module("catalogue", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    assert isinstance(status, int)
    # What Python does at its end, but for taking down all that was imported, which takes longer than most commands.
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        main(given)
