"""One source of several hosts that have the same files."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Condition
from typing import Any

from catalogue.errors import CatalogueError, FileChanged, FormatError, NotFound, QueryError, RangeIgnored, Throttled
from catalogue.settings import Host
from catalogue.source.byte_ranges import FileVersion, SuffixRange
from catalogue.source.checks import RequestedRange, Response
from catalogue.source.retry import LONGEST_WAIT, PoliteSource

_CRAWL = re.compile(r".*?CC-MAIN-([0-9]{4})-[0-9]{2}")
_FIRST_REST, _LONGEST_REST = 60.0, 3600.0
"""Seconds without requests to a host that fails; doubled each time."""
_VERSIONS = 10_000
"""ETags that are kept of each host."""
_FINAL = (FileChanged, FormatError, NotFound)
"""Errors after which the same host is not asked again for the file."""


@dataclass(slots=True, eq=False)
class _Use:
    rules: Host
    source: PoliteSource
    running: int = 0
    is_trusted: bool = False
    """Whether it has sent a range since its last failure; otherwise one request at a time tries the host."""
    failures: int = 0
    """Failures since the last usable response."""
    is_busy: bool = False
    """Whether the last failure was a demand to wait."""
    rests_until: float = 0.0
    crawls: dict[str, bool] = field(default_factory=dict)
    """Whether the host has the folder of a crawl."""
    etags: dict[str, str] = field(default_factory=dict)
    """The ETags of its last responses, by path."""

    def may_have(self, path: str) -> bool:
        crawl = _CRAWL.match(path)
        if self.rules.first_crawl and (crawl is None or int(crawl[1]) < self.rules.first_crawl):
            return False
        return crawl is None or self.crawls.get(crawl[0], True)

    def note(self, outcome: Response | CatalogueError | None, path: str, now: float) -> None:
        """Note the end of a request; None if it says nothing about the host."""
        self.running -= 1
        crawl = _CRAWL.match(path)
        if isinstance(outcome, Response):
            self.failures, self.rests_until = 0, 0.0
            self.is_trusted |= len(outcome.body) < outcome.total_size
            self.etags[path] = outcome.etag or ""
            if len(self.etags) > _VERSIONS:
                del self.etags[next(iter(self.etags))]
        elif isinstance(outcome, CatalogueError) and not isinstance(outcome, QueryError):
            self._note_failure(outcome, now)
            self.etags.pop(path, None)
        if crawl and isinstance(outcome, Response | NotFound):  # the absence of a later file says nothing
            self.crawls[crawl[0]] = isinstance(outcome, Response) or self.crawls.get(crawl[0], False)

    def _note_failure(self, error: CatalogueError, now: float) -> None:
        rest = 0.0 if self.is_trusted else _FIRST_REST
        if isinstance(error, NotFound):
            # One file may be missing; after a second one, a host that has not sent any rests.
            rest *= self.failures > 0
            self.failures += not self.is_trusted
        else:
            self.is_busy = isinstance(error, Throttled)
            rest = self.source.limiter.policy.slow_down if self.is_busy else rest
            self.failures += bool(rest)
            self.is_trusted = False
        rest = min(_LONGEST_REST, rest * 2.0 ** min(self.failures - 1, 10))
        self.rests_until = max(self.rests_until, now + max(rest, getattr(error, "retry_after", None) or 0.0))


class SeveralHosts(PoliteSource):
    """A source that sends each request to the host that can answer it first, and to the next one if it fails.

    Path and size decide whether two hosts have the same file. Address, rate limit and cost are those of the first host.
    """

    def __init__(self, rules: Sequence[Host], sources: Sequence[PoliteSource], **options: Any) -> None:  # noqa: ANN401
        """Take the options of ``PoliteSource``."""
        super().__init__(sources[0].inner, sources[0].limiter, **options)
        self._uses = [_Use(*each) for each in zip(rules, sources, strict=True)]
        self.connections = sum(each.connections for each in sources)
        self._changed = Condition()

    def hosts_of(self, path: str = "") -> list[PoliteSource]:
        return [each.source for each in self._uses if not path or each.may_have(path)]

    @property
    def ignores_suffixes(self) -> bool:
        return all(each.ignores_suffixes for each in self.hosts_of())

    @property
    def requests(self) -> int:
        return sum(each.requests for each in self.hosts_of())

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.hosts_of())

    @property
    def unavailable_until(self) -> float:
        return min(each.unavailable_until for each in self.hosts_of())

    def close(self) -> None:
        for each in self.hosts_of():
            each.close()

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        """See ``Source.get``; asks the other hosts before it waits for one.

        Raises:
            FileChanged: if the host to which the pinned ETag belongs has another version.
        """
        failed: dict[_Use, CatalogueError] = {}
        candidates = [use for use in self._uses if use.may_have(path)] or self._uses[:1]
        origin = pin and (pin.origin or self.url)
        left = candidates if len(candidates) > 1 else []
        while use := self._pick(left, requested, origin):
            try:
                return self._get_from(use, path, requested, pin, at_once=True)
            except CatalogueError as error:
                is_changed = isinstance(error, FileChanged) and pin and pin.etag and use.source.url == origin
                if is_changed or isinstance(error, QueryError):  # such as the limit of requests
                    raise
                failed[use] = error
                left = [other for other in left if other is not use]
                if use.rests_until > self.limiter.clock.now():
                    self.notify(f"{error}; other hosts are used for now")
        left = [use for use in candidates if not isinstance(failed.get(use), _FINAL)]
        if not left:
            raise failed[candidates[0]]
        use = min(left, key=lambda each: (each.failures and not each.is_busy, each.source.seconds_to_wait()))
        with self._changed:
            use.running += 1
        return self._get_from(use, path, requested, pin, at_once=False)

    def _pick(self, candidates: Sequence[_Use], requested: RequestedRange, origin: str | None) -> _Use | None:
        """Reserve the host that can send a request first; None if each of them is blocked or rests."""
        with self._changed:
            while True:
                now = self.limiter.clock.now()
                waits = {
                    use: seconds
                    for use in candidates
                    if use.rests_until <= now and (seconds := use.source.seconds_to_wait()) <= LONGEST_WAIT
                }
                if isinstance(requested, SuffixRange) and len(waits) > 1:
                    able = [use for use in waits if not use.source.limiter.state.ignores_suffixes]
                    waits = {use: waits[use] for use in able or waits}
                if not waits:
                    return None
                for use in sorted(waits, key=lambda each: (waits[each], each.source.url != origin)):
                    if use.running < (use.source.connections if use.is_trusted else 1):
                        use.running += 1
                        return use
                    if not use.is_trusted:  # the first response decides
                        break
                self._changed.wait()

    def _get_from(
        self, use: _Use, path: str, requested: RequestedRange, pin: FileVersion | None, *, at_once: bool
    ) -> Response:
        if pin and use.source.url != (pin.origin or self.url):  # the same size, and the ETag that this host has sent
            pin = FileVersion(pin.size, use.etags.get(path))
        outcome: Response | CatalogueError | None = None
        try:
            get = use.source.get_once if at_once else use.source.get
            outcome = get(path, requested, pin=pin)
            self._note_honoured(requested, outcome)
            return replace(outcome, origin=use.source.url)
        except CatalogueError as error:
            if isinstance(error, RangeIgnored) and isinstance(requested, SuffixRange):
                use.source.limiter.note_suffixes(ignored=True)  # a property of the host, not a failure
            else:
                outcome = error
            raise
        finally:
            with self._changed:
                use.note(outcome, path, self.limiter.clock.now())
                self._changed.notify_all()
