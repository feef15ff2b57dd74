"""Write URL indexes like that of 2012.

A prefix between two blocks is the second URL as far as its first difference, as in the published writer. A prefix of
the level above is either repeated below, as there, or not; readers must accept both.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from catalogue.cdx.url_index_2012 import HEADER_SIZE
from catalogue.source.byte_ranges import ByteRange

Location = tuple[int, int, int, int, int]
"""Segment, date of the file, partition, offset, size."""
Item = tuple[bytes, Location]


def url_key(url: str) -> bytes:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host, colon, port = authority.partition(":")
    return f"{'.'.join(host.split('.')[::-1])}{colon}{port}{slash}{path}:{scheme}".encode()


def data_blocks(items: Sequence[Item], size: int) -> list[list[Item]]:
    blocks: list[list[Item]] = []
    room = 0
    for item in items:
        length = len(item[0]) + 33
        if length > room:
            blocks.append([])
            room = size
        blocks[-1].append(item)
        room -= length
    return blocks


def prefix(last: bytes, first: bytes) -> bytes:
    """Return the prefix between two blocks, of which the last and the first URL are given."""
    same = next((at for at, (one, other) in enumerate(zip(last, first, strict=False)) if one != other), len(last))
    return first[: same + 1]


def index_bytes(items: Sequence[Item], size: int, *, repeats: bool = True) -> bytes:
    """Return the bytes of an index of items in order; ``repeats``: whether prefixes of the level above are repeated."""
    data = data_blocks(items, size)
    prefixes = [prefix(one[-1][0], other[0][0]) for one, other in pairwise(data)]
    levels: list[list[tuple[int, list[bytes]]]] = []
    while True:
        groups, prefixes = level(prefixes, size, repeats=repeats)
        levels.insert(0, groups)
        if len(groups) == 1:
            break
    index_blocks = sum(len(groups) for groups in levels)
    parts = [struct.pack("<II", size, index_blocks)]
    below = 0
    for groups in levels:
        below += len(groups)
        for first, group in groups:
            block = struct.pack("<I", below + first)
            for number, each in enumerate(group, below + first + 1):
                block += each + b"\0" + struct.pack("<I", number)
            parts.append(block.ljust(size, b"\0"))
    blocks = (b"".join(key + b"\0" + struct.pack("<QQIQI", *at) for key, at in entries) for entries in data)
    return b"".join([*parts, *(block.ljust(size, b"\0") for block in blocks)])


def level(prefixes: Sequence[bytes], size: int, *, repeats: bool) -> tuple[list[tuple[int, list[bytes]]], list[bytes]]:
    """Return the blocks of a level, with the number of the first child and prefixes, and the prefixes between."""
    groups: list[tuple[int, list[bytes]]] = [(0, [])]
    up = []
    room = size - 4
    for at, each in enumerate(prefixes):
        if len(each) + 5 > room:
            up.append(each)
            groups.append((at, [each]) if repeats else (at + 1, []))
            room = size - 4 - (len(each) + 5 if repeats else 0)
        else:
            groups[-1][1].append(each)
            room -= len(each) + 5
    return groups, up


def blocks_of(data: bytes) -> Callable[[ByteRange], range]:
    """Return a function from a range of a file to its blocks."""
    size = struct.unpack_from("<I", data)[0]
    return lambda found: range((found.start - HEADER_SIZE) // size, -(-(found.end - HEADER_SIZE) // size))


def write_index(path: Path, items: Sequence[Item], size: int = 1 << 16) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(index_bytes(sorted(items), size))
    return path
