"""Choose the index that answers a query for a crawl."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from catalogue.errors import CatalogueError, FileChanged, FormatError, NotFound, QueryError
from catalogue.formatting import plural, size
from catalogue.plan.cdx_index import CdxIndex
from catalogue.plan.columnar_index import ColumnarIndex
from catalogue.plan.crawl_plan import CrawlPlan
from catalogue.query.resolved_query import ResolvedQuery

HARVEST_REQUESTS, HARVEST_BYTES = 300, 25_500_000
"""Usual cost of a harvest of the footers of one subset of a crawl."""
_MUCH_CHEAPER = 2
"""A plan by blocks is chosen without planning files if requests to them cost so many times as much."""


@dataclass(slots=True)
class CrawlIndexes:
    """The indexes that can answer for a crawl, one or both."""

    columnar: ColumnarIndex | None
    """None if no footers are stored, or the query names the other index."""
    cdx: CdxIndex | None
    """None if it does not have a column of the query, or the query names the other index."""
    is_named: bool
    """The query names the index."""
    notify: Callable[[str], None]
    """Called with a sentence when the columnar index must answer instead."""
    refusal: CatalogueError | None = field(default=None, init=False)


def choose(indexes: CrawlIndexes, query: ResolvedQuery, *, explain: bool = False) -> CrawlPlan:
    """Plan a query of a crawl by the cheaper index; ``explain`` always finds the cost of both.

    Raises:
        CatalogueError: if no index can answer.
    """
    columnar, cdx = indexes.columnar, indexes.cdx
    if cdx is None or indexes.refusal:
        assert columnar  # noqa: S101 - one of them can answer
        return replace(columnar.plan(query), why=str(indexes.refusal or "").partition(";")[0])
    if columnar is None:
        try:
            by_cdx = cdx.plan(query)
        except NotFound as error:
            raise cdx.no_index(query, error) from error
        return by_cdx if indexes.is_named else _without_footers(by_cdx)
    try:
        by_cdx = cdx.plan(query)
    except (QueryError, FormatError, NotFound, FileChanged) as error:
        _refuse(indexes, columnar, error)
        return choose(indexes, query, explain=explain)
    why = _why_cdx(by_cdx, columnar, explain=explain)
    if why and not explain:
        return replace(by_cdx, why=why)
    by_columnar = columnar.plan(query)
    if why or by_cdx.price < by_columnar.price:
        return replace(by_cdx, why=why or "it is cheaper", other=by_columnar)
    why = "it is not dearer" if by_cdx.price == by_columnar.price else "it is cheaper"
    return replace(by_columnar, why=why, other=by_cdx)


def _refuse(indexes: CrawlIndexes, columnar: ColumnarIndex, error: CatalogueError) -> None:
    """Note the refusal of the CDX index, or raise it if not all footers are stored."""
    if isinstance(error, QueryError):
        if columnar.scope.missing:
            raise error
    else:
        crawl = columnar.scope.crawl
        indexes.notify(f"the CDX index of {crawl} cannot be used, the columnar one answers: {error}")
    indexes.refusal = error


def _why_cdx(plan: CrawlPlan, columnar: ColumnarIndex, *, explain: bool) -> str:
    """Return why the CDX index answers whatever the columnar one costs; empty if that is uncertain."""
    if columnar.scope.missing:
        return "not all footers of the columnar index are stored"
    if plan.requests <= 1 and plan.bytes <= plan.cost.max_gap and not explain:
        return "one request is the least"
    # Planning hundreds of files would take longer than reading the blocks.
    files, cost = len(columnar.scope.candidates), plan.cost
    if files and not plan.search and _MUCH_CHEAPER * plan.price < cost.price(files, 0) + cost.latency:
        return f"{plural(files, 'file')} of the columnar index may match"
    return ""


def _without_footers(plan: CrawlPlan) -> CrawlPlan:
    why = "no footers are stored"
    if plan.price <= plan.cost.price(HARVEST_REQUESTS, HARVEST_BYTES):
        return replace(plan, why=why)
    harvest = f"their harvest takes {HARVEST_REQUESTS} requests, {size(HARVEST_BYTES)}, and would save requests"
    return replace(plan, why=f"{why}; {harvest}", suggests_harvest=True)
