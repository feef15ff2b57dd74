"""Write the file of bounds from the metadata database."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from catalogue.atomic_files import whole_file
from catalogue.metadata_db.bounds_file import Pair, Rows, write_bounds_file
from catalogue.metadata_db.queries import queries_folder
from catalogue.query.literals import literal

_COUNTS = {
    "files": "SELECT crawl, subset, count(*) FROM derived.files GROUP BY ALL",
    "row_groups": "SELECT crawl, subset, count(*) FROM derived.row_groups JOIN derived.files USING (file) GROUP BY ALL",
    "listed": "SELECT crawl, subset, sum(files)::BIGINT FROM derived.listed GROUP BY ALL",
    "failures": "SELECT crawl, subset, count(*) FROM derived.failures GROUP BY ALL",
    "requested": "SELECT crawl, subset, count(*) FROM derived.listed WHERE requested GROUP BY ALL",
}
_COLUMNS = """
  SELECT column_names, column_kinds
  FROM derived.columns JOIN (SELECT columns, min(file) AS first FROM derived.files GROUP BY columns) USING (columns)
  ORDER BY first
"""
_FILES = """
  SELECT path, version, footer_rest, file_least, columns
  FROM bounds_files WHERE crawl = {crawl} AND subset = {subset} ORDER BY place
"""
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

    def sql(name: str) -> str:
        return (queries_folder() / "views" / name).read_text(encoding="utf-8")

    db.execute(sql("_bounds_files.sql"))

    def tables(pair: Pair) -> tuple[Rows, Rows]:
        crawl, subset = map(literal, pair)
        statements = _FILES, sql("_bounds_row_groups.sql")
        files, row_groups = (db.execute(each.format(crawl=crawl, subset=subset)).fetchall() for each in statements)
        return files, row_groups

    pairs = sorted((crawl, subset) for crawl, subset, _ in header["counts"]["files"])
    with whole_file(path) as file:
        write_bounds_file(file, header, pairs, tables)
    db.execute("DROP TABLE bounds_files")
