"""Statistics of index files for table formats: bounds of keys, and one schema for all files.

DuckLake and Iceberg compare text by bytes. A missing bound means unknown.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa

from catalogue.commoncrawl.schema import SCHEMA
from catalogue.parquet.column_types import NESTED, arrow_type, wider
from catalogue.surt import shared_prefix

_SORTED_SINCE = (2022, 27)
"""Year and week of the first crawl written after rows were sorted within each file, on 25 May 2022
(commoncrawl/cc-index-table, commit c3cd533); before, two sorted streams were zipped.
"""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """An index file as table formats describe it."""

    path: str
    crawl: str
    subset: str
    file_size: int
    footer_size: int
    """Without length and magic."""
    num_rows: int
    column_names: tuple[str, ...]
    """In the order of the file, without crawl and subset."""
    column_kinds: tuple[str, ...]
    """See ``catalogue.parquet.column_types``."""
    utc_times: bool
    """Whether ``fetch_time`` is declared an instant. In crawls until 2021-43 it is not, but is UTC all the same."""
    min_key: str | None
    """Lower bound of the keys, compared by bytes; None if unknown."""
    max_key: str | None
    """Upper bound; None if unknown."""
    ascending: bool
    """Whether its rows are sorted by key."""
    row_group_offsets: tuple[int, ...]
    """Offset of each row group's first page, ascending; empty if one is unknown."""


def unsigned_bounds(least: str, greatest: str) -> tuple[str, str] | None:
    """Convert bounds in the order of signed bytes to bounds in the order of unsigned bytes.

    parquet-mr compared bytes as signed until 1.9 (PARQUET-686). After a common prefix with the upper bound, a byte
    outside of ASCII is less as signed and greater as unsigned. So only the bytes up to the first difference of the
    bounds are used; up to there every key is ASCII.

    Returns:
        Inclusive bounds; None if nothing is known.
    """
    if not (least.isascii() and greatest.isascii()) or least > greatest:
        return None
    if least == greatest:
        return least, greatest
    # Where the lesser is the other's beginning, what follows that may be anything.
    at = min(shared_prefix(least, greatest), len(least) - 1)
    return (least, greatest[:at] + chr(ord(greatest[at]) + 1)) if at >= 0 else None


def may_be_sorted(crawl: str) -> bool:
    """Whether a crawl was written when rows were sorted within each file."""
    year, week = (int(part) if part.isdecimal() else 0 for part in (*crawl.split("-")[2:], "0", "0")[:2])
    return (year, week) >= _SORTED_SINCE


def lake_schema(files: Iterable[LakeFile]) -> pa.Schema:
    """Return one schema for all files: known columns first, then others by name, without nested ones.

    Where files differ in the type of an unknown column, it has the type that can represent all values.
    """
    kinds: dict[str, list[str]] = {}
    for names, each in dict.fromkeys((file.column_names, file.column_kinds) for file in files):
        for name, kind in zip(names, each, strict=True):
            if name not in SCHEMA.names:
                kinds.setdefault(name, []).append(kind)
    others = {name: reduce(wider, sorted(each)) for name, each in sorted(kinds.items())}
    return pa.schema([*SCHEMA, *((name, arrow_type(kind)) for name, kind in others.items() if kind != NESTED)])
