"""Rights that only one process at a time has; whoever dies loses them."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from catalogue.errors import StoreLocked
from catalogue.store.schema import disk_errors


@contextmanager
def alone(file: Path, message: str, *, seconds: float = 0.0) -> Iterator[None]:
    """Hold a lock that only one process at a time has.

    Args:
        file: of the lock.
        message: of the error.
        seconds: to wait for another that has it.

    Raises:
        StoreLocked: if another still has it then.
        DiskFailed: if the file cannot be made.
    """
    lock = FileLock(file)
    with disk_errors(file):
        try:
            lock.acquire(timeout=seconds)
        except Timeout:
            raise StoreLocked(message) from None
    try:
        yield
    finally:
        lock.release()


def harvesting(path: Path, crawl: str) -> AbstractContextManager[None]:
    """Hold the right to harvest a crawl into the store at a path; see ``alone``."""
    message = f"another process harvests {crawl} into {path}; wait for it, or choose another --data folder"
    return alone(path.with_name(f"{path.name}.{_lockable(crawl)}.lock"), message)


def locked(path: Path, what: object) -> AbstractContextManager[None]:
    """Hold the right to write to something that has a name of its own; see ``alone``.

    Args:
        path: of the lock's file.
        what: is written to, for the message.
    """
    return alone(path, f"another process writes to {what}; wait for it, or choose another name")


def _lockable(crawl: str) -> str:
    """A crawl's name as part of that of a file."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", crawl):
        message = f"{crawl!r} is not the name of a crawl"
        raise ValueError(message)
    return crawl
