"""``catalogue``: stored footers and page indexes decide which ranges are requested.

The data folders are made by ``lookup_prepare``, in a process of its own, whose memory does not count. Pages are not
cached. Each step opens a new ``Catalogue``, except the second query, which repeats a query as the warm steps of other
clients do. The cold query is the last, because what its harvest imports stays in memory.
"""

from pathlib import Path

from benchmarks.clients.lookup_asking import COLUMNS, Query, Steps, start
from benchmarks.real_size import CRAWL
from catalogue.catalogue import Catalogue
from catalogue.query.resolved_query import CDX_COLUMNS
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.surt.pattern import Match

BLOCKS = "blocks"
"""Folder of the list of blocks of the CDX index."""
_PATTERNS = {
    ("com,saffron-madeup)/", "com,saffron-madeup)/!"): ("https://saffron-madeup.com/", None),
    ("com,saffron-madeup)", "com,saffron-madeup*"): ("saffron-madeup.com", Match.HOST),
    ("com,saffron-madeup)", "com,saffron-madeup-"): ("*.saffron-madeup.com", None),
    ("coop,", "coop-"): ("*.coop", None),
}
"""The queries as patterns, by key range."""


def open_catalogue(query: Query, data: Path) -> Catalogue:
    settings = Settings(source=query.source, cache=data / "cache", cache_size=0, latency=0.03, bandwidth=40e6)
    return Catalogue(Session(data, settings))


def look_up(query: Query, cat: Catalogue, columns: tuple[str, ...] = COLUMNS, *, index: str = "columnar") -> int:
    """Return the number of rows."""
    pattern, match = _PATTERNS[query.low, query.high]
    rows: int = cat.captures(pattern, crawls=CRAWL, match=match, columns=columns, index=index).to_arrow().num_rows
    return rows


def ours(query: Query) -> Steps:
    """Return the steps."""

    def ask(folder: str, columns: tuple[str, ...] = COLUMNS, *, harvest: bool = False, index: str = "columnar") -> int:
        with open_catalogue(query, Path.home() / folder) as cat:
            if harvest:
                cat.harvest(CRAWL)
            return look_up(query, cat, columns, index=index)

    opened, by_blocks = (open_catalogue(query, Path.home() / folder) for folder in ("indexes", BLOCKS))
    look_up(query, opened)
    steps = {}
    if (by_blocks.session.data / "blocks").exists():
        look_up(query, by_blocks, index="auto")
        steps = {
            "list of blocks stored": lambda: ask(BLOCKS, index="auto"),
            "second query by blocks": lambda: look_up(query, by_blocks, index="auto"),
            "first query by search": lambda: ask("nothing", index="auto"),
        }
    return steps | {
        "footers stored": lambda: ask("footers"),
        "indexes stored": lambda: ask("indexes"),
        "second query": lambda: look_up(query, opened),
        "indexes stored, all 14 CDX columns": lambda: ask("everything", CDX_COLUMNS),
        "cold": lambda: ask("cold", harvest=True),
    }


if __name__ == "__main__":
    start(ours)
