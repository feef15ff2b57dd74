"""Fetch the records of captures, one by one or into an output, by threads or by workers."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from catalogue.commoncrawl.capture import Capture, capture_of, record_columns
from catalogue.errors import BadRecord, QueryError, warn
from catalogue.output.fetch import (
    EncodedRecord,
    EncodedRecords,
    Fetched,
    FetchEstimate,
    distinct,
    estimate,
    fetch_encoded,
    fetch_into,
    missing,
)
from catalogue.output.formats import FormatSpec
from catalogue.output.open_output import Output, open_format, open_output
from catalogue.progress import Progress
from catalogue.records.fetch_records import FailedRecord, RecordFetch, fetch_records, get_bytes, record_fetches
from catalogue.records.record import Record, read_record
from catalogue.session import Session
from catalogue.settings import Settings, source_roots

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from catalogue.captures import Captures
    from catalogue.read.workers import Done, Workers
    from catalogue.sample import Sample
    from catalogue.source.retry import PoliteSource

_CRAWL = re.compile(r"\b(CC-[A-Za-z0-9-]+|crawl-00[12])/")

_ROWS = 1 << 14
"""Rows of a table that are converted at a time."""
_TASK_BYTES, _TASK_REQUESTS = 16 << 20, 64
"""Approximate size of a worker's task."""
_TASK_MAX_RESULT = 256 << 20
_Records = tuple[list[EncodedRecord | FailedRecord], list[Capture]]
"""Encoded records of a task, and captures left out to keep the result small."""

SomeCaptures: TypeAlias = "Captures | Sample | pa.Table | pd.DataFrame | Iterable[Capture | Mapping[str, Any]]"
"""Captures, a sample, a table, DataFrame or DuckDB relation with columns of the index or a CDX server, or such rows."""


def iterate_records(session: Session, captures: SomeCaptures) -> Iterator[Record]:
    needed = distinct(_captures(session, captures, warn))
    fetches = record_fetches(needed, max_gap=session.cost().max_gap)
    with closing(fetch_records(fetches, session.source, lambda record: record)) as results:
        for result in results:
            if isinstance(result, Record):
                yield result
            else:
                warn(result.reason)


def fetch_record(session: Session, given: "Capture | Mapping[str, Any] | pd.Series[Any]") -> Record:
    is_series = hasattr(given, "get") and getattr(given, "ndim", 0) == 1  # a row of a DataFrame
    if not (isinstance(given, Capture | Mapping) or is_series):
        raise QueryError(f"invalid capture {given!r:.100}; use a row of captures, such as a dict")
    roots = source_roots(session.settings.source)
    capture = given if isinstance(given, Capture) else capture_of(cast("Mapping[str, Any]", given), roots)
    body = get_bytes(session.source, capture, capture.range)
    try:
        return read_record(capture, body)
    except BadRecord as error:
        raise BadRecord(f"{capture.filename} at {capture.offset:,}: {error}") from error


def estimate_fetch(session: Session, captures: SomeCaptures) -> FetchEstimate:
    return estimate(_captures(session, captures, warn), session.cost())


def fetch_to_output(
    session: Session,
    captures: SomeCaptures,
    output: Output,
    spec: FormatSpec,
    *,
    most: int | None = None,
    agree: Callable[[FetchEstimate], None] | None = None,
    report: Callable[[Fetched], None] | None = None,
) -> Fetched:
    unusable: list[str] = []
    if agree and isinstance(captures, Iterator):  # the estimate would take all of it
        captures = [*captures]
    requested = _captures(session, captures, unusable.append)
    count = len(requested) if isinstance(requested, list) else 0
    spec = replace(spec, crawls=_crawls(captures, requested))
    with (
        open_format(spec) as format_,
        open_output(output, format_, spec.identity, most=most, cache=session.settings.cache) as (writer, ledger),
    ):
        workers, source, cost = session.workers, session.source, session.cost()
        if agree:
            known = requested if isinstance(requested, list) else _captures(session, captures, lambda _: None)
            agree(estimate(missing(known, ledger, source.url), cost))

        def fetch(fetches: Iterable[RecordFetch]) -> EncodedRecords:
            if workers:
                return fetch_by_workers(fetches, workers, spec, session.notify)
            return fetch_encoded(fetches, source, format_)

        with session.bars("records") as bar:

            def show(at: Fetched) -> None:
                bar(Progress("fetch", count, at.records, failed=len(at.failed), bytes=at.bytes))

            done = fetch_into(
                writer, ledger, requested, fetch, source=source.url, max_gap=cost.max_gap, report=report or show
            )
        done.files = writer.finish()
    done.unusable = unusable
    return done


