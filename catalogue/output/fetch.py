"""Fetch what an output is missing."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias
from urllib.parse import urlsplit

from catalogue.commoncrawl.capture import Capture, format_timestamp
from catalogue.formatting import ReprMixin, duration, join_first, plural, size
from catalogue.output.formats import RecordFormat
from catalogue.output.ledger import Ledger, RecordKey, key_of
from catalogue.output.targets import digest_of
from catalogue.output.writer import RecordWriter
from catalogue.plan.requests import Cost
from catalogue.records.fetch_records import FailedRecord, RecordFetch, fetch_records, record_fetches
from catalogue.records.metadata import failure_of
from catalogue.records.record import Record
from catalogue.source.checks import Source

_WINDOW = 50_000
"""Captures among which neighbours are merged into one request."""
_MAX_HOSTS = 10


@dataclass(frozen=True, slots=True, repr=False)
class FetchEstimate(ReprMixin):
    """Cost of fetching captures."""

    captures: int
    requests: int
    bytes: int
    """Includes gaps between records that are fetched together."""
    seconds: float
    hosts: dict[str, int]
    """Captures by host, most first."""

    def _line(self) -> str:
        cost = f"{plural(self.requests, 'request')}, {size(self.bytes)}, about {duration(self.seconds)}"
        return f"of {plural(self.captures, 'capture')}: {cost}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        for host, count in islice(self.hosts.items(), _MAX_HOSTS):
            yield host, f"{count:,}"
        if len(self.hosts) > _MAX_HOSTS:
            yield "", f"and {len(self.hosts) - _MAX_HOSTS:,} more"


@dataclass(slots=True, repr=False)
class Fetched(ReprMixin):
    """Progress and result of a fetch."""

    records: int = 0
    """Requested records in the output, including those of earlier runs."""
    failed: dict[RecordKey, str] = field(default_factory=dict)
    """Reason by archive and offset."""
    undecoded: dict[RecordKey, str] = field(default_factory=dict)
    """Why payloads or documents in the output cannot be decoded, by archive and offset."""
    unusable: list[str] = field(default_factory=list)
    """Reasons why rows are not captures."""
    bytes: int = 0
    """Bytes that this run fetched."""
    files: list[str] = field(default_factory=list)
    others: int = 0
    """Records of other queries in the output."""

    def _line(self) -> str:
        where = f"in {join_first(self.files)}" if self.files else "so far"
        others = f" with {self.others:,} of other queries" if self.others else ""
        return f"{plural(self.records, 'record')} {where}{others}; {size(self.bytes)} fetched now"

    def _notes(self) -> Iterator[str]:
        yield from (f"not fetched: {reason}" for reason in [*self.failed.values(), *self.unusable])
        yield from (f"not decoded: {reason}" for reason in self.undecoded.values())


def estimate(captures: Iterable[Capture], cost: Cost) -> FetchEstimate:
    hosts: Counter[str] = Counter()
    count = requests = num_bytes = 0
    for window in _windows(captures):
        hosts.update(_host(each.url) for each in window if each.url)
        for fetch in record_fetches(window, max_gap=cost.max_gap):
            count += len(fetch.captures)
            requests += 1
            num_bytes += len(fetch.range)
    seconds = cost.seconds(requests, num_bytes, 1)
    return FetchEstimate(count, requests, num_bytes, seconds, dict(hosts.most_common()))


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # such as one with an unclosed bracket
        return ""


def _windows(captures: Iterable[Capture]) -> Iterator[list[Capture]]:
    waiting = iter(captures)
    while window := distinct(islice(waiting, _WINDOW)):
        yield window


def distinct(captures: Iterable[Capture]) -> list[Capture]:
    """Return the first capture of each record."""
    found: dict[RecordKey, Capture] = {}
    for each in captures:
        found.setdefault(key_of(each), each)
    return list(found.values())


EncodedRecord: TypeAlias = tuple[Capture, bytes, str | None]
"""A record in the format of an output, and why it cannot be decoded, if the format reports that."""
EncodedRecords: TypeAlias = Generator[EncodedRecord | FailedRecord, None, None]


def fetch_encoded(fetches: Iterable[RecordFetch], source: Source, format_: RecordFormat) -> EncodedRecords:
    def encode(record: Record) -> EncodedRecord:
        converted = format_.convert(record)
        error = failure_of(converted) if format_.parses else None
        reason = error and f"{record.capture.filename} at {record.capture.offset:,}: {error}"
        return record.capture, format_.encode(converted), reason

    return fetch_records(fetches, source, encode, parallel=format_.parses)


def fetch_into(
    writer: RecordWriter,
    ledger: Ledger,
    captures: Iterable[Capture],
    fetch: Callable[[Iterable[RecordFetch]], EncodedRecords],
    *,
    source: str,
    max_gap: int,
    report: Callable[[Fetched], None] = lambda _: None,
) -> Fetched:
    """Fetch the records that an output is missing.

    A permanent failure is one of ``source``, an address. ``report`` is called after each record.

    Raises:
        SourceUnavailable: if the source failed as a whole.
    """
    progress = Fetched(others=ledger.num_stored)
    seen: set[int] = set()  # hashes, since keys take several times the memory
    for window in _windows(captures):
        new = [each for each in window if hash(key_of(each)) not in seen]
        seen.update(hash(key_of(each)) for each in new)
        needed = []
        for each in new:
            if ledger.is_stored(each):
                progress.records += 1
                progress.others -= 1
                if stored := ledger.failed.get(key_of(each)):
                    progress.undecoded[key_of(each)] = stored[0]
            elif reason := _known_failure(each, ledger, source):
                progress.failed.setdefault(key_of(each), reason)
            else:
                needed.append(each)
        with closing(fetch(record_fetches(needed, max_gap=max_gap))) as results:
            _write(results, writer, ledger, progress, source, report)
    return progress


def missing(captures: Iterable[Capture], ledger: Ledger, source: str) -> Iterator[Capture]:
    return (each for each in captures if not (ledger.is_stored(each) or _known_failure(each, ledger, source)))


def _known_failure(capture: Capture, ledger: Ledger, source: str) -> str:
    reason, request = ledger.failed.get(key_of(capture), ("", ""))
    if not request or request != _request_digest(capture, source):
        return ""
    return f"{reason} (in an earlier run; to retry, choose another output)"


def _request_digest(capture: Capture, source: str) -> str:
    fields = (capture.filename, capture.offset, capture.length, capture.url, capture.digest, capture.status)
    return digest_of(f"{source} {fields} {format_timestamp(capture.time)}")


def _write(
    results: EncodedRecords,
    writer: RecordWriter,
    ledger: Ledger,
    progress: Fetched,
    source: str,
    report: Callable[[Fetched], None],
) -> None:
    failed: list[tuple[Capture, str, str]] = []
    try:
        for result in results:
            if isinstance(result, FailedRecord):
                request = _request_digest(result.capture, source) if result.permanent else ""
                failed.append((result.capture, result.reason, request))
                progress.failed[key_of(result.capture)] = result.reason
            else:
                capture, data, coding_error = result
                writer.add(capture, data)
                progress.records += 1
                progress.failed.pop(key_of(capture), None)
                progress.bytes += capture.length
                if coding_error:
                    failed.append((capture, coding_error, ""))
                    progress.undecoded[key_of(capture)] = coding_error
            report(progress)
    finally:
        writer.sync()
        if failed:
            ledger.add_failed(failed)
