"""Rows of the metadata database for exports."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from catalogue.atomic_files import room
from catalogue.commoncrawl.columns import KEY_COLUMN
from catalogue.errors import DiskFailed
from catalogue.metadata_db.connection import quoted
from catalogue.metadata_db.file_stats import LakeFile, may_be_sorted, unsigned_bounds
from catalogue.query.literals import literals

_AT_ONCE = 1000
"""Maximum rows that are converted at a time."""


def lake_files(connection: duckdb.DuckDBPyConnection, crawls: Sequence[str]) -> list[LakeFile]:
    """Return the stored files of crawls, by path."""
    least, greatest = (f'"{bound}_{KEY_COLUMN}"' for bound in ("min", "max"))
    columns = connection.execute("SELECT columns, column_names, column_kinds FROM derived.columns").fetchall()
    named = literals(crawls)
    answer = connection.execute(
        f"""
        WITH
          groups AS (
            SELECT
              path, row_group, file_offset, {least} AS least, {greatest} AS greatest,
              bounds_from = 'footer (signed)' AS signed,
              lag(greatest) OVER (PARTITION BY path ORDER BY row_group) AS before
            FROM row_groups WHERE crawl IN {named}
          ),
          known AS (
            SELECT
              path,
              CASE WHEN bool_and(least IS NOT NULL) THEN min(least) END AS min_key,
              CASE WHEN bool_and(greatest IS NOT NULL) THEN max(greatest) END AS max_key,
              bool_or(signed) AS signed,
              bool_and(least IS NOT NULL AND (row_group = 0 OR before <= least)) AS ascending,
              CASE WHEN bool_and(file_offset IS NOT NULL) THEN list(file_offset ORDER BY file_offset) END
                AS row_group_offsets
            FROM groups GROUP BY path
          )
        SELECT
          path, crawl, subset, file_size, footer_size, num_rows, utc_times, columns,
          min_key, max_key, coalesce(signed, false) AS signed, coalesce(ascending, false) AS ascending,
          coalesce(row_group_offsets, []) AS row_group_offsets
        FROM derived.files AS f LEFT JOIN known USING (path)
        WHERE crawl IN {named} ORDER BY path
        """  # noqa: S608 - literals
    )
    names = [column[0] for column in answer.description or ()]
    shared = {number: (tuple(names), tuple(kinds)) for number, names, kinds in columns}
    files: list[LakeFile] = []
    while rows := answer.fetchmany(_AT_ONCE):
        files += (_lake_file(dict(zip(names, row, strict=True)), shared) for row in rows)
    return files


def write_table(connection: duckdb.DuckDBPyConnection, view: str, crawls: Sequence[str], path: Path) -> int:
    """Write the rows of a view that belong to some crawls to a Parquet file; return their number.

    Raises:
        DiskFailed: if it cannot be written.
    """
    order = "crawl, subset, path" if view == "files" else "crawl, min_url_surtkey, path, row_group"
    copy = (
        f"COPY (SELECT * FROM {view} WHERE crawl IN {literals(crawls)} ORDER BY {order}) "  # noqa: S608
        f"TO {quoted(path)} (FORMAT parquet, COMPRESSION zstd)"
    )
    try:
        return int(connection.execute(copy).fetchall()[0][0])
    except duckdb.IOException as error:  # else it would be taken for the catalogue's
        first = (str(error).splitlines() or [""])[0]
        message = f"{path} cannot be written: {first}{room(path, error)}; make room and run the same command again"
        raise DiskFailed(message) from error


def _lake_file(row: dict[str, Any], columns: Mapping[int, tuple[tuple[str, ...], tuple[str, ...]]]) -> LakeFile:
    least, greatest, signed = (row.pop(name) for name in ("min_key", "max_key", "signed"))
    bounds = None if least is None or greatest is None else (least, greatest)
    if bounds and signed:
        bounds = unsigned_bounds(*bounds)
    row["min_key"], row["max_key"] = bounds or (None, None)
    row["ascending"] &= may_be_sorted(row["crawl"])
    row["column_names"], row["column_kinds"] = columns[row.pop("columns")]
    row["row_group_offsets"] = tuple(row["row_group_offsets"])
    return LakeFile(**row)
