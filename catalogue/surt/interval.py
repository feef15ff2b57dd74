"""Half-open intervals of keys, compared byte by byte, as the index is sorted."""

import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

END = b"\xff"
"""Above every key: the byte 0xff never occurs in UTF-8 (RFC 3629, section 1)."""

_SURROGATES, _AFTER_SURROGATES = 0xD800, 0xE000
_start = attrgetter("start")


@dataclass(init=False, slots=True, order=True, unsafe_hash=True)
class KeyInterval:
    """All keys from ``start`` up to ``end``, exclusive. It is not changed; see ``ByteRange``."""

    start: bytes
    end: bytes

    def __init__(self, start: bytes, end: bytes) -> None:
        if not start < end:
            raise ValueError(f"not an interval of keys: {start!r} to {end!r}")
        self.start = start
        self.end = end

    def __reduce__(self) -> tuple[type["KeyInterval"], tuple[bytes, bytes]]:
        return KeyInterval, (self.start, self.end)

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key < self.end


EVERYTHING = KeyInterval(b"", END)


def exact_interval(key: bytes) -> KeyInterval:
    return KeyInterval(key, key + b"\x00")


def prefix_interval(prefix: bytes) -> KeyInterval:
    if not prefix:
        return EVERYTHING
    # A byte 0xff has no next value: the carry goes to the byte before it.
    rest = prefix.rstrip(b"\xff")
    if not rest:
        raise ValueError(f"no key starts with {prefix!r}")
    return KeyInterval(prefix, rest[:-1] + bytes([rest[-1] + 1]))


def shared_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def text_from(key: bytes) -> str:
    """Return a text that is not above ``key``, which may not be valid UTF-8."""
    return key[: _not_text(key)].decode()


def text_after(key: bytes) -> str | None:
    """Return a text that is not below ``key``; None if there is none."""
    cut = _not_text(key)
    if cut is None:
        return key.decode()
    prefix = key[:cut].decode()
    while prefix:
        following = ord(prefix[-1]) + 1
        prefix = prefix[:-1]
        if following <= sys.maxunicode:
            return prefix + chr(_AFTER_SURROGATES if following == _SURROGATES else following)
    return None


def _not_text(key: bytes) -> int | None:
    """Return where a key stops being valid UTF-8; None if it is valid."""
    try:
        key.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def merge(intervals: Iterable[KeyInterval]) -> tuple[KeyInterval, ...]:
    """Return the same keys as disjoint ascending intervals."""
    merged: list[KeyInterval] = []
    for current in sorted(intervals, key=_start):
        if merged and current.start <= merged[-1].end:
            last = merged[-1]
            if last.end < current.end:
                merged[-1] = KeyInterval(last.start, current.end)
        else:
            merged.append(current)
    return tuple(merged)


def intersect(some: Sequence[KeyInterval], others: Sequence[KeyInterval]) -> tuple[KeyInterval, ...]:
    """Return the keys that are in both of two results of ``merge``, in the same form."""
    found, places = [], [0, 0]
    while places[0] < len(some) and places[1] < len(others):
        one, other = some[places[0]], others[places[1]]
        start, end = max(one.start, other.start), min(one.end, other.end)
        if start < end:
            found.append(KeyInterval(start, end))
        places[one.end > other.end] += 1
    return tuple(found)


def covers(intervals: Sequence[KeyInterval], key: bytes) -> bool:
    """Return whether one of the intervals of ``merge`` contains ``key``."""
    place = bisect_right(intervals, key, key=_start)
    return place > 0 and key < intervals[place - 1].end
