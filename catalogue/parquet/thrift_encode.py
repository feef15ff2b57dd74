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
        shown = kind
        if kind <= BOOLEAN_FALSE:
            shown = BOOLEAN_TRUE if value else BOOLEAN_FALSE
        delta = number - previous
        if 0 < delta <= 15:  # noqa: PLR2004
            out.append(delta << 4 | shown)
        else:
            out.append(shown)
            _add_integer(out, number)
        if shown > BOOLEAN_FALSE:
            _add_value(out, kind, value)
        previous = number
    out.append(_STOP)
    return bytes(out)


def encode_list(kind: int, values: Sequence[Any]) -> bytes:
    """Encode a list of values of one kind; structs must be encoded already."""
    out = bytearray()
    if len(values) < _SMALL_LIST:
        out.append(len(values) << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _add_varint(out, len(values))
    for value in values:
        _add_value(out, kind, value)
    return bytes(out)


def encode_varint(number: int) -> bytes:
    out = bytearray()
    _add_varint(out, number)
    return bytes(out)


def _add_value(out: bytearray, kind: int, value: Any) -> None:  # noqa: ANN401
    match kind:
        case 4 | 5 | 6:
            _add_integer(out, value)
        case 8:
            _add_varint(out, len(value))
            out += value
        case 1 | 2:
            out.append(BOOLEAN_TRUE if value else BOOLEAN_FALSE)
        case 3:
            out += int(value).to_bytes(1, signed=True)
        case 9 | 10 | 12:
            out += value
        case _:
            raise ThriftError(f"cannot write kind {kind}")


def _add_integer(out: bytearray, number: int) -> None:
    _add_varint(out, (number << 1) ^ (number >> 63) if number < 0 else number << 1)


def _add_varint(out: bytearray, number: int) -> None:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    while number > 0x7F:  # noqa: PLR2004 - the continuation bit
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
