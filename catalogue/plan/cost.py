"""The cost of requests and bytes: Common Crawl's hosts limit requests; in its cloud region bytes cost more."""

from dataclasses import dataclass
from math import ceil, sqrt


@dataclass(frozen=True, slots=True)
class Cost:
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
        """Return the size of the requests that read ``size`` bytes in the shortest time.

        Without a rate limit, several connections have more bandwidth than one, which other estimates do not count.
        """
        if self.rate:
            return size
        several = sqrt(size / self.bandwidth / self.request) if self.request else self.connections
        return ceil(size / max(1, round(min(several, self.connections))))

    def price(self, requests: float, size: float) -> float:
        """Return the seconds that requests and bytes add to a larger plan."""
        return requests * self.request + size / self.bandwidth

    def seconds(self, requests: int, size: int, waves: int) -> float:
        if not requests:
            return 0.0
        waiting = max(0, requests - self.burst) / self.rate if self.rate else requests * self.latency / self.connections
        return waiting + size / self.bandwidth + waves * self.latency
