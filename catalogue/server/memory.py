"""What the CDX API keeps in memory: crawls, pages of results, lines, and inflated blocks."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from threading import Lock
from typing import Any

from catalogue.cdx.blocks import Block
from catalogue.commoncrawl.manifests import Crawl
from catalogue.server.cdx_paging import ResultPage
from catalogue.server.cdx_request import CdxRequest
from catalogue.surt import KeyInterval

MEMORY = 512 << 20
_ENTRY, _INTERVAL, _LINE = 500, 300, 60
"""Bytes of an entry without key and value, of an interval without its keys, and of a line without its text, about."""


class Memory:
    """Values of a limited size in all, for any thread; those not used for the longest time are dropped.

    A value is valid for one state of the store, see ``Store.state``, which was read before the value was made.
    """

    def __init__(self, limit: int = MEMORY) -> None:
        """Keep values of up to ``limit`` bytes."""
        self._limit = limit
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    @property
    def size(self) -> int:
        """Bytes of all values, about."""
        return self._size

    def crawl(self, state: str, name: str) -> Crawl | None:
        """Return a crawl that was requested by its complete name."""
        found: Crawl | None = self._get((state, name))
        return found

    def keep_crawl(self, state: str, crawl: Crawl) -> None:
        self._put((state, crawl.id), crawl, 0)

    def page(self, state: str, crawl: str, request: CdxRequest) -> ResultPage | None:
        """Return the page of a request; it does not depend on filters, and its parts are in the order of keys."""
        found: ResultPage | None = self._get((state, crawl, _of_page(request)))
        return found

    def keep_page(self, state: str, crawl: str, request: CdxRequest, page: ResultPage) -> None:
        size = _bytes_of(request.pattern.intervals) + sum(map(_bytes_of, page.parts))
        self._put((state, crawl, _of_page(request)), page, size)

    def lines(self, state: str, crawl: str, intervals: tuple[KeyInterval, ...]) -> list[str] | None:
        """Return all lines of intervals of keys, in order."""
        found: list[str] | None = self._get((state, crawl, intervals))
        return found

    def keep_lines(self, state: str, crawl: str, intervals: tuple[KeyInterval, ...], lines: list[str]) -> None:
        self._put((state, crawl, intervals), lines, size_of(lines) + _bytes_of(intervals))

    def block(self, state: str, path: str, offset: int) -> Block | None:
        """Return an inflated block, which was compared with the list of blocks."""
        found: Block | None = self._get((state, path, offset))
        return found

    def keep_block(self, state: str, block: Block) -> None:
        self._put((state, block.path, block.offset), block, block.size)

    def _get(self, key: Hashable) -> Any:  # noqa: ANN401 - each kind of key has values of one type
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
        return found[0]

    def _put(self, key: Hashable, value: object, size: int) -> None:
        size += _ENTRY
        if size > self._limit // 4:
            return
        with self._lock:
            self._size += size - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, size
            while self._size > self._limit:
                self._size -= self._values.popitem(last=False)[1][1]


def size_of(lines: Sequence[str]) -> int:
    """Return about how many bytes of memory lines take."""
    return sum(map(len, lines)) + _LINE * len(lines)


def _bytes_of(intervals: Sequence[KeyInterval]) -> int:
    return sum(2 * (len(each.start) + len(each.end)) + _INTERVAL for each in intervals)  # the pattern has the text, too


def _of_page(request: CdxRequest) -> tuple[Hashable, ...]:
    return (
        request.pattern,
        request.page,
        request.page_size,
        request.counts_pages,
        bool(request.closest),
        request.first,
        request.last,
    )
