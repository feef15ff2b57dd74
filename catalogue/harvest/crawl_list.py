"""The list of crawls: fetched once a day, and how newer crawls are found while its host is not reachable.

Common Crawl serves the list from ``index.commoncrawl.org`` alone, which was not reachable for 26 days in 2026. The
manifests of crawls are on the data host under names with year and week, so the weeks since the newest listed crawl are
tried there: one small request for each week.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from catalogue.commoncrawl.crawls import has_columnar_index, newest_first, no_columnar_index, suggest_crawl
from catalogue.commoncrawl.datasets import Dataset, parse_path_list
from catalogue.commoncrawl.manifests import (
    COLLINFO,
    Crawl,
    IndexFile,
    is_manifest_path,
    manifest_path,
    parse_collinfo,
    parse_manifest,
)
from catalogue.errors import FormatError, NotFound, SourceError, UnknownCrawl
from catalogue.formatting import plural
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_lists import crawl_list_age, listed_crawls, stored_crawls, stored_document, stored_response

MAX_AGE = timedelta(days=1)
"""Age at which the list is fetched again; Common Crawl asks clients to cache it, since it changes once a month."""
MAX_PROBES = 10
"""Most requests for manifests of weeks that are not in the list. A crawl is published every four to six weeks."""


@dataclass(frozen=True, slots=True)
class CrawlList:
    """Crawls, newest first, and how complete the list is."""

    crawls: list[Crawl]
    """Of the list, and found by their manifests."""
    found: tuple[str, ...] = ()
    """Names of crawls found by their manifests."""
    warning: str | None = None
    """A sentence, if the list could not be fetched."""
    complete: bool = True
    """Whether every crawl up to today must be in it."""


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


def fetch_manifest(crawl: str, store: Store, source: PoliteSource, *, refresh: bool = False) -> list[IndexFile]:
    """Return the files of a crawl of Common Crawl's index; the manifest is fetched once, or to ``refresh`` it."""
    path = manifest_path(crawl)
    stored = stored_document(store, path)
    if stored and not refresh:
        return parse_manifest(crawl, stored.data)
    if not has_columnar_index(crawl):
        raise UnknownCrawl(no_columnar_index(crawl))
    try:
        response = source.get(path)
    except NotFound as error:
        if stored:  # from another path, see resolve_manifest_paths
            return parse_manifest(crawl, stored.data)
        message = f"{source.url} has no columnar index of {crawl}; {suggest_crawl(crawl, listed_crawls(store))}"
        raise UnknownCrawl(message) from error
    files = parse_manifest(crawl, response.body)
    store.put("documents", [(path, stored_response(response, source))])
    return files


def resolve_manifest_paths(words: Iterable[str], store: Store, source: Callable[[], PoliteSource]) -> list[str]:
    """Store manifests that are named by path among words for crawls, and return the words with their crawls instead."""
    resolved = []
    for word in words:
        if is_manifest_path(word):
            try:
                response = source().get(word)
            except NotFound as error:
                message = f"{source().url} has no manifest {word}"
                raise UnknownCrawl(message) from error
            crawl = parse_manifest(None, response.body)[0].crawl
            store.put("documents", [(manifest_path(crawl), stored_response(response, source()))])
            resolved.append(crawl)
        else:
            resolved.append(word)
    return resolved


def fetch_path_list(dataset: Dataset, store: Store, source: PoliteSource, *, refresh: bool = False) -> None:
    """Store the list of the files of a dataset other than Common Crawl's index, if it has one that is not stored."""
    if dataset.manifest is None or (stored_document(store, dataset.manifest) and not refresh):
        return
    response = source.get(dataset.manifest)
    parse_path_list(response.body, source=source.url)
    store.put("documents", [(dataset.manifest, stored_response(response, source))])
