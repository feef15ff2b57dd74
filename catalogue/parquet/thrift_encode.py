"""Encode values in Thrift's compact protocol; see ``thrift``."""

from collections.abc import Sequence
from typing import Any, Final

from catalogue.parquet.thrift import BOOLEAN_FALSE, BOOLEAN_TRUE, ThriftError

_STOP: Final = 0
_SMALL_LIST: Final = 15


def encode_struct(fields: Sequence[tuple[int, int, Any]]) -> bytes:
    """Encode a struct from (number, kind, value) in ascending order; None leaves a field out."""
    out = bytearray()
    previous = 0
    for number, kind, value in fields:
        if value is None:
            continue
        shown = (BOOLEAN_TRUE if value else BOOLEAN_FALSE) if kind in {BOOLEAN_TRUE, BOOLEAN_FALSE} else kind
        delta = number - previous
        out += bytes([delta << 4 | shown]) if 0 < delta <= 15 else bytes([shown]) + encode_integer(number)  # noqa: PLR2004
        if shown > BOOLEAN_FALSE:
            out += _encode_value(kind, value)
        previous = number
    out.append(_STOP)
    return bytes(out)


def encode_list(kind: int, values: Sequence[Any]) -> bytes:
    """Encode a list of values of one kind; those of a STRUCT are encoded."""
    count = len(values)
    header = bytes([count << 4 | kind]) if count < _SMALL_LIST else bytes([0xF0 | kind]) + _encode_varint(count)
    return header + b"".join(_encode_value(kind, value) for value in values)


def _encode_value(kind: int, value: Any) -> bytes:  # noqa: ANN401
    match kind:
        case 4 | 5 | 6:
            return encode_integer(value)
        case 8:
            return _encode_varint(len(value)) + bytes(value)
        case 1 | 2:
            return bytes([BOOLEAN_TRUE if value else BOOLEAN_FALSE])
        case 3:
            return int(value).to_bytes(1, signed=True)
        case 9 | 10 | 12:
            return bytes(value)
    message = f"nothing here writes kind {kind}"
    raise ThriftError(message)


def encode_integer(number: int) -> bytes:
    """Encode a value of I16, I32 or I64."""
    return _encode_varint((number << 1) ^ (number >> 63) if number < 0 else number << 1)


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    number &= 0xFFFF_FFFF_FFFF_FFFF
    while number > 0x7F:  # noqa: PLR2004 - the continuation bit
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
