"""A query as users write it, and its resolution to keys, columns, conditions and times of a dataset."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import pyarrow as pa

from catalogue.commoncrawl.crawls import AUTO, CrawlWords
from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import QueryError
from catalogue.parquet.model import NESTED, arrow_type
from catalogue.query.arguments import unknown_argument
from catalogue.query.deduplicate import Distinct
from catalogue.query.filters import Moment, Values, time_bounds
from catalogue.query.key_intervals import Intervals
from catalogue.query.parameters import BY_NAME
from catalogue.query.resolved_query import CDX_COLUMNS, ResolvedQuery, check_columns
from catalogue.surt.interval import KeyInterval, merge
from catalogue.surt.pattern import Match, parse_key_patterns


class QueryOptions(TypedDict, total=False):
    """Parameters of scans and joins; see ``Catalogue.captures``."""

    crawls: CrawlWords | None
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
    status: tuple[str, ...] = ()
    mime: tuple[str, ...] = ()
    """Prefixes end with an asterisk."""
    lang: tuple[str, ...] = ()
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

    @classmethod
    def of(cls, patterns: str | Iterable[str], **given: Any) -> "Query":  # noqa: ANN401 - checked here
        """Make a query of one text or several for each parameter.

        Raises:
            QueryError: if a value is invalid.
            TypeError: if there is no such parameter.
        """
        for name in given.keys() - BY_NAME.keys():
            raise unknown_argument("scan", name, QueryOptions.__annotations__)  # other callers have checked the names
        values: dict[str, Any] = {}
        for name, value in {"patterns": () if patterns is None else patterns, **given}.items():
            if value is not None:
                values[name] = parsed = BY_NAME[name].parse(value)
                if isinstance(parsed, tuple) and not parsed and name not in {"subsets", "where"}:
                    raise QueryError(BY_NAME[name].empty or f"{name} is empty; name a value, or leave it out")
        return cls(**values)


def resolve(query: Query, dataset: Dataset, stored: Mapping[str, str]) -> tuple[ResolvedQuery, Distinct | None]:
    """Resolve a query of a dataset whose files have the ``stored`` columns and types.

    The second value says how duplicates are removed, if they are.

    Raises:
        QueryError: if a pattern, column, expression or time is invalid, or the dataset does not have what it needs.
    """
    first = end = None
    if (query.from_, query.to) != (None, None):
        if dataset.time not in stored:
            raise QueryError(f"{dataset.name} has no column of times to select by")
        first, end = time_bounds(query.from_, query.to)
    if query.exact_url and "url" not in stored:
        raise QueryError(f"{dataset.name} has no column of URLs, which exact_url=True needs")
    intervals = list[KeyInterval]()
    patterns = parse_key_patterns(query.patterns, dataset.keys, query.match, exact_url=query.exact_url)
    for pattern in patterns:
        intervals += pattern.intervals
    known = {*dataset.schema.names}
    newer = pa.schema([(name, arrow_type(stored[name])) for name in stored if name not in known])
    if dataset != COMMON_CRAWL and (time := _fine_time(dataset, stored)):
        newer = newer.append(time)
    columns = _columns(query, dataset, stored)
    distinct = None
    if query.latest or query.unique is not None:
        distinct = _distinct(query, dataset, stored, columns)
        columns = tuple(dict.fromkeys((*columns, distinct.by, *filter(None, [distinct.time]))))
    where = where_untyped = where_declared = None
    if query.where or query.status or query.mime or query.lang:
        from catalogue.query.where import parse_conditions

        where, where_untyped, where_declared = parse_conditions(query, newer, dataset)
        if dataset != COMMON_CRAWL:  # no file may have a column of its schema
            check_columns(where.columns, stored, dataset)
    resolved = ResolvedQuery(
        intervals=Intervals(merge(intervals)),
        patterns=query.patterns,
        columns=columns,
        where=where,
        where_untyped=where_untyped,
        where_declared=where_declared,
        from_ms=first,
        to_ms=end,
        urls=tuple(pattern.url for pattern in patterns if pattern.url) if query.exact_url else (),
        limit=None if distinct else query.limit,  # duplicates do not count
        ordered=query.ordered,
        table=dataset,
        newer=newer,
    )
    return resolved, distinct


def _fine_time(dataset: Dataset, stored: Mapping[str, str]) -> pa.Field | None:
    kind = arrow_type(stored.get(dataset.time or "", ""))
    is_fine = pa.types.is_timestamp(kind) and kind.unit in {"us", "ns"}
    return pa.field(dataset.time, pa.timestamp(kind.unit, "UTC")) if is_fine else None


def _columns(query: Query, dataset: Dataset, stored: Mapping[str, str]) -> tuple[str, ...]:
    names = query.columns or (CDX_COLUMNS if dataset == COMMON_CRAWL else ("*",))
    if "*" in names:
        nested = [name for name, kind in stored.items() if kind == NESTED]
        # A column that is flat in one file may be nested in another.
        flat = [name for name in stored if name not in nested and not any(n.startswith(f"{name}.") for n in nested)]
        every = (*dataset.schema.names, *flat) if dataset == COMMON_CRAWL else (*flat, *dataset.path_columns)
        names = (*every, *(name for name in names if name != "*"))
    return check_columns(names, stored, dataset)


def _distinct(query: Query, dataset: Dataset, stored: Mapping[str, str], columns: tuple[str, ...]) -> Distinct:
    if query.latest and dataset.time not in stored:
        raise QueryError(f"{dataset.name} has no column of times, which latest=True needs")
    short = {"url": dataset.key, "digest": "content_digest"} if dataset == COMMON_CRAWL else {}
    by = dataset.key if query.unique is None else query.unique
    (by,) = check_columns([short.get(by, by)], stored, dataset)
    shown = tuple(dict.fromkeys([*columns, *dataset.path_columns]))
    return Distinct(by, dataset.time if query.latest else None, query.limit, shown)
