"""Byte ranges: half-open everywhere, coalesced by cost, and the only home of ``Range`` and ``Content-Range`` text.

HTTP's ranges include their last byte (RFC 9110, section 14); the one place that knows is this module.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from catalogue.errors import WrongRange

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """Some bytes of a file."""

    start: int
    """Offset of the first byte."""
    end: int
    """Offset after the last byte: exclusive."""

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            message = f"not a byte range: {self.start} to {self.end}"
            raise ValueError(message)

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, other: "ByteRange") -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class SuffixRange:
    """The last bytes of a file whose size need not be known."""

    length: int
    """How many; a shorter file is answered whole."""

    def __post_init__(self) -> None:
        if self.length < 1:
            message = f"not a suffix: {self.length} bytes"
            raise ValueError(message)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """Which version of a file is meant."""

    size: int
    """Bytes of the whole file."""
    etag: str | None
    """As the source gave it; None where it gave none, or where the version is known from another source."""


def range_header(wanted: ByteRange | SuffixRange) -> str:
    """The value of a request's ``Range`` header."""
    match wanted:
        case SuffixRange(length):
            return f"bytes=-{length}"
        case ByteRange(start, end):
            return f"bytes={start}-{end - 1}"


def content_range(given: ByteRange, total: int) -> str:
    """The value of an answer's ``Content-Range`` header for bytes of a file of ``total`` bytes."""
    return f"bytes {given.start}-{given.end - 1}/{total}"


def parse_content_range(text: str | None) -> tuple[ByteRange, int]:
    """An answer's ``Content-Range``, as the bytes it holds and the size of the whole file.

    Raises:
        WrongRange: if there is none, or it is not of the one form that a single range has.
    """
    matched = _CONTENT_RANGE.fullmatch(text or "")
    if not matched:
        message = f"the answer's Content-Range is {text and text[:200]!r}"
        raise WrongRange(message)
    first, last, total = map(int, matched.groups())
    if not first <= last < total:
        message = f"the answer's Content-Range contradicts itself: {text!r}"
        raise WrongRange(message)
    return ByteRange(first, last + 1), total


def resolve(wanted: ByteRange | SuffixRange, total: int) -> ByteRange:
    """The bytes of a file of ``total`` bytes that answer ``wanted``.

    A suffix longer than the file is the whole file; a range that ends behind the file's end does not fit.

    Raises:
        WrongRange: if the range does not lie within the file.
    """
    match wanted:
        case SuffixRange(length):
            if total < 1:
                message = "the file is empty"
                raise WrongRange(message)
            return ByteRange(max(0, total - length), total)
        case ByteRange(start, end):
            if end > total:
                message = f"bytes {start} to {end} were asked of a file of {total} bytes"
                raise WrongRange(message)
            return wanted


def coalesce(ranges: Iterable[ByteRange], *, max_gap: int, max_length: int) -> list[ByteRange]:
    """Merge ranges of one file that are so close that one request is cheaper than two.

    Args:
        ranges: in any order; they may touch or overlap.
        max_gap: bytes between two ranges that are cheaper to read than another request, see ``plan.Cost.max_gap``.
        max_length: ranges that do not overlap are not merged into a longer one; a single longer range stays as it is.

    Returns:
        Disjoint ranges in ascending order that cover every given one.
    """
    merged: list[ByteRange] = []
    for current in sorted(ranges):
        if merged:
            last = merged[-1]
            end = max(last.end, current.end)
            overlaps = current.start < last.end
            if overlaps or (current.start - last.end <= max_gap and end - last.start <= max_length):
                merged[-1] = ByteRange(last.start, end)
                continue
        merged.append(current)
    return merged


def without(ranges: Iterable[ByteRange], taken: Iterable[ByteRange]) -> list[ByteRange]:
    """The parts of some ranges of one file that lie in none of those taken; all of them may overlap."""
    left = list(ranges)
    for each in taken:
        left = [
            ByteRange(start, end)
            for one in left
            for start, end in ((one.start, min(one.end, each.start)), (max(one.start, each.end), one.end))
            if start < end
        ]
    return left
