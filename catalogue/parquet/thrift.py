"""Thrift's compact protocol: bounded decoding, and encoding.

The part that Parquet's metadata needs (apache/thrift, doc/specs/thrift-compact-protocol.md). A struct is decoded to a
dict by field number, a map to a list of pairs.
"""

import struct as _struct
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from catalogue.settings import limits

if TYPE_CHECKING:
    from mypy_extensions import i64  # an unboxed int where this is compiled

BOOLEAN_TRUE: Final = 1
BOOLEAN_FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12

MAX_DEPTH = 16
"""Depth of nested structs and containers; Parquet's metadata needs 7."""
_VALUES_OF_ELEMENT: Final = 15
"""Decoded values for each element of the longest list; an element of a page index has at most five."""

Struct = dict[int, Any]

_T = TypeVar("_T", int, bytes, bool, str)

_STOP: Final = 0
_SMALL_LIST: Final = 15
_LONGEST_VARINT: Final = 63
_LONGEST_VARINT_BYTES: Final = 10
_LONGEST_SHIFT: Final = 49
_MAX_FIELD: Final = 1 << 40
"""The specification has 16 bits."""


class ThriftError(ValueError):
    """Invalid input, or more than the limits allow."""


class Reader:
    """Decode values one after another."""

    __slots__ = ("_budget", "data", "kind", "number", "position")

    def __init__(self, data: bytes, position: int = 0, budget: int = 0) -> None:
        self.data = data
        self.position = position
        """Offset of the next byte."""
        self.number = 0
        """Number of the current field; see ``next_field``."""
        self.kind = 0
        """Type of its value."""
        self._budget = budget or _VALUES_OF_ELEMENT * limits().max_elements

    def struct(self, depth: int = 0) -> Struct:
        """Decode a struct.

        Raises:
            ThriftError: if it is invalid or exceeds the limits.
        """
        fields: Struct = {}
        number = 0
        while True:
            header = self._byte()
            if header == _STOP:
                return fields
            kind = header & 0x0F
            number = number + (header >> 4) if header >> 4 else self._zigzag()
            # Nearly all fields are numbers and texts; without calls they take half the time.
            if (I16 <= kind <= I64 or kind == BINARY) and depth < MAX_DEPTH and self._budget > 0:
                self._budget -= 1
                value = self._varint()
                fields[number] = self._take(value) if kind == BINARY else (value >> 1) ^ -(value & 1)
            else:
                fields[number] = self.field(kind, depth + 1)

    def next_field(self, previous: int) -> bool:
        """Decode the header of the field after ``previous``, at first 0; return False at the end of the struct."""
        header = self._byte()
        if header == _STOP:
            return False
        self.number = previous + (header >> 4) if header >> 4 else self._zigzag()
        self.kind = header & 0x0F
        return True

    def next_other_field(self, previous: int, numbers: list[int], first: int = 0) -> bool:
        """Decode integer fields, up to the next field of another kind; False at the end of the struct.

        Integer fields are most of a footer, so they are decoded here without calls. ``previous`` is as in
        ``next_field``. ``numbers`` receives values by field number, from the position ``first`` on; fields beyond its
        end are skipped.
        """
        data = self.data
        position: i64 = self.position
        number: i64 = previous
        base: i64 = first
        most: i64 = len(numbers) - base - 1
        header: i64
        byte: i64
        value: i64
        shift: i64
        try:
            while True:
                header = data[position]
                position += 1
                if header == _STOP:
                    self.position = position
                    return False
                kind = header & 0x0F
                if header > 0x0F:  # noqa: PLR2004 - the upper half is the difference of the field numbers
                    number += header >> 4
                else:
                    self.position = position
                    number = self._field_number()
                    position = self.position
                if kind < I16 or kind > I64:
                    self.position = position
                    self.number = number
                    self.kind = kind
                    return True
                byte = data[position]
                position += 1
                value = byte & 0x7F
                shift = 0
                while byte > 0x7F and shift < _LONGEST_SHIFT:  # noqa: PLR2004 - the continuation bit
                    byte = data[position]
                    position += 1
                    shift += 7
                    value |= (byte & 0x7F) << shift
                if byte > 0x7F:  # noqa: PLR2004
                    self.position = position - shift // 7 - 1
                    long = self._zigzag()
                    position = self.position
                    if 0 < number <= most:
                        numbers[base + number] = long
                elif 0 < number <= most:
                    numbers[base + number] = (value >> 1) ^ -(value & 1)
        except IndexError:
            raise ThriftError(f"cut short at byte {position}") from None

    def _field_number(self) -> int:
        number = self._zigzag()
        if not -_MAX_FIELD <= number <= _MAX_FIELD:
            raise ThriftError(f"a field number of {number} at byte {self.position}")
        return number

    def integer(self) -> int:
        if not I16 <= self.kind <= I64:
            raise ThriftError(f"field {self.number} at byte {self.position} is of type {self.kind} instead of a number")
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def integers(self) -> list[int]:
        kind, count = self.list_header()
        if count and not I16 <= kind <= I64:
            raise ThriftError(f"a list at byte {self.position} has elements of type {kind} instead of numbers")
        start = self.position
        short = self.data[start : start + count]
        if len(short) == count and short.isascii():  # each takes one byte
            self.position = start + count
            return [(number >> 1) ^ -(number & 1) for number in short]
        return [self._zigzag() for _ in range(count)]

    def joined_texts(self) -> bytes:
        kind, count = self.list_header()
        if count and kind != BINARY:
            raise ThriftError(f"a list at byte {self.position} has elements of type {kind} instead of texts")
        return self.binary() if count == 1 else b".".join([self.binary() for _ in range(count)])

    def structs(self) -> int:
        """Decode the header of a list of structs, and return their number; an empty list may be of any type."""
        kind, count = self.list_header()
        if count and kind != STRUCT:
            raise ThriftError(f"a list at byte {self.position} has elements of type {kind} instead of structs")
        return count

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip the value of a struct's field.

        Raises:
            ThriftError: if it is invalid or nested too deeply.
        """
        if depth > MAX_DEPTH:
            raise ThriftError("nested too deeply")
        if kind == STRUCT:
            self._skip_struct(depth)
        elif I16 <= kind <= I64:
            self._varint()
        elif kind == BINARY:
            self._take(self._varint())
        elif kind in (LIST, SET):
            element, count = self.list_header()
            for _ in range(count):
                # A boolean is a byte here, and in a struct its kind.
                self.skip(BYTE if element <= BOOLEAN_FALSE else element, depth + 1)
        elif not BOOLEAN_TRUE <= kind <= BOOLEAN_FALSE:
            self.value(kind, depth)

    def _skip_struct(self, depth: int) -> None:
        data = self.data
        position: i64 = self.position
        start: i64
        header: i64
        try:
            while True:
                header = data[position]
                position += 1
                if header == _STOP:
                    break
                if header <= 0x0F:  # noqa: PLR2004 - the field number follows
                    self.position = position
                    self._field_number()
                    position = self.position
                kind = header & 0x0F
                # Most fields, without calls.
                if I16 <= kind <= I64:
                    start = position
                    while data[position] > 0x7F:  # noqa: PLR2004 - the continuation bit
                        position += 1
                    position += 1
                    if position - start > _LONGEST_VARINT_BYTES:
                        raise ThriftError(f"a number of over 64 bits at byte {start}")
                elif kind == BINARY and data[position] <= 0x7F:  # noqa: PLR2004
                    position += 1 + data[position]  # beyond the end, the next field is missing
                elif kind > BOOLEAN_FALSE or not kind:
                    self.position = position
                    self.skip(kind, depth + 1)
                    position = self.position
        except IndexError:
            raise ThriftError(f"cut short at byte {position}") from None
        self.position = position

    def field(self, kind: int, depth: int = 0) -> Any:  # noqa: ANN401 - the protocol decides
        """Decode a field's value; a boolean is its kind."""
        if BOOLEAN_TRUE <= kind <= BOOLEAN_FALSE:
            self._spend(depth)
            return kind == BOOLEAN_TRUE
        return self.value(kind, depth)

    def value(self, kind: int, depth: int = 0) -> Any:  # noqa: ANN401
        """Decode a value; a boolean is one byte, as in a list."""
        self._spend(depth)
        match kind:
            case 4 | 5 | 6:  # I16 | I32 | I64, written out because a name in a pattern binds
                return self._zigzag()
            case 8:
                return self.binary()
            case 12:
                return self.struct(depth)
            case 9 | 10:
                element, count = self.list_header()
                return [self.value(element, depth + 1) for _ in range(count)]
            case 1 | 2:
                return self._byte() == BOOLEAN_TRUE
            case 3:
                return int.from_bytes(self._take(1), signed=True)
            case 7:
                return _struct.unpack("<d", self._take(8))[0]
            case 11:
                return self._map(depth)
        raise ThriftError(f"unknown kind {kind} at byte {self.position}")

    def list_header(self) -> tuple[int, int]:
        """Decode the kind and the number of a list's elements."""
        header = self._byte()
        count = header >> 4
        if count == _SMALL_LIST:
            count = self._varint()
        if count >= _SMALL_LIST or self.position + count > len(self.data):
            self._check_count(count)
        return header & 0x0F, count

    def _spend(self, depth: int) -> None:
        self._budget -= 1
        if depth > MAX_DEPTH or self._budget < 0:
            raise ThriftError("nested too deeply" if depth > MAX_DEPTH else "too many values")

    def _map(self, depth: int) -> list[tuple[Any, Any]]:
        count = self._varint()
        if not count:
            return []
        self._check_count(count)
        kinds = self._byte()
        return [(self.value(kinds >> 4, depth + 1), self.value(kinds & 0x0F, depth + 1)) for _ in range(count)]

    def _check_count(self, count: int) -> None:
        # Every element takes at least a byte.
        if count > len(self.data) - self.position:
            raise ThriftError(f"a container of {count} elements at byte {self.position}")
        if count > limits().max_elements:
            found = f"a container of {count:,} elements at byte {self.position}"
            raise ThriftError(limits().exceeded("max_elements", found))

    def binary(self) -> bytes:
        return self._take(self._varint())

    def _take(self, length: int) -> bytes:
        start = self.position
        end = start + length
        if end > len(self.data):
            raise ThriftError(f"{length} bytes at byte {start} of {len(self.data)}")
        self.position = end
        return self.data[start:end]

    def _byte(self) -> int:
        try:
            byte = self.data[self.position]
        except IndexError:
            raise ThriftError(f"cut short at byte {self.position}") from None
        self.position += 1
        return byte

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        data = self.data
        position = self.position
        try:
            byte = data[position]
            position += 1
            if byte < 0x80:  # noqa: PLR2004 - the continuation bit; most numbers end here
                self.position = position
                return byte
            number = byte & 0x7F
            shift = 7
            while True:
                byte = data[position]
                position += 1
                number |= (byte & 0x7F) << shift
                if byte < 0x80:  # noqa: PLR2004
                    break
                shift += 7
                if shift > _LONGEST_VARINT:
                    raise ThriftError(f"a number of over 64 bits at byte {self.position}")
        except IndexError:
            raise ThriftError(f"cut short at byte {position}") from None
        self.position = position
        return number & 0xFFFF_FFFF_FFFF_FFFF


