"""Byte ranges: half-open in this package, converted to and from HTTP's inclusive ones here (RFC 9110, section 14)."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, TypeVar

from catalogue.errors import WrongRange

_Item = TypeVar("_Item")
_CONTENT_RANGE = re.compile(r"bytes\s+([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)\s*", re.IGNORECASE)


@dataclass(init=False, slots=True, order=True, unsafe_hash=True)
class ByteRange:
    """A range of bytes of a file; it is not changed. A frozen class takes twice as long to make."""

    start: int
    end: int
    """This offset is exclusive."""

    def __init__(self, start: int, end: int) -> None:
        if not 0 <= start < end:
            raise ValueError(f"invalid byte range: {start} to {end}")
        self.start = start
        self.end = end

    def __reduce__(self) -> tuple[type["ByteRange"], tuple[int, int]]:  # without it, a compiled one cannot be pickled
        return ByteRange, (self.start, self.end)

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, other: "ByteRange") -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class SuffixRange:
    """The last bytes of a file of unknown size."""

    length: int
    """Number of bytes; a shorter file is returned completely."""

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"invalid suffix length: {self.length}")

    def __reduce__(self) -> tuple[type["SuffixRange"], tuple[int]]:
        return SuffixRange, (self.length,)


class FileVersion(NamedTuple):
    """The version of a file that a request expects."""

    size: int
    etag: str | None
    """None if the source sent none."""
    origin: str | None = None
    """URL of the source to which the ETag belongs; None for the one that is requested."""


def range_header(requested: ByteRange | SuffixRange) -> str:
    match requested:
        case SuffixRange(length):
            return f"bytes=-{length}"
        case ByteRange(start, end):
            return f"bytes={start}-{end - 1}"


def content_range(part: ByteRange, total: int) -> str:
    """Return the ``Content-Range`` of a part of a file of ``total`` bytes."""
    return f"bytes {part.start}-{part.end - 1}/{total}"


def parse_content_range(text: str | None) -> tuple[ByteRange, int]:
    """Return the range and the file size of a ``Content-Range``; 0 for ``*``, an unknown size.

    Raises:
        WrongRange: if it is missing or not of a single range.
    """
    matched = _CONTENT_RANGE.fullmatch(text or "")
    if not matched:
        raise WrongRange(f"the response's Content-Range is {text and text[:200]!r}")
    first, last = int(matched[1]), int(matched[2])
    total = 0 if matched[3] == "*" else int(matched[3])
    if not (first <= last and (last < total or matched[3] == "*")):
        raise WrongRange(f"the response's Content-Range is contradictory: {text!r}")
    return ByteRange(first, last + 1), total


def resolve(requested: ByteRange | SuffixRange, total: int) -> ByteRange:
    """Return the range of a correct response; a suffix longer than the file is the complete file.

    Raises:
        WrongRange: if a range is not inside the file.
    """
    match requested:
        case SuffixRange(length):
            return ByteRange(max(0, total - length), total)
        case ByteRange(start, end):
            if end > total:
                raise WrongRange(f"requested bytes {start} to {end} of a file of {total} bytes")
            return requested


def coalesce(ranges: Iterable[ByteRange], *, max_gap: int, max_length: int) -> list[ByteRange]:
    """Merge ranges; see ``merged_by``."""
    return [run for run, _ in merged_by(lambda each: each, ranges, max_gap=max_gap, max_length=max_length)]


def merged_by(
    range_of: Callable[[_Item], ByteRange], items: Iterable[_Item], *, max_gap: int, max_length: int
) -> list[tuple[ByteRange, list[_Item]]]:
    """Merge ranges of one file where one request costs less than two; return disjoint ascending ones with their items.

    ``max_gap`` bytes cost less than a request, see ``Cost.max_gap``. Overlapping ranges, and those longer than
    ``max_length``, are not split.
    """
    merged: list[tuple[ByteRange, list[_Item]]] = []
    for item in sorted(items, key=range_of):
        current = range_of(item)
        if merged:
            last, together = merged[-1]
            end = max(last.end, current.end)
            overlaps = current.start < last.end
            if overlaps or (current.start - last.end <= max_gap and end - last.start <= max_length):
                merged[-1] = ByteRange(last.start, end), together
                together.append(item)
                continue
        merged.append((current, [item]))
    return merged


def divided(range_: ByteRange, others: Sequence[ByteRange]) -> Iterator[tuple[ByteRange, ByteRange | None]]:
    """Divide a range by disjoint ascending ones; yield each piece with the one that it is in, or None."""
    at = range_.start
    for each in others[bisect_right(others, range_.start, key=attrgetter("end")) :]:
        if each.start >= range_.end:
            break
        if at < each.start:
            yield ByteRange(at, each.start), None
        end = min(each.end, range_.end)
        yield ByteRange(max(at, each.start), end), each
        at = end
    if at < range_.end:
        yield ByteRange(at, range_.end), None
