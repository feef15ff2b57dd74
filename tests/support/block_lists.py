"""Lists of blocks of the CDX index, whose blocks do not exist: in a folder, or behind a server that counts."""

import gzip
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from catalogue.cdx.cluster import index_folder, list_path, shards_path
from catalogue.cdx.known_lines import KnownLines
from catalogue.cdx.list_search import USUAL, ClusterSearch, Predictor
from catalogue.source.http import HttpSource
from catalogue.source.rate_limit import Limiter, Policy
from catalogue.source.retry import PoliteSource
from tests.support.clocks import FakeClock
from tests.support.faults import FaultServer

CRAWL, OTHER = "CC-MAIN-2022-33", "CC-MAIN-2021-49"


def shards_list(shards: int, crawl: str = CRAWL) -> bytes:
    return gzip.compress("".join(f"{index_folder(crawl)}/cdx-{number:05}.gz\n" for number in range(shards)).encode())


def write_list(mirror: Path, lines: bytes, crawl: str = CRAWL) -> None:
    shards = 1 + max(int(line.split(b"\t")[1][4:9]) for line in lines.splitlines())
    for path, data in ((list_path(crawl), lines), (shards_path(crawl), shards_list(shards, crawl))):
        (mirror / path).parent.mkdir(parents=True, exist_ok=True)
        (mirror / path).write_bytes(data)


PATH = list_path(CRAWL)
BLOCKS = 24_000


@dataclass(frozen=True)
class Served:
    files: dict[str, bytes]
    server: FaultServer
    source: PoliteSource

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
    files = {PATH: data, shards_path(CRAWL): shards_list(shards)}
    with FaultServer(files) as server:
        inner = HttpSource(server.url, user_agent="test", connections=1)
        with closing(PoliteSource(inner, Limiter(Policy(), clock=FakeClock()))) as source:
            yield Served(files, server, source)
