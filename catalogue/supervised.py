"""Child processes for what is hostile: they hold nothing of value, are bounded in memory and time, and are replaced.

A library that was written for bytes of friends can abort its process, hang, or take all memory there is. Done in a
child, that is a verdict on the bytes. It also uses every core.
"""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import LifoQueue
from typing import Self

from catalogue.child import receive, send
from catalogue.errors import CatalogueError

_WORTH_A_CHILD = 16
"""Questions. Most are answered in milliseconds, and to start a child takes a tenth of a second of a core."""
_TRIES = 3
"""A child that died may have been killed by somebody else; bytes that three children die of are to blame."""


class ChildDied(Exception):
    """Why there is no answer, as the rest of a sentence."""

    slow = False
    """Whether it was killed because it took too long."""


class Children:
    """A handful of children that answer questions; safe to use from many threads."""

    def __init__(self, *task: str, count: int | None = None, seconds: float = 5.0, slow_tries: int = _TRIES) -> None:
        """Make room for children; each is started when there is enough to ask.

        Args:
            task: what they do, as ``module:function`` of this package, from bytes to bytes; and modules that it will
                need, which are imported before memory is limited.
            count: how many at most, by default one a core.
            seconds: how long one question may take before its child is killed.
            slow_tries: how many children may take that long.
        """
        self._task = task
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
                child = child or _Child(self._task)
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
                if child and self._closed:  # nobody will end it later: who breaks off waits for no thread of his
                    child.kill()
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
        """End the children, which hold nothing; what is asked from now on has one for itself."""
        self._closed = True
        for child in [self._idle.get() for _ in range(self._room)]:
            if child:
                child.kill()
            self._idle.put(None)


class _Child:
    def __init__(self, task: tuple[str, ...]) -> None:
        root = str(Path(__file__).resolve().parent.parent)
        command = f"import sys; sys.path.insert(0, {root!r}); from catalogue.child import serve; serve(*{task!r})"
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
        )
        assert self._process.stdin  # noqa: S101 - both were asked for
        assert self._process.stdout  # noqa: S101
        self._requests, self._answers = self._process.stdin, self._process.stdout
        try:
            started = self._answers.read(1) == b"\n"
        except BaseException:
            self.kill()
            raise
        if not started:
            self.kill()
            message = "a process for what is hostile could not be started"
            raise CatalogueError(message)

    def ask(self, request: bytes, seconds: float) -> bytes:
        slow = threading.Event()

        def give_up() -> None:
            slow.set()
            self._process.kill()

        timer = threading.Timer(seconds, give_up)
        timer.start()
        try:
            send(self._requests, request)
            answer = receive(self._answers)
        except OSError:
            answer = None
        finally:
            timer.cancel()
        if answer is None:
            self.close()
            status = self._process.wait()
            fate = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            death = ChildDied(f"took over {seconds:g} s" if slow.is_set() else f"died ({fate})")
            death.slow = slow.is_set()
            raise death
        return answer

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
