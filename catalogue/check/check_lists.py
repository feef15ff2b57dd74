"""Compare the stored lists of blocks with their digests and checksums."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from catalogue.errors import StoreDamaged
from catalogue.plan.block_lists import open_list
from catalogue.store.database import Store
from catalogue.store.stored_blocks import LISTS, crawls_with_blocks


class CheckedList(NamedTuple):
    """A stored list of blocks."""

    crawl: str
    size: int
    """Bytes of its file; 0 if it cannot be read."""
    problem: str
    """Empty if there is none."""


def check_lists(store: Store, crawls: Collection[str] | None) -> Iterator[CheckedList]:
    """Read the lists of crawls completely, or all for None.

    A list whose directory is damaged is left out: that is a value of the store.
    """
    for crawl in crawls_with_blocks(store):
        if crawls is None or crawl in crawls:
            try:
                found = open_list(store, crawl)
                size = found.read_all() if found else 0
            except StoreDamaged as error:
                if not str(error).startswith(LISTS):
                    yield CheckedList(crawl, 0, str(error).partition("; run: ")[0])
            else:
                yield CheckedList(crawl, size, "")
