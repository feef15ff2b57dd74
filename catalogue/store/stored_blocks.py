"""Complete lists of blocks of the CDX index: Parquet files in the folder ``blocks`` next to the store.

The directory of each file (see ``cdx/block_file.py``) is a document of the store; without it the file is not used.
"""

from pathlib import Path

from catalogue.store.database import Store

LISTS = "blocks/"
"""Prefix of documents ``blocks/CRAWL``, the directories."""
SEARCHES, SHARDS = "searches/", "shards/"
"""Prefixes of values ``searches/CRAWL`` and ``shards/CRAWL`` of the table ``facts``; see ``searched_lines``."""


def blocks_folder(store: Store) -> Path:
    return store.path.parent / "blocks"


def list_file(store: Store, crawl: str) -> Path:
    """Return the path of a complete list."""
    return blocks_folder(store) / f"{crawl}.parquet"


def crawls_with_blocks(store: Store) -> list[str]:
    """Return the crawls whose lists of blocks are stored, ascending."""
    return [key.removeprefix(LISTS) for key in store.keys("documents", LISTS) if key.startswith(LISTS)]


def forget_list(store: Store, crawl: str) -> None:
    """Delete the list of a crawl, and what searches read of it."""
    store.delete("documents", [LISTS + crawl])
    store.delete("facts", [SEARCHES + crawl, SHARDS + crawl])
    list_file(store, crawl).unlink(missing_ok=True)
