"""Get an archived page: search crawls in turn, follow redirects, fetch the record."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TypeAlias

from catalogue.commoncrawl.capture import Capture, capture_of
from catalogue.commoncrawl.crawls import SUBSETS, Crawl, CrawlWords, newest_first, weeks_between
from catalogue.errors import BadRecord, Forbidden, NotArchived, NotFound, NotHarvested, QueryError, TooExpensive
from catalogue.find_captures import find_captures
from catalogue.formatting import Priced, format_cost, join_first, plural, printable
from catalogue.output.fetch_captures import fetch_record
from catalogue.parquet.arrow_arrays import rows_of
from catalogue.query.filters import Moment, time_span
from catalogue.query.query import Query
from catalogue.records.page import Page
from catalogue.records.record import Record
from catalogue.records.references import cleaned_reference, location_of, redirect_target
from catalogue.selection import select_listed
from catalogue.session import Session
from catalogue.surt.equality import same_url, similar_url

MAX_REQUESTS = 20
"""Requests that need no approval."""
_MAX_REDIRECTS = 10
_REVISIT = "warc/revisit"
_REDIRECTS = {301, 302, 303, 307, 308}
_MARGIN = 86_400_000
"""Milliseconds by which captures may lie outside of the listed times of their crawl."""


@dataclass(frozen=True, slots=True)
class GetEstimate:
    """What a search has taken so far and would take with the next crawl."""

    crawl: str
    searched: tuple[str, ...]
    spent: int
    requests: int
    """The total, including ``spent``."""
    bytes: int
    seconds: float
    empty: tuple[str, ...] = ()
    """Crawls that certainly have no capture."""

    def __str__(self) -> str:
        if not self.searched:
            return f"searching {self.crawl} takes {format_cost(self)}"
        before = f"no usable capture in {join_first(self.searched)} after {plural(self.spent, 'request')}"
        return f"{before}; searching {self.crawl} too takes {format_cost(self)}"


def get_page(
    session: Session,
    url: str,
    *,
    at: Moment | None = None,
    crawls: CrawlWords | None = None,
    follow: bool = True,
    max_requests: int = MAX_REQUESTS,
    approve: Callable[[GetEstimate], None] | None = None,
) -> Page:
    """Get an archived page; see ``Catalogue.get``."""
    chosen = select_listed(session, "all" if crawls is None else crawls)
    if url.strip().startswith("*") or url.strip().endswith("*"):
        raise QueryError(f"{printable(url[:200])!r} is not the URL of one page; captures of many: catalogue query")
    searched = [chosen.listed.get(crawl, Crawl(crawl)) for crawl in chosen.crawls]
    notes = dict.fromkeys(chosen.missing)
    search = _Search(session, searched, max_requests, approve or _refuse, session.spending(), notes)
    return search.page(url, None if at is None else time_span(at), follow=follow)


_Interval: TypeAlias = tuple[float, float]
"""First time and end in milliseconds since 1970, the end exclusive."""


def _refuse(estimate: GetEstimate) -> None:
    raise TooExpensive(f"{estimate}; name crawls, or pass a larger max_requests")


class _Enough(Exception):
    """Another crawl would need approval, and there is a capture of another URL with the same key."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    capture: Capture
    crawl: str
    crawls_before: int
    """Newer crawls of the question."""
    subset: str
    time: float
    """Milliseconds since 1970; minus infinity if unknown."""
    target: str | None
    """The URL it redirects to, if the index has it."""
    distance: float
    exact: bool
    """Whether it has the requested URL, and not another one with the same key."""
    similar: bool
    """Whether its URL differs at most in ``www.`` and in a slash at the end."""
    is_revisit: bool = False

    @property
    def is_redirect(self) -> bool:
        return self.capture.status in _REDIRECTS or (self.capture.status is None and self.target is not None)

    @property
    def is_page(self) -> bool:
        if self.is_revisit or self.is_redirect:
            return False
        if self.capture.status is None:
            return self.subset != SUBSETS[1]
        return self.capture.status // 100 == 2  # noqa: PLR2004

    @property
    def nearness(self) -> tuple[float, int, float]:
        """The nearest capture has the lowest; of several that of the newest crawl, and of these the newest one."""
        return self.distance, self.crawls_before, -self.time


