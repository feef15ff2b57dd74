"""Find captures: make a query of what users write, and a plan context of what is stored."""

from collections.abc import Iterable

from catalogue.captures import Captures
from catalogue.commoncrawl.crawls import newest_first, select_subsets
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import QueryError
from catalogue.formatting import join_first
from catalogue.key_map.key_map import KeySpace, key_space
from catalogue.plan.context import PlanContext, Scope
from catalogue.plan.plan import ReadPlan
from catalogue.query.deduplicate import Distinct
from catalogue.query.query import Query
from catalogue.query.resolve import resolve
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.reports import file_extents
from catalogue.selection import check_store, missing_crawls, select_stored, several
from catalogue.session import Session


def find_captures(session: Session, query: Query) -> Captures:
    """Find captures; see ``Catalogue.captures``."""
    check_store(session, query.crawls, query.subsets)
    resolved, distinct = resolve(query, session.dataset, session.metadata().columns)
    return run_query(session, resolved, query.crawls, query.subsets, distinct=distinct)


def run_query(
    session: Session,
    query: ResolvedQuery,
    crawls: str | Iterable[str] = "all",
    subsets: str | Iterable[str] = (),
    *,
    distinct: Distinct | None = None,
) -> Captures:
    """Find the captures of a resolved query.

    Raises:
        QueryError: if crawls are not harvested.
    """
    shown = session.metadata()
    chosen = select_subsets(several(subsets)) if session.dataset == COMMON_CRAWL else several(subsets)
    words = select_stored(session, shown.requested_crawls, crawls, chosen)
    candidates = shown.candidates(words, chosen)
    missing = (*missing_crawls(session, shown.requested_crawls, crawls, chosen), *candidates.missing)
    scope = Scope(tuple(candidates.files(query)), candidates.row_groups, missing)
    question = PlanContext(query, scope, session.footers, lambda: session.reading, session.cost())

    def space(plan: ReadPlan, crawl: str | None) -> KeySpace:
        if crawl and crawl not in words:
            message = f"{crawl} is not among the crawls of the query: {join_first(words)}"
            raise QueryError(message)
        touched = newest_first(file.crawl for path in plan.paths if (file := session.dataset.file(path)))
        mapped = crawl or (touched or words)[0]
        return key_space(mapped, file_extents(session, mapped, plan.paths), plan)

    return Captures(
        session,
        question,
        space=space,
        workers=session.workers,
        distinct=distinct,
    )
