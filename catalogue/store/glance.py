"""A look at documents of a store that costs next to nothing, for a shell that waits for it between two keys."""

import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from catalogue.errors import StoreDamaged
from catalogue.store.held import decode

_WAIT = 0.1
"""Seconds for another process that is writing."""


def names_of(path: Path) -> list[str]:
    """The names of a store's documents; none if it cannot be read at once."""
    return [str(key) for (key,) in _rows(path, "SELECT key FROM documents")]


def named_in(path: Path, name: str) -> list[str]:
    """The values of ``id`` in a document that is a list of objects in JSON; none if it is not, or not there."""
    for (value,) in _rows(path, "SELECT value FROM documents WHERE key = ?", name):
        with suppress(StoreDamaged, ValueError, TypeError, KeyError, RecursionError):
            return [str(item["id"]) for item in json.loads(decode(value).data)]
    return []


def _rows(path: Path, sql: str, *parameters: str) -> list[tuple[object]]:
    with suppress(sqlite3.Error):
        address = f"file:{quote(str(path.absolute()))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=_WAIT)) as connection:
            return connection.execute(sql, parameters).fetchall()
    return []
