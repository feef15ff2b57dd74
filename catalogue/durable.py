"""Files that get their name when they are whole and on the disk, so that a power cut leaves what was there before."""

import os
from pathlib import Path


def put_in_place(new: Path, path: Path) -> None:
    """Give a finished file its name, in place of what is called so, in the same folder or another of the same disk."""
    sync(new)
    new.replace(path)
    sync_folder(path.parent)


def sync(path: Path) -> None:
    """Have what is in a file survive a power cut."""
    with path.open("rb+") as file:
        os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Have names in a folder survive, too, where folders can be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
