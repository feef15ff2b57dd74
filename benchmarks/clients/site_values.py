"""``catalogue``: footers and the values of a column are harvested once; row groups without the value are not read."""

from benchmarks.clients.site_asking import Task, start
from benchmarks.clients.site_ours import ask, settings_of
from catalogue.catalogue import Catalogue
from catalogue.session import Session

COLUMN = "content_mime_detected"


def harvest(task: Task) -> int:
    """Harvest the values of a crawl whose footers are stored, as ``catalogue harvest --values`` does."""
    with Catalogue(Session(task.folder / "data", settings_of(task))) as cat:
        return sum(len(harvested.fetched) for harvested in cat.harvest(task.crawl, values=COLUMN))


if __name__ == "__main__":
    start(ask, before=harvest)
