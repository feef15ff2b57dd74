"""Signals of a process with an event loop, whose tasks may catch or log a KeyboardInterrupt."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread

_STOPPING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


@contextmanager
def deferred_signals(stop: Callable[[int], object]) -> Iterator[None]:
    """Call ``stop`` with each signal that is not ignored, and deliver these signals at the end of the block."""
    numbers = _STOPPING if current_thread() is main_thread() else []
    handlers = {each: handler for each in numbers if (handler := signal.getsignal(each)) != signal.SIG_IGN}
    received: list[int] = []

    def receive(number: int, _: object) -> None:
        received.append(number)
        stop(number)

    try:
        for number in handlers:
            signal.signal(number, receive)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for each in received:
            signal.raise_signal(each)
