"""Which index answers for which crawl, what it costs, and what the other one would."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from catalogue.commoncrawl.indexes import CDX, COLUMNAR
from catalogue.formatting import duration, plural, size

_NAMES = {COLUMNAR: "columnar index", CDX: "CDX index"}
HARVEST_REQUESTS, HARVEST_BYTES = 300, 25_500_000
"""Usual cost of a harvest of the footers of one subset of a crawl."""
_MOST_SHOWN = 10
"""Crawls whose index is shown one by one."""


@dataclass(frozen=True, slots=True)
class Way:
    """What an index costs for a crawl; estimates or maximums, as those of a plan."""

    index: str
    requests: int
    bytes: int
    round_trips: int
    seconds: float

    def __str__(self) -> str:
        return f"{plural(self.requests, 'request')}, {size(self.bytes)}, {duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class CrawlWay:
    """Which index answers for a crawl, and why."""

    crawl: str
    way: Way
    why: str
    other: Way | None = None
    """The other index; None if it cannot answer, or its cost was not needed for the choice."""
    suggests_harvest: bool = False
    """Whether a harvest of the footers takes less than this way, and later queries of the crawl too."""

    def summary(self) -> dict[str, Any]:
        def costs(way: Way) -> dict[str, Any]:
            return {"index": way.index, "requests": way.requests, "bytes": way.bytes, "seconds": round(way.seconds, 1)}

        other = costs(self.other) if self.other else None
        return {"crawl": self.crawl, **costs(self.way), "why": self.why, "other": other}


def sentences(ways: Sequence[CrawlWay]) -> Iterator[str]:
    """Yield which index answers for which crawl, for people."""
    if len(ways) > _MOST_SHOWN:
        counts = Counter(each.way.index for each in ways)
        yield ", ".join(f"{plural(count, 'crawl')} by the {_NAMES[index]}" for index, count in counts.items()) + "."
        return
    for each in ways:
        if each.other:
            yield f"{each.crawl} by the {_NAMES[each.way.index]}, {each.way}; by the other: {each.other}."
        else:
            yield f"{each.crawl} by the {_NAMES[each.way.index]}: {each.why}."
