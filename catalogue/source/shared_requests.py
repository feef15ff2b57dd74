"""Share requests between threads."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock

from catalogue.errors import CatalogueError
from catalogue.source.byte_ranges import ByteRange, FileVersion, without
from catalogue.source.cache import CachedSource, RangeCache
from catalogue.source.checks import Response, Source
from catalogue.source.observe import Observer


@dataclass(frozen=True, slots=True, eq=False)
class _SharedRequest:
    """A request of one thread for whose response others wait."""

    range: ByteRange
    response: "Future[Response | None]" = field(default_factory=Future)
    """None if the thread ended without an error of the source."""


class SharedSource(CachedSource):
    """A source for many threads that fetches each byte once, if its cache can store it.

    A range of a pinned version is joined from the cache, from requests of other threads, and from one request for each
    gap. A range that cannot be cached is shared only with equal requests. All threads that wait for a request get its
    error. A thread waits for others after its own requests, so there is no deadlock.
    """

    def __init__(self, inner: Source, cache: RangeCache, observer: Observer | None = None) -> None:
        super().__init__(inner, cache, observer)
        self._lock = Lock()
        self._running: dict[tuple[str, FileVersion], list[_SharedRequest]] = {}

    def _fetch(self, path: str, requested: ByteRange, pin: FileVersion) -> Response:
        pieces: dict[ByteRange, bytes] = {}
        use_cache = True
        """False after a damaged entry, which the cache may not be able to remove."""
        while missing := without([requested], pieces):
            cached, own, others = self._claim(path, pin, requested, missing, use_cache=use_cache)
            try:
                for part in cached:
                    if found := self._cached(path, part, pin):
                        pieces[part] = found.body
                    else:
                        use_cache = False
                for request in own:
                    self._finish(path, pin, [request], super()._fetch(path, request.range, pin))
            except CatalogueError as error:
                self._finish(path, pin, own, error)
                raise
            finally:
                self._finish(path, pin, own, None)
            for request in (*own, *others):
                result, sent = request.response.result(), request.range
                if result is None:
                    continue
                if sent == requested:
                    return result
                for part in _intersect(without([requested], pieces), [sent]):
                    pieces[part] = result.body[part.start - sent.start : part.end - sent.start]
        body = b"".join(pieces[part] for part in sorted(pieces))
        return Response(body, requested.start, pin.size, pin.etag, last_modified=None, origin=pin.origin)

    def _claim(
        self, path: str, pin: FileVersion, requested: ByteRange, missing: Sequence[ByteRange], *, use_cache: bool
    ) -> tuple[list[ByteRange], list[_SharedRequest], list[_SharedRequest]]:
        # Under one lock: the bytes of a request that finishes in between would be neither cached nor requested.
        with self._lock:
            running = self._running.get((path, pin), [])
            if self.cache.can_store(pin, requested):
                cached = _intersect(missing, self.cached_ranges(path, pin)) if use_cache else []
                left = without(missing, cached)
                sharable = [each for each in running if self.cache.can_store(pin, each.range)]
                others = [each for each in sharable if _intersect(left, [each.range])]
                left = without(left, [each.range for each in others])
            else:
                cached, others = [], [each for each in running if each.range == requested]
                left = [] if others else [requested]
            own = [*map(_SharedRequest, left)]
            if own:
                self._running[path, pin] = running + own
            return cached, own, others

    def _finish(
        self,
        path: str,
        pin: FileVersion,
        requests: Sequence[_SharedRequest],
        outcome: Response | CatalogueError | None,
    ) -> None:
        with self._lock:
            left = [request for request in self._running.get((path, pin), []) if request not in requests]
            if left:
                self._running[path, pin] = left
            else:
                self._running.pop((path, pin), None)
        for request in requests:
            if request.response.done():
                continue
            if isinstance(outcome, CatalogueError):
                request.response.set_exception(outcome)
            else:
                request.response.set_result(outcome)


def _intersect(ranges: Sequence[ByteRange], others: Sequence[ByteRange]) -> list[ByteRange]:
    return without(ranges, without(ranges, others))
