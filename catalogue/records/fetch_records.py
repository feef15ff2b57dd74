"""Fetch the records of captures in few requests."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeVar

from catalogue.commoncrawl.capture import Capture
from catalogue.errors import (
    BadDocument,
    BadManifest,
    Blocked,
    CatalogueError,
    Forbidden,
    FormatError,
    NotFound,
    SourceError,
    SourceUnavailable,
)
from catalogue.plan.requests import MAX_FETCH
from catalogue.records.record import Record, read_record
from catalogue.source.byte_ranges import ByteRange, coalesce
from catalogue.source.checks import Source
from catalogue.source.parallel import run_ahead

_MAX_BYTES_IN_FLIGHT = 128 << 20

_Converted = TypeVar("_Converted")
_filename, _place = attrgetter("filename"), attrgetter("filename", "offset", "length")


class RecordFetch(NamedTuple):
    """One request for records of one archive."""

    range: ByteRange
    captures: tuple[Capture, ...]
    """Captures by offset; bytes between their records are dropped."""


def record_fetches(captures: Iterable[Capture], *, max_gap: int) -> Iterator[RecordFetch]:
    """Return the requests for records, by archive and offset; near records share one."""
    for _, group in groupby(sorted(captures, key=_place), key=_filename):
        waiting = list(group)
        at = 0
        for run in coalesce((each.range for each in waiting), max_gap=max_gap, max_length=MAX_FETCH):
            first = at
            while at < len(waiting) and waiting[at].range in run:
                at += 1
            yield RecordFetch(run, tuple(waiting[first:at]))


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A capture whose record could not be fetched or converted."""

    capture: Capture
    reason: str
    permanent: bool
    """Whether a retry would fail, too."""


def fetch_records(
    fetches: Iterable[RecordFetch], source: Source, convert: Callable[[Record], _Converted], *, parallel: bool = False
) -> Generator[_Converted | FailedRecord, None, None]:
    """Yield the checked and converted records in the order of the requests; threads work ahead, in bounded memory.

    ``parallel`` converts in a thread for each core, which is worth it if conversion takes much longer than to inflate
    and check a record.

    Raises:
        SourceUnavailable: if the source failed as a whole.
    """

    def read(member: tuple[Capture, bytes] | FailedRecord) -> _Converted | FailedRecord:
        return member if isinstance(member, FailedRecord) else _read(*member, convert, source)

    fetching = run_ahead(
        source.connections,
        lambda fetch: _fetch(fetch, source),
        fetches,
        limit=_MAX_BYTES_IN_FLIGHT,
        weight=lambda fetch: len(fetch.range),
    )
    with closing(fetching):
        members = (member for _, call in fetching for member in call.result())
        if not parallel:
            yield from map(read, members)
            return
        # Two are converted ahead for each core; each may take 256 MB.
        with closing(run_ahead(os.cpu_count() or 1, read, members)) as converting:
            for _, call in converting:
                yield call.result()


def get_bytes(source: Source, capture: Capture, place: ByteRange) -> bytes:
    """Request a range of an archive, also in the folder that only old sources have."""
    try:
        return source.get(capture.filename, place).body
    except NotFound:
        if not capture.old_folder:
            raise
        return source.get(f"{capture.old_folder}{capture.filename}", place).body


def _read(
    capture: Capture, member: bytes, convert: Callable[[Record], _Converted], source: Source | None
) -> _Converted | FailedRecord:
    try:
        return convert(read_record(capture, member))
    except FormatError as error:
        if source and isinstance(error.__cause__, BadManifest):  # the response may be damaged
            (again,) = _fetch(RecordFetch(capture.range, (capture,)), source)
            return again if isinstance(again, FailedRecord) else _read(*again, convert, None)
        return _failed(capture, str(error), permanent=not isinstance(error, BadDocument) or error.permanent)
    except (CatalogueError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - a record that a format rejects must not stop the others
        return _failed(capture, f"{type(error).__name__}: {str(error)[:300]}", permanent=False)


def _failed(capture: Capture, reason: str, *, permanent: bool) -> FailedRecord:
    return FailedRecord(capture, f"{capture.filename} at {capture.offset:,}: {reason}", permanent)


def _fetch(fetch: RecordFetch, source: Source) -> list[tuple[Capture, bytes] | FailedRecord]:
    try:
        body = get_bytes(source, fetch.captures[0], fetch.range)
    except (Blocked, SourceUnavailable):
        raise
    except (NotFound, Forbidden) as error:
        permanent = isinstance(error, NotFound)
        return [FailedRecord(capture, str(error), permanent) for capture in fetch.captures]
    except SourceError as error:
        if len(fetch.captures) > 1:  # a wrong capture must not fail its neighbours
            single = (RecordFetch(capture.range, (capture,)) for capture in fetch.captures)
            return [result for each in single for result in _fetch(each, source)]
        return [FailedRecord(fetch.captures[0], str(error), permanent=False)]
    starts = ((capture, capture.offset - fetch.range.start) for capture in fetch.captures)
    return [(capture, body[start : start + capture.length]) for capture, start in starts]
