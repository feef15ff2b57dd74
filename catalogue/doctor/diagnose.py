"""``catalogue doctor``: open the sources and examine them."""

from contextlib import ExitStack, closing, suppress

from catalogue.commoncrawl.crawls import check_crawl_name, newest_first
from catalogue.doctor.diagnosis import Diagnosis
from catalogue.doctor.examination import MAX_WAIT, SourceExamination
from catalogue.doctor.installation import examine_installation
from catalogue.errors import QueryError, StoreError
from catalogue.session import Session
from catalogue.settings import COLLINFO_SOURCE
from catalogue.store.database import Store
from catalogue.store.stored_lists import manifests


def diagnose(session: Session, crawl: str | None = None) -> Diagnosis:
    """Examine the installation and the source; see ``Catalogue.doctor``."""
    if session.dataset_name is not None:
        message = "doctor examines only Common Crawl's index; leave out --table"
        raise QueryError(message)
    store, settings = session.store_path, session.settings
    if crawl is not None and crawl != "latest":
        check_crawl_name(crawl)
    stored: list[str] = []
    if store.exists():
        with suppress(StoreError), Store(store, busy_seconds=1.0) as opened_store:
            stored = newest_first(manifests(opened_store.keys("documents")))
    with ExitStack() as opened:
        try:
            files = opened.enter_context(closing(session.open_source(settings.source, attempts=1, max_wait=MAX_WAIT)))
        except QueryError as error:
            here = tuple(examine_installation(session.data, store, session.database_path, settings, None))
            return Diagnosis(here, (), 0, 0, error)
        lists = files
        if settings.asks_strangers:
            lists = session.open_source(COLLINFO_SOURCE, attempts=1, max_wait=MAX_WAIT)
            opened.enter_context(closing(lists))
        here = tuple(examine_installation(session.data, store, session.database_path, settings, files))
        examination = SourceExamination(lists, files, settings)
        try:
            examination.run(crawl, stored)
        finally:
            session.add_spent(examination.requests, examination.bytes)
    seen = tuple(examination.observations)
    return Diagnosis(here, seen, examination.requests, examination.bytes, examination.failure)
