"""Write the file of bounds from the metadata database."""

from collections.abc import Mapping
from pathlib import Path

import duckdb

from catalogue.atomic_files import whole_file
from catalogue.metadata_db.bounds_file import parts_of, write_bounds_file
from catalogue.metadata_db.queries import queries_folder

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
    header = {
        "meta": dict(meta),
        "counts": {name: db.execute(sql).fetchall() for name, sql in _COUNTS.items()},
        "columns": db.execute(_COLUMNS).fetchall(),
        "crawls": {crawl: [first, last] for crawl, first, last in db.execute(_CRAWLS).fetchall()},
    }
    parts = parts_of(db.sql((queries_folder() / "views/_bounds.sql").read_text(encoding="utf-8")).to_arrow_table())
    with whole_file(path) as file:
        write_bounds_file(file, header, parts)
