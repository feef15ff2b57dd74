"""Index files as table formats describe them.

DuckLake and Iceberg compare text by bytes. A missing bound means unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import duckdb
import pyarrow as pa

from catalogue.commoncrawl.schema import SCHEMA
from catalogue.parquet.model import NESTED, arrow_type, wider
from catalogue.query.literals import literal
from catalogue.surt.interval import shared_prefix

_AT_ONCE = 1000
"""Maximum rows that are converted at a time."""
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
    """Bytes without length and magic."""
    num_rows: int
    column_names: tuple[str, ...]
    """Columns in the order of the file, except crawl and subset."""
    column_kinds: tuple[str, ...]
    utc_times: bool
    """Whether ``fetch_time`` is declared an instant. Until 2021-43 it is not, but is UTC all the same."""
    min_key: str | None
    """Lower bound of the keys, compared by bytes."""
    max_key: str | None
    ascending: bool
    row_group_offsets: tuple[int, ...]
    """Offset of each row group's first page, ascending; empty if one is unknown."""


def unsigned_bounds(least: str, greatest: str) -> tuple[str, str] | None:
    """Convert inclusive bounds from the order of signed bytes to that of unsigned bytes; None if nothing is known.

    parquet-mr compared bytes as signed until 1.9 (PARQUET-686). After a common prefix with the upper bound, a byte
    outside of ASCII is less as signed and greater as unsigned. So only the bytes up to the first difference of the
    bounds are used; up to there every key is ASCII.
    """
    if not (least.isascii() and greatest.isascii()) or least > greatest:
        return None
    if least == greatest:
        return least, greatest
    # Where the lesser is the other's beginning, what follows that may be anything.
    at = min(shared_prefix(least, greatest), len(least) - 1)
    return (least, greatest[:at] + chr(ord(greatest[at]) + 1)) if at >= 0 else None


def may_be_sorted(crawl: str) -> bool:
    """Return whether rows were sorted within each file when a crawl was written."""
    year, week = (int(part) if part.isdecimal() else 0 for part in (*crawl.split("-")[2:], "0", "0")[:2])
    return (year, week) >= _SORTED_SINCE


def lake_schema(files: Iterable[LakeFile]) -> pa.Schema:
    """Return one schema for all files: known columns first, then others by name, without nested ones.

    An unknown column has the type that can represent the values of all files.
    """
    kinds: dict[str, list[str]] = {}
    for names, each in dict.fromkeys((file.column_names, file.column_kinds) for file in files):
        for name, kind in zip(names, each, strict=True):
            if name not in SCHEMA.names:
                kinds.setdefault(name, []).append(kind)
    others = {name: reduce(wider, sorted(each)) for name, each in sorted(kinds.items())}
    return pa.schema([*SCHEMA, *((name, arrow_type(kind)) for name, kind in others.items() if kind != NESTED)])


def lake_files(connection: duckdb.DuckDBPyConnection, crawls: Sequence[str]) -> list[LakeFile]:
    schemas = connection.execute("SELECT schema, column_names, column_kinds FROM derived.schemas").fetchall()
    named = literal([*crawls])
    answer = connection.execute(
        f"""
        WITH
          groups AS (
            SELECT
              path, row_group, file_offset, min_key, max_key, bounds_from = 'footer (signed)' AS signed,
              lag(max_key) OVER (PARTITION BY path ORDER BY row_group) AS before
            FROM derived.row_groups WHERE crawl IN {named}
          ),
          known AS (
            SELECT
              path,
              CASE WHEN bool_and(min_key IS NOT NULL) THEN min(min_key) END AS least,
              CASE WHEN bool_and(max_key IS NOT NULL) THEN max(max_key) END AS greatest,
              bool_or(signed) AS signed,
              bool_and(min_key IS NOT NULL AND (row_group = 0 OR before <= min_key)) AS ascending,
              CASE WHEN bool_and(file_offset IS NOT NULL) THEN list(file_offset ORDER BY file_offset) END
                AS row_group_offsets
            FROM groups GROUP BY path
          )
        SELECT
          path, crawl, subset, file_size, footer_size, num_rows, utc_times, schema,
          least AS min_key, greatest AS max_key, coalesce(signed, false) AS signed,
          coalesce(ascending, false) AS ascending, coalesce(row_group_offsets, []) AS row_group_offsets
        FROM derived.files AS f LEFT JOIN known USING (path)
        WHERE crawl IN {named} ORDER BY path
        """  # noqa: S608 - literals
    )
    names = [column[0] for column in answer.description or ()]
    shared = {digest: (tuple(columns), tuple(kinds)) for digest, columns, kinds in schemas}
    files: list[LakeFile] = []
    while rows := answer.fetchmany(_AT_ONCE):
        files += (_lake_file(dict(zip(names, row, strict=True)), shared) for row in rows)
    return files


def _lake_file(row: dict[str, Any], schemas: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]) -> LakeFile:
    least, greatest, signed = (row.pop(name) for name in ("min_key", "max_key", "signed"))
    bounds = None if least is None or greatest is None else (least, greatest)
    if bounds and signed:
        bounds = unsigned_bounds(*bounds)
    row["min_key"], row["max_key"] = bounds or (None, None)
    row["ascending"] &= may_be_sorted(row["crawl"])
    row["column_names"], row["column_kinds"] = schemas[row.pop("schema")]
    row["row_group_offsets"] = tuple(row["row_group_offsets"])
    return LakeFile(**row)