@dataclass(slots=True)
class _Candidates:
    first_crawl: bool
    """Whether captures of the first crawl that has some are better than others."""
    usable: dict[bool, _Candidate] = field(default_factory=dict)
    """The best page or redirect that is exact, and the best other one."""
    failed: dict[bool, _Candidate] = field(default_factory=dict)
    """The same of captures with another status."""

    def add(self, of_crawl: Iterable[_Candidate]) -> bool:
        """Add the captures of a crawl; return whether one is usable."""
        usable: dict[bool, _Candidate] = {}
        for found in of_crawl:
            if not (found.is_page or found.is_redirect):
                self.failed[found.exact] = _nearer(self.failed.get(found.exact), found)
                continue
            known = usable.get(found.exact, found)
            usable[found.exact] = min(
                known, found, key=lambda each: (not each.similar, not each.is_page, each.nearness)
            )
        for exact, found in usable.items():
            if exact not in self.usable or not self.first_crawl:
                self.usable[exact] = _nearer(self.usable.get(exact), found)
        return bool(usable)

    def is_final(self, distance: float, crawls_before: int) -> bool:
        """Return whether no capture of a crawl at least so far from the requested time can be better."""
        best = self.best
        if best is None or best not in self.usable.values() or not best.similar:
            return False
        return self.first_crawl or (distance, crawls_before) > best.nearness[:2]

    @property
    def best(self) -> _Candidate | None:
        kinds = ((kind, exact) for exact in (True, False) for kind in (self.usable, self.failed))
        return next((kind[exact] for kind, exact in kinds if exact in kind), None)


def _nearer(known: _Candidate | None, found: _Candidate) -> _Candidate:
    return min(known or found, found, key=lambda each: each.nearness)


