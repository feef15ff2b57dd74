"""What is stored, as rows and DataFrames of the metadata database."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from catalogue.query.literals import with_literals
from catalogue.session import Session
from catalogue.source.cache import CachedSource
from catalogue.store.stored_lists import list_file

if TYPE_CHECKING:
    import pandas as pd


def sql_rows(session: Session, sql: str, *parameters: object) -> list[dict[str, Any]]:
    """Return the rows of one of our own statements, without updating page indexes."""
    with session.database(indexes=False) as connection:
        found = connection.execute(with_literals(sql, *parameters)).fetchall()
        names = [name for name, *_ in connection.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found]


def frame(session: Session, sql: str, *parameters: object) -> "pd.DataFrame":
    """Return rows as a DataFrame with times in UTC, as ``to_pandas`` of captures has them."""
    import pyarrow as pa  # only here, as `catalogue sql` needs no Arrow

    from catalogue.read.dataframes import frame_of

    with session.database() as connection:
        table = connection.sql(sql, params=list(parameters)).to_arrow_table()
    zoned = {pa.timestamp("us"): pa.timestamp("us", "UTC")}
    schema = pa.schema([(field.name, zoned.get(field.type, field.type)) for field in table.schema])
    return frame_of(table.cast(schema))


def crawl_rows(session: Session) -> list[dict[str, Any]]:
    """Return the rows of the view ``crawls``, which are read once for each state of the store."""
    snapshot = session.metadata()
    if snapshot.crawl_rows is None:
        snapshot.crawl_rows = sql_rows(session, "SELECT * FROM crawls")
    return snapshot.crawl_rows


def coverage_sql(session: Session) -> str:
    from catalogue.metadata_db.connection import statement

    return statement("coverage.sql", session.dataset)


def coverage_rows(session: Session) -> list[dict[str, Any]]:
    return sql_rows(session, coverage_sql(session))


def failure_rows(session: Session) -> list[dict[str, Any]]:
    return sql_rows(session, "SELECT path, reason, failed_at FROM derived.failures ORDER BY path")


def block_list_rows(session: Session) -> list[dict[str, Any]]:
    """Return the stored lists of blocks, newest crawl first, with their bytes on disk."""
    rows = sql_rows(session, "SELECT crawl, blocks FROM derived.block_lists ORDER BY crawl DESC")
    files = {row["crawl"]: list_file(session.store, row["crawl"]) for row in rows}
    return [row | {"bytes": files[row["crawl"]].stat().st_size} for row in rows if files[row["crawl"]].exists()]


def value_rows(session: Session) -> list[dict[str, Any]]:
    """Return the crawls with stored column values, newest first: their columns, row groups and bytes on disk."""
    shown = session.metadata()
    found = ((crawl, shown.values(crawl), shown.values_size(crawl)) for crawl in reversed(shown.crawls))
    return [
        {"crawl": crawl, "columns": [*values.columns], "row_groups": len(values.places), "bytes": size}
        for crawl, values, size in found
        if values
    ]


def disk_sizes(session: Session) -> tuple[int, int]:
    with suppress(FileNotFoundError):
        return session.store.size(), session.database_path.stat().st_size
    return session.store.size(), 0


def cached_pages(session: Session) -> tuple[int, int]:
    """Return the number of row groups with stored page indexes, and the bytes of pages in the cache."""
    cached = session.reading.cache.size() if isinstance(session.reading, CachedSource) else 0
    return session.store.count("indexes"), cached
