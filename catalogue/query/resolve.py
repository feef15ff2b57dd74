"""Resolve a query: keys, columns, conditions and times of a dataset."""

from collections.abc import Mapping

import pyarrow as pa

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import QueryError
from catalogue.parquet.column_types import NESTED, arrow_type
from catalogue.query.deduplicate import Distinct
from catalogue.query.filters import time_bounds
from catalogue.query.key_intervals import Intervals
from catalogue.query.query import Query
from catalogue.query.resolved_query import CDX_COLUMNS, ResolvedQuery, check_columns
from catalogue.surt import intersect, merge, parse_key_patterns


def resolve(query: Query, dataset: Dataset, stored: Mapping[str, str]) -> tuple[ResolvedQuery, Distinct | None]:
    """Resolve a query of a dataset whose files have the ``stored`` columns and types.

    Returns:
        The resolved query, and how duplicates are removed, if they are.

    Raises:
        QueryError: if a pattern, column, expression or time is invalid, or the dataset does not have what it needs.
    """
    if (query.from_, query.to) != (None, None) and dataset.time not in stored:
        raise QueryError(f"{dataset.name} has no column of times, which --from and --to need")
    if query.exact_url and "url" not in stored:
        raise QueryError(f"{dataset.name} has no column of URLs, which --exact-url needs")
    patterns = parse_key_patterns(query.patterns, dataset.keys, query.match, exact_url=query.exact_url)
    known = {*dataset.schema.names}
    newer = pa.schema([(name, arrow_type(stored[name])) for name in stored if name not in known])
    columns = _columns(query, dataset, stored)
    distinct = _distinct(query, dataset, stored, columns)
    if distinct:
        columns = tuple(dict.fromkeys((*columns, distinct.by, *filter(None, [distinct.time]))))
    first, end = time_bounds(query.from_, query.to)
    where, where_untyped = query.filters.parsed(query.where, newer, dataset)
    intervals = merge(interval for pattern in patterns for interval in pattern.intervals)
    resolved = ResolvedQuery(
        intervals=Intervals(intervals if query.within is None else intersect(intervals, query.within)),
        patterns=query.patterns,
        columns=columns,
        where=where,
        where_untyped=where_untyped,
        from_ms=first,
        to_ms=end,
        urls=tuple(pattern.url for pattern in patterns if pattern.url) if query.exact_url else (),
        limit=None if distinct else query.limit,  # duplicates do not count
        ordered=query.ordered,
        table=dataset,
        newer=newer,
    )
    return resolved, distinct


def _columns(query: Query, dataset: Dataset, stored: Mapping[str, str]) -> tuple[str, ...]:
    names = query.columns or (CDX_COLUMNS if dataset == COMMON_CRAWL else ("*",))
    if "*" in names:
        flat = [name for name, kind in stored.items() if kind != NESTED]
        names = (*dataset.schema.names, *flat) if dataset == COMMON_CRAWL else (*flat, *dataset.path_columns)
    return check_columns(names, stored, dataset)


def _distinct(query: Query, dataset: Dataset, stored: Mapping[str, str], columns: tuple[str, ...]) -> Distinct | None:
    if query.unique is None and not query.latest:
        return None
    if query.latest and dataset.time is None:
        raise QueryError(f"{dataset.name} has no column of times, which --latest needs")
    short = {"url": dataset.key, "digest": "content_digest"} if dataset == COMMON_CRAWL else {}
    by = dataset.key if query.unique is None else query.unique
    (by,) = check_columns([short.get(by, by)], stored, dataset)
    shown = tuple(dict.fromkeys([*columns, *dataset.path_columns]))
    return Distinct(by, dataset.time if query.latest else None, query.limit, shown)
