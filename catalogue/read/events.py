"""Callbacks of reading."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.parquet.stored_indexes import Indexes
from catalogue.source.byte_ranges import FileVersion


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Callbacks for what reading finds."""

    learn: Callable[[IndexFile, int, Indexes], None] = lambda _file, _ordinal, _indexes: None
    """Called with the page index that reading a row group taught."""
    would_learn: Callable[[IndexFile, int, Collection[str]], bool] = lambda _file, _ordinal, _columns: True
    """Returns whether reading these columns of a row group teaches something."""
    notify: Callable[[str], None] = lambda _: None
    """Called with a sentence about an invalid index."""
    uncount: Callable[[str, int], None] = lambda _crawl, _rows: None
    """Called with the rows of a crawl that the plan counted by an invalid index; they are read instead."""
    done: Callable[[], None] = lambda: None
    """Called after each row group, and after each request for blocks."""
    note_version: Callable[[str, str, FileVersion | None], None] = lambda _crawl, _path, _version: None
    """Called with the version of each file with blocks; with None if it is another one than expected."""
