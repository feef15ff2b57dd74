"""The list of crawls: fetched once a day, and how newer crawls are found while its host is not reachable.

Common Crawl serves the list from ``index.commoncrawl.org`` alone, which was not reachable for 26 days in 2026. The
manifests of crawls are on the data host under names with year and week, so the weeks since the newest listed crawl are
tried there: one small request for each week.
"""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from catalogue.commoncrawl.crawls import has_columnar_index, newest_first
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.commoncrawl.manifests import COLLINFO, Crawl, manifest_path, parse_collinfo, parse_manifest
from catalogue.errors import FormatError, NotFound, QueryError, SourceError
from catalogue.formatting import plural
from catalogue.session import Session
from catalogue.settings import COLLINFO_SOURCE, DEFAULT_SOURCE
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_lists import crawl_list_age, stored_crawls, stored_document, stored_response

MAX_AGE = timedelta(days=1)
"""Age at which the list is fetched again; Common Crawl asks clients to cache it, since it changes once a month."""
MAX_PROBES = 10
"""Most requests for manifests of weeks that are not in the list. A crawl is published every four to six weeks."""
_ATTEMPTS = 3
"""Requests for the list of crawls; if they fail, newer crawls are found by their manifests."""


@dataclass(frozen=True, slots=True)
class CrawlList:
    """Crawls, newest first, and how complete the list is."""

    crawls: list[Crawl]
    """Listed crawls, and those found by their manifests."""
    found: tuple[str, ...] = ()
    """Names of crawls found by their manifests."""
    warning: str | None = None
    """A sentence, if the list could not be fetched."""
    complete: bool = True
    """Whether every crawl up to today must be in it."""


def crawl_list(session: Session) -> CrawlList:
    """Return the list of crawls; see ``Catalogue.crawls``."""
    if session.dataset != COMMON_CRAWL:
        message = (
            f"only Common Crawl's index has a list of crawls; see: catalogue status --table {session.dataset.name}"
        )
        raise QueryError(message)
    return update_crawl_list(session, lambda: session.source)


def update_crawl_list(
    session: Session, data: Callable[[], PoliteSource] | None, attempts: int = _ATTEMPTS
) -> CrawlList:
    """Return the list of crawls; ``data`` opens the source where newer crawls are searched if it is not reachable."""
    store = session.create_store(to_write=False)
    url = COLLINFO_SOURCE if session.settings.source == DEFAULT_SOURCE else session.settings.source
    with closing(session.open_source(url, attempts=attempts)) as source:
        try:
            found = fetch_crawl_list(store, source, data)
        finally:
            session.add_spent(source.requests, source.bytes)
    if found.warning:
        session.notify(found.warning)
    return found


def fetch_crawl_list(
    store: Store,
    lists: PoliteSource,
    data: Callable[[], PoliteSource] | None = None,
    *,
    now: datetime | None = None,
) -> CrawlList:
    """Return the list of crawls: stored for a day, else fetched, else stored before and completed by probing.

    ``data`` opens the source of the manifests, which are probed if ``lists`` fails.

    Raises:
        SourceError: if no list is stored, and none can be fetched.
        FormatError: the same, if the source answered with something else.
    """
    stored, age = stored_crawls(store, lists.url), crawl_list_age(store)
    if stored and age is not None and abs(age) < MAX_AGE:  # a clock may have been wrong
        return CrawlList(stored)
    try:
        response = lists.get(COLLINFO)
        crawls = parse_collinfo(response.body)
    except (SourceError, FormatError) as error:
        found: list[str] = []
        complete = False
        if data is not None:
            newest = newest_first(crawl.id for crawl in stored if has_columnar_index(crawl.id))[:1]
            found, complete = _probe(data(), newest, now or datetime.now(UTC))
        if not (stored or found):
            raise
        if stored and complete and not store.read_only:
            _add_to_stored_list(store, found)
        return _incomplete(stored, age, error, found, complete=complete and bool(stored))
    if not store.read_only:
        store.put("documents", [(COLLINFO, stored_response(response, lists))])
    return CrawlList(crawls)


def _incomplete(
    stored: list[Crawl], age: timedelta | None, error: Exception, found: list[str], *, complete: bool
) -> CrawlList:
    crawls = {crawl.id: crawl for crawl in [*map(Crawl, found), *stored]}
    listed = "no list is stored"
    if stored and age is not None:
        ago = plural(age.days, "day") if age.days else plural(age.seconds // 3600, "hour")
        listed = f"using the list of {ago} ago"
    newer = f" and {', '.join(found)}, found on the data host" if found else ""
    missing = "" if complete else "; other crawls may exist: name one in full, such as CC-MAIN-2022-05"
    warning = f"cannot fetch the list of crawls ({error}); {listed}{newer}{missing}"
    return CrawlList([crawls[name] for name in newest_first(crawls)], tuple(found), warning, complete)


def _add_to_stored_list(store: Store, found: list[str]) -> None:
    """Store that the list is complete with these crawls, so that it is not fetched again for a day."""
    document = stored_document(store, COLLINFO)
    assert document  # noqa: S101 - it was just read
    data = json.dumps([*({"id": crawl} for crawl in found), *json.loads(document.data)]).encode()
    store.put("documents", [(COLLINFO, replace(document, data=data, taken=datetime.now(UTC).isoformat()))])


def _probe(source: PoliteSource, newest: list[str], now: datetime) -> tuple[list[str], bool]:
    """Return the crawls whose manifests exist since the newest known one, and whether every week was tried.

    Without a known crawl the search ends at the first one that exists.
    """
    found: list[str] = []
    for weeks in range(MAX_PROBES):
        year, week, _ = (now - timedelta(weeks=weeks)).isocalendar()
        crawl = f"CC-MAIN-{year}-{week:02}"
        if newest_first([*newest, crawl])[0] in newest:
            return found, True
        try:
            parse_manifest(crawl, source.get(manifest_path(crawl)).body)
        except (NotFound, FormatError):
            continue
        except SourceError:
            break
        found.append(crawl)
        if not newest:
            break
    return found, False
