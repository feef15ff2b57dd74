"""Half-open intervals of keys, compared byte by byte as the index is sorted."""

import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

END = b"\xff"
"""Above every key: keys are UTF-8, where the byte 0xff never occurs (RFC 3629, section 1)."""

_SURROGATES, _BEHIND_SURROGATES = 0xD800, 0xE000
_start = attrgetter("start")


@dataclass(frozen=True, slots=True, order=True)
class KeyInterval:
    """All keys from ``start`` up to, but without, ``end``."""

    start: bytes
    """The lowest key: inclusive."""
    end: bytes
    """What follows the highest key: exclusive; ``END`` if there is no highest."""

    def __post_init__(self) -> None:
        if not self.start < self.end:
            message = f"not an interval of keys: {self.start!r} to {self.end!r}"
            raise ValueError(message)

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key < self.end


EVERYTHING = KeyInterval(b"", END)
"""Every key there can be."""


def exact_interval(key: bytes) -> KeyInterval:
    """The interval that holds ``key`` alone."""
    return KeyInterval(key, key + b"\x00")


def prefix_interval(prefix: bytes) -> KeyInterval:
    """The interval of all keys that start with ``prefix``; every key if it is empty.

    Raises:
        ValueError: if ``prefix`` is made of bytes 0xff alone, as no key starts so.
    """
    if not prefix:
        return EVERYTHING
    # A byte 0xff has no next value: the carry goes to the byte before it.
    rest = prefix.rstrip(b"\xff")
    if not rest:
        message = f"no key starts with {prefix!r}"
        raise ValueError(message)
    return KeyInterval(prefix, rest[:-1] + bytes([rest[-1] + 1]))


def shared_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """With how many bytes, or characters, two keys begin alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def text_from(key: bytes) -> str:
    """A text that is not greater than ``key``, which need not be one: the end of a prefix's interval is not always."""
    return key[: _not_text(key)].decode()


def text_after(key: bytes) -> str | None:
    """A text that is not less than ``key``, so that every key below that is below this, too; None if there is none."""
    cut = _not_text(key)
    if cut is None:
        return key.decode()
    prefix = key[:cut].decode()
    while prefix:
        following = ord(prefix[-1]) + 1
        prefix = prefix[:-1]
        if following <= sys.maxunicode:
            return prefix + chr(_BEHIND_SURROGATES if following == _SURROGATES else following)
    return None


def _not_text(key: bytes) -> int | None:
    """Where a key stops to be text; None if it does not."""
    try:
        key.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def merge(intervals: Iterable[KeyInterval]) -> tuple[KeyInterval, ...]:
    """The same keys as disjoint intervals in ascending order, those that overlap or touch made one."""
    merged: list[KeyInterval] = []
    for current in sorted(intervals):
        if merged and current.start <= merged[-1].end:
            last = merged[-1]
            if last.end < current.end:
                merged[-1] = KeyInterval(last.start, current.end)
        else:
            merged.append(current)
    return tuple(merged)


def covers(intervals: Sequence[KeyInterval], key: bytes) -> bool:
    """Whether one of the intervals holds ``key``; a binary search.

    Args:
        intervals: disjoint and ascending, as ``merge`` makes them.
        key: of any row.
    """
    place = bisect_right(intervals, key, key=_start)
    return place > 0 and key < intervals[place - 1].end
