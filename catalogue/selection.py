"""The list of crawls, and which crawls words select.

What is stored changes only the word ``stored``. Common Crawl serves the list from ``index.commoncrawl.org`` alone,
which was not reachable for 26 days in 2026. The manifests of crawls are on the data host under names with year and
week, so the weeks since the newest listed crawl are tried there, by one small request each.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from catalogue.commoncrawl.crawls import (
    COLLINFO,
    NO_CRAWL,
    STORED,
    Crawl,
    CrawlWords,
    check_crawl_name,
    has_columnar_index,
    may_exist,
    newest_first,
    no_columnar_index,
    parse_collinfo,
    parse_crawl_words,
    plain_names,
    select_crawls,
    suggest_crawl,
)
from catalogue.commoncrawl.datasets import COMMON_CRAWL, manifest_path, parse_manifest
from catalogue.errors import FormatError, NotFound, NotHarvested, NothingStored, QueryError, SourceError, UnknownCrawl
from catalogue.formatting import plural
from catalogue.query.arguments import several
from catalogue.session import Session
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.store.stored_lists import crawl_list_age, listed_crawls, listed_files, stored_response

MAX_AGE = timedelta(days=1)
"""Age at which the list is fetched again; it changes once a month, and Common Crawl asks clients to cache it."""
MAX_PROBES = 10
"""Most requests for manifests of weeks that are not listed. A crawl is published every four to six weeks."""
_ATTEMPTS = 3
"""Requests for the list; if they fail, newer crawls are found by their manifests."""
_MONTHLY = "CC-MAIN-"


@dataclass(frozen=True, slots=True)
class CrawlList:
    """Crawls by name, newest first, and how complete the list is."""

    crawls: dict[str, Crawl]
    """Listed crawls, and those found by their manifests."""
    found: tuple[str, ...] = ()
    warning: str | None = None
    """A sentence, if the list could not be fetched."""
    complete: bool = True
    """Whether every crawl up to today must be in it."""

    @property
    def missing(self) -> tuple[str, ...]:
        return () if self.complete or not self.warning else (self.warning,)


def crawl_list(session: Session) -> CrawlList:
    """Return the list of crawls; see ``Catalogue.crawls``."""
    _check_dataset(session)
    return update_crawl_list(session, lambda: session.source)


def _check_dataset(session: Session) -> None:
    if session.dataset != COMMON_CRAWL:
        raise QueryError(
            "only Common Crawl's index has a list of crawls, which this needs; query and fetch also work for "
            f"{session.dataset.name}; see: catalogue status --table {session.dataset.name}"
        )


def update_crawl_list(
    session: Session, data: Callable[[], PoliteSource] | None, attempts: int = _ATTEMPTS
) -> CrawlList:
    """Return the list of crawls; ``data`` opens the source of manifests if the list cannot be fetched."""
    store = session.create_store(to_write=False)
    url, has_several = session.settings.list_source, len(session.settings.hosts) > 1
    with session.bars(""):
        if has_several and url == session.settings.source:  # which knows by now which of them fail
            found = fetch_crawl_list(store, session.source, data)
        else:
            # With several hosts, crawls can be found on another host before the pause after a block ends.
            max_wait = 10.0 if has_several else math.inf
            with closing(session.open_source(url, attempts=attempts, max_wait=max_wait)) as source:
                found = fetch_crawl_list(store, source, data)
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
    stored, age = listed_crawls(store, lists.url), crawl_list_age(store)
    if stored and age is not None and abs(age) < MAX_AGE:  # a clock may have been wrong
        return CrawlList(stored)
    try:
        response = lists.get(COLLINFO)
        crawls = parse_collinfo(response.body)
    except (SourceError, FormatError) as error:
        found: list[str] = []
        complete = False
        if data is not None:
            newest = newest_first(each for each in stored if has_columnar_index(each) and each.startswith(_MONTHLY))[:1]
            found, complete = _probe(data(), newest, now or datetime.now(UTC))
            complete = complete and all(each.startswith(_MONTHLY) for each in stored)  # others have no known weeks
        if not (stored or found):
            raise
        if stored and complete and not store.read_only:
            _add_to_stored_list(store, found)
        return _incomplete(stored, age, error, found, complete=complete and bool(stored))
    if not store.read_only:
        store.put("documents", [(COLLINFO, stored_response(response, lists))])
    return CrawlList(crawls)


def _incomplete(
    stored: dict[str, Crawl], age: timedelta | None, error: Exception, found: list[str], *, complete: bool
) -> CrawlList:
    crawls = {crawl: Crawl(crawl) for crawl in found} | stored
    listed = "using the stored list" if stored else "no list is stored"
    if stored and age and age > timedelta():  # a clock may have been wrong
        ago = plural(age.days, "day") if age.days else plural(age.seconds // 3600, "hour")
        listed = f"using the list of {ago} ago"
    newer = f" and {', '.join(found)}, found on the data host" if found else ""
    missing = "" if complete else "; other crawls may exist: name one in full, such as CC-MAIN-2022-05"
    warning = f"cannot fetch the list of crawls ({error}); {listed}{newer}{missing}"
    return CrawlList({name: crawls[name] for name in newest_first(crawls)}, tuple(found), warning, complete)


def _add_to_stored_list(store: Store, found: list[str]) -> None:
    document = store.undamaged("documents", COLLINFO)
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
        except NotFound:
            continue
        except (SourceError, FormatError):  # this crawl may exist
            break
        found.append(crawl)
        if not newest:
            break
    return found, False


@dataclass(frozen=True, slots=True)
class Selection:
    """The crawls and subsets of a question."""

    crawls: tuple[str, ...]
    subsets: tuple[str, ...]
    """Subsets in the order of the result; empty for all of another dataset."""
    missing: tuple[str, ...] = ()
    """Sentences about crawls that may exist and are not known."""
    listed: Mapping[str, Crawl] = field(default_factory=dict)
    """The list that words selected from; empty if all crawls are named, for which it may not be stored."""


def select_listed(session: Session, words: CrawlWords) -> Selection:
    """Select the crawls of a question, without subsets; see ``select`` in ``find_captures``."""
    _check_dataset(session)
    given = several(words, "crawls")
    if not given:
        raise QueryError(NO_CRAWL)
    listed, missing = known_crawls(session), tuple[str, ...]()
    parsed = parse_crawl_words(given, listed)
    if has_words := STORED in parsed:
        parsed = with_stored(session, parsed)
    names = [*plain_names(parsed)]
    if len(names) < len(parsed):
        try:
            found = crawl_list(session)
        except (SourceError, FormatError) as error:
            raise SourceError(
                f"cannot fetch the list of crawls ({error}); name crawls, or use the stored ones: crawls='stored'"
            ) from error
        listed, missing, has_words = found.crawls, found.missing, True
    for crawl in names:
        check_crawl_name(crawl, listed)
    others = [word for word in parsed if word not in names]
    crawls = newest_first([*names, *(select_crawls(others, listed) if others else ())])
    return Selection(tuple(crawls), (), missing, listed if has_words else {})


def with_stored(session: Session, words: Iterable[str]) -> list[str]:
    """Replace the word ``stored`` by the stored crawls.

    Raises:
        NothingStored: if nothing is stored.
    """
    stored = session.stored_crawls()
    if not stored:
        raise NothingStored("nothing is stored", session.data, "add crawls='latest', or ")
    return [each for word in words for each in (stored if word == STORED else [word])]


def check_listed(session: Session, crawl: str, listed: Collection[str]) -> None:
    """Raise UnknownCrawl for an invalid name, or one of a crawl that would be listed if it existed.

    A stored list that is older than a day is fetched again for it.
    """
    check_crawl_name(crawl, listed)
    if may_exist(crawl, listed) or crawl in session.stored_crawls():
        return
    found = crawl_list(session)
    if found.complete and not may_exist(crawl, found.crawls):
        raise UnknownCrawl(f"there is no crawl {crawl}; {suggest_crawl(crawl, found.crawls)}")


def known_crawls(session: Session) -> dict[str, Crawl]:
    """Return the crawls of the stored list by name, newest first."""
    return listed_crawls(session.store) if session.store_path.exists() else {}


def not_stored(
    session: Session, crawls: Sequence[str], selected: int, subsets: Sequence[str] = (), reason: str = ""
) -> NotHarvested:
    """Return the error that footers are not stored, after a ``reason``; raise UnknownCrawl for a name of no crawl."""
    dataset, (crawl, *others) = session.dataset, crawls
    if dataset == COMMON_CRAWL:
        listed = known_crawls(session)
        for each in crawls:
            check_listed(session, each, listed)
        if not has_columnar_index(crawl):
            return NotHarvested(f"{reason}{no_columnar_index(crawl)}", crawl=crawl)
    what = f"{crawl} is not harvested yet"
    if others:
        what = f"{len(crawls):,} of {plural(selected, 'crawl')} are not harvested yet"
    elif subsets and session.store_path.exists() and crawl in session.metadata().crawls:
        missing = [subset for subset in subsets if session.metadata().missing(crawl, [subset])]
        what = f"not all files of {crawl}, {' and '.join(missing)}, are harvested yet"
    return dataset.not_harvested(f"{reason}{what}", crawls, subsets)


def select_stored(
    session: Session, words: CrawlWords, stored: Collection[str] | None = None, subsets: Sequence[str] = ()
) -> list[str]:
    """Return the stored crawls that words select, newest first, for commands about what is stored.

    ``all``, years and ranges select among the stored crawls.

    Raises:
        NotHarvested: if nothing is stored, or a named crawl is not.
    """
    if session.dataset != COMMON_CRAWL:
        return crawls_of_dataset(session, several(words, "crawls"))
    stored = session.stored_crawls() if stored is None else newest_first(stored)
    parsed = parse_crawl_words(several(words, "crawls"), stored)
    if not parsed:
        raise QueryError(NO_CRAWL)
    named = [*plain_names(parsed), *(select_listed(session, "latest").crawls if "latest" in parsed else ())]
    for crawl in named:
        if crawl not in stored:
            raise not_stored(session, [crawl], 1, subsets)
    if not stored:
        raise NothingStored("no footers are stored", session.data)
    others = [word for word in parsed if word not in {"latest", *named}]
    return newest_first([*named, *(select_crawls(others, stored) if others else ())])


def only_crawl(crawls: Sequence[str]) -> str:
    if len(crawls) > 1:
        raise QueryError(f"{len(crawls):,} crawls are selected, and one can be shown; name it, such as {crawls[0]}")
    return crawls[0]


def crawls_of_dataset(session: Session, words: tuple[str, ...]) -> list[str]:
    dataset, stored = session.dataset, session.metadata().requested_crawls
    parsed = parse_crawl_words(words, stored)
    if not stored:
        raise dataset.not_harvested("nothing is harvested yet", [dataset.name])
    if unknown := dataset.unknown_name(parsed, stored):
        dataset.select([unknown], [*listed_files(session.store, dataset)])  # raises an error if it does not exist
        raise not_stored(session, [unknown], 1)
    return select_crawls(parsed, sorted(stored), every=True)
