"""Fetch and encode records by workers."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial

from catalogue.commoncrawl.capture import Capture
from catalogue.errors import FormatError, SourceError
from catalogue.output.fetch import EncodedRecord, EncodedRecords, fetch_encoded
from catalogue.output.formats import FormatSpec
from catalogue.output.open_output import open_format
from catalogue.plan.requests import RecordFetch
from catalogue.read.workers import Done, Workers, on_worker
from catalogue.records.fetch_records import FailedRecord
from catalogue.settings import Settings
from catalogue.source.retry import PoliteSource

_TASK_BYTES, _TASK_REQUESTS = 16 << 20, 64
"""Approximate size of a worker's task."""
_TASK_MAX_RESULT = 256 << 20


_Records = tuple[list[EncodedRecord | FailedRecord], list[Capture]]
"""Encoded records of a task, and captures left out to keep the result small."""


def _run(spec: FormatSpec, settings: Settings, max_bytes: int, fetches: tuple[RecordFetch, ...]) -> Done[_Records]:
    """Fetch and encode in any process, up to ``max_bytes``, unless the first record alone is larger."""

    def encode(source: PoliteSource, *_: object) -> _Records:
        records: list[EncodedRecord | FailedRecord] = []
        room = max_bytes
        with open_format(spec) as format_, closing(fetch_encoded(fetches, source, format_)) as results:
            for each in results:
                if isinstance(each, EncodedRecord):
                    room -= len(each.data)
                if room < 0 and records:
                    break
                records.append(each)
        done = {each.capture for each in records}
        return records, [each for fetch in fetches for each in fetch.captures if each not in done]

    return on_worker(settings, encode)


def fetch_by_workers(
    fetches: Iterable[RecordFetch],
    workers: Workers,
    spec: FormatSpec,
    notify: Callable[[str], None],
    *,
    max_bytes: int = _TASK_MAX_RESULT,
) -> EncodedRecords:
    """Fetch by workers, each with its share of the rate limit.

    Captures beyond ``max_bytes`` of a task's result are fetched one by one at the end.

    Raises:
        SourceUnavailable: if the source failed as a whole.
        WorkersLost: see ``Workers.results``.
    """
    remaining: list[Capture] = []
    run = partial(_run, spec, workers.settings, max_bytes)

    def results(batches: Iterable[tuple[RecordFetch, ...]]) -> EncodedRecords:
        with closing(workers.results(batches, notify, do=run)) as done:
            for result in done:
                if isinstance(result, SourceError | FormatError):
                    raise result
                records, left = result
                remaining.extend(left)
                yield from records

    yield from results(_batches(fetches))
    alone, remaining = remaining, []
    yield from results((RecordFetch(each.filename, each.range, (each,)),) for each in alone)


def _batches(fetches: Iterable[RecordFetch]) -> Iterator[tuple[RecordFetch, ...]]:
    batch: list[RecordFetch] = []
    for fetch in fetches:
        batch.append(fetch)
        if len(batch) >= _TASK_REQUESTS or sum(len(each.range) for each in batch) >= _TASK_BYTES:
            yield tuple(batch)
            batch = []
    if batch:
        yield tuple(batch)
