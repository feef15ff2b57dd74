"""Captures → their records, fetched, checked, and kept."""

import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import urlsplit

from catalogue.capture import Capture
from catalogue.errors import BadRecord, Blocked, Denied, FormatError, GivenUp, Missing, SourceError
from catalogue.outputs import Ledger, Output
from catalogue.plan import Cost, RecordFetch, record_fetches
from catalogue.record import Record, read_record
from catalogue.source import Source

_IN_FLIGHT = 128 << 20
"""Bytes that are asked for or waiting to be taken at most; a larger single fetch goes alone."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A capture whose record could not be had."""

    capture: Capture
    reason: str
    lasting: bool
    """Whether another try would fail as well."""


def fetch_records(
    fetches: Iterable[RecordFetch], source: Source, executor: Executor
) -> Generator[Record | Failed, None, None]:
    """The records of captures, or why there is none, in the order of the requests.

    Args:
        fetches: what to ask for.
        source: where the archives are.
        executor: makes requests, and checks records, ahead of what is taken.

    Raises:
        GivenUp: if the source failed as a whole; what was not handed out yet was not fetched.
    """
    waiting = iter(fetches)
    under_way: deque[tuple[Future[list[Record | Failed]], int]] = deque()
    in_flight = 0
    following = next(waiting, None)
    try:
        while following or under_way:
            while following and (not under_way or in_flight + len(following.range) <= _IN_FLIGHT):
                under_way.append((executor.submit(fetch_one, following, source), len(following.range)))
                in_flight += len(following.range)
                following = next(waiting, None)
            future, size = under_way.popleft()
            yield from future.result()
            in_flight -= size
    finally:
        for future, _ in under_way:
            future.cancel()


def fetch_one(fetch: RecordFetch, source: Source) -> list[Record | Failed]:
    """The records of one request, or why there are none.

    Raises:
        GivenUp: if the source failed as a whole.
    """
    try:
        body = source.get(fetch.path, fetch.range).body
    except (Blocked, GivenUp):
        raise
    except (Missing, Denied) as error:
        return [Failed(capture, str(error), lasting=True) for capture in fetch.captures]
    except SourceError as error:
        if len(fetch.captures) > 1:  # one that is wrong must not spoil its neighbours
            alone = (RecordFetch(fetch.path, capture.range, (capture,)) for capture in fetch.captures)
            return [result for each in alone for result in fetch_one(each, source)]
        return [Failed(fetch.captures[0], str(error), lasting=False)]
    start = fetch.range.start
    return [_checked(capture, body[capture.offset - start :][: capture.length]) for capture in fetch.captures]


def _checked(capture: Capture, member: bytes) -> Record | Failed:
    try:
        return read_record(capture, member)
    except BadRecord as error:
        place = f"{capture.filename} at {capture.offset:,}"
        return Failed(capture, f"{place}: {error}", lasting=True)


@dataclass(frozen=True, slots=True)
class FetchEstimate:
    """What fetching captures takes."""

    captures: int
    requests: int
    bytes: int
    """What lies between records that are fetched together among them."""
    seconds: float
    """At the rate that the source allows."""
    hosts: dict[str, int]
    """How many captures there are of each host, most first."""


def estimate(captures: Sequence[Capture], cost: Cost) -> FetchEstimate:
    """What fetching captures takes."""
    fetches = list(record_fetches(dict.fromkeys(captures), max_gap=cost.max_gap))
    size = sum(len(fetch.range) for fetch in fetches)
    hosts = Counter(urlsplit(each.url).hostname or "" for each in captures if each.url)
    return FetchEstimate(
        captures=sum(len(fetch.captures) for fetch in fetches),
        requests=len(fetches),
        bytes=size,
        seconds=cost.seconds(len(fetches), size, 1),
        hosts=dict(hosts.most_common()),
    )


_FORMING = 64
"""Records that are being brought into their form at once."""
_WINDOW = 50_000
"""Captures among which those near each other are looked for."""


@dataclass(slots=True)
class Fetched:
    """How far it is."""

    records: int = 0
    """In the output, those of earlier runs among them."""
    failed: dict[tuple[str, int], str] = field(default_factory=dict)
    """Reasons, by archive and offset."""
    unusable: list[str] = field(default_factory=list)
    """Why rows that were given name no record."""
    bytes: int = 0
    """Of the records, as archived, that were fetched now."""
    files: list[str] = field(default_factory=list)
    """Names of those of the output."""


def fetch_into(
    parts: Output,
    ledger: Ledger,
    captures: Iterable[Capture],
    source: Source,
    *,
    max_gap: int,
    report: Callable[[Fetched], None] = lambda _: None,
) -> Fetched:
    """Fetch what an output lacks. What is in it survives whatever stops this, and the same again goes on from there.

    Args:
        parts: takes the records.
        ledger: of the same output.
        captures: all that the output is to have, each once or oftener.
        source: where the archives are.
        max_gap: see ``record_fetches``.
        report: told how far it is, often.

    Returns:
        What is there, and what could not be had.

    Raises:
        GivenUp: if the source failed as a whole.
    """
    progress = Fetched(ledger.done)
    executor = ThreadPoolExecutor(source.connections, thread_name_prefix="fetch")
    forming = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="form")
    waiting = iter(captures)
    try:
        while window := list(islice(waiting, _WINDOW)):
            lacking = dict.fromkeys(each for each in window if not _settled(each, ledger, progress))
            fetches = record_fetches(lacking, max_gap=max_gap)
            with closing(fetch_records(fetches, source, executor)) as results:
                _keep(_formed(results, parts, forming), parts, progress, report)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        forming.shutdown(wait=False, cancel_futures=True)
    return progress


def _settled(capture: Capture, ledger: Ledger, progress: Fetched) -> bool:
    place = (capture.filename, capture.offset)
    reason, lasting = ledger.failed.get(place, ("", False))
    if lasting:
        progress.failed[place] = reason
    return lasting or ledger.is_done(capture)


def _formed(
    results: Iterable[Record | Failed], parts: Output, executor: Executor
) -> Iterator[tuple[Record, bytes] | Failed]:
    """Records as they are to be written, in their order; some are in the making ahead of what is taken."""
    under_way: deque[Future[tuple[Record, bytes] | Failed]] = deque()

    def form(result: Record | Failed) -> tuple[Record, bytes] | Failed:
        if isinstance(result, Failed):
            return result
        try:
            return result, parts.form.add(result)
        except FormatError as error:
            place = f"{result.capture.filename} at {result.capture.offset:,}"
            return Failed(result.capture, f"{place}: {error}", lasting=True)

    for result in results:
        under_way.append(executor.submit(form, result))
        if len(under_way) > _FORMING:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _keep(
    results: Iterable[tuple[Record, bytes] | Failed],
    parts: Output,
    progress: Fetched,
    report: Callable[[Fetched], None],
) -> None:
    failed: list[tuple[Capture, str, bool]] = []
    try:
        for result in results:
            if not isinstance(result, Failed):
                record, data = result
                parts.add(record, data)
                progress.records += 1
                progress.bytes += len(record.member)
            else:
                failed.append((result.capture, result.reason, result.lasting))
                progress.failed[result.capture.filename, result.capture.offset] = result.reason
            report(progress)
    finally:
        parts.make_safe()
        if failed:
            parts.fail(failed)