def typed(value: object, kind: type[_T]) -> _T:
    """Return a value if it has exactly that type; a file must not decide what is converted."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise TypeError(f"{type(value).__name__} instead of {kind.__name__}")
    return value


def encode_struct(fields: Sequence[tuple[int, int, Any]]) -> bytes:
    """Encode a struct from (number, kind, value) in ascending order; None leaves a field out."""
    out = bytearray()
    previous = 0
    for number, kind, value in fields:
        if value is None:
            continue
        shown = kind if kind > BOOLEAN_FALSE else BOOLEAN_TRUE if value else BOOLEAN_FALSE
        delta = number - previous
        if 0 < delta <= 15:  # noqa: PLR2004
            out.append(delta << 4 | shown)
        else:
            out.append(shown)
            out += _encoded(I64, number)
        if shown > BOOLEAN_FALSE:
            out += _encoded(kind, value)
        previous = number
    out.append(_STOP)
    return bytes(out)


def encode_list(kind: int, values: Sequence[Any]) -> bytes:
    """Encode a list of values of one kind; structs must be encoded already."""
    count = len(values)
    head = bytes([count << 4 | kind]) if count < _SMALL_LIST else bytes([0xF0 | kind]) + encode_varint(count)
    return head + b"".join(map(partial(_encoded, kind), values))


def _encoded(kind: int, value: Any) -> bytes:  # noqa: ANN401
    match kind:
        case 4 | 5 | 6:
            number: int = value
            return encode_varint((number << 1) ^ (number >> 63) if number < 0 else number << 1)
        case 8:
            return encode_varint(len(value)) + bytes(value)
        case 9 | 10 | 12:
            return bytes(value)
        case 1 | 2:
            return bytes([BOOLEAN_TRUE if value else BOOLEAN_FALSE])
        case 3:
            return int(value).to_bytes(1, signed=True)
    raise ThriftError(f"cannot write kind {kind}")


def encode_varint(number: int) -> bytes:
    if 0 <= number <= 0x7F:  # noqa: PLR2004 - most numbers end here
        return bytes((number,))
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - the continuation bit
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
