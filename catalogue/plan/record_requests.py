"""Plan the requests for the records of captures."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from catalogue.commoncrawl.capture import Capture
from catalogue.plan.requests import MAX_FETCH
from catalogue.source.byte_ranges import ByteRange, coalesce

_filename, _place = attrgetter("filename"), attrgetter("filename", "offset", "length")


@dataclass(frozen=True, slots=True)
class RecordFetch:
    """One request for records of one archive."""

    path: str
    range: ByteRange
    captures: tuple[Capture, ...]
    """Captures by offset; bytes between their records are dropped."""


def record_fetches(captures: Iterable[Capture], *, max_gap: int) -> Iterator[RecordFetch]:
    """Return the requests for records, by archive and offset; near records share one."""
    for path, group in groupby(sorted(captures, key=_place), key=_filename):
        waiting = list(group)
        at = 0
        for run in coalesce((each.range for each in waiting), max_gap=max_gap, max_length=MAX_FETCH):
            first = at
            while at < len(waiting) and waiting[at].range in run:
                at += 1
            yield RecordFetch(path, run, tuple(waiting[first:at]))
