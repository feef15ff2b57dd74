"""What a child process does that is supervised: it answers questions. See ``catalogue.supervised``.

A child imports this and little more, since its start takes longer than most of what it is asked.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import IO

_ANSWER_LIMIT = 256 << 20
ENDS_BY_ITSELF = hasattr(signal, "alarm")
"""Whether it ends when it has waited for too long, and may be left alone."""


def send(pipe: IO[bytes], message: bytes) -> None:
    """Hand a message to the other side."""
    pipe.write(len(message).to_bytes(4, "little") + message)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """The next message of the other side; None if there is none, or what came is none."""
    header = pipe.read(4)
    length = int.from_bytes(header, "little")
    if len(header) < 4 or length > _ANSWER_LIMIT:  # noqa: PLR2004
        return None
    message = pipe.read(length)
    return message if len(message) == length else None


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
    while question := _question(patience):
        send(answers, answer(question))


def _question(patience: int) -> bytes | None:
    if not ENDS_BY_ITSELF:
        return receive(sys.stdin.buffer)
    signal.alarm(patience)
    question = receive(sys.stdin.buffer)
    signal.alarm(0)
    return question


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
