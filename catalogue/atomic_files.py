"""Files that get their name when they are complete and on disk, so that a power cut leaves the old or the new one.

Until then they have a temporary name, which others may guess in a folder where they can write. So no link is followed.
"""

import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from catalogue.errors import CatalogueError, DiskFailed, QueryError, StoreLocked

if sys.platform != "win32":
    import fcntl

_NOT_PERMITTED = {errno.EACCES, errno.EPERM, errno.EROFS}
_RESUME = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def create(path: Path, *, buffering: int = -1) -> BinaryIO:
    """Create a temporary file exclusively, replacing what a killed process left there."""
    path.unlink(missing_ok=True)
    return path.open("x+b", buffering)


@contextmanager
def temporary_folder(folder: Path) -> Iterator[Path]:
    """Create a folder of this user alone, replacing what a killed process left there, and delete it afterwards."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def resume(path: Path) -> BinaryIO:
    """Open a file that grows in several runs, or create it.

    Raises:
        QueryError: if it is a link, has another name too, or belongs to somebody else.
    """
    refusal = QueryError(
        f"{path} is a symbolic link, has a second hard link, or belongs to another user, so it is not "
        "replaced; move it away and run the same command again"
    )
    if path.is_symlink():
        raise refusal
    file = os.fdopen(os.open(path, _RESUME, 0o666), "r+b")
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or not _is_ours(status, path.parent):
        file.close()
        raise refusal
    return file


def open_file(path: Path) -> BufferedReader:
    """Open a file that is read to its end; a pipe or a device may have none.

    Raises:
        QueryError: if it is no regular file.
    """
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(opened).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(opened, "rb")
    os.close(opened)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise QueryError(f"{path} is a pipe or a device, not a file; save its content to a file first")


def _is_ours(status: os.stat_result, folder: Path) -> bool:
    if not hasattr(os, "geteuid") or status.st_uid == os.geteuid():
        return True
    with TemporaryFile(dir=folder) as probe:  # some file systems give all files the same owner
        return os.fstat(probe.fileno()).st_uid == status.st_uid


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file that gets its name when it is complete; what a killed process left of it is replaced.

    Raises:
        StoreLocked: if another process writes it.
        QueryError: if its temporary file is a link, or belongs to somebody else and cannot be deleted.
    """
    temporary = path.with_name(f".{path.name}.part")
    with ExitStack() as locked:
        with errors_of(path, path.parent):
            file = _open_locked(temporary, locked)
        if file is None:
            raise StoreLocked(f"another process writes to {path}; wait for it, or choose another name")
        try:
            with named(path), file:
                yield file
            with errors_of(path, path.parent):
                put_in_place(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Write a ``whole_file``, also through a link; devices and pipes cannot be replaced, only written to."""
    is_replaced = path.is_file() or not path.exists()
    with whole_file(path.resolve()) if is_replaced else path.open("wb") as file, named(path):
        yield file


def _open_locked(path: Path, locked: ExitStack) -> BinaryIO | None:
    """Open an empty file, unless another process has it; its lock outlives the file object."""
    if sys.platform == "win32":  # an open file can be neither deleted nor renamed there
        with suppress(PermissionError):
            return create(path)
        return None
    _delete_foreign(path)
    file = resume(path)
    lock = os.dup(file.fileno())
    locked.callback(os.close, lock)
    with suppress(BlockingIOError, FileNotFoundError):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # of a file system without locks
            if isinstance(error, BlockingIOError):
                raise
        if os.path.samestat(os.fstat(lock), path.lstat()):  # neither renamed nor deleted before it was locked
            file.truncate()
            return file
    file.close()
    return None


def _delete_foreign(path: Path) -> None:
    """Delete a file of another user whose process has ended, as it may not be opened for writing."""
    with suppress(OSError):
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(opened)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and not _is_ours(status, path.parent):
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(status, path.lstat()):
                    path.unlink()
        finally:
            os.close(opened)


def put_in_place(new: Path, path: Path) -> None:
    sync(new)
    new.replace(path)
    sync_folder(path.parent)


def sync(path: Path) -> None:
    with named(path), path.open("rb+") as file:
        os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, where folders can be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with named(folder.absolute()):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, each synced to disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Add the file's name to errors of the disk, which errors of an open file do not have."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or isinstance(error, CatalogueError):
            raise
        if error.errno is None:  # as pyarrow has them
            raise OSError(errno.EIO, str(error), str(path)) from error
        error.filename = str(path)
        raise


@contextmanager
def errors_of(output: object, folder: Path, kept: str = "") -> Iterator[None]:
    """Raise errors of the temporary file or lock of an output as ``DiskFailed``, which says what is ``kept``."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CatalogueError):
            raise
        reason = f"{error.strerror or error}{room(folder, error)}"
        if error.errno in _NOT_PERMITTED:
            reason = f"no permission for the folder {folder.absolute()}; choose another name"
        raise DiskFailed(f"{output} cannot be written: {reason}{kept and f'; {kept}'}") from error


_FULL_DISK_NAMES = {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}
"""Errors of SQLite on a full disk; the second one when it starts the index of its log, which readers need, too."""


def room(path: Path | str, error: BaseException | None) -> str:
    """Return the free space near a path for the message of an error, if the disk is full."""
    full = getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT}
    if not (full or "No space left" in str(error) or getattr(error, "sqlite_errorname", "") in _FULL_DISK_NAMES):
        return ""
    if path == "standard output":
        return ""
    place = next(place for place in (Path(path).absolute(), *Path(path).absolute().parents) if place.exists())
    return f" ({shutil.disk_usage(place).free / 1e9:,.1f} GB free there)"
