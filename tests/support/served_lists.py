"""A made-up list of blocks, on its own or behind a server that counts."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from catalogue.cdx.cluster import list_path, shards_path
from catalogue.cdx.known_lines import KnownLines
from catalogue.cdx.list_search import USUAL, ClusterSearch, Predictor
from catalogue.source.http import HttpSource
from catalogue.source.rate_limit import Limiter, Policy
from catalogue.source.retry import PoliteSource
from tests.support.block_lists import CRAWL, shards_list
from tests.support.clocks import FakeClock
from tests.support.faults import FaultServer

PATH = list_path(CRAWL)
BLOCKS = 24_000


class Served:
    def __init__(self, data: bytes, shards: int) -> None:
        self.files = {PATH: data, shards_path(CRAWL): shards_list(shards)}
        self.server = FaultServer(self.files)

    @contextmanager
    def open(self) -> "Iterator[Served]":
        with self.server:
            inner = HttpSource(self.server.url, user_agent="test", connections=1)
            limiter = Limiter(Policy(), clock=FakeClock())
            with closing(PoliteSource(inner, limiter)) as self.source:
                yield self

    def search(self, known: KnownLines | None = None, predict: Predictor = USUAL) -> ClusterSearch:
        search = ClusterSearch(self.source, CRAWL)
        search.lines, search.predict = known, predict
        return search

    def cost(self) -> tuple[int, int]:
        """Return requests and bytes since the last call."""
        exchanges = self.server.settle()
        self.server.reset()
        return len(exchanges), sum(exchange.body_bytes_sent for exchange in exchanges)


@contextmanager
def served(data: bytes, shards: int = 300) -> Iterator[Served]:
    with Served(data, shards).open() as opened:
        yield opened
