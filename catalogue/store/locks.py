"""Locks that one process at a time can hold; they end with the process."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from catalogue.atomic_files import errors_of
from catalogue.errors import StoreLocked
from catalogue.store.schema import disk_errors


@contextmanager
def exclusive_lock(file: Path, message: str, *, seconds: float = 0.0, output: object | None = None) -> Iterator[None]:
    """Hold a lock.

    Args:
        file: the lock's file.
        message: that of ``StoreLocked``.
        seconds: longest wait for another process.
        output: what is locked, for the message of ``DiskFailed``; by default the file.

    Raises:
        StoreLocked: if another process holds it.
        DiskFailed: if the file cannot be created.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(file)
    with disk_errors(file), nullcontext() if output is None else errors_of(output, file.parent):
        try:
            lock.acquire(timeout=seconds)
        except Timeout:
            raise StoreLocked(message) from None
    try:
        yield
    finally:
        lock.release()


def harvesting(path: Path, crawl: str) -> AbstractContextManager[None]:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", crawl):  # part of a file name
        not_a_name = f"{crawl!r} is not the name of a crawl"
        raise ValueError(not_a_name)
    message = f"another process harvests {crawl} into {path}; wait for it, or choose another --data folder"
    return exclusive_lock(path.with_name(f"{path.name}.{crawl}.lock"), message)


def locked(path: Path, what: object) -> AbstractContextManager[None]:
    return exclusive_lock(path, f"another process writes to {what}; wait for it, or choose another name", output=what)
