"""Read a few values of a store within a time limit."""

import json
import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from catalogue.errors import StoreDamaged
from catalogue.store.stored_file import decode, file_version_of

_BUSY_SECONDS = 0.1
"""Longest wait for another process that is writing."""
_TIMEOUT = 2.0
"""Seconds for one query, which may never end in a crafted file."""
_CLOCK_CHECK = 10_000
"""SQLite instructions between two checks of the time."""


def document_names(path: Path, *, seconds: float = _TIMEOUT) -> list[str]:
    """Return the names of a store's documents; none if it cannot be read in time."""
    return [str(key) for (key,) in _rows(path, "SELECT key FROM documents", seconds=seconds)]


def document_ids(path: Path, name: str) -> list[str]:
    """Return the ``id`` values of a document that is a JSON list of objects; none without it."""
    for (value,) in _rows(path, "SELECT value FROM documents WHERE key = ?", name):
        with suppress(StoreDamaged, ValueError, TypeError, KeyError, RecursionError):
            return [str(item["id"]) for item in json.loads(decode(value).data)]
    return []


def stored_sources(path: Path) -> list[str]:
    """Return the sources of the newest and of the oldest file; none if they cannot be read in time."""
    ends = "SELECT value FROM files WHERE rowid IN (SELECT max(rowid) FROM files UNION SELECT min(rowid) FROM files)"
    versions = [file_version_of(value) for (value,) in _rows(path, f"{ends} ORDER BY rowid DESC")]
    return list(dict.fromkeys(each[0] for each in versions if each and isinstance(each[0], str)))


def _rows(path: Path, sql: str, *parameters: str, seconds: float = _TIMEOUT) -> list[tuple[object]]:
    with suppress(sqlite3.Error, OSError):
        if not path.is_file():  # opening a pipe would block
            return []
        # If no process has the store open, SQLite would create files next to it, even to read it, and leave them.
        mode = "mode=ro" if path.with_name(f"{path.name}-shm").exists() else "mode=ro&immutable=1"
        address = f"file:{quote(os.fsencode(path.absolute()))}?{mode}"
        until = time.monotonic() + seconds
        with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > until, _CLOCK_CHECK)
            return connection.execute(sql, parameters).fetchall()
    return []
