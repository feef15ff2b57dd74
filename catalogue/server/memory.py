"""What the CDX API keeps in memory."""

from collections.abc import Hashable, Sequence
from typing import Any, cast

from catalogue.cdx.blocks import Block
from catalogue.commoncrawl.manifests import Crawl
from catalogue.resource_limits import RecentValues
from catalogue.server.cdx_paging import ResultPage
from catalogue.server.cdx_request import CdxRequest
from catalogue.surt import KeyInterval

MEMORY = 512 << 20
_ENTRY, _INTERVAL, _LINE = 500, 300, 60
"""Bytes of an entry without key and value, of an interval without its keys, and of a line without its text, about."""


class Memory(RecentValues[Any]):
    """Values of a limited number of bytes, about.

    A value is valid for one state of the store, see ``Store.state``, which was read before the value was made.
    """

    def __init__(self, limit: int = MEMORY) -> None:
        super().__init__(limit)

    def crawl(self, state: str, name: str) -> Crawl | None:
        """Return a crawl that was requested by its complete name."""
        return cast("Crawl | None", self.get((state, name)))

    def keep_crawl(self, state: str, crawl: Crawl) -> None:
        self.put((state, crawl.id), crawl, _ENTRY)

    def page(self, state: str, crawl: str, request: CdxRequest) -> ResultPage | None:
        """Return the page of a request; it does not depend on filters, and its parts are in the order of keys."""
        return cast("ResultPage | None", self.get((state, crawl, _of_page(request))))

    def keep_page(self, state: str, crawl: str, request: CdxRequest, page: ResultPage) -> None:
        size = _bytes_of(request.pattern.intervals) + sum(map(_bytes_of, page.parts))
        self.put((state, crawl, _of_page(request)), page, _ENTRY + size)

    def lines(self, state: str, crawl: str, intervals: tuple[KeyInterval, ...]) -> list[str] | None:
        return cast("list[str] | None", self.get((state, crawl, intervals)))

    def keep_lines(self, state: str, crawl: str, intervals: tuple[KeyInterval, ...], lines: list[str]) -> None:
        self.put((state, crawl, intervals), lines, _ENTRY + size_of(lines) + _bytes_of(intervals))

    def block(self, state: str, path: str, offset: int) -> Block | None:
        """Return an inflated block, which was compared with the list of blocks."""
        return cast("Block | None", self.get((state, path, offset)))

    def keep_block(self, state: str, block: Block) -> None:
        self.put((state, block.path, block.offset), block, _ENTRY + block.size)


def size_of(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + _LINE * len(lines)


def _bytes_of(intervals: Sequence[KeyInterval]) -> int:
    return sum(2 * (len(each.start) + len(each.end)) + _INTERVAL for each in intervals)  # the pattern has the text, too


def _of_page(request: CdxRequest) -> tuple[Hashable, ...]:
    places = (request.page, request.page_size, request.counts_pages)
    return (request.pattern, *places, bool(request.closest), request.first, request.last)
