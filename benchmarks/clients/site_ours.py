"""``catalogue``: footers are harvested once; stored footers and page indexes decide which ranges are requested.

The columnar index answers: the footers of files with holes have a thousandth of a file's rows, so they cannot predict
where keys are in the list of blocks, as those of a real crawl do.
"""

from functools import partial
from typing import Any

from benchmarks.clients.site_asking import Ask, Site, Task, start
from benchmarks.paced import LATENCY, RATE
from catalogue.catalogue import Catalogue
from catalogue.session import Session
from catalogue.settings import Settings


def harvest(task: Task) -> int:
    """Harvest the footers of all files, as ``catalogue harvest`` does."""
    with Catalogue(Session(task.folder / "data", settings_of(task))) as cat:
        return sum(len(harvested.fetched) for harvested in cat.harvest(task.crawl))


def ask(task: Task, index: str = "auto") -> Ask:
    """Prepare; the catalogue is opened by the first question, and stays open."""
    opened: list[Catalogue] = []

    def asked(site: Site) -> Any:  # noqa: ANN401 - pyarrow has no types
        if not opened:
            opened.append(Catalogue(Session(task.folder / "data", settings_of(task))))
        columns, mime = site.columns or None, site.mime or None
        found = opened[0].captures(site.pattern, crawls=task.crawl, columns=columns, mime=mime, index=index)
        return found.to_arrow() if site.columns else [{}] * found.count()

    return asked


def settings_of(task: Task) -> Settings:
    # Pages are not cached, so only footers and page indexes are stored between queries.
    cache = task.folder / "cache"
    return Settings(source=task.source, cache=cache, cache_size=0, rate=task.rate, latency=LATENCY, bandwidth=RATE)


if __name__ == "__main__":
    start(partial(ask, index="columnar"), before=harvest)
