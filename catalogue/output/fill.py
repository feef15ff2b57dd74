"""An output that is given the records it lacks, and what that takes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import urlsplit

from catalogue.commoncrawl.capture import Capture, format_timestamp
from catalogue.display import Displayed, some
from catalogue.formatting import duration, plural, size
from catalogue.output.fetch import Failed, Made, Making
from catalogue.output.ledger import Ledger, Place
from catalogue.output.open_output import Output
from catalogue.output.targets import digest_of
from catalogue.plan.cost import Cost
from catalogue.plan.record_requests import record_fetches

_SHOWN = 10
"""Hosts that an estimate names when it shows itself."""


@dataclass(frozen=True, slots=True, repr=False)
class FetchEstimate(Displayed):
    """What fetching captures takes."""

    captures: int
    requests: int
    bytes: int
    """What lies between records that are fetched together among them."""
    seconds: float
    """At the rate that the source allows."""
    hosts: dict[str, int]
    """How many captures there are of each host, most first."""

    def _line(self) -> str:
        cost = f"{plural(self.requests, 'request')}, {size(self.bytes)}, about {duration(self.seconds)}"
        return f"of {plural(self.captures, 'capture')}: {cost}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        for host, count in islice(self.hosts.items(), _SHOWN):
            yield host, f"{count:,}"
        if len(self.hosts) > _SHOWN:
            yield "", f"and {len(self.hosts) - _SHOWN:,} more"


def estimate(captures: Iterable[Capture], cost: Cost) -> FetchEstimate:
    """What fetching captures takes; some of them at a time are looked at, as when they are fetched."""
    hosts: Counter[str] = Counter()
    count = requests = size = 0
    for window in _windows(captures):
        hosts.update(_host(each.url) for each in window if each.url)
        for fetch in record_fetches(window, max_gap=cost.max_gap):
            count += len(fetch.captures)
            requests += 1
            size += len(fetch.range)
    return FetchEstimate(
        captures=count,
        requests=requests,
        bytes=size,
        seconds=cost.seconds(requests, size, 1),
        hosts=dict(hosts.most_common()),
    )


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # such as one with half a bracket
        return ""


_WINDOW = 50_000
"""Captures among which those near each other are looked for."""


def _windows(captures: Iterable[Capture]) -> Iterator[list[Capture]]:
    """Some captures at a time, of each place one in that time."""
    waiting = iter(captures)
    while window := each_place(islice(waiting, _WINDOW)):
        yield window


def each_place(captures: Iterable[Capture]) -> list[Capture]:
    """Of captures that name the same place, however they describe it, the first."""
    found: dict[Place, Capture] = {}
    for each in captures:
        found.setdefault((each.filename, each.offset), each)
    return list(found.values())


@dataclass(slots=True, repr=False)
class Fetched(Displayed):
    """How far it is."""

    records: int = 0
    """Requested records in the output, those of earlier runs among them."""
    failed: dict[Place, str] = field(default_factory=dict)
    """Reasons, by archive and offset."""
    unusable: list[str] = field(default_factory=list)
    """Why rows that were given name no record."""
    bytes: int = 0
    """Of the records, as archived, that were fetched now."""
    files: list[str] = field(default_factory=list)
    """Names of those of the output."""
    others: int = 0
    """Records in the output that were not requested now."""

    def _line(self) -> str:
        there = f"in {some(self.files, len(self.files))}" if self.files else "so far"
        others = f" with {self.others:,} of other queries" if self.others else ""
        return f"{plural(self.records, 'record')} {there}{others}; {size(self.bytes)} of them fetched now"

    def _notes(self) -> Iterator[str]:
        yield from (f"not fetched: {reason}" for reason in [*self.failed.values(), *self.unusable])


def fetch_into(
    parts: Output,
    ledger: Ledger,
    captures: Iterable[Capture],
    making: Making,
    *,
    source: str,
    max_gap: int,
    report: Callable[[Fetched], None] = lambda _: None,
) -> Fetched:
    """Fetch what an output lacks. What is in it survives whatever stops this, and the same again goes on from there.

    Args:
        parts: takes the records.
        ledger: of the same output.
        captures: all that the output is to have, each once or oftener.
        making: fetches them and brings them into the form of the output.
        source: its address; what could not be had of one may be there of another.
        max_gap: see ``record_fetches``.
        report: told how far it is, often.

    Returns:
        What is there, and what could not be had.

    Raises:
        SourceUnavailable: if the source failed as a whole.
    """
    progress = Fetched(others=ledger.done)
    seen: set[int] = set()
    """Hashes of places, since a set of places takes several times the memory."""
    for requested in _windows(captures):
        window = [each for each in requested if hash((each.filename, each.offset)) not in seen]
        seen.update(hash((each.filename, each.offset)) for each in window)
        there = sum(map(ledger.is_done, window))
        progress.records, progress.others = progress.records + there, progress.others - there
        for each in window:
            if reason := _answered(each, ledger, source):
                progress.failed.setdefault((each.filename, each.offset), reason)
        wanted = list(lacking(window, ledger, source))
        with closing(making.made(record_fetches(wanted, max_gap=max_gap))) as results:
            _keep(results, parts, progress, source, report)
    return progress


def lacking(captures: Iterable[Capture], ledger: Ledger, source: str) -> Iterator[Capture]:
    """Those that a source is to be asked for, since they are not in the output and there is no lasting reason."""
    return (each for each in captures if not (ledger.is_done(each) or _answered(each, ledger, source)))


def _answered(capture: Capture, ledger: Ledger, source: str) -> str:
    """Why a capture could not be had when the same was asked of the same source; empty if that need not last."""
    reason, asked = ledger.failed.get((capture.filename, capture.offset), ("", ""))
    if not asked or asked != _question(capture, source) or ledger.is_done(capture):
        return ""
    return f"{reason} (as found before; to ask again, choose another output)"


def _question(capture: Capture, source: str) -> str:
    told = (capture.filename, capture.offset, capture.length, capture.url, capture.digest, capture.status)
    return digest_of(f"{source} {told} {format_timestamp(capture.time)}")


def _keep(
    results: Iterable[Made | Failed],
    parts: Output,
    progress: Fetched,
    source: str,
    report: Callable[[Fetched], None],
) -> None:
    failed: list[tuple[Capture, str, str]] = []
    try:
        for result in results:
            if isinstance(result, Made):
                parts.add(result.capture, result.data)
                progress.records += 1
                progress.failed.pop((result.capture.filename, result.capture.offset), None)
                progress.bytes += result.capture.length
            else:
                asked = _question(result.capture, source) if result.lasting else ""
                failed.append((result.capture, result.reason, asked))
                progress.failed[result.capture.filename, result.capture.offset] = result.reason
            report(progress)
    finally:
        parts.make_safe()
        if failed:
            parts.fail(failed)
