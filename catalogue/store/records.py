"""Rows as SQLite writes them: https://www.sqlite.org/fileformat2.html, section 2.1."""

from collections.abc import Iterator

_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}
"""How many bytes an integer has, by its type; of the last two none, as the type says which."""


def record(data: bytes) -> tuple[object, ...]:
    """The values of a row of a table, or of an entry of an index; what is no integer, text or blob is None.

    Raises:
        IndexError: if it is damaged; or
        ValueError: likewise.
    """
    end, at = varint(data, 0)
    types = []
    while at < end:
        kind, at = varint(data, at)
        types.append(kind)
    return tuple(_values(data, end, types))


def _values(data: bytes, at: int, types: list[int]) -> Iterator[object]:
    for kind in types:
        size = _INTEGERS.get(kind, (kind - 12) // 2 if kind >= 12 else 0)  # noqa: PLR2004 - the first of texts and blobs
        part = data[at : at + size]
        if len(part) < size:
            raise ValueError(kind)
        at += size
        if kind in _INTEGERS:
            yield kind - 8 if kind in {8, 9} else int.from_bytes(part, signed=True)
        elif kind >= 12:  # noqa: PLR2004 - likewise
            yield part.decode() if kind % 2 else part
        else:
            yield None


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to nine bytes, seven bits in each of the first eight; and where it ends.

    Raises:
        IndexError: if it does not.
    """
    value = 0
    for count in range(8):
        byte = data[at + count]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return value, at + count + 1
    return value << 8 | data[at + 8], at + 9
