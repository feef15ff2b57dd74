"""Select what a query means: its crawls and subsets, and the indexes that can answer for each crawl."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

from catalogue.captures import Captures
from catalogue.cdx.lines import COLUMNS
from catalogue.commoncrawl.crawls import AUTO, CDX, COLUMNAR, STORED, SUBSETS, newest_first, select_subsets
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import CatalogueError, QueryError, UnknownColumn
from catalogue.formatting import join_first
from catalogue.plan.cdx_index import CdxIndex, uncovered_columns
from catalogue.plan.columnar_index import ColumnarIndex
from catalogue.plan.question import CrawlIndexes, Question
from catalogue.query.deduplicate import Distinct
from catalogue.query.query import Query, resolve
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.selection import Selection, crawl_list, crawls_of_dataset, not_stored, select_listed
from catalogue.session import Session

_ROBOTS_FILE = "/robots.txt"
_SUCCESS = "200"


def find_captures(session: Session, query: Query) -> Captures:
    """Find captures; see ``Catalogue.captures``."""
    selection = select(session, query)
    resolved, distinct = resolve(query, session.dataset, known_columns(session, selection.crawls))
    return run_query(session, resolved, selection, query.index, distinct=distinct)


def select(session: Session, query: Query) -> Selection:
    """Select the crawls and subsets of a question.

    Without words for crawls, the stored ones are selected. ``latest``, ``all``, years and ranges select from the list
    of crawls, which is fetched if it is older than a day. Without subsets, captures of pages are selected, or the
    subsets that can have the requested statuses.

    Raises:
        NotHarvested: if stored crawls are selected, and nothing is stored.
        UnknownCrawl: if a name is invalid, or no crawl is selected.
        SourceError: if the list of crawls is needed, and neither stored nor reachable.
    """
    if session.dataset != COMMON_CRAWL:
        crawls = tuple(crawls_of_dataset(session, query.crawls or ("all",)))
        return Selection(crawls, _subsets_of_dataset(session, query.subsets))
    words, subsets = query.crawls, subsets_of(query.subsets, query.status, query.patterns)
    names, has_store = {*words}, session.store_path.exists()
    if names and has_store and (names.issubset(session.metadata().crawls) or names.issubset(session.stored_crawls())):
        return Selection(tuple(newest_first(words)), subsets)  # these names are valid
    needs_times = (query.from_, query.to) != (None, None)  # which the list has of each crawl
    if not words and not needs_times and (stored := session.stored_crawls()):
        return Selection(tuple(stored), subsets)
    return replace(select_listed(session, words or (STORED,)), subsets=subsets)


def subsets_of(words: Sequence[str], statuses: Sequence[str], patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the subsets of a question, in the order of the result.

    Without ``words``, which name subsets or ``all``, those are selected that can have one of the statuses, such as
    ``200`` or ``4xx``, or pages without statuses. Files robots.txt have any status; patterns of them add their subset.
    """
    pages, others, robots = SUBSETS
    if words:
        chosen = {*select_subsets(words)}
    elif statuses:
        chosen = {robots}
        if any(status[0] == _SUCCESS[0] for status in statuses):
            chosen.add(pages)
        if {*statuses} != {_SUCCESS}:
            chosen.add(others)
    else:
        chosen = {pages}
        if any(pattern.strip().lower().endswith(_ROBOTS_FILE) for pattern in patterns):
            chosen.add(robots)
    return tuple(sorted(chosen, key=SUBSETS.index))


def _subsets_of_dataset(session: Session, words: Sequence[str]) -> tuple[str, ...]:
    stored = session.metadata()
    known = {subset for crawl in stored.requested_crawls for subset in stored.subsets(crawl)} if words else ()
    chosen = select_subsets(words, sorted(known))
    return () if {*chosen} == {*known} else chosen


def known_columns(session: Session, crawls: Iterable[str]) -> Mapping[str, str]:
    """Return the columns of some crawls and their types: those of other stored crawls change no answer."""
    tables = session.metadata() if session.store_path.exists() else None
    shown = (tables.columns(crawls) or tables.columns()) if tables else {}  # the latter for errors alone
    return dict.fromkeys(COLUMNS, "") | shown if session.dataset == COMMON_CRAWL else shown


def run_query(
    session: Session,
    query: ResolvedQuery,
    selection: Selection,
    index: str = AUTO,
    *,
    distinct: Distinct | None = None,
) -> Captures:
    """Find the captures of a resolved query.

    Raises:
        NotHarvested: if footers are needed, and those of a crawl are not stored.
        UnknownColumn: if the CDX index must answer, and does not have a column.
    """
    if session.dataset != COMMON_CRAWL and index == CDX:
        raise QueryError(f"{session.dataset.name} has no CDX index; use index='columnar'")
    question = Question(
        query,
        selection.crawls,
        selection.subsets,
        crawl_indexes(session, query, selection, index),
        source=lambda: session.reading,
        lists=lambda: session.block_lists,
        cost=session.cost(),
        unlisted=selection.missing,
    )
    return Captures(session, question, session.workers, distinct)


def crawl_indexes(
    session: Session, query: ResolvedQuery, selection: Selection, index: str
) -> Callable[[str], CrawlIndexes]:
    index = index if session.dataset == COMMON_CRAWL else COLUMNAR
    uncovered = uncovered_columns(query) if index != COLUMNAR else []
    if index == CDX and uncovered:
        raise UnknownColumn(f"the CDX index has no column {join_first(uncovered)}; use index='columnar'")
    tables = session.metadata() if session.store_path.exists() else None
    subsets = selection.subsets
    stored, missing = set[str](), list[str]()
    for crawl in selection.crawls:
        if tables and index != CDX and tables.answers(crawl, subsets):
            stored.add(crawl)
        # Columns that only footers have are answered where all footers are stored.
        if crawl not in stored or (tables and uncovered and tables.missing(crawl, subsets)):
            missing.append(crawl)
    if missing and (uncovered or index == COLUMNAR):
        reason = f"the CDX index has no column {join_first(uncovered)}, and " if index == AUTO else ""
        raise not_stored(session, missing, len(selection.crawls), subsets, reason)
    reading, cost = (lambda: session.reading), session.cost()

    @cache
    def indexes_of(crawl: str) -> CrawlIndexes:
        columnar = cdx = None
        is_outside = crawl in selection.listed and not selection.listed[crawl].may_have(query.from_ms, query.to_ms)
        if tables and crawl in stored:
            columnar = ColumnarIndex(
                crawl,
                tuple if is_outside else partial(tables.files, crawl, subsets, query),
                tables.row_groups(crawl, subsets),
                session.page_indexes,
                reading,
                cost,
                tables.missing(crawl, subsets),
                values=partial(tables.values, crawl),
                by_footers=partial(tables.files, crawl, subsets, query, by_footers=True),
            )
        if index != COLUMNAR and not uncovered:
            names = partial(_listed, session)
            cdx = CdxIndex(crawl, subsets, session.block_lists, reading, cost, names, is_outside)
        return CrawlIndexes(columnar, cdx, index != AUTO, session.notify)

    return indexes_of


def _listed(session: Session) -> list[str]:
    with suppress(CatalogueError):
        return [*crawl_list(session).crawls]
    return []
