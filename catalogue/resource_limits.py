"""Limits of child processes that handle what strangers wrote."""

from contextlib import suppress
from pathlib import Path


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
