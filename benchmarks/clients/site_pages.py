"""``catalogue``: footers and page indexes are harvested once; only pages are requested afterwards."""

from benchmarks.clients.site_asking import Task, start
from benchmarks.clients.site_ours import ask, settings_of
from catalogue.catalogue import Catalogue
from catalogue.session import Session


def harvest(task: Task) -> int:
    """Harvest footers and page indexes, as ``catalogue harvest --pages`` does."""
    with Catalogue(Session(task.folder / "data", settings_of(task))) as cat:
        return sum(len(harvested.fetched) for harvested in cat.harvest(task.crawl, pages=True))


if __name__ == "__main__":
    start(ask, before=harvest)
