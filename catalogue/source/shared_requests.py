"""A source for many threads, each of which may ask for what another is just being sent."""

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
    """A request that some thread makes, now or after others of its own that wait for nobody."""

    range: ByteRange
    answer: "Future[Response | None]" = field(default_factory=Future)
    """None if that thread was stopped by something that says nothing about the source."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """Where a thread gets what it lacks from."""

    cached: Sequence[ByteRange]
    ours: Sequence[_Flight]
    others: Sequence[_Flight]


class SharedSource(CachedSource):
    """A source that fetches no byte twice, though many threads ask at once, as far as its cache can keep it.

    A range of a pinned version is put together from what the cache holds, what is under way already, and one request
    for each gap between. What the cache cannot keep is asked for as it is wanted, once by all who want exactly that.

    An error is everybody's who waits for the request. A thread waits for others only when its own requests are done, so
    that two never wait for each other.
    """

    def __init__(self, inner: Source, cache: RangeCache) -> None:
        super().__init__(inner, cache)
        self._lock = Lock()
        self._flights: dict[tuple[str, FileVersion], list[_Flight]] = {}
        """What is under way, by file and version."""

    def _fetched(self, path: str, wanted: ByteRange, pin: FileVersion) -> Response:
        pieces: dict[ByteRange, bytes] = {}
        believed = True
        """Whether the cache has what it says; damage that it can neither read nor remove it goes on to speak of."""
        while lacking := without([wanted], pieces):
            with self._claim(path, pin, wanted, lacking, believed=believed) as claim:
                for each in claim.cached:
                    body = self.cache.get(self.url, path, pin, each)
                    if body is None:
                        believed = False
                    else:
                        pieces[each] = body
                for flight in claim.ours:
                    self._fly(path, flight, pin)
            for flight in (*claim.ours, *claim.others):
                answer, given = flight.answer.result(), flight.range
                if answer is None:
                    continue
                if given == wanted:
                    return answer
                for each in _inside(without([wanted], pieces), [given]):
                    pieces[each] = answer.body[each.start - given.start : each.end - given.start]
        body = b"".join(pieces[each] for each in sorted(pieces))
        return Response(body, wanted.start, total_size=pin.size, etag=pin.etag, last_modified=None)

    @contextmanager
    def _claim(
        self, path: str, pin: FileVersion, wanted: ByteRange, lacking: Sequence[ByteRange], *, believed: bool
    ) -> Iterator[_Claim]:
        """Divide what is lacking of a range; nobody else asks for our part of it meanwhile."""
        ours: list[_Flight] = []
        try:
            # What has landed is in the cache: in one step, or it could be missed both there and here.
            with self._lock:
                flights = self._flights.get((path, pin), [])
                if self.cache.keeps(pin, wanted):
                    cached = _inside(lacking, self.held(path, pin)) if believed else []
                    left = without(lacking, cached)
                    others = [
                        each for each in flights if self.cache.keeps(pin, each.range) and _inside(left, [each.range])
                    ]
                    left = without(left, [each.range for each in others])
                else:
                    cached, others = [], [each for each in flights if each.range == wanted]
                    left = [] if others else [wanted]
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
        """Tell those who wait what became of requests, unless they have been told."""
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
    """What of some ranges, none of which overlap, lies in any of others."""
    return without(ranges, without(ranges, others))
