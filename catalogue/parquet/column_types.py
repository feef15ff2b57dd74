"""Column types as words, for columns that are not in a dataset's schema.

``int64``, ``uint64``, ``double``, ``bool``, ``string``, ``binary``, ``date``, ``decimal(precision,scale)``,
``timestamp(unit)``, ``timestamp(unit,utc)``, ``null`` and ``nested``. Narrow numbers are widened, since files of one
dataset differ (apache/parquet-format, LogicalTypes.md).
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from catalogue.parquet.model import Column
from catalogue.parquet.thrift import Reader, Struct

if TYPE_CHECKING:
    import pyarrow as pa

NESTED = "nested"
_NULL = "null"

_DECIMAL, _DATE, _TIME, _TIMESTAMP, _INTEGER, _UNKNOWN, _FLOAT16 = 5, 6, 7, 8, 10, 11, 15
"""Fields of ``LogicalType``; the first two have the same numbers as ``ConvertedType``."""
_TEXTS, _CONVERTED_TEXTS = {1, 4, 12}, {0, 4, 19}
"""STRING, ENUM and JSON."""
_CONVERTED_TIMES, _CONVERTED_MILLIS, _CONVERTED_MICROS = {7, 8}, 9, 10
_CONVERTED_UINT_64 = 14
_UNITS = {1: "ms", 2: "us", 3: "ns"}
_WHOLE = {"int64", "uint64"}
_PARAMETERS = re.compile(r"(decimal|timestamp)\((\w+)(?:,(\w+))?\)")
_MOST_DIGITS = 38


@lru_cache(1024)  # the files of a crawl have the same columns
def kind_of(column: Column) -> str:
    if not column.flat:
        return NESTED
    element: Struct = Reader(column.element).struct()
    logical, converted = _struct(element.get(10)), column.converted_type
    if _UNKNOWN in logical:
        return _NULL
    match column.physical_type:
        case "BOOLEAN":
            return "bool"
        case "FLOAT" | "DOUBLE":
            return "double"
        case "INT96":
            return "timestamp(ms)"  # as it is decoded here
    if _DECIMAL in logical or converted == _DECIMAL:
        logical_type = _struct(logical.get(_DECIMAL))
        scale, precision = logical_type.get(1, element.get(7, 0)), logical_type.get(2, element.get(8, 0))
        if not (isinstance(scale, int) and isinstance(precision, int)):
            return "string"
        return f"decimal({precision},{scale})" if 0 <= scale <= precision <= _MOST_DIGITS and precision else "string"
    if column.physical_type in {"INT32", "INT64"}:
        return _of_integers(column, logical)
    if _FLOAT16 in logical:
        return "double"
    is_text = bool(_TEXTS & logical.keys()) or converted in _CONVERTED_TEXTS
    return "string" if is_text else "binary"


def _of_integers(column: Column, logical: Struct) -> str:
    converted = column.converted_type
    if _TIMESTAMP in logical or converted in {_CONVERTED_MILLIS, _CONVERTED_MICROS}:
        unit = _UNITS.get(column.timestamp_unit or 0) or ("us" if converted == _CONVERTED_MICROS else "ms")
        # Where only the older way is used, an instant is meant.
        return f"timestamp({unit},utc)" if column.utc or _TIMESTAMP not in logical else f"timestamp({unit})"
    if _DATE in logical or converted == _DATE:
        return "date"
    if _TIME in logical or converted in _CONVERTED_TIMES:
        return "string"
    logical_type = _struct(logical.get(_INTEGER))
    is_wide = logical_type.get(1) == 64 and not logical_type.get(2, False)  # noqa: PLR2004 - bits
    return "uint64" if converted == _CONVERTED_UINT_64 or is_wide else "int64"


def _struct(value: object) -> Struct:
    return value if isinstance(value, dict) else {}


def wider(one: str, other: str) -> str:
    """Return a type for the values of both, text if necessary."""
    if one == other:
        return one
    both = {one, other}
    if NESTED in both:
        return NESTED
    if _NULL in both:
        return other if one == _NULL else one
    if both == _WHOLE:
        return "decimal(20,0)"
    if both <= _WHOLE | {"double"}:
        return "double"
    if both == {"string", "binary"}:
        return "binary"
    first, second = _PARAMETERS.fullmatch(one), _PARAMETERS.fullmatch(other)
    if first and second and first[1] == second[1]:
        if first[1] == "timestamp":
            if first[3] == second[3]:
                units = list(_UNITS.values())
                unit = max(first[2], second[2], key=units.index)
                return f"timestamp({unit},{first[3]})" if first[3] else f"timestamp({unit})"
            return "string"
        scale = max(int(first[3]), int(second[3]))
        digits = max(int(each[2]) - int(each[3]) for each in (first, second))
        return f"decimal({digits + scale},{scale})" if digits + scale <= _MOST_DIGITS else "string"
    return "string"


def arrow_type(kind: str) -> "pa.DataType":
    """Return the Arrow type of a word, text if unknown."""
    import pyarrow as pa

    plain = {
        "int64": pa.int64(),
        "uint64": pa.uint64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        "binary": pa.binary(),
        "date": pa.date32(),
    }
    if kind in plain:
        return plain[kind]
    if matched := _PARAMETERS.fullmatch(kind):
        if matched[1] == "timestamp":
            return pa.timestamp(matched[2], "UTC" if matched[3] else None)
        return pa.decimal128(int(matched[2]), int(matched[3]))
    return pa.string()
