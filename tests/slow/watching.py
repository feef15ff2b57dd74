"""What a long run watches beside its answers: that each step ends, what is raised elsewhere, and what is left over."""

import ctypes
import gc
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from catalogue.supervised import end_spare
from tests.slow.sizes import resident

_PROCESS = Path("/proc/self")
_SOON = 10.0
"""Seconds within which threads end that have nothing more to do."""


def within(seconds: float, work: Callable[[], None]) -> None:
    """Do something that must not take longer.

    Raises:
        AssertionError: if it does, with what every thread is at; or if it raises whatever, with that.
    """
    raised: list[str] = []

    def run() -> None:
        try:
            work()
        except BaseException:  # noqa: BLE001 - it is told in full
            raised.append(traceback.format_exc())

    thread = threading.Thread(target=run, name="step", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        names = {each.ident: each.name for each in threading.enumerate()}
        stacks = (
            f"{names.get(ident)}:\n{''.join(traceback.format_stack(frame))}"
            for ident, frame in sys._current_frames().items()  # noqa: SLF001 - the only way to see other threads
        )
        raised.append(f"not done after {seconds:.0f} s\n{''.join(stacks)}")
    if raised:
        raise AssertionError(raised[0])


@contextmanager
def strays() -> Iterator[list[str]]:
    """What is raised where nobody can catch it, as it comes: in threads, in destructors, in tasks of a loop."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    def in_thread(raised: threading.ExceptHookArgs) -> None:
        found.append("".join(traceback.format_exception(raised.exc_value)))

    def nowhere(raised: "sys.UnraisableHookArgs") -> None:
        found.append(f"{raised.err_msg} {raised.object!r}: {traceback.format_exception(raised.exc_value)}")

    handler, log = Handler(logging.WARNING), logging.getLogger("asyncio")
    hooks = threading.excepthook, sys.unraisablehook
    threading.excepthook, sys.unraisablehook = in_thread, nowhere
    log.addHandler(handler)
    try:
        yield found
        gc.collect()
    finally:
        threading.excepthook, sys.unraisablehook = hooks
        log.removeHandler(handler)


@dataclass(frozen=True)
class Left:
    """What a process has, of which nothing may grow."""

    descriptors: int
    threads: int
    children: int

    @staticmethod
    def now(before: "Left | None" = None) -> "Left":
        """Count; threads that are about to end are waited for, if there are more than before."""
        for thread in threading.enumerate() if before and threading.active_count() > before.threads else ():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join(_SOON)
        end_spare()
        gc.collect()
        children = "".join(each.read_text() for each in _PROCESS.glob("task/*/children"))
        return Left(len(list((_PROCESS / "fd").iterdir())), threading.active_count(), len(children.split()))

    def __sub__(self, before: "Left") -> "Left":
        return Left(
            self.descriptors - before.descriptors,
            self.threads - before.threads,
            self.children - before.children,
        )


def memory() -> int:
    """Bytes in memory, without those that allocators hold though nobody needs them."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    return resident()
