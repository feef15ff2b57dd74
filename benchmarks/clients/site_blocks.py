"""``catalogue``: the list of blocks of the CDX index is harvested once; blocks answer."""

from benchmarks.clients.site_asking import Task, start
from benchmarks.clients.site_ours import ask, settings_of
from catalogue.catalogue import Catalogue
from catalogue.session import Session


def harvest(task: Task) -> int:
    """Harvest the list of blocks, as ``catalogue harvest --index cdx`` does."""
    with Catalogue(Session(task.folder / "data", settings_of(task))) as cat:
        return sum(len(harvested.fetched) for harvested in cat.harvest(task.crawl, index="cdx"))


if __name__ == "__main__":
    start(ask, before=harvest)
