"""Make the footer of a file that consists of row groups of other files, whose pages are copied unchanged."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from catalogue.errors import BadFooter
from catalogue.parquet.thrift import LIST, STRUCT, Reader, ThriftError, encode_integer, encode_list

_Changes: TypeAlias = Mapping[int, "_Changes | None"]
"""Fields that change: those of a struct, or None for an offset in the file."""
_UNCHANGED: Final[_Changes] = {}
# FileMetaData
_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4
_META_DATA: Final[_Changes] = dict.fromkeys((9, 10, 11, 14))
"""Offsets of data pages, index pages, dictionary page and Bloom filter."""
_COLUMN_CHUNK: Final[_Changes] = {2: None, 3: _META_DATA, 4: None, 6: None}
"""Offsets of the chunk, its offset index and its column index."""
_LEFT_OUT: Final[_Changes] = {}
_ROW_GROUP: Final[_Changes] = {1: _COLUMN_CHUNK, 5: None, 7: _LEFT_OUT}
"""Column chunks, offset of the first page, and the number of the row group, which only encryption needs."""


def merge_footers(footers: Sequence[bytes], shifts: Sequence[int]) -> bytes:
    """Return the footer of a file with the row groups of several files, in this order.

    ``footers`` are without length and magic; ``shifts`` are bytes by which each file's pages move.

    Raises:
        BadFooter: if a footer is invalid, or the schemas differ.
    """
    try:
        every = [_Footer(footer, shift) for footer, shift in zip(footers, shifts, strict=True)]
    except (ThriftError, TypeError) as error:
        raise BadFooter(f"the footer of a part is invalid: {error}") from error
    if any(each.schema != every[0].schema for each in every):
        raise BadFooter("the parts have different columns")
    groups = [group for each in every for group in each.row_groups]
    return every[0].with_row_groups(groups, sum(each.num_rows for each in every))


class _Footer:
    def __init__(self, footer: bytes, shift: int) -> None:
        self._data, self._shift = footer, shift
        self._fields: list[tuple[int, bytes, bytes]] = []
        """Number, header and value."""
        self.row_groups: list[bytes] = []
        self.schema, self.num_rows = b"", 0
        reader = Reader(footer)
        start = number = 0
        while reader.next_field(number):
            number, header = reader.number, footer[start : reader.position]
            start = reader.position
            if number == _NUM_ROWS:
                self.num_rows = reader.integer()
            elif number == _ROW_GROUPS:
                self.row_groups = [self._changed(reader, _ROW_GROUP) for _ in range(reader.list_header()[1])]
            else:
                reader.skip(reader.kind)
            value = footer[start : reader.position]
            self.schema = value if number == _SCHEMA else self.schema
            self._fields.append((number, header, value))
            start = reader.position

    def _changed(self, reader: Reader, changes: _Changes) -> bytes:
        out = bytearray()
        number, start = 0, reader.position
        while reader.next_field(number):
            number = reader.number
            within = changes.get(number, _UNCHANGED)
            if within is _LEFT_OUT:  # the last field, so that the number of no other one depends on it
                reader.skip(reader.kind)
            elif within is None:
                out += self._data[start : reader.position]
                offset = reader.integer()
                out += encode_integer(offset + self._shift if offset else 0)  # 0 where a writer does not say
            elif within and reader.kind == LIST:
                count = reader.list_header()[1]
                out += self._data[start : reader.position]
                out += b"".join([self._changed(reader, within) for _ in range(count)])
            elif within and reader.kind == STRUCT:
                out += self._data[start : reader.position]
                out += self._changed(reader, within)
            else:
                reader.skip(reader.kind)
                out += self._data[start : reader.position]
            start = reader.position
        return bytes(out) + self._data[start : reader.position]

    def with_row_groups(self, row_groups: Sequence[bytes], num_rows: int) -> bytes:
        changed = {_NUM_ROWS: encode_integer(num_rows), _ROW_GROUPS: encode_list(STRUCT, row_groups)}
        return b"".join([header + changed.get(number, value) for number, header, value in self._fields]) + b"\0"
