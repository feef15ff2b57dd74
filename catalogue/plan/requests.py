"""Requests, what they cost, and which byte ranges they join.

Common Crawl's hosts limit requests; in its cloud region bytes cost more.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from math import ceil, sqrt
from operator import attrgetter
from typing import NamedTuple

from catalogue.source.byte_ranges import ByteRange, divided, merged_by

MAX_FETCH = 64 << 20
"""Maximum bytes of a merged request."""
_range = attrgetter("range")


class Purpose(StrEnum):
    """The content of a range."""

    CHUNK = "column chunk"
    DICTIONARY = "dictionary page"
    PAGES = "data page"
    INDEX = "page index"


class Part(NamedTuple):
    """A part of a request."""

    purpose: Purpose
    row_group: int
    column: str
    range: ByteRange


class PlannedRequest(NamedTuple):
    """One request."""

    path: str
    range: ByteRange
    parts: tuple[Part, ...]
    """All within ``range``; bytes between them are dropped."""
    cached: bool = False
    requests: int = 1
    """Number of requests if only some pages are needed: the maximum, or an estimate for values that few pages have."""
    expected: int | None = None
    """Estimated bytes; None if they are those of ``range``, or at most these."""

    @property
    def size(self) -> int:
        return len(self.range) if self.expected is None else self.expected

    @property
    def reason(self) -> str:
        """Kinds of content and columns."""
        if not self.parts:
            return "blocks"
        kinds, _, columns, _ = zip(*self.parts, strict=True)
        return f"{'s and '.join(dict.fromkeys(kinds))}s of {', '.join(dict.fromkeys(columns))}"


class Cost(NamedTuple):
    """Cost in seconds: ``requests / rate + bytes / bandwidth``, and a round trip for each wave."""

    rate: float | None = 5.0
    """Requests a second; None for no limit."""
    burst: int = 10
    """Requests before the rate limit applies."""
    bandwidth: float = 10e6
    """Bytes a second."""
    latency: float = 0.1
    """Seconds until the first byte."""
    connections: int = 4
    """Concurrent requests."""

    @property
    def request(self) -> float:
        """Seconds of one more request."""
        return 1 / self.rate if self.rate else self.latency / self.connections

    @property
    def max_gap(self) -> int:
        """Bytes that cost as much as a request."""
        return int(self.request * self.bandwidth)

    def quickest(self, size: int) -> int:
        """Return the size of the requests that read ``size`` bytes in the shortest time, without a rate limit.

        Several connections have more bandwidth than one, which other estimates do not count.
        """
        several = sqrt(size / self.bandwidth / self.request) if self.request else self.connections
        return ceil(size / max(1, round(min(several, self.connections))))

    def price(self, requests: float, size: float) -> float:
        """Return the seconds that requests and bytes add to a larger plan."""
        return requests * self.request + size / self.bandwidth

    def price_of(self, requests: Iterable[PlannedRequest]) -> float:
        """Return the price of the requests that are not cached."""
        count = size = 0
        for fetch in requests:
            if not fetch.cached:
                count, size = count + 1, size + len(fetch.range)
        return self.price(count, size)

    def seconds(self, requests: int, size: int, waves: int) -> float:
        if not requests:
            return 0.0
        waiting = max(0, requests - self.burst) / self.rate if self.rate else requests * self.latency / self.connections
        return waiting + size / self.bandwidth + waves * self.latency


def plan_requests(
    path: str, parts: Iterable[Part], cost: Cost, cached: Sequence[ByteRange] = ()
) -> list[PlannedRequest]:
    """Return the requests for disjoint parts of one file, in ascending order; a cached range is one read."""
    by_cached = _by_cached(parts, cached) if cached else {None: parts}
    requests = [
        PlannedRequest(path, run, tuple(together), cached=inside is not None)
        for inside, pieces in by_cached.items()
        for run, together in merged_by(_range, pieces, max_gap=cost.max_gap, max_length=MAX_FETCH)
    ]
    requests.sort(key=_range)
    return requests


def _by_cached(parts: Iterable[Part], cached: Sequence[ByteRange]) -> dict[ByteRange | None, list[Part]]:
    found: dict[ByteRange | None, list[Part]] = {}
    for part in parts:
        for piece, inside in divided(part.range, cached):
            found.setdefault(inside, []).append(part._replace(range=piece))
    return found


def most_requests(ranges: Iterable[ByteRange], max_gap: int) -> int:
    """Return the maximum number of requests for any selection of ascending, disjoint ranges."""
    count, end = 0, None
    for each in ranges:
        if end is None or each.start - end > max_gap:
            count, end = count + 1, each.end
    return count
