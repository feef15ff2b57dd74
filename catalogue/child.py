"""What a child process does that is supervised: it answers questions. See ``catalogue.supervised``.

A child imports this and little more, since its start takes longer than most of what it is asked.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

HEADER = 4
"""Bytes before each message, which say how long it is."""
_MESSAGE_LIMIT = 256 << 20


def framed(message: bytes) -> bytes:
    """A message as it goes through a pipe."""
    return len(message).to_bytes(HEADER, "little") + message


def length_of(header: bytes) -> int | None:
    """How long the message is that follows; None if none does, or it cannot be one."""
    length = int.from_bytes(header, "little")
    return length if len(header) == HEADER and length <= _MESSAGE_LIMIT else None


def serve(patience: int, task: str, *modules: str) -> None:
    """Answer questions until there are no more; what a child does.

    Args:
        patience: see ``Children``.
        task: likewise.
        modules: likewise.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    answers = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - whatever a library prints must not reach the parent
        os.dup2(nowhere.fileno(), 1)
    # Pyarrow imports them if they are there, which takes half of a child's start, and does without (since version 18).
    for spared in ("numpy", "cloudpickle"):
        sys.modules[spared] = None  # type: ignore[assignment]
    for needed in modules:
        import_module(needed)
    module, _, name = task.partition(":")
    answer: Callable[[bytes], bytes] = getattr(import_module(module), name)
    _limit_resources()
    answers.write(b"\n")
    answers.flush()
    while True:
        signal.alarm(patience)
        size = length_of(sys.stdin.buffer.read(HEADER))
        if size is None:
            return
        question = sys.stdin.buffer.read(size)
        signal.alarm(0)
        answers.write(framed(answer(question)))
        answers.flush()


def _limit_resources() -> None:
    try:
        import resource  # noqa: PLC0415 - not everywhere
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    with suppress(OSError, ValueError):  # only Linux says how much is in use already
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - pathlib would be imported for this
            pages = int(statm.read().split()[0])
        limit = pages * resource.getpagesize() + (1 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
