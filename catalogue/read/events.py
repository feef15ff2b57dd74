"""Callbacks of reading."""

from collections.abc import Callable
from dataclasses import dataclass

from catalogue.source.byte_ranges import FileVersion


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Callbacks of reading."""

    notify: Callable[[str], None] = lambda _: None
    """Called with a sentence about an invalid index."""
    uncount: Callable[[str, int], None] = lambda _crawl, _rows: None
    """Called with a crawl and rows that were wrongly counted by an invalid index; they are read instead."""
    done: Callable[[], None] = lambda: None
    """Called after each row group, and after each request for blocks."""
    note_version: Callable[[str, str, FileVersion | None], None] = lambda _crawl, _path, _version: None
    """Called with crawl, path and version of each file with blocks; with None if it is not the expected version."""