@dataclass(slots=True)
class _Search:
    session: Session
    crawls: list[Crawl]
    allowed: int
    approve: Callable[[GetEstimate], None]
    spent: Callable[[], tuple[int, int]]
    """Returns requests and bytes of the search so far."""
    notes: dict[str, None]
    searched: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    index_files: dict[str, None] = field(default_factory=dict)
    visited: set[tuple[str, int]] = field(default_factory=set)
    substitutions: list[str] = field(default_factory=list)
    """A sentence for each URL of which only captures of another URL with the same key were found."""

    def page(self, url: str, at: _Interval | None, *, follow: bool) -> Page:
        redirects: list[Capture] = []
        found = self.nearest(url, at)
        while True:
            self.visited.add((found.capture.filename, found.capture.offset))
            record = None if found.is_redirect and follow and found.target else self.record(found)
            if record and found.capture.status is None:  # a redirect, perhaps
                found = replace(found, capture=replace(found.capture, status=record.status))
            target = cleaned_reference(found.target or (record and location_of(record)) or "")
            if not (found.is_redirect and follow and target):
                break
            redirects.append(found.capture)
            url = _target(found, target)
            if len(redirects) > _MAX_REDIRECTS:
                raise NotArchived(f"more than {_MAX_REDIRECTS} redirects, the last one to {printable(url)}", target=url)
            self.searched.clear()
            self.empty.clear()
            at = None if found.time == -inf else (found.time, found.time + 1)
            found = self.nearest(url, at, redirected_in=found.crawl)
        requests, received = self.spent()
        record = record or self.record(found)
        files, notes = tuple(self.index_files), tuple(self.notes)
        substitutions = tuple(self.substitutions)
        return Page(
            record, found.crawl, found.subset, tuple(redirects), requests, received, notes, files, substitutions
        )

    def record(self, found: _Candidate) -> Record:
        try:
            with self.session.bars(""):
                return fetch_record(self.session, found.capture)
        except NotFound as error:
            raise NotFound(
                f"{error}; this archive has the capture of {found.crawl}; choose another crawl or time"
            ) from error

    def nearest(self, url: str, at: _Interval | None, *, redirected_in: str | None = None) -> _Candidate:
        """Return the best capture of a URL, or of another URL with the same key.

        The best one is the newest, or the nearest. For the target of a redirect, it is that of the first crawl that has
        one, from the crawl of the redirect on.
        """
        found, where = _Candidates(first_crawl=redirected_in is not None or not at), ""
        ordered = [*enumerate(self.crawls)]
        if redirected_in:  # by names, because the times of crawls are known only if their list is stored
            ordered.sort(key=lambda each: (each[1].id != redirected_in, _weeks_apart(each[1].id, redirected_in)))
        elif at:
            ordered.sort(key=lambda each: _least_distance(each[1], at))
        for number, (place, crawl) in enumerate(ordered):
            if found.is_final(_least_distance(crawl, at), place):
                break
            try:
                is_usable = found.add(self.captures(url, crawl.id, place, at, only_exact=False in found.usable))
            except _Enough:
                where = f" in the {plural(number, 'crawl')} searched"
                break
            if not is_usable:
                self.searched.append(crawl.id)
        if chosen := found.best:
            if not chosen.exact:
                other = printable(chosen.capture.url or "another URL")
                what = f"no capture of {printable(url)}{where}"
                self.substitutions.append(f"{what}; this is {other}, which has the same key")
            return chosen
        raise self.nothing(url, redirected=redirected_in is not None)

    def nothing(self, url: str, *, redirected: bool) -> NotArchived:
        crawls = newest_first(self.searched)
        where = crawls[0] if len(crawls) == 1 else f"the {plural(len(crawls), 'crawl')} {crawls[-1]} to {crawls[0]}"
        doubts = f"; the search is incomplete: {join_first([*self.notes])}" if self.notes else ""
        way = "; it is the target of an archived redirect; to get the redirect itself, use follow=False"
        message = f"no capture of {printable(url)} in {where}{way if redirected else ''}{doubts}"
        target = url if redirected else None
        return NotArchived(message, empty=(*newest_first(self.empty),), doubts=(*self.notes,), target=target)

    def captures(
        self, url: str, crawl: str, place: int, at: _Interval | None, *, only_exact: bool
    ) -> Iterator[_Candidate]:
        """Yield the captures of a crawl, of all subsets, that were not visited.

        Raises:
            _Enough: if only exact captures are of use, and the crawl would need approval.
        """
        found = find_captures(self.session, Query.of(url, crawls=crawl, subsets="all", match="exact"))
        found = found.agreed(partial(self.check, crawl=crawl, only_exact=only_exact))
        try:
            rows = rows_of(found.to_arrow())
            self.index_files.update(dict.fromkeys(found.plan.index_files))
        except (NotFound, Forbidden, NotHarvested) as error:  # some crawls have no index
            if len(self.crawls) == 1:
                raise
            self.notes[str(error)] = None
            return
        for row in rows:
            try:
                capture = capture_of(row)
            except BadRecord as error:  # its place is unknown
                self.notes[f"{crawl}: {error}"] = None
                continue
            if (capture.filename, capture.offset) not in self.visited:
                time = round(capture.time.timestamp() * 1000) if capture.time else -inf
                target = row.get("fetch_redirect")
                alike = same_url(url, capture.url or ""), similar_url(url, capture.url or "")
                is_revisit = row.get("content_mime_type") == _REVISIT
                distance, subset = _distance(time, at), row["subset"]
                yield _Candidate(capture, crawl, place, subset, time, target, distance, *alike, is_revisit)
        self.notes.update(dict.fromkeys(found.plan.missing))
        if not (rows or found.plan.missing):
            self.empty.append(crawl)

    def check(self, planned: Priced, crawl: str, *, only_exact: bool) -> None:
        spent, received = self.spent()
        requests = spent + planned.requests + 1
        if requests > self.allowed:
            if only_exact:
                raise _Enough
            size = received + planned.bytes
            searched, empty = tuple(self.searched), tuple(self.empty)
            self.approve(GetEstimate(crawl, searched, spent, requests, size, planned.seconds, empty))
            self.allowed = max(2 * self.allowed, requests)


def _target(found: _Candidate, location: str) -> str:
    try:
        return redirect_target(found.capture.url or "", location)
    except QueryError as error:
        target = printable(location[:200])
        message = f"{found.capture.url} redirects to {target!r}, which is not a valid URL"
        raise NotArchived(f"{message}; to get the redirect itself, use follow=False", target=target) from error


def _distance(time: float, at: _Interval | None) -> float:
    if at is None or at[0] <= time < at[1]:
        return 0
    return min(abs(time - at[0]), abs(time - at[1]))


def _weeks_apart(crawl: str, other: str) -> float:
    weeks = weeks_between(crawl, other)
    return inf if weeks is None else abs(weeks)


def _least_distance(crawl: Crawl, at: _Interval | None) -> float:
    if at is None or crawl.first_fetch is None or crawl.last_fetch is None:
        return 0 if at is None else -inf
    first = crawl.first_fetch.timestamp() * 1000 - _MARGIN
    last = crawl.last_fetch.timestamp() * 1000 + _MARGIN
    return max(0.0, first - at[1], at[0] - last)
