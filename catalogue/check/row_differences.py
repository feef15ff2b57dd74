"""Compare rows of the columnar index and of the CDX index with the same keys."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.formatting import to_json

_Row = dict[str, Any]

_ORDER = ("url_surtkey", "fetch_time", "warc_filename", "warc_record_offset")
"""Columns by which rows are sorted."""
_IDENTITIES = (("subset", "warc_filename", "warc_record_offset"), ("subset", "url_surtkey", "fetch_time"))
"""Columns whose values two rows of the same capture share; the first ones that pair rows count."""
_UNKNOWN: dict[str, tuple[str, ...]] = {
    "content_mime_type": ("", "-", "unk"),
    **dict.fromkeys(("content_digest", "content_mime_detected", "content_charset"), ("", "-")),
    **dict.fromkeys(("content_languages", "content_truncated", "fetch_redirect"), ("", "-")),
}
"""Values of Parquet files, or of lines, that mean the same as null."""
_LONGEST = 200
"""Characters of a value in a message."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A capture whose rows differ, or that one index does not have."""

    subset: str
    key: str
    what: str


def differences(columnar: pa.Table, cdx: pa.Table) -> list[Difference]:
    """Compare rows, in any order.

    Args:
        columnar: rows of the columnar index.
        cdx: rows of the CDX index, with the same columns, among them those of ``_ORDER`` and ``subset``.

    Returns:
        The differences by key. Equal rows count, too: one that an index has twice and the other once is a difference.
    """
    one, other = (_comparable(table) for table in (columnar, cdx))
    if one.equals(other):
        return []
    rows, others = (Counter(zip(*table.to_pydict().values(), strict=True)) for table in (one, other))
    left, right = (
        [dict(zip(one.schema.names, row, strict=True)) for row in more.elements()]
        for more in (rows - others, others - rows)
    )
    found = [_changed(pair) for identity in _IDENTITIES for pair in _pairs(left, right, identity)]
    found += [_missing(row, "CDX") for row in left]
    found += [_missing(row, "columnar") for row in right]
    return sorted(found, key=lambda each: each.key)


def _comparable(table: pa.Table) -> pa.Table:
    for name in _UNKNOWN.keys() & {*table.schema.names}:
        place = table.schema.get_field_index(name)
        column = table.column(place)
        unknown = pc.is_in(column, value_set=pa.array(_UNKNOWN[name], column.type))
        table = table.set_column(place, table.schema.field(place), pc.if_else(unknown, None, column))
    return table.sort_by([(name, "ascending") for name in _ORDER]).combine_chunks()


def _pairs(left: list[_Row], right: list[_Row], identity: Sequence[str]) -> Iterator[tuple[_Row, _Row]]:
    """Remove and yield rows of both sides that have the same identity."""
    waiting: dict[tuple[Any, ...], list[_Row]] = {}
    for row in right:
        waiting.setdefault(tuple(row[name] for name in identity), []).append(row)
    alone = []
    for row in left:
        if partners := waiting.get(tuple(row[name] for name in identity)):
            yield row, partners.pop(0)
        else:
            alone.append(row)
    left[:], right[:] = alone, chain.from_iterable(waiting.values())


def _changed(pair: tuple[_Row, _Row]) -> Difference:
    row, other = pair
    parts = [
        f"{name} is {_text(row[name])} in the columnar index and {_text(other[name])} in the CDX index"
        for name in row
        if row[name] != other[name]
    ]
    return Difference(row["subset"], row["url_surtkey"], "; ".join(parts))


def _missing(row: _Row, index: str) -> Difference:
    place = f"{row['warc_filename']} at byte {row['warc_record_offset']}"
    what = f"missing in the {index} index: the capture of {to_json(row['fetch_time'])} in {place}"
    return Difference(row["subset"], row["url_surtkey"], what)


def _text(value: object) -> str:
    text = "null" if value is None else repr(value) if isinstance(value, str) else str(to_json(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
