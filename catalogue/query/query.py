"""A query as users write it: options, Python parameters, JSON parameters or form fields."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypedDict

from catalogue.commoncrawl.indexes import AUTO, INDEXES
from catalogue.errors import QueryError
from catalogue.query.filters import Filters, Values
from catalogue.query.times import Moment
from catalogue.surt import KeyInterval, Match


class QueryOptions(TypedDict, total=False):
    """Parameters of a query without patterns; see ``Catalogue.captures``."""

    crawls: str | Iterable[str] | None
    subsets: str | Iterable[str]
    columns: str | Iterable[str] | None
    where: str | Iterable[str] | None
    status: Values
    mime: Values
    lang: Values
    from_: Moment | None
    to: Moment | None
    index: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Patterns, crawls, filters and columns; see ``Catalogue.captures``."""

    patterns: tuple[str, ...]
    crawls: tuple[str, ...] = ()
    """Words for crawls; all stored ones by default."""
    subsets: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    """Names, or ``*`` for all; None for the default."""
    where: tuple[str, ...] = ()
    filters: Filters = field(default_factory=Filters)
    from_: Moment | None = None
    to: Moment | None = None
    limit: int | None = None
    match: Match | None = None
    exact_url: bool = False
    ordered: bool = False
    unique: str | None = None
    latest: bool = False
    index: str = AUTO
    """One of ``INDEXES``, or ``auto`` for the cheaper one of each crawl."""
    within: tuple[KeyInterval, ...] | None = None
    """Disjoint ascending intervals that limit the keys of the patterns."""

    @classmethod
    def of(  # noqa: PLR0913 - one parameter for each option
        cls,
        patterns: str | Iterable[str],
        *,
        crawls: str | Iterable[str] | None = None,
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
        index: str = AUTO,
    ) -> "Query":
        query = cls(
            patterns=_texts(patterns),
            crawls=_texts(crawls or ()),
            subsets=_texts(subsets),
            columns=None if columns is None else _texts(columns),
            where=_texts(where or ()),
            filters=Filters.of(status, mime, lang),
            from_=from_,
            to=to,
            limit=limit,
            match=_match(match),
            exact_url=exact_url,
            ordered=ordered,
            unique=unique,
            latest=latest,
            index=index,
        )
        if index not in {AUTO, *INDEXES}:
            raise QueryError(f"invalid index {index!r}; use {', '.join((AUTO, *INDEXES))}")
        if crawls is not None and not query.crawls:
            raise QueryError("of which crawls? name some, such as CC-MAIN-2022-05, latest or all")
        if not query.patterns:
            raise QueryError("a query needs a pattern, such as '*.example.com'")
        if limit is not None and limit < 0:
            raise QueryError(f"invalid limit {limit}; use 0 or more")
        return query


def _texts(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _match(given: Match | str | None) -> Match | None:
    try:
        return Match(given) if given else None
    except ValueError as error:
        raise QueryError(f"invalid match {given!r}; use {', '.join(each.value for each in Match)}") from error
