"""What a join costs, before it starts."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from catalogue.formatting import ReprMixin, duration, plural, size
from catalogue.join.slices import Slice
from catalogue.plan.plan import ReadPlan
from catalogue.plan.requests import Cost
from catalogue.surt import KeyInterval


@dataclass(frozen=True, slots=True)
class CrawlPrice:
    """The cost of a crawl by an index; estimates unless ``exact``."""

    crawl: str
    index: str
    slices: int
    requests: int
    bytes: int
    seconds: float
    exact: bool

    @property
    def about(self) -> str:
        return "" if self.exact else "about "


@dataclass(frozen=True, slots=True, repr=False)
class JoinEstimate(ReprMixin):
    """The cost of what a join has not done yet."""

    rows: int
    """Rows of the input."""
    patterns: int
    """Different ones."""
    crawls: tuple[CrawlPrice, ...]
    """Crawls, newest first."""
    requests: int
    bytes: int
    seconds: float

    def _line(self) -> str:
        cost = f"{plural(self.requests, 'request')}, {size(self.bytes)}, about {duration(self.seconds)}"
        return f"of {plural(self.patterns, 'key')} and {plural(len(self.crawls), 'crawl')}: {cost}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        for each in self.crawls:
            cost = f"{plural(each.requests, 'request')}, {size(each.bytes)}"
            yield each.crawl, f"{plural(each.slices, 'slice')} by the {each.index} index, {each.about}{cost}"


def price(
    crawl: str,
    index: str,
    slices: Sequence[Slice],
    plan: Callable[[Slice], ReadPlan],
    keys: Callable[[KeyInterval], int],
    cost: Cost,
    planned: int,
) -> CrawlPrice:
    """Price the slices of a crawl by the plans of some of them, evenly distributed.

    Args:
        crawl: the crawl.
        index: name of the index that is read.
        slices: slices of the crawl.
        plan: returns the plan of a slice.
        keys: returns how many intervals start in an interval of keys.
        cost: cost of the source.
        planned: most slices that are planned.
    """
    step = max(1, math.ceil(len(slices) / planned))
    some = slices[step // 2 :: step]
    plans = [plan(each) for each in some]
    share = (
        sum(keys(each.keys) for each in slices) / max(1, sum(keys(each.keys) for each in some))
        if len(some) < len(slices)
        else 1
    )
    requests, received, trips = (
        (
            math.ceil(share * sum(values))
            for values in zip(*((each.requests, each.bytes, each.round_trips) for each in plans), strict=True)
        )
        if plans
        else (0, 0, 0)
    )
    exact = share == 1 and all(each.exact for each in plans)
    return CrawlPrice(crawl, index, len(slices), requests, received, cost.seconds(requests, received, trips), exact)
