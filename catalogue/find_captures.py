"""Find the captures of a query by the columnar index, the CDX index, or the cheaper one for each crawl."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from catalogue.captures import Captures
from catalogue.cdx.columns import COLUMNS
from catalogue.commoncrawl.crawls import newest_first
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.commoncrawl.indexes import AUTO, CDX, COLUMNAR
from catalogue.errors import QueryError, UncoveredColumns
from catalogue.formatting import join_first
from catalogue.plan.context import PlanContext, Scope
from catalogue.plan.plan import ReadPlan
from catalogue.query.deduplicate import Distinct
from catalogue.query.query import Query
from catalogue.query.resolve import resolve
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.selection import Selection, not_stored, select
from catalogue.session import Session

if TYPE_CHECKING:
    from catalogue.key_map.key_map import KeySpace
    from catalogue.metadata_db.candidates import Candidates


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
    shown = session.metadata().columns if session.store_path.exists() else {}
    return dict.fromkeys(COLUMNS, "") | shown


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
    if index == COLUMNAR or session.dataset != COMMON_CRAWL:
        return _run_in_columnar(session, query, selection, distinct)
    if index == CDX:
        return _run_in_cdx(session, query, selection, distinct)
    return _run_in_both(session, query, selection, distinct)


def _run_in_columnar(
    session: Session, query: ResolvedQuery, selection: Selection, distinct: Distinct | None
) -> Captures:
    shown = session.metadata() if session.store_path.exists() else None
    candidates = shown.candidates(selection.crawls, selection.subsets) if shown else None
    missing = [crawl for crawl in selection.crawls if not candidates or crawl not in candidates.crawls]
    if missing or not candidates:
        raise not_stored(session, missing, len(selection.crawls), selection.subsets)
    question = _columnar_question(session, query, candidates, (*selection.missing, *candidates.missing))
    space = _space_of(session, selection.crawls)
    return Captures(session, question, space=space, workers=session.workers, distinct=distinct)


def _run_in_cdx(session: Session, query: ResolvedQuery, selection: Selection, distinct: Distinct | None) -> Captures:
    from catalogue.plan.cdx_context import CdxContext

    question = CdxContext(
        query,
        selection.crawls,
        selection.subsets,
        session.block_lists,
        lambda: session.reading,
        session.cost(),
        missing=selection.missing,
    )
    return Captures(session, question, space=_no_space, workers=session.workers, distinct=distinct)


def _no_space(_plan: ReadPlan, _crawl: str | None) -> "KeySpace":
    raise QueryError("plans of the CDX index cannot be drawn; use --index columnar")


def _run_in_both(session: Session, query: ResolvedQuery, selection: Selection, distinct: Distinct | None) -> Captures:
    """Find the captures by the index that is cheaper for each crawl.

    The columnar index answers where all footers are stored, or where the CDX index cannot be read.
    """
    from catalogue.plan.cdx_context import CdxContext
    from catalogue.plan.choice import ChoiceContext, Stored

    crawls, subsets = selection.crawls, selection.subsets
    shown = session.metadata() if session.store_path.exists() else None
    candidates = shown.candidates(crawls, subsets) if shown else None
    stored = {crawl: Stored(candidates.missing_of(crawl)) for crawl in candidates.crawls} if candidates else {}
    complete = [crawl for crawl, of_crawl in stored.items() if not of_crawl.missing]
    if candidates and (session.workers or _uncovered(query)) and complete == [*crawls]:
        return _run_in_columnar(session, query, selection, distinct)
    try:
        cdx = CdxContext(
            query, crawls, subsets, session.block_lists, lambda: session.reading, session.cost(), optional=stored
        )
    except UncoveredColumns as error:
        others = [crawl for crawl in crawls if crawl not in complete]
        refused = not_stored(session, others, len(crawls), subsets)
        raise refused.because(str(error).partition(";")[0]) from error
    columnar = _columnar_question(session, query, candidates) if candidates and stored else None
    question = ChoiceContext(crawls, columnar, stored, cdx, session.cost(), session.notify, selection.missing)
    space = _space_of(session, [*stored]) if columnar else _no_space
    return Captures(session, question, space=space, workers=session.workers, distinct=distinct)


def _uncovered(query: ResolvedQuery) -> bool:
    """Return whether the query needs columns that the CDX index does not have."""
    return not {*query.read_columns, *query.of(untyped=True).read_columns}.issubset(COLUMNS)


def _columnar_question(
    session: Session, query: ResolvedQuery, candidates: "Candidates", missing: tuple[str, ...] = ()
) -> PlanContext:
    scope = Scope(tuple(candidates.files(query)), candidates.row_groups, missing)
    return PlanContext(query, scope, session.page_indexes, lambda: session.reading, session.cost())


def _space_of(session: Session, crawls: Sequence[str]) -> "Callable[[ReadPlan, str | None], KeySpace]":
    def space(plan: ReadPlan, crawl: str | None) -> "KeySpace":
        from catalogue.key_map.key_map import key_space
        from catalogue.reports import file_extents

        if crawl and crawl not in crawls:
            message = f"{crawl} is not among the crawls of the query: {join_first(crawls)}"
            raise QueryError(message)
        touched = newest_first(file.crawl for path in plan.index_files if (file := session.dataset.file(path)))
        mapped = crawl or (touched or crawls)[0]
        return key_space(mapped, file_extents(session, mapped, plan.index_files), plan)

    return space
