"""The process of a command: its signals, and its end.

It imports little, because a signal may come while the modules of the command are imported.
"""

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import catalogue
from catalogue.same_name import refuse

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_SAME_SECONDS = 1.0
"""Signals within this time after the first one belong to it: a terminal and a parent process may both send it."""
_AGAIN_SECONDS = 0.01
_DISK_FAILED = 74
_resumable: list[bool] = []
"""Has an item while the same command can resume the running work."""
signals: list[int] = []
"""Signals received. Libraries can replace the KeyboardInterrupt by other errors."""


class _Process:
    status: int | None = None
    """The exit status, when the command has ended."""
    stopped_at = 0.0
    reported = False


def run_command(command: Callable[[], int]) -> NoReturn:
    """Run a function that returns the exit status, and exit."""
    _Process.status, status = None, 1
    sys.unraisablehook = _keep_signal
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop)
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # nohup ignores it
            signal.signal(signal.SIGHUP, _stop)
        atexit.register(_end)
        if not hasattr(catalogue, "load_ipython_extension"):  # the __init__ of another package, or none
            refuse()
        status = command()
    except KeyboardInterrupt:
        status = stopped()
    except OSError as error:  # standard error is full, or an import failed
        status = _DISK_FAILED
        with suppress(OSError):
            os.write(2, f"catalogue: {error}\n".encode(errors="replace"))
    _Process.status = status
    if signals:  # the signal may have interrupted an import, for whose lock another thread waits forever
        _end()
    sys.exit(status)


def release() -> None:
    """Leave the end of this process to a program that ran a command in it."""
    _Process.status = None
    atexit.unregister(_end)


@contextmanager
def resumable() -> Iterator[None]:
    """Mark work that the same command can resume after it was stopped."""
    _resumable.append(True)
    yield
    _resumable.clear()  # not if it was stopped


def stopped() -> int:
    """Say so, once, and return the exit status."""
    if not _Process.reported:
        _Process.reported = True
        resume = "; finished work is saved, and the same command continues it" if _resumable else ""
        with suppress(OSError):
            after = "\n" if os.isatty(2) else ""  # the terminal shows ^C
            os.write(2, f"{after}stopped{resume}\n".encode())  # the signal may have interrupted a write to the stream
    return 128 + (signals[0] if signals else signal.SIGINT)


def _stop(number: int, _: FrameType | None) -> None:
    """End the command by a KeyboardInterrupt; if it does not end, a later signal ends the process."""
    is_first = not signals
    signals.append(number)
    if is_first:
        _Process.stopped_at = monotonic()
    if _Process.status is None and is_first:
        raise KeyboardInterrupt
    if _Process.status is not None or monotonic() - _Process.stopped_at > _SAME_SECONDS:
        os._exit(stopped())


def _keep_signal(error: "UnraisableHookArgs") -> None:
    """Deliver a signal again that came where Python drops exceptions, such as in a destructor."""
    if not (issubclass(error.exc_type, KeyboardInterrupt) and signals and hasattr(signal, "setitimer")):
        sys.__unraisablehook__(error)
        return
    number = signals.pop()
    signal.signal(signal.SIGALRM, lambda _, frame: _stop(number, frame))
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _end() -> None:
    """End the process when everything is closed, without deleting Python's objects.

    The deletion takes a fifth of a short command, and a native thread that needs Python's lock during it aborts.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the command has reported it
            stream.flush()
    if _Process.status is not None:
        os._exit(_Process.status)
