"""Find captures: make a query of what users write, and a plan context of what is stored."""

from collections.abc import Iterable
from dataclasses import replace

from catalogue.captures import Captures, parse_query
from catalogue.commoncrawl.crawls import newest_first, select_subsets
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import QueryError
from catalogue.formatting import join_first
from catalogue.key_map.key_map import KeySpace, key_space
from catalogue.plan.context import PlanContext, Scope
from catalogue.plan.plan import ReadPlan
from catalogue.query.deduplicate import Distinct
from catalogue.query.filters import Filters, Values
from catalogue.query.query import Moment, Query, check_columns
from catalogue.reports import file_extents
from catalogue.selection import check_store, missing_crawls, select_stored, several
from catalogue.session import Session
from catalogue.surt import Match


def find_captures(  # noqa: PLR0913 - one parameter for each option
    session: Session,
    patterns: str | Iterable[str],
    *,
    crawls: str | Iterable[str] = "all",
    subsets: str | Iterable[str] = (),
    columns: str | Iterable[str] | None = None,
    where: str | Iterable[str] | None = None,
    status: Values = None,
    mime: Values = None,
    lang: Values = None,
    from_: Moment | None = None,
    to: Moment | None = None,
    limit: int | None = None,
    match: Match | str | None = None,
    exact_url: bool = False,
    ordered: bool = False,
    unique: str | None = None,
    latest: bool = False,
) -> Captures:
    """Find captures by patterns and filters; see ``Catalogue.captures``."""
    check_store(session, crawls, subsets)
    query = parse_query(
        session.dataset,
        session.metadata().columns,
        patterns,
        columns=columns,
        where=where,
        filters=Filters.of(status, mime, lang),
        times=(from_, to),
        limit=limit,
        match=match,
        exact_url=exact_url,
        ordered=ordered,
    )
    distinct = _distinct(session, query, unique, latest=latest) if unique is not None or latest else None
    if distinct:  # a limit is of those that are left
        columns = (*query.columns, distinct.by, *filter(None, [distinct.time]))
        query = replace(query, columns=tuple(dict.fromkeys(columns)), limit=None)
    return run_query(session, query, crawls, subsets, distinct=distinct)


def run_query(
    session: Session,
    query: Query,
    crawls: str | Iterable[str] = "all",
    subsets: str | Iterable[str] = (),
    *,
    distinct: Distinct | None = None,
) -> Captures:
    """Find what a query means that is made already; see ``captures``.

    Raises:
        QueryError: if it is about what is not harvested.
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
            message = f"{crawl} is not among the crawls asked about: {join_first(words)}"
            raise QueryError(message)
        touched = newest_first(file.crawl for path in plan.paths if (file := session.dataset.file(path)))
        mapped = crawl or (touched or words)[0]
        return key_space(mapped, file_extents(session, mapped, plan.paths), plan)

    return Captures(
        question,
        session.machine_settings,
        space=space,
        workers=session.workers,
        distinct=distinct,
        notify=session.notify,
        bars=session.bars,
    )


def _distinct(session: Session, query: Query, unique: str | None, *, latest: bool) -> Distinct:
    """Which captures are the same, and which of them is wanted.

    Raises:
        QueryError: if there is no telling.
    """
    short = {"url": session.dataset.key, "digest": "content_digest"} if session.dataset == COMMON_CRAWL else {}
    by = session.dataset.key if unique is None else unique
    if latest and session.dataset.time is None:
        message = f"{session.dataset.name} has no column of times by which one would be the latest"
        raise QueryError(message)
    (by,) = check_columns([short.get(by, by)], session.metadata().columns, session.dataset)
    shown = tuple(dict.fromkeys([*query.columns, *session.dataset.path_columns]))
    return Distinct(by, session.dataset.time if latest else None, query.limit, shown)
