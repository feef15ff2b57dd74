"""Parse hostile documents in processes without credentials, with limited memory and time.

An HTML parser may crash, hang, or take all memory. In a process of its own, that is an error of one document.
"""

import os
import signal
import subprocess
import sys
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import LifoQueue
from threading import Timer
from typing import IO, Self

_HEADER = 4
"""Bytes before each message with its length."""
_MAX_MESSAGE = 256 << 20
_MAX_MEMORY = 1 << 30
"""Bytes that a process may take beyond those after its start."""
_TRIES = 2
"""Processes that a document may kill: the first may have been killed by something else."""


class ParserDied(Exception):
    """A process died or took too long; the rest of a sentence."""

    timed_out = False


class ParserProcesses:
    """A pool of processes that call one function; safe to use from many threads."""

    def __init__(self, task: str, *modules: str, count: int | None = None, seconds: float = 20.0) -> None:
        """Prepare a pool; processes start when they are needed.

        Args:
            task: ``module:function``, from bytes to bytes.
            modules: imported before memory is limited.
            count: processes at most; by default one for each core.
            seconds: that one call may take.
        """
        self._arguments = (task, *modules)
        self._count = count or os.cpu_count() or 1
        self._seconds = seconds
        self._closed = False
        self._idle: LifoQueue[_Process | None] = LifoQueue()
        for _ in range(self._count):
            self._idle.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, request: bytes) -> bytes:
        """Call the function.

        Raises:
            ParserDied: if its process died twice, or took too long.
        """
        process = self._idle.get()
        try:
            tries = 0
            while True:
                tries += 1
                process = process or _Process(self._seconds, *self._arguments)
                try:
                    return process.call(request)
                except ParserDied as error:
                    process = None
                    if error.timed_out or tries == _TRIES:
                        raise
        except BaseException:
            if process:  # its answer may still come
                process.kill()
            process = None
            raise
        finally:
            if process and self._closed:
                process.kill()
                process = None
            self._idle.put(process)

    def executor(self) -> Executor:
        """Return as many threads as there are processes."""
        return ThreadPoolExecutor(self._count, thread_name_prefix="parsers")

    def close(self) -> None:
        """End the processes."""
        self._closed = True
        for process in [self._idle.get() for _ in range(self._count)]:
            if process:
                process.kill()
            self._idle.put(None)


class _Process:
    def __init__(self, seconds: float, *arguments: str) -> None:
        self._seconds = seconds
        root = str(Path(__file__).resolve().parents[2])
        code = f"import sys; sys.path.insert(0, {root!r}); from {__name__} import serve; serve(*{arguments!r})"
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-I", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ},
        )
        assert self._process.stdin  # noqa: S101 - requested above
        assert self._process.stdout  # noqa: S101
        self._requests, self._answers = self._process.stdin, self._process.stdout
        _receive(self._answers)  # it has started

    def call(self, request: bytes) -> bytes:
        timer = Timer(self._seconds, self._process.kill)
        timer.start()
        answer = None
        with suppress(OSError):  # it closed its end
            _send(self._requests, request)
            answer = _receive(self._answers)
        in_time = timer.is_alive()
        timer.cancel()
        if answer is not None:
            return answer
        self.kill()
        status = self._process.returncode
        died = f"died ({signal.Signals(-status).name if status < 0 else f'exit status {status}'})"
        error = ParserDied(died if in_time else f"took over {self._seconds:g} s")
        error.timed_out = not in_time
        raise error

    def kill(self) -> None:
        self._process.kill()  # if it has ended, its status stays
        self._process.wait()
        for pipe in (self._requests, self._answers):
            with suppress(OSError):
                pipe.close()


def serve(task: str, *modules: str) -> None:
    """Answer requests until there are no more; runs in a process of the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    answers = os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("wb") as null:  # for what libraries print
        os.dup2(null.fileno(), 1)
    for each in modules:
        import_module(each)
    module, _, name = task.partition(":")
    function = getattr(import_module(module), name)
    _limit_resources()
    _send(answers, b"")
    while (request := _receive(sys.stdin.buffer)) is not None:
        _send(answers, function(request))


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_HEADER, "little") + message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """Read a message; None if the other end is closed, or sends none."""
    header = pipe.read(_HEADER)
    length = int.from_bytes(header, "little")
    if len(header) < _HEADER or length > _MAX_MESSAGE:
        return None
    message = pipe.read(length)
    return message if len(message) == length else None


def _limit_resources() -> None:
    with suppress(ImportError, OSError, ValueError):  # not every system has these limits
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + _MAX_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
