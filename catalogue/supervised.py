"""Child processes for what is hostile: they hold nothing of value, are bounded in memory and time, and are replaced.

A library that was written for bytes of friends can abort its process, hang, or take all memory there is. Done in a
child, that is a verdict on the bytes. It also uses every core.

A child whose work is done waits half a minute for more, since to start one takes longer than most of what it is asked:
one cell of a notebook harvests, the next one checks. Workers of loky do likewise.
"""

import atexit
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import LifoQueue
from typing import IO, Self, TypeAlias

from catalogue.child import HEADER, framed, length_of
from catalogue.errors import CatalogueError

_WORTH_A_CHILD = 16
"""Questions. Most are answered in milliseconds, and to start a child takes a tenth of a second of a core."""
_TRIES = 3
"""A child that died may have been killed by somebody else; bytes that three children die of are to blame."""

_Kind: TypeAlias = tuple[int | str, ...]
"""What a child is called with, see ``catalogue.child.serve``."""
_spare: dict[tuple[int, _Kind], "_Child"] = {}
"""Children that wait for more, by the process that started them, which may have forked since, and their kind."""


class ChildDied(Exception):
    """Why there is no answer, as the rest of a sentence."""

    slow = False
    """Whether it was killed because it took too long."""


class Children:
    """A handful of children that answer questions; safe to use from many threads."""

    def __init__(
        self,
        *task: str,
        count: int | None = None,
        seconds: float = 5.0,
        slow_tries: int = _TRIES,
        patience: int = 30,
    ) -> None:
        """Make room for children; each is started when there is enough to ask.

        Args:
            task: what they do, as ``module:function`` of this package, from bytes to bytes; and modules that it will
                need, which are imported before memory is limited.
            count: how many at most, by default one a core.
            seconds: how long one question may take before its child is killed.
            slow_tries: how many children may take that long.
            patience: seconds for which a child waits for a question before it ends; it is replaced when it is needed.
        """
        self._kind: _Kind = (patience, *task)
        self._count = count or os.cpu_count() or 1
        self._seconds = seconds
        self._slow_tries = slow_tries
        self._idle: LifoQueue[_Child | None] = LifoQueue()
        self._room = 0
        self._asked = 0
        self._closed = False
        self._counting = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, question: bytes) -> bytes:
        """What the task makes of a question.

        Raises:
            ChildDied: if three children died of it, or as many as may took too long.
        """
        fate, slow = "", 0
        self._make_room()
        for _ in range(_TRIES):
            child = self._idle.get()
            try:
                child = child if child and child.waits() else _begun(self._kind)
                return child.ask(question, self._seconds)
            except ChildDied as death:
                fate, child = str(death), None
                slow += death.slow
                if slow >= self._slow_tries:
                    break
            except BaseException:
                if child:  # its answer may still come, and would be taken for that to the next question
                    child.kill()
                child = None
                raise
            finally:
                if child and self._closed:  # it is too late for close: who breaks off waits for no thread of his
                    _leave(self._kind, child)
                    child = None
                self._idle.put(child)
        raise ChildDied(fate)

    def _make_room(self) -> None:
        """Room for another child, if all are busy and so much was asked by now that it is worth its start."""
        with self._counting:
            worth = self._asked >= _WORTH_A_CHILD * self._room
            if worth and self._room < self._count and self._idle.empty():
                self._room += 1
                self._idle.put(None)
            self._asked += 1

    def executor(self) -> Executor:
        """Threads enough to keep every child busy."""
        return ThreadPoolExecutor(self._count, thread_name_prefix="children")

    def close(self) -> None:
        """Leave the children to others; what is asked from now on has one for itself."""
        self._closed = True
        for child in [self._idle.get() for _ in range(self._room)]:
            if child:
                _leave(self._kind, child)
            self._idle.put(None)


def _begun(kind: _Kind) -> "_Child":
    """The child that waits for more, or a new one."""
    spare = _spare.pop((os.getpid(), kind), None)
    return spare if spare and spare.waits() else _Child(kind)


def _leave(kind: _Kind, child: "_Child") -> None:
    """Let a child wait for more, if none does: one is enough for what is small, and it takes memory."""
    if _spare.setdefault((os.getpid(), kind), child) is not child:
        child.kill()


@atexit.register
def end_spare() -> None:
    """End the children that wait for more."""
    for process, kind in list(_spare):
        if process == os.getpid() and (child := _spare.pop((process, kind), None)):
            child.kill()


class _Child:
    def __init__(self, kind: _Kind) -> None:
        root = str(Path(__file__).resolve().parent.parent)
        command = f"import sys; sys.path.insert(0, {root!r}); from catalogue.child import serve; serve(*{kind!r})"
        # An environment without credentials: the child sees hostile bytes. The system's allocator, because the default
        # one reserves address space that the memory limit would count.
        environment = {"ARROW_DEFAULT_MEMORY_POOL": "system", "PATH": os.environ.get("PATH", os.defpath)}
        environment |= {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-I", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
        )
        assert self._process.stdin  # noqa: S101 - both were asked for
        assert self._process.stdout  # noqa: S101
        self._requests, self._answers = self._process.stdin, self._process.stdout
        for pipe in (self._requests, self._answers):
            os.set_blocking(pipe.fileno(), False)
        try:
            started = self._read(1, math.inf) == b"\n"
        except BaseException:
            self.kill()
            raise
        if not started:
            self.kill()
            message = "a process for what is hostile could not be started"
            raise CatalogueError(message)

    def waits(self) -> bool:
        """Whether it has not ended meanwhile; if it has, what is left of it is closed."""
        if self._process.poll() is None:
            return True
        self.close()
        return False

    def ask(self, request: bytes, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        try:
            self._write(framed(request), deadline)
            size = length_of(self._read(HEADER, deadline))
            answer = self._read(size, deadline) if size is not None else b""
            if size == len(answer):
                return answer
            fate = ""
        except TimeoutError:
            fate = f"took over {seconds:g} s"
            self._process.kill()
        except OSError:  # it closed its end
            fate = ""
        self.close()
        status = self._process.wait()
        ended = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        death = ChildDied(fate or f"died ({ended})")
        death.slow = bool(fate)
        raise death

    def _write(self, message: bytes, deadline: float) -> None:
        left = memoryview(message)
        while left:
            self._await(self._requests, select.POLLOUT, deadline)
            left = left[self._requests.write(left) or 0 :]

    def _read(self, size: int, deadline: float) -> bytes:
        """So many bytes, or fewer if it closed its end."""
        found = bytearray()
        while len(found) < size:
            self._await(self._answers, select.POLLIN, deadline)
            part = self._answers.read(size - len(found))
            if part == b"":
                break
            found += part or b""
        return bytes(found)

    @staticmethod
    def _await(pipe: IO[bytes], event: int, deadline: float) -> None:
        """Wait until a pipe can be read or written.

        Raises:
            TimeoutError: if that takes too long.
        """
        poll = select.poll()
        poll.register(pipe, event)
        left = None if deadline == math.inf else max(0.0, deadline - time.monotonic()) * 1000
        if not poll.poll(left):
            raise TimeoutError

    def kill(self) -> None:
        self._process.kill()
        self.close()

    def close(self) -> None:
        with suppress(OSError):  # a child that died has closed its end
            self._requests.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
