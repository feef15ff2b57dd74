"""Child processes that read untrusted content, and their limits."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subprocess import Popen

_SAME_MODULES = "import sys; sys.path[:] = {!r}; "
"""Python ignores PYTHONPATH and the packages of the user in an isolated process."""


def start_isolated(code: str) -> "Popen[bytes]":
    """Start code in a process without the environment of this one; its standard input and output are pipes."""
    from subprocess import DEVNULL, PIPE, Popen  # noqa: PLC0415 - the processes do not need it

    paths = [str(Path(__file__).resolve().parents[1]), *sys.path]
    return Popen(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-I", "-c", _SAME_MODULES.format(paths) + code],
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ},
    )


def limit_resources(*, memory: int, open_files: int | None = None, written: int | None = None) -> None:
    """Limit this process for the rest of its life, and prevent a core dump, where the system can.

    ``memory`` is bytes of address space, in addition to those it has now; ``open_files`` includes those that are open
    now; ``written`` is bytes of any file.
    """
    with suppress(ImportError, OSError, ValueError):  # not every system has these limits
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
        if written is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (written, written))
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
