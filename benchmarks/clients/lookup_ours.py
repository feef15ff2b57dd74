"""``catalogue``: stored footers and page indexes decide which ranges are requested."""

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.clients.lookup_asking import COLUMNS, Query, Steps, start
from benchmarks.real_size import CRAWL
from catalogue.catalogue import Catalogue
from catalogue.query.resolved_query import CDX_COLUMNS
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.surt import Match

_PATTERNS = {
    ("com,saffron-madeup)/", "com,saffron-madeup)/!"): ("https://saffron-madeup.com/", None),
    ("com,saffron-madeup)", "com,saffron-madeup*"): ("saffron-madeup.com", Match.HOST),
    ("com,saffron-madeup)", "com,saffron-madeup-"): ("*.saffron-madeup.com", None),
    ("coop,", "coop-"): ("*.coop", None),
}
"""The queries as patterns, by key range."""


def ours(query: Query) -> Steps:
    """Prepare data folders: with manifests, with footers, and with page indexes too.

    Other clients get the list of files, so the cold folder has the manifest. Pages are not cached. Each step opens
    a new ``Catalogue``, except the second query, which repeats a query as the warm steps of other clients do.
    """
    pattern, match = _PATTERNS[query.low, query.high]
    folder = Path(mkdtemp())
    settings = Settings(source=query.source, cache=folder / "cache", cache_size=0, latency=0.03, bandwidth=40e6)

    def ask(data: Path, columns: tuple[str, ...] = COLUMNS, *, harvest: bool = False) -> int:
        with Catalogue(Session(data, settings)) as cat:
            if harvest:
                cat.harvest(CRAWL)
            rows: int = cat.captures(pattern, match=match, columns=columns).to_arrow().num_rows
            return rows

    def prepared(name: str, *prepare: Callable[[Path], object]) -> Path:
        data = folder / name
        with Catalogue(Session(data, settings)) as cat:
            cat.harvest(CRAWL)
        for step in prepare:
            step(data)
        return data

    def forget_footers(data: Path) -> None:
        with Store(data / "footers.sqlite") as store:
            store.delete("files", store.keys("files"))

    cold, footers, indexes = (
        prepared("cold", forget_footers),
        prepared("footers"),
        prepared("indexes", ask),
    )
    everything = prepared("everything", lambda data: ask(data, CDX_COLUMNS))
    open_catalogue = Catalogue(Session(indexes, settings))
    open_catalogue.captures(pattern, match=match, columns=COLUMNS).to_arrow()

    def ask_again() -> int:
        rows: int = open_catalogue.captures(pattern, match=match, columns=COLUMNS).to_arrow().num_rows
        return rows

    return {
        "cold": lambda: ask(cold, harvest=True),
        "footers stored": lambda: ask(footers),
        "indexes stored": lambda: ask(indexes),
        "second query": ask_again,
        "indexes stored, all 14 CDX columns": lambda: ask(everything, CDX_COLUMNS),
    }


if __name__ == "__main__":
    start(ours)