def _run(spec: FormatSpec, settings: Settings, max_bytes: int, fetches: tuple[RecordFetch, ...]) -> "Done[_Records]":
    """Fetch and encode in any process, up to ``max_bytes``, unless the first record alone is larger."""
    from catalogue.read.workers import on_worker

    def encode(source: "PoliteSource", *_: object) -> _Records:
        records: list[EncodedRecord | FailedRecord] = []
        room = max_bytes
        with open_format(spec) as format_, closing(fetch_encoded(fetches, source, format_)) as results:
            for each in results:
                if not isinstance(each, FailedRecord):
                    room -= len(each[1])
                if room < 0 and records:
                    break
                records.append(each)
        done = {each.capture if isinstance(each, FailedRecord) else each[0] for each in records}
        return records, [each for fetch in fetches for each in fetch.captures if each not in done]

    return on_worker(settings, encode)


def fetch_by_workers(
    fetches: Iterable[RecordFetch],
    workers: "Workers",
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
            for records, left in done:
                remaining.extend(left)
                yield from records

    yield from results(_batches(fetches))
    alone, remaining = remaining, []
    yield from results((RecordFetch(each.range, (each,)),) for each in alone)


def _batches(fetches: Iterable[RecordFetch]) -> Iterator[tuple[RecordFetch, ...]]:
    batch: list[RecordFetch] = []
    for fetch in fetches:
        batch.append(fetch)
        if len(batch) >= _TASK_REQUESTS or sum(len(each.range) for each in batch) >= _TASK_BYTES:
            yield tuple(batch)
            batch = []
    if batch:
        yield tuple(batch)


def fetch_to_frame(session: Session, captures: SomeCaptures, *, main_content: bool = False) -> "pd.DataFrame":
    import pyarrow.parquet as pq

    from catalogue.output.parquet_format import ROW
    from catalogue.read.dataframes import frame_of

    with TemporaryDirectory() as folder:
        file = Path(folder) / "pages.parquet"
        done = fetch_to_output(session, captures, file, FormatSpec("parquet", main_content))
        for reason in [*done.failed.values(), *done.unusable]:
            warn(reason)
        return frame_of(pq.read_table(file) if done.files else ROW.empty_table())


def _captures(
    session: Session, captures: SomeCaptures, refuse: Callable[[str], None]
) -> list[Capture] | Iterator[Capture]:
    """Return the valid captures; ``refuse`` is called with the reason for each other row.

    Those in memory are sorted by place, so that neighbours share requests.
    """
    found = _usable(_rows(captures), source_roots(session.settings.source), refuse)
    if _answer(captures) is not None or not isinstance(captures, Sized):
        return found
    return sorted(found, key=attrgetter("filename", "offset"))


def _usable(rows: Iterable[object], roots: Sequence[str], refuse: Callable[[str], None]) -> Iterator[Capture]:
    for each in rows:
        if isinstance(each, Capture):
            yield each
            continue
        if not isinstance(each, Mapping):
            raise QueryError(
                f"invalid row {each!r:.100}; use the result of captures(), a table, a DataFrame or a list of rows"
            )
        try:
            yield capture_of(each, roots)
        except BadRecord as error:
            refuse(str(error))


def _crawls(captures: SomeCaptures, found: Iterable[Capture]) -> tuple[str, ...]:
    names: Iterable[str] = ()
    if (answer := _answer(captures)) is not None:
        names = answer.plan.paths
    elif isinstance(found, list):
        names = {each.filename for each in found}
    return tuple(sorted({crawl[1] for name in names if (crawl := _CRAWL.search(name))}))


def _rows(captures: SomeCaptures) -> Iterator[object]:
    frame: Any = captures
    if (answer := _answer(captures)) is not None:
        names = list(record_columns(answer.schema.names).values())
        yield from _rows_of(batch.select(names) for batch in answer.batches())
    elif hasattr(captures, "iloc") and hasattr(captures, "columns"):
        names = list(record_columns(frame.columns).values())
        for start in range(0, len(frame), _ROWS):
            yield from frame[names].iloc[start : start + _ROWS].to_dict("records")
    elif hasattr(captures, "columns") and hasattr(captures, "__arrow_c_stream__"):  # of Arrow, polars or DuckDB
        from pyarrow import RecordBatchReader

        table = RecordBatchReader.from_stream(captures).read_all()
        names = list(record_columns(table.schema.names).values())
        yield from _rows_of(table.select(names).to_batches(_ROWS))
    elif isinstance(captures, Iterable):
        yield from captures
    else:
        yield captures


def _rows_of(batches: "Iterable[pa.RecordBatch]") -> Iterator[object]:
    from catalogue.parquet.arrow_arrays import rows_of

    for batch in batches:
        yield from rows_of(batch)


def _answer(captures: object) -> "Captures | Sample | None":
    return cast("Captures | Sample", captures) if hasattr(type(captures), "plan") else None
