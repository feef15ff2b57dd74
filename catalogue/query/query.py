"""A query as users write it: options, Python parameters, JSON parameters or form fields."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from catalogue.commoncrawl.indexes import AUTO
from catalogue.query.filters import Filters, Values
from catalogue.query.parameters import PARAMETERS
from catalogue.query.times import Moment
from catalogue.surt import KeyInterval, Match


class QueryOptions(TypedDict, total=False):
    """Parameters of scans and joins; see ``Catalogue.captures``."""

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


class AllQueryOptions(QueryOptions, total=False):
    """Parameters of a query without patterns; see ``Catalogue.captures``."""

    limit: int | None
    match: Match | str | None
    exact_url: bool
    ordered: bool
    unique: str | None
    latest: bool


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
    def of(cls, patterns: str | Iterable[str], **given: Unpack[AllQueryOptions]) -> "Query":
        """Make a query of one text or several for each parameter.

        Raises:
            QueryError: if a value is invalid.
        """
        values: dict[str, Any] = {"patterns": patterns, **given}
        for each in PARAMETERS:
            if values.get(each.name) is not None:
                values[each.name] = each.parse(values[each.name])
        values = {name: value for name, value in values.items() if value is not None}
        filters = {name: values.pop(name) for name in ("status", "mime", "lang") if name in values}
        return cls(**values, filters=Filters(**filters))
