"""Which crawls and subsets a question means. What is stored changes only the word ``stored``."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalogue.commoncrawl.crawls import (
    ROBOTS,
    STORED,
    SUBSETS,
    check_crawl_name,
    has_columnar_index,
    may_be_unlisted,
    newest_first,
    no_columnar_index,
    parse_crawl_words,
    plain_names,
    select_crawls,
    select_subsets,
    subsets_of_status,
    suggest_crawl,
)
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.crawl_list import crawl_list
from catalogue.errors import FormatError, NotHarvested, QueryError, SourceError, UnknownCrawl
from catalogue.formatting import plural
from catalogue.session import Session
from catalogue.store.stored_lists import listed_crawls

if TYPE_CHECKING:
    from catalogue.query.query import Query

Words = str | Iterable[str]
_ROBOTS_FILE = "/robots.txt"
_MOST_NAMED = 10
"""Crawls that a message names."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The crawls and subsets of a question."""

    crawls: tuple[str, ...]
    """Crawls, newest first."""
    subsets: tuple[str, ...]
    """Subsets in the order of the result; empty for all of a dataset other than Common Crawl's index."""
    missing: tuple[str, ...] = ()
    """Sentences about crawls that may exist and are not known."""


def several(words: Words) -> list[str]:
    """Return one word or several as a list."""
    return [words] if isinstance(words, str) else list(words)


def select(session: Session, query: "Query") -> Selection:
    """Select the crawls and subsets of a question.

    Without words for crawls, those are selected of which something is stored. ``latest``, ``all``, years and ranges
    select from the list of crawls, which is fetched if it is not stored or older than a day. Without subsets, captures
    of pages are selected, or the subsets that can have the requested statuses.

    Raises:
        NotHarvested: if stored crawls are selected, and nothing is stored.
        UnknownCrawl: if a crawl does not exist.
        SourceError: if the list of crawls is needed, and neither stored nor reachable.
    """
    if session.dataset != COMMON_CRAWL:
        return Selection(tuple(_crawls_of_dataset(session, query.crawls or "all")), query.subsets)
    crawls, missing = _select_listed(session, query.crawls or [STORED])
    return Selection(tuple(crawls), subsets_of(query.subsets, query.filters.status, query.patterns), missing)


