"""Read a store whose file or folder is not writable, as on read-only media or in another user's folder.

SQLite normally creates the files ``-wal`` and ``-shm`` even to read; here it creates none.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from catalogue.errors import DiskFailed
from catalogue.store.schema import read_only

_WAL_VERSIONS = b"\x02\x02"
"""Read and write version in the header of a file in WAL mode."""

Footprint: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Sizes and times that change with the store's files."""


def log_of(path: Path) -> Path:
    """Return the path of a store's write-ahead log."""
    return path.with_name(path.name + "-wal")


def is_writable(path: Path) -> bool:
    """Return whether a file, which need not exist, and files next to it can be written."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    effective = os.access in os.supports_effective_ids
    places = (folder, path) if path.exists() else (folder,)
    return all(os.access(place, os.W_OK, effective_ids=effective) for place in places)


def unwritable(path: Path) -> DiskFailed:
    """Return the error for a write to a read-only store."""
    return DiskFailed(
        f"{path.parent} cannot be written to, only read; choose another --data folder, or run this as its owner"
    )


def open_to_read(path: Path) -> tuple[sqlite3.Connection, Footprint | None]:
    """Open a read-only connection to a store, without creating files.

    Returns:
        The connection, and the footprint for which it is valid; None if SQLite itself detects changes.
    """
    if is_writable(path):
        return read_only(path), None
    log, footprint = log_of(path), footprint_of(path)
    with path.open("rb") as file:
        has_log = file.read(20)[18:] == _WAL_VERSIONS
    if not has_log or (log.exists() and path.with_name(f"{path.name}-shm").exists()):
        return read_only(path), None
    if log.exists() and log.stat().st_size:  # left by a killed process; without locks, its index is in memory
        connection = read_only(path, vfs="unix-none")
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        return connection, footprint
    return read_only(path, immutable=True), footprint


def footprint_of(path: Path) -> Footprint:
    return tuple(_stat(file) for file in (path, log_of(path)))


def _stat(path: Path) -> tuple[int, int, int] | None:
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None
