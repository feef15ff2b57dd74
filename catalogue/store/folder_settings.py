"""Settings for a data folder, and values of its store that are read within a time limit."""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import StoreDamaged
from catalogue.settings import DEMO_SOURCE, HOSTS, STORE_NAME, Settings, canonical, is_folder, load_settings
from catalogue.store.layout import decode, file_version_of, log_of, open_to_read, read_only


def settings_for(
    *,
    data: str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    notify: Callable[[str], None],
    **options: object,
) -> Settings:
    """Load settings; if no source is set, use the source of the stored files.

    Raises:
        QueryError: if a setting is invalid.
    """
    settings = load_settings(data=data, **options)
    if settings.source == DEMO_SOURCE and not is_folder(DEMO_SOURCE):
        from catalogue.demo.miniature import stored_miniature

        options["source"] = str(stored_miniature(settings.cache))
        settings = load_settings(data=data, **options)
    folder = settings.data / dataset if dataset and dataset != COMMON_CRAWL.name else settings.data
    stored = stored_sources(folder / STORE_NAME)
    if stored:
        both = [host.name for host in HOSTS if host.address in stored]
        source = ",".join(both) if len(both) > 1 else as_setting(stored[0])
        settings = load_settings({"source": source}, data=data, **options)
    alike = {settings.source, *(host.address for host in settings.hosts)}
    if not alike.isdisjoint(built_in := {host.address for host in HOSTS}):
        alike |= built_in
    others = [source for source in stored if canonical(source) not in map(canonical, alike)]
    if others and ("://" in settings.source or is_folder(settings.source)):  # a folder that is missing is an error
        origin, advice = as_setting(others[0]), "use another data folder for it"
        if options.get("source"):
            advice += ", or leave out the source"
        elif canonical(settings.source) not in map(canonical, stored):  # of the environment or config.toml
            advice += f", or source='{origin}'"
        else:
            advice = "if that is not intended, choose the other source"
        notify(f"files in {folder} came from {origin}, but the source is now {settings.source}; {advice}")
    return settings


def as_setting(source: str) -> str:
    """Return the value of ``--source`` for the address of a stored file."""
    if not source.startswith("file:"):
        return source
    from urllib.request import url2pathname

    return url2pathname(urlsplit(source).path).rstrip("/") or "/"


_BUSY_MILLISECONDS = 100
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
    """Return the sources of the newest and of the oldest file, and then of such lists of blocks.

    They are left out if they cannot be read in time.
    """
    kinds = ("files", ""), ("documents", "WHERE key GLOB 'blocks/*'")
    ends = "SELECT value FROM {0} WHERE rowid IN (SELECT max(rowid) FROM {0} {1} UNION SELECT min(rowid) FROM {0} {1})"
    values = [value for kind in kinds for (value,) in _rows(path, f"{ends.format(*kind)} ORDER BY rowid DESC")]
    versions = [file_version_of(value) for value in values]
    return list(dict.fromkeys(each.origin for each in versions if each and isinstance(each.origin, str)))


def _rows(path: Path, sql: str, *parameters: str, seconds: float = _TIMEOUT) -> list[tuple[object]]:
    with suppress(sqlite3.Error, OSError):
        if not path.is_file():  # opening a pipe would block
            return []
        # If no process has the store open, SQLite would create files next to it, even to read it, and leave them.
        has_log = log_of(path).exists()  # which a process has open, or a killed one has left
        until = time.monotonic() + seconds
        with closing(open_to_read(path)[0] if has_log else read_only(path, immutable=True)) as connection:
            connection.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")
            connection.set_progress_handler(lambda: time.monotonic() > until, _CLOCK_CHECK)
            return connection.execute(sql, parameters).fetchall()
    return []
