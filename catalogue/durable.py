"""Files that get their name when they are whole and on the disk, so that a power cut leaves what was there before."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catalogue.errors import CatalogueError
from catalogue.wording import size


def put_in_place(new: Path, path: Path) -> None:
    """Give a finished file its name, in place of what is called so, in the same folder or another of the same disk."""
    sync(new)
    new.replace(path)
    sync_folder(path.parent)


def sync(path: Path) -> None:
    """Have what is in a file survive a power cut."""
    with named(path), path.open("rb+") as file:
        os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Have names in a folder survive, too, where folders can be opened."""
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
    """Make a folder, and those above it, unless they are there; in a way that a power cut leaves them there."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Let errors of the disk name the file that they are about; those of a file that is open already do not."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or isinstance(error, CatalogueError):
            raise
        if error.errno is None:  # as pyarrow has them
            raise OSError(errno.EIO, str(error), str(path)) from error
        error.filename = str(path)
        raise


def room(path: Path | str, error: BaseException | None) -> str:
    """How much is free where a path is, as the rest of a sentence, if an error tells of a disk that is full."""
    full = getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT}
    if not (full or "No space left" in str(error) or getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"):
        return ""
    place = next(place for place in (Path(path).absolute(), *Path(path).absolute().parents) if place.exists())
    return f" ({size(shutil.disk_usage(place).free)} free there)"
