"""Find the captures of a query by the columnar index, the CDX index, or the cheaper one for each crawl."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from catalogue.captures import Captures
from catalogue.cdx.columns import COLUMNS
from catalogue.commoncrawl.crawls import SUBSETS, newest_first, select_subsets
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.commoncrawl.indexes import CDX, COLUMNAR
from catalogue.errors import NotHarvested, QueryError, UncoveredColumns
from catalogue.formatting import join_first
from catalogue.metadata_db.candidates import Candidates
from catalogue.plan.context import PlanContext, Scope
from catalogue.plan.plan import ReadPlan
from catalogue.query.deduplicate import Distinct
from catalogue.query.query import Query
from catalogue.query.resolve import resolve
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.selection import check_store, missing_crawls, select_known, select_listed, select_stored, several
from catalogue.session import Session

if TYPE_CHECKING:
    from catalogue.key_map.key_map import KeySpace


def find_captures(session: Session, query: Query) -> Captures:
    """Find captures; see ``Catalogue.captures``."""
    if session.dataset != COMMON_CRAWL:
        if query.index == CDX:
            raise QueryError(f"{session.dataset.name} has no CDX index; use --index columnar")
        return _find_in_columnar(session, query)
    if query.index == COLUMNAR:
        return _find_in_columnar(session, query)
    return _find_in_cdx(session, query) if query.index == CDX else _find_in_both(session, query)


def _find_in_columnar(session: Session, query: Query) -> Captures:
    crawls = query.crawls or "all"
    check_store(session, crawls, query.subsets)
    resolved, distinct = resolve(query, session.dataset, session.metadata().columns)
    return run_query(session, resolved, crawls, query.subsets, distinct=distinct)


def _find_in_cdx(session: Session, query: Query) -> Captures:
    """Find captures by the CDX index; nothing needs to be stored."""
    resolved, distinct = resolve(query, session.dataset, dict.fromkeys(COLUMNS, ""))
    subsets = select_subsets(query.subsets) or SUBSETS
    crawls = dict.fromkeys(select_listed(session, query.crawls or "all"), subsets)
    return run_in_cdx(session, resolved, crawls, distinct=distinct)


def run_in_cdx(
    session: Session,
    query: ResolvedQuery,
    crawls: Mapping[str, Sequence[str]],
    *,
    distinct: Distinct | None = None,
) -> Captures:
    """Find the captures of a resolved query by the CDX index.

    Args:
        session: of the store and the source.
        query: the query.
        crawls: the subsets of each crawl.
        distinct: how duplicates are removed.
    """
    from catalogue.plan.cdx_context import CdxContext

    question = CdxContext(query, crawls, session.block_lists, lambda: session.reading, session.cost())
    return Captures(session, question, space=_no_space, workers=session.workers, distinct=distinct)


def _no_space(_plan: ReadPlan, _crawl: str | None) -> "KeySpace":
    raise QueryError("plans of the CDX index cannot be drawn; use --index columnar")


def _find_in_both(session: Session, query: Query) -> Captures:
    """Find captures by the index that is cheaper for each crawl."""
    crawls = _known_crawls(session, query)
    if crawls is None:
        return _find_in_columnar(session, query)  # raises NotHarvested
    resolved, distinct = resolve(query, session.dataset, known_columns(session, query))
    try:
        return run_cheaper(session, resolved, crawls, select_subsets(several(query.subsets)), distinct=distinct)
    except UncoveredColumns as error:
        try:
            return _find_in_columnar(session, query)
        except NotHarvested as refused:
            raise refused.because(str(error).partition(";")[0]) from error


def _known_crawls(session: Session, query: Query) -> list[str] | None:
    """Return the crawls of a query of either index; None if nothing is stored and none is named."""
    shown = session.metadata() if session.store_path.exists() else None
    stored = {*(shown.requested_crawls if shown else ()), *session.block_lists.stored}
    return select_known(session, stored, query.crawls or "all") if stored or query.crawls else None


def known_columns(session: Session, query: Query) -> Mapping[str, str]:
    """Return the names and types of the columns that a query can have."""
    if session.dataset != COMMON_CRAWL or query.index == COLUMNAR:
        return session.metadata().columns
    shown = session.metadata() if query.index != CDX and session.store_path.exists() else None
    return (shown and shown.columns) or dict.fromkeys(COLUMNS, "")


def select_partitions(session: Session, query: Query) -> dict[str, tuple[str, ...]]:
    """Return the crawls that a query reads, newest first, and the subsets of each.

    Raises:
        QueryError: if crawls are not harvested or do not exist.
    """
    is_common_crawl = session.dataset == COMMON_CRAWL
    subsets = select_subsets(query.subsets) if is_common_crawl else query.subsets
    if is_common_crawl and query.index == CDX:
        return dict.fromkeys(select_listed(session, query.crawls or "all"), subsets or SUBSETS)
    crawls = _known_crawls(session, query) if is_common_crawl and query.index != COLUMNAR else None
    if crawls is None:
        check_store(session, query.crawls or "all", query.subsets)
        crawls = select_stored(session, session.metadata().requested_crawls, query.crawls or "all", subsets)
    shown = session.metadata() if session.store_path.exists() else None
    stored = {crawl: tuple(shown.subsets(crawl)) for crawl in shown.requested_crawls} if shown else {}
    return {crawl: tuple(subsets) or stored.get(crawl) or SUBSETS for crawl in crawls}


def run_cheaper(
    session: Session,
    query: ResolvedQuery,
    crawls: Sequence[str],
    subsets: tuple[str, ...],
    *,
    distinct: Distinct | None = None,
) -> Captures:
    """Find the captures of a resolved query by the index that is cheaper for each crawl, stored or not.

    Args:
        session: of the store and the source.
        query: the query.
        crawls: names of crawls, newest first.
        subsets: subsets to include; none mean the stored ones, or all of a crawl that is not stored.
        distinct: how duplicates are removed.

    Raises:
        UncoveredColumns: if the CDX index does not have columns of the query.
    """
    from catalogue.plan.cdx_context import CdxContext
    from catalogue.plan.choice import ChoiceContext, Stored

    shown = session.metadata() if session.store_path.exists() else None
    harvested = {crawl: shown.subsets(crawl) for crawl in shown.requested_crawls} if shown else {}
    requested = [crawl for crawl in crawls if crawl in harvested]
    with_files = requested if shown and shown.has_files(requested, subsets) else []
    of_crawls = {crawl: subsets or harvested.get(crawl) or SUBSETS for crawl in crawls}
    cost = session.cost()
    cdx = CdxContext(query, of_crawls, session.block_lists, lambda: session.reading, cost, optional=with_files)
    if session.workers and with_files == [*crawls]:
        return run_query(session, query, crawls, subsets, distinct=distinct)
    columnar, kept = None, {}
    if shown and with_files:
        candidates = shown.candidates(with_files, subsets)
        columnar = _columnar_question(session, query, candidates)
        kept = {crawl: Stored(*candidates.missing_of(crawl)) for crawl in with_files}
    question = ChoiceContext(crawls, columnar, kept, cdx, cost, session.notify)
    space = _space_of(session, with_files) if columnar else _no_space
    return Captures(session, question, space=space, workers=session.workers, distinct=distinct)


def run_query(
    session: Session,
    query: ResolvedQuery,
    crawls: str | Iterable[str] = "all",
    subsets: str | Iterable[str] = (),
    *,
    distinct: Distinct | None = None,
) -> Captures:
    """Find the captures of a resolved query by the columnar index.

    Raises:
        QueryError: if crawls are not harvested.
    """
    shown = session.metadata()
    chosen = select_subsets(several(subsets)) if session.dataset == COMMON_CRAWL else several(subsets)
    words = select_stored(session, shown.requested_crawls, crawls, chosen)
    candidates = shown.candidates(words, chosen)
    missing = (*missing_crawls(session, shown.requested_crawls, crawls, chosen), *candidates.missing)
    question = _columnar_question(session, query, candidates, missing)
    return Captures(session, question, space=_space_of(session, words), workers=session.workers, distinct=distinct)


def _columnar_question(
    session: Session, query: ResolvedQuery, candidates: Candidates, missing: tuple[str, ...] = ()
) -> PlanContext:
    scope = Scope(tuple(candidates.files(query)), candidates.row_groups, missing)
    return PlanContext(query, scope, session.footers, lambda: session.reading, session.cost())


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
