"""What the CDX API keeps in memory."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from threading import Lock
from typing import cast

from catalogue.cdx.blocks import Block
from catalogue.server.cdx_paging import ResultPage
from catalogue.server.cdx_request import CdxRequest
from catalogue.surt.interval import KeyInterval

MEMORY = 512 << 20
_ENTRY, _INTERVAL, _LINE = 500, 300, 60
"""Bytes of an entry without key and value, of an interval without its keys, and of a line without its text, about."""


class Memory:
    """Values of a limited number of bytes, about, for any thread; the least recently used ones are dropped.

    A value is valid for one state of the store, see ``Store.state``, which was read before the value was made.
    """

    def __init__(self, limit: int = MEMORY) -> None:
        self._limit = limit
        self._values: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def get(self, key: Hashable) -> object:
        with self._lock:
            if found := self._values.get(key):
                self._values.move_to_end(key)
                return found[0]
        return None

    def put(self, key: Hashable, value: object, size: int = 1) -> None:
        if size > self._limit // 4:
            return
        with self._lock:
            self.size += size - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, size
            while self.size > self._limit:
                self.size -= self._values.popitem(last=False)[1][1]

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
