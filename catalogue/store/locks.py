"""Locks that one process at a time can hold; they end with the process.

On network file systems they are not safe.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from catalogue.atomic_files import errors_of
from catalogue.errors import StoreLocked

_QUIET_SECONDS = 2.0
"""A longer wait is announced."""


@contextmanager
def exclusive_lock(
    file: Path,
    message: str,
    *,
    seconds: float = 0.0,
    output: object | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> Iterator[None]:
    """Hold a lock; ``seconds`` is the longest wait for another process.

    ``message`` is that of ``StoreLocked``; ``output`` names what is locked in that of ``DiskFailed``, by default the
    file. ``notify`` is called with a sentence if the wait is long.

    Raises:
        StoreLocked: if another process holds it.
        DiskFailed: if the file cannot be created.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(file)
    with errors_of(output or file, file.parent):
        with suppress(Timeout):
            lock.acquire(timeout=min(seconds, _QUIET_SECONDS))
        if not lock.is_locked and seconds > _QUIET_SECONDS:
            notify(f"waiting for another process that updates {file.with_suffix('')}; Ctrl-C ends the wait")
            with suppress(Timeout):
                lock.acquire(timeout=seconds - _QUIET_SECONDS)
        if not lock.is_locked:
            raise StoreLocked(message)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def locked(path: Path, output: object) -> Iterator[None]:
    """Lock an output by a file that is deleted afterwards; see ``exclusive_lock``."""
    message = f"another process writes to {output}; wait for it, or choose another name"
    with exclusive_lock(path, message, output=output):
        try:
            yield
        finally:
            with suppress(OSError):  # where open files cannot be deleted
                path.unlink()


_MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = re.compile(
    r"nfs4?|cifs|smb[0-9]*|smbfs|afs|ceph|9p|lustre|gpfs|glusterfs|beegfs|davfs|ncpfs"
    r"|fuse\.(?:sshfs|s3fs|rclone|gcsfuse|goofys|glusterfs|ceph|juicefs|mount-s3|blobfuse2?|davfs2?|curlftpfs)"
)


def _read_mounts() -> str:
    with suppress(OSError):
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    return ""


def remote_kind(folder: Path, read_mounts: Callable[[], str] = _read_mounts) -> str | None:
    """Return the type of a folder's file system, which need not exist, if it is a network file system."""
    device = next(each for each in (folder, *folder.absolute().parents) if each.exists()).stat().st_dev
    for line in read_mounts().splitlines():
        mount, _, system = line.partition(" - ")
        kind = system.partition(" ")[0]
        if f" {os.major(device)}:{os.minor(device)} " in mount and _REMOTE.fullmatch(kind):
            return kind
    return None
