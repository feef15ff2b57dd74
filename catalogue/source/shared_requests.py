"""Share requests between threads: a thread waits for bytes that another is already fetching."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from catalogue.errors import CatalogueError
from catalogue.source.byte_ranges import ByteRange, FileVersion, without
from catalogue.source.cache import CachedSource, RangeCache
from catalogue.source.checks import Response, Source


@dataclass(frozen=True, slots=True, eq=False)
class _Flight:
    """A request that a thread makes now or next, and the threads that wait for it."""

    range: ByteRange
    answer: "Future[Response | None]" = field(default_factory=Future)
    """None if the thread was stopped for a reason that says nothing about the source."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """How a thread gets the bytes that it needs."""

    cached: Sequence[ByteRange]
    ours: Sequence[_Flight]
    others: Sequence[_Flight]


class SharedSource(CachedSource):
    """A source for many threads that fetches no byte twice, as far as its cache can keep it.

    A range of a known version is assembled from the cache, from requests under way, and from one request for each gap.
    Ranges that cannot be cached are shared only by threads that request exactly the same. An error is raised in every
    thread that waits for the request. A thread waits for others only after its own requests, so there is no deadlock.
    """

    def __init__(self, inner: Source, cache: RangeCache) -> None:
        super().__init__(inner, cache)
        self._lock = Lock()
        self._flights: dict[tuple[str, FileVersion], list[_Flight]] = {}
        """Requests under way, by file and version."""

    def _fetched(self, path: str, requested: ByteRange, pin: FileVersion) -> Response:
        pieces: dict[ByteRange, bytes] = {}
        trusted = True
        """Whether the cache still counts: it keeps listing a damaged entry that it cannot remove."""
        while missing := without([requested], pieces):
            with self._claim(path, pin, requested, missing, trusted=trusted) as claim:
                for each in claim.cached:
                    body = self.cache.get(self.url, path, pin, each)
                    if body is None:
                        trusted = False
                    else:
                        pieces[each] = body
                for flight in claim.ours:
                    self._fly(path, flight, pin)
            for flight in (*claim.ours, *claim.others):
                answer, given = flight.answer.result(), flight.range
                if answer is None:
                    continue
                if given == requested:
                    return answer
                for each in _inside(without([requested], pieces), [given]):
                    pieces[each] = answer.body[each.start - given.start : each.end - given.start]
        body = b"".join(pieces[each] for each in sorted(pieces))
        return Response(body, requested.start, total_size=pin.size, etag=pin.etag, last_modified=None)

    @contextmanager
    def _claim(
        self, path: str, pin: FileVersion, requested: ByteRange, missing: Sequence[ByteRange], *, trusted: bool
    ) -> Iterator[_Claim]:
        """Divide the missing parts of a range; no other thread requests our share of it."""
        ours: list[_Flight] = []
        try:
            # What has landed is in the cache: in one step, or it could be missed both there and here.
            with self._lock:
                flights = self._flights.get((path, pin), [])
                if self.cache.keeps(pin, requested):
                    cached = _inside(missing, self.cached_ranges(path, pin)) if trusted else []
                    left = without(missing, cached)
                    others = [
                        each for each in flights if self.cache.keeps(pin, each.range) and _inside(left, [each.range])
                    ]
                    left = without(left, [each.range for each in others])
                else:
                    cached, others = [], [each for each in flights if each.range == requested]
                    left = [] if others else [requested]
                ours += map(_Flight, left)
                if ours:
                    self._flights[path, pin] = flights + ours
            yield _Claim(cached, ours, others)
        except CatalogueError as error:
            self._land(path, pin, ours, error)
            raise
        finally:
            self._land(path, pin, ours, None)

    def _fly(self, path: str, flight: _Flight, pin: FileVersion) -> None:
        self._land(path, pin, [flight], super()._fetched(path, flight.range, pin))

    def _land(
        self, path: str, pin: FileVersion, flights: Sequence[_Flight], outcome: Response | CatalogueError | None
    ) -> None:
        """Pass the outcome to waiting threads that have none yet."""
        with self._lock:
            left = [each for each in self._flights.get((path, pin), []) if each not in flights]
            if left:
                self._flights[path, pin] = left
            else:
                self._flights.pop((path, pin), None)
        for each in flights:
            if each.answer.done():
                continue
            if isinstance(outcome, CatalogueError):
                each.answer.set_exception(outcome)
            else:
                each.answer.set_result(outcome)


def _inside(ranges: Sequence[ByteRange], others: Sequence[ByteRange]) -> list[ByteRange]:
    """Return the parts of disjoint ranges that lie in any of the others."""
    return without(ranges, without(ranges, others))
