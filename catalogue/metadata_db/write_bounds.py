"""Write the file of bounds from the metadata database."""

from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from catalogue.atomic_files import whole_file
from catalogue.metadata_db.bounds_file import Pair, write_bounds_file
from catalogue.parquet.arrow_arrays import texts
from catalogue.query.literals import literal

STATEMENTS = (
    """
  CREATE OR REPLACE TEMP TABLE bounds_files AS
  WITH
    least AS (
      SELECT file, CASE WHEN count(min_key) = count(*) THEN min(min_key) ELSE '' END AS file_least
      FROM derived.row_groups GROUP BY file
    ),
    combinations AS (
      SELECT column_names, column_kinds, row_number() OVER (ORDER BY min(file)) - 1 AS columns
      FROM derived.files GROUP BY ALL
    )
  SELECT file, crawl, subset, path, version, footer_rest, file_least, columns
  FROM derived.files JOIN least USING (file) JOIN combinations USING (column_names, column_kinds)
""",
    """
  WITH known AS (
    SELECT
      path, version, footer_rest, file_least, columns, row_group, footer_offset, g.num_rows, first_fetch, last_fetch,
      coalesce(k.min_key, g.min_key) AS least, coalesce(k.max_key, g.max_key) AS greatest,
      coalesce(coalesce(k.bounds_from, g.bounds_from) = 'footer (signed)', false) AS signed
    FROM derived.row_groups AS g
    JOIN bounds_files USING (file)
    LEFT JOIN derived.key_intervals AS k USING (file, row_group)
    WHERE crawl = {crawl} AND subset = {subset}
  )
  SELECT
    * EXCLUDE (least, greatest),
    CASE WHEN greatest IS NOT NULL THEN least END AS min_key,
    CASE WHEN least IS NOT NULL THEN greatest END AS max_key
  FROM known
  ORDER BY min_key NULLS FIRST, path, row_group
""",
)
"""What the bounds say of files, and the sorted row groups of a crawl and subset."""
_COUNTS = {
    "files": "SELECT crawl, subset, count(*) FROM derived.files GROUP BY ALL",
    "row_groups": "SELECT crawl, subset, count(*) FROM derived.row_groups JOIN derived.files USING (file) GROUP BY ALL",
    "listed": "SELECT crawl, subset, sum(files)::BIGINT FROM derived.listed GROUP BY ALL",
    "failures": "SELECT crawl, subset, count(*) FROM derived.failures GROUP BY ALL",
    "requested": "SELECT crawl, subset, count(*) FROM derived.listed WHERE requested GROUP BY ALL",
}
_COLUMNS = "SELECT column_names, column_kinds FROM derived.files GROUP BY ALL ORDER BY min(file)"
_CRAWLS = """
  SELECT crawl, epoch_ms(first_fetch), epoch_ms(last_fetch)
  FROM derived.crawls WHERE first_fetch IS NOT NULL AND last_fetch IS NOT NULL
"""


def write_bounds(db: duckdb.DuckDBPyConnection, path: Path, meta: Mapping[str, str]) -> None:
    """Write the bounds of a database, which is in use.

    Args:
        db: the connection.
        path: of the file; the old one is replaced.
        meta: from which state of the store the database was made.
    """
    header: dict[str, Any] = {
        "meta": dict(meta),
        "counts": {name: db.execute(sql).fetchall() for name, sql in _COUNTS.items()},
        "columns": db.execute(_COLUMNS).fetchall(),
        "crawls": {crawl: [first, last] for crawl, first, last in db.execute(_CRAWLS).fetchall()},
    }
    of_files, of_row_groups = STATEMENTS
    db.execute(of_files)

    def row_groups(pair: Pair) -> pa.Table:
        crawl, subset = map(literal, pair)
        return _with_reached(db.execute(of_row_groups.format(crawl=crawl, subset=subset)).to_arrow_table())

    pairs = sorted((crawl, subset) for crawl, subset, _ in header["counts"]["files"])
    with whole_file(path) as file:
        write_bounds_file(file, header, pairs, row_groups)
    db.execute("DROP TABLE bounds_files")


def _with_reached(table: pa.Table) -> pa.Table:
    """Add the greatest key so far; null in the first rows, which have no bounds."""
    greatest = table.column("max_key").to_pylist()
    start = table.column("max_key").null_count
    reached = [pa.nulls(start, pa.string()), texts([*accumulate(greatest[start:], max)])]
    return table.append_column("reached", pa.chunked_array(reached))
