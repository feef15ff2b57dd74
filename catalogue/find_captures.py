"""Find the captures of a query by the columnar index, the CDX index, or the cheaper one for each crawl."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from catalogue.captures import Captures
from catalogue.cdx.columns import COLUMNS
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.commoncrawl.indexes import AUTO, CDX, COLUMNAR
from catalogue.errors import QueryError, UncoveredColumns
from catalogue.formatting import join_first
from catalogue.plan.cdx_index import CdxIndex, uncovered_columns
from catalogue.plan.choice import CrawlIndexes
from catalogue.plan.columnar_index import ColumnarIndex, Scope
from catalogue.plan.question import Question
from catalogue.query.deduplicate import Distinct
from catalogue.query.query import Query
from catalogue.query.resolve import resolve
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.selection import Selection, not_stored, select
from catalogue.session import Session

if TYPE_CHECKING:
    from catalogue.tables.stored_crawls import StoredCrawls


def find_captures(session: Session, query: Query) -> Captures:
    """Find captures; see ``Catalogue.captures``."""
    if session.dataset != COMMON_CRAWL and query.index == CDX:
        raise QueryError(f"{session.dataset.name} has no CDX index; use --index columnar")
    selection = select(session, query)
    resolved, distinct = resolve(query, session.dataset, known_columns(session))
    return run_query(session, resolved, selection, query.index, distinct=distinct)


def known_columns(session: Session) -> Mapping[str, str]:
    """Return the names and types of the columns that a query can have."""
    if session.dataset != COMMON_CRAWL:
        return session.metadata().columns
    shown = _stored_crawls(session)
    return dict.fromkeys(COLUMNS, "") | (shown.columns if shown else {})


def run_query(
    session: Session,
    query: ResolvedQuery,
    selection: Selection,
    index: str = AUTO,
    *,
    distinct: Distinct | None = None,
) -> Captures:
    """Find the captures of a resolved query.

    Args:
        session: of the store and the source.
        query: the query.
        selection: its crawls and subsets.
        index: which index answers; ``auto`` for the cheaper one for each crawl.
        distinct: how duplicates are removed.

    Raises:
        NotHarvested: if footers are needed, and those of a crawl are not stored.
        UncoveredColumns: if the CDX index must answer, and does not have a column of the query.
    """
    index = index if session.dataset == COMMON_CRAWL else COLUMNAR
    uncovered = uncovered_columns(query)
    no_column = f"the CDX index has no column {join_first(uncovered)}"
    if index == CDX and uncovered:
        raise UncoveredColumns(f"{no_column}; use --index columnar")
    shown = _stored_crawls(session) if index != CDX else None
    subsets = selection.subsets
    stored = [crawl for crawl in selection.crawls if shown and shown.answers(crawl, subsets)]
    if index == COLUMNAR or uncovered:
        # Without --index columnar, footers answer only where all of them are stored.
        crawls = [
            crawl
            for crawl in selection.crawls
            if crawl not in stored or (index == AUTO and shown and shown.missing(crawl, subsets))
        ]
        if crawls:
            error = not_stored(session, crawls, len(selection.crawls), subsets)
            raise error if index == COLUMNAR else error.because(no_column)

    page_indexes = session.page_indexes if shown else None

    def indexes_of(crawl: str) -> CrawlIndexes:
        columnar = None
        if shown and page_indexes and crawl in stored:
            files = tuple(shown.files(crawl, subsets, query))
            scope = Scope(crawl, files, shown.row_groups(crawl, subsets), shown.missing(crawl, subsets))
            columnar = ColumnarIndex(scope, page_indexes, lambda: session.reading, session.cost())
        cdx = None
        if not (index == COLUMNAR or uncovered):
            cdx = CdxIndex(crawl, subsets, session.block_lists, lambda: session.reading, session.cost())
        return CrawlIndexes(columnar, cdx, index != AUTO, session.notify)

    question = Question(
        query,
        selection.crawls,
        indexes_of,
        lambda: session.reading,
        session.block_lists,
        session.cost(),
        selection.missing,
    )
    return Captures(session, question, workers=session.workers, distinct=distinct)


def _stored_crawls(session: Session) -> "StoredCrawls | None":
    return session.metadata() if session.store_path.exists() else None
