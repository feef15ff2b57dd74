"""Make the data folders of ``lookup_ours`` below the home folder.

They have manifests, footers, and the page indexes of a query too. Other clients get the list of files, so the cold
folder has the manifest.
"""

import sys
from contextlib import suppress
from pathlib import Path

from benchmarks.clients.lookup_asking import COLUMNS, Query
from benchmarks.clients.lookup_ours import BLOCKS, look_up, open_catalogue
from benchmarks.real_size import CRAWL
from catalogue.errors import UnknownCrawl
from catalogue.query.resolved_query import CDX_COLUMNS
from catalogue.store.database import Store

_READ = {"cold": (), "footers": (), "indexes": COLUMNS, "everything": CDX_COLUMNS}
"""Columns that were read before, by folder."""


def main(query: Query) -> None:
    """Make the folders."""
    for folder, columns in _READ.items():
        with open_catalogue(query, Path.home() / folder) as cat:
            cat.harvest(CRAWL)
            if columns:
                look_up(query, cat, columns)
    with open_catalogue(query, Path.home() / BLOCKS) as cat, suppress(UnknownCrawl):  # of a source without it
        cat.harvest(CRAWL, index="cdx")
    with Store(Path.home() / "cold" / "footers.sqlite") as store:
        store.delete("files", store.keys("files"))


if __name__ == "__main__":
    main(Query(*sys.argv[1:]))
