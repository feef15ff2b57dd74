"""What a source charges. Against Common Crawl's hosts the scarce thing is requests, in its own cloud region bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What a source charges, in seconds: ``requests / rate + bytes / bandwidth``, and a round trip a wave."""

    rate: float | None = 5.0
    """Requests a second; None for no limit."""
    burst: int = 10
    """Requests that cost nothing."""
    bandwidth: float = 10e6
    """Bytes a second."""
    latency: float = 0.1
    """Seconds until the first byte."""
    connections: int = 4
    """Requests under way at once."""

    @property
    def request(self) -> float:
        """Seconds that one more request costs where there are many."""
        return 1 / self.rate if self.rate else self.latency / self.connections

    @property
    def max_gap(self) -> int:
        """Bytes between two ranges that are cheaper to read, and drop, than to ask for the second one separately."""
        return int(self.request * self.bandwidth)

    def price(self, requests: float, size: float) -> float:
        """Seconds that requests and bytes add to a plan of many; what the alternatives of a plan are compared by."""
        return requests * self.request + size / self.bandwidth

    def seconds(self, requests: int, size: int, waves: int) -> float:
        """How long a plan takes, about."""
        if not requests:
            return 0.0
        waiting = max(0, requests - self.burst) / self.rate if self.rate else requests * self.latency / self.connections
        return waiting + size / self.bandwidth + waves * self.latency
