"""Fetch the records of captures in few requests, and check each record."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from catalogue.commoncrawl.capture import Capture
from catalogue.errors import (
    Blocked,
    CatalogueError,
    Forbidden,
    FormatError,
    NotFound,
    SourceError,
    SourceUnavailable,
)
from catalogue.plan.record_requests import RecordFetch
from catalogue.records.parser_process import ParserDied
from catalogue.records.record import Record, read_record
from catalogue.source.checks import Source
from catalogue.source.parallel import map_in_order

_MAX_BYTES_IN_FLIGHT = 128 << 20

_Converted = TypeVar("_Converted")


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A capture whose record could not be fetched or converted."""

    capture: Capture
    reason: str
    permanent: bool
    """Whether a retry would fail with the same reason."""


Member: TypeAlias = tuple[Capture, bytes]
"""A capture and its gzip member, unchecked."""


def fetch_records(
    fetches: Iterable[RecordFetch], source: Source, executor: Executor
) -> Generator[Record | FailedRecord, None, None]:
    """Yield the checked records in the order of the requests.

    Args:
        fetches: the requests.
        source: where the archives are.
        executor: sends requests ahead, up to 128 MiB.

    Raises:
        SourceUnavailable: if the source failed as a whole.
    """
    with closing(fetch_members(fetches, source, executor)) as members:
        for each in members:
            yield each if isinstance(each, FailedRecord) else read_member(each, lambda record: record)


def fetch_members(
    fetches: Iterable[RecordFetch], source: Source, executor: Executor
) -> Generator[Member | FailedRecord, None, None]:
    """Yield the bytes of each capture, unchecked; see ``fetch_records``."""
    with closing(
        map_in_order(
            executor,
            lambda fetch: _fetch(fetch, source),
            fetches,
            limit=_MAX_BYTES_IN_FLIGHT,
            weight=lambda fetch: len(fetch.range),
        )
    ) as results:
        for members in results:
            yield from members


def read_member(member: Member, convert: Callable[[Record], _Converted]) -> _Converted | FailedRecord:
    """Check a record and convert it; an error of this one record becomes a ``FailedRecord``."""
    capture, data = member
    try:
        return convert(read_record(capture, data))
    except FormatError as error:
        # A parser that was killed or took too long may succeed when it is run again.
        return _failed(capture, str(error), permanent=not isinstance(error.__cause__, ParserDied))
    except (CatalogueError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - a record that a format rejects must not stop the others
        return _failed(capture, f"{type(error).__name__}: {str(error)[:300]}", permanent=False)


def _failed(capture: Capture, reason: str, *, permanent: bool) -> FailedRecord:
    return FailedRecord(capture, f"{capture.filename} at {capture.offset:,}: {reason}", permanent)


def _fetch(fetch: RecordFetch, source: Source) -> list[Member | FailedRecord]:
    try:
        body = source.get(fetch.path, fetch.range).body
    except (Blocked, SourceUnavailable):
        raise
    except (NotFound, Forbidden) as error:
        permanent = isinstance(error, NotFound)
        return [FailedRecord(capture, str(error), permanent) for capture in fetch.captures]
    except SourceError as error:
        if len(fetch.captures) > 1:  # a wrong capture must not fail its neighbours
            single = (RecordFetch(fetch.path, capture.range, (capture,)) for capture in fetch.captures)
            return [result for each in single for result in _fetch(each, source)]
        return [FailedRecord(fetch.captures[0], str(error), permanent=False)]
    starts = ((capture, capture.offset - fetch.range.start) for capture in fetch.captures)
    return [(capture, body[start : start + capture.length]) for capture, start in starts]