def subsets_of(words: Iterable[str], statuses: Sequence[str], patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the subsets of a question, in the order of the result.

    Args:
        words: names of subsets or ``all``; if there are none, the other arguments decide.
        statuses: such as ``200`` or ``4xx``.
        patterns: URLs of robots.txt files among them add the subset of these files.
    """
    chosen = select_subsets(words)
    if not chosen:
        robots = any(pattern.strip().lower().endswith(_ROBOTS_FILE) for pattern in patterns)
        chosen = (*subsets_of_status(statuses), *([ROBOTS] if robots else []))
    return tuple(sorted({*chosen}, key=SUBSETS.index))


def select_listed(session: Session, words: Words) -> list[str]:
    """Return the crawls that words select, newest first; see ``select``."""
    return _select_listed(session, words)[0]


def _select_listed(session: Session, words: Words) -> tuple[list[str], tuple[str, ...]]:
    """Return crawls, and sentences about crawls that may be missing in the list."""
    listed, missing = _stored_list(session), tuple[str, ...]()
    parsed = parse_crawl_words(several(words), listed)
    if STORED in parsed:
        parsed = with_stored(session, parsed)
    names = [*plain_names(parsed)]
    if len(names) < len(parsed):
        try:
            found = crawl_list(session)
        except (SourceError, FormatError) as error:
            message = f"cannot fetch the list of crawls ({error}); name crawls, or use the stored ones: --crawl stored"
            raise SourceError(message) from error
        listed = [crawl.id for crawl in found.crawls]
        missing = () if found.complete or not found.warning else (found.warning,)
    for crawl in names:
        _check_name(session, crawl, listed)
    return select_crawls(parsed, sorted({*listed, *names})), missing


def with_stored(session: Session, words: Iterable[str]) -> list[str]:
    """Replace the word ``stored`` by the stored crawls.

    Raises:
        NotHarvested: if nothing is stored.
    """
    stored = stored_crawls(session)
    if not stored:
        raise nothing_stored(session)
    return [each for word in words for each in (stored if word == STORED else [word])]


def _check_name(session: Session, crawl: str, listed: Collection[str]) -> None:
    """Raise UnknownCrawl for an invalid name, or one of a crawl that would be listed if it existed."""
    check_crawl_name(crawl, listed)
    if not listed or crawl in listed or may_be_unlisted(crawl, listed):
        return
    if crawl not in stored_crawls(session):
        raise UnknownCrawl(f"there is no crawl {crawl}; {suggest_crawl(crawl, listed)}")


def _stored_list(session: Session) -> list[str]:
    return listed_crawls(session.store) if session.store_path.exists() else []


def stored_crawls(session: Session) -> list[str]:
    """Return the crawls of which footers or the list of blocks are stored, or were requested, newest first."""
    if not session.store_path.exists():
        return []
    return newest_first([*session.metadata().requested_crawls, *session.block_lists.stored])


def nothing_stored(session: Session) -> NotHarvested:
    """Return the error that nothing is stored."""
    command = session.dataset.harvest_command("latest")
    message = f"nothing is stored in {session.data} yet; add --crawl latest, or run: {command}"
    return NotHarvested(message, call=session.dataset.harvest_call("latest"))


def not_stored(session: Session, crawls: Sequence[str], selected: int, subsets: Sequence[str] = ()) -> NotHarvested:
    """Return the error that some of the selected crawls are not stored."""
    dataset, (crawl, *others) = session.dataset, crawls
    if dataset == COMMON_CRAWL and not has_columnar_index(crawl):
        return NotHarvested(no_columnar_index(crawl), crawl=crawl)
    what = f"{len(crawls):,} of {plural(selected, 'crawl')} are not harvested yet" if others else ""
    named = ",".join(crawls[:_MOST_NAMED])
    run = f"run: {dataset.harvest_command(named, subsets)}"
    call = dataset.harvest_call(named, subsets)
    return NotHarvested(f"{what or f'{crawl} is not harvested yet'}; {run}", crawl=crawl, call=call)


def select_stored(
    session: Session, words: Words, stored: Collection[str] | None = None, subsets: Sequence[str] = ()
) -> list[str]:
    """Return the stored crawls that words select, newest first, for commands about what is stored.

    ``all``, years and ranges select among the stored crawls.

    Args:
        session: opens the store.
        words: words for crawls.
        stored: the stored crawls; by default those of ``stored_crawls``.
        subsets: the subsets that a message advises to harvest.

    Raises:
        NotHarvested: if nothing is stored, or a named crawl is not.
    """
    if session.dataset != COMMON_CRAWL:
        return _crawls_of_dataset(session, words)
    stored = stored_crawls(session) if stored is None else newest_first(stored)
    parsed = parse_crawl_words(several(words), stored)
    named = [*plain_names(parsed), *(select_listed(session, "latest") if "latest" in parsed else ())]
    for crawl in named:
        if crawl not in stored:
            _check_name(session, crawl, _stored_list(session))
            raise not_stored(session, [crawl], 1, subsets)
    if not stored:
        raise nothing_stored(session)
    others = [word for word in parsed if word not in {"latest", *named}]
    return newest_first([*named, *(select_crawls(others, stored) if others else ())])


def select_one(session: Session, word: str) -> str:
    """Return the one stored crawl that a word selects.

    Raises:
        QueryError: if it is not stored, or the word selects several.
    """
    has_store = session.dataset != COMMON_CRAWL or session.store_path.exists()
    chosen, *others = select_stored(session, word, session.metadata().crawls if has_store else ())
    if others:
        count = plural(1 + len(others), "crawl")
        raise QueryError(f"{word!r} selects {count}, and one can be shown; name it, such as {chosen}")
    return chosen


def _crawls_of_dataset(session: Session, words: Words) -> list[str]:
    """Return the selected parts of a dataset other than Common Crawl's index."""
    dataset, stored = session.dataset, session.metadata().requested_crawls
    parsed = parse_crawl_words(several(words), stored)
    if not stored:
        run = dataset.harvest_command(dataset.name)
        raise NotHarvested(f"nothing is harvested yet; run: {run}", call=dataset.harvest_call(dataset.name))
    if unknown := dataset.unknown_name(parsed, stored):
        raise not_stored(session, [unknown], 1)
    return select_crawls(parsed, sorted(stored), every=True)
