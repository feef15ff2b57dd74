"""What table formats are told of index files: which keys lie in each, and the columns of all of them under one schema.

Other engines keep to the specifications of DuckLake and Iceberg: they compare text by its bytes, take a bound for a
promise, and a bound that is lacking for not known.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa

from catalogue.commoncrawl.columns import SCHEMA
from catalogue.parquet.column_types import NESTED, arrow_type, wider
from catalogue.surt import shared_prefix

_SORTED_SINCE = (2022, 27)
"""Year and week of the first crawl that was surely written after rows were sorted within each file, on 25 May 2022
(commoncrawl/cc-index-table, commit c3cd533); before, two sorted streams were zipped."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """An index file, as table formats need to know it."""

    path: str
    """Relative to the source."""
    crawl: str
    subset: str
    file_size: int
    """Bytes."""
    footer_size: int
    """Bytes of its footer, without length and magic."""
    num_rows: int
    column_names: tuple[str, ...]
    """In the order of the file; crawl and subset stand in its path."""
    column_kinds: tuple[str, ...]
    """Of each, in the words of ``catalogue.parquet.column_types``."""
    utc_times: bool
    """Whether ``fetch_time`` is declared an instant. Where it is not, in crawls until 2021-43, it is UTC all the same,
    but readers take it for a local time."""
    min_key: str | None
    """No key is less, compared by bytes; None if not known."""
    max_key: str | None
    """No key is greater, likewise."""
    ascending: bool
    """Whether its rows are in the order of their keys."""
    row_group_offsets: tuple[int, ...]
    """Where each row group's first page starts, ascending; empty if that is not known of all."""


def unsigned_bounds(least: str, greatest: str) -> tuple[str, str] | None:
    """Bounds that hold when text is compared by unsigned bytes, of such as hold when they are compared as signed.

    That is how parquet-mr compared them until 1.9 (PARQUET-686). A key that leaves ASCII only where it has equalled the
    greater bound for a while is less than that as signed bytes, and greater as unsigned. So what comes after the first
    byte in which the bounds differ says nothing; up to that, every key is ASCII.

    Returns:
        Both inclusive; None if nothing can be said.
    """
    if not (least.isascii() and greatest.isascii()) or least > greatest:
        return None
    if least == greatest:
        return least, greatest
    # Where the lesser is the other's beginning, what follows that may be anything.
    at = min(shared_prefix(least, greatest), len(least) - 1)
    return (least, greatest[:at] + chr(ord(greatest[at]) + 1)) if at >= 0 else None


def may_be_sorted(crawl: str) -> bool:
    """Whether a crawl's files were written when rows were sorted within each."""
    year, week = (int(part) if part.isdecimal() else 0 for part in (*crawl.split("-")[2:], "0", "0")[:2])
    return (year, week) >= _SORTED_SINCE


def lake_schema(files: Iterable[LakeFile]) -> pa.Schema:
    """The columns of all files under one schema: those known first, then others by name, without nested ones.

    Where files differ in what a column holds that we do not know, it is the type that takes all.
    """
    kinds: dict[str, list[str]] = {}
    for names, each in dict.fromkeys((file.column_names, file.column_kinds) for file in files):
        for name, kind in zip(names, each, strict=True):
            if name not in SCHEMA.names:
                kinds.setdefault(name, []).append(kind)
    others = {name: reduce(wider, sorted(each)) for name, each in sorted(kinds.items())}
    return pa.schema([*SCHEMA, *((name, arrow_type(kind)) for name, kind in others.items() if kind != NESTED)])
