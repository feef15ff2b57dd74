"""What is stored, as rows and DataFrames of the metadata database."""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from catalogue.errors import NotHarvested
from catalogue.key_map.key_map import Extent, FileExtent
from catalogue.metadata_db.queries import statement
from catalogue.query.literals import with_literals
from catalogue.selection import select_one, select_stored
from catalogue.session import Session
from catalogue.source.cache import CachedSource
from catalogue.store.stored_blocks import list_file

if TYPE_CHECKING:
    import pandas as pd


def sql_rows(session: Session, sql: str, *parameters: object) -> list[dict[str, Any]]:
    """Return the rows of one of our own statements, as dicts, without updating page indexes."""
    with session.database(indexes=False) as connection:
        found = connection.execute(with_literals(sql, *parameters)).fetchall()
        names = [name for name, *_ in connection.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found]


def frame(session: Session, sql: str, *parameters: object) -> "pd.DataFrame":
    with session.database() as connection:
        return connection.execute(sql, list(parameters)).df()


def view_frame(session: Session, view: str, crawl: str | None) -> "pd.DataFrame":
    if crawl is not None:
        select_stored(session, crawl)
    return frame(session, f"SELECT * FROM {view} WHERE $1 IS NULL OR crawl = $1 ORDER BY ALL", crawl)  # noqa: S608


def crawl_names(session: Session) -> tuple[str, ...]:
    """Return the stored crawls, newest first; none if nothing is harvested."""
    with suppress(NotHarvested):
        return session.metadata().crawls
    return ()


def crawl_rows(session: Session) -> list[dict[str, Any]]:
    """Return the rows of the view ``crawls``, which are read once for each state of the store."""
    snapshot = session.metadata()
    if snapshot.crawl_rows is None:
        snapshot.crawl_rows = sql_rows(session, "SELECT * FROM crawls")
    return snapshot.crawl_rows


def coverage_sql(session: Session) -> str:
    return statement("coverage.sql", session.dataset)


def coverage_rows(session: Session) -> list[dict[str, Any]]:
    return sql_rows(session, coverage_sql(session))


def failure_rows(session: Session) -> list[dict[str, Any]]:
    return sql_rows(session, "SELECT path, reason, failed_at FROM derived.failures ORDER BY path")


def add_column_chunks(session: Session, crawls: Iterable[str]) -> None:
    """Fill the view ``column_chunks`` for crawls; it has no others, so that it is small."""
    requested = set(select_stored(session, crawls))
    with session.database() as connection:
        rows = connection.execute("SELECT crawl FROM derived.tables WHERE column_chunks").fetchall()
    if requested - {crawl for (crawl,) in rows}:
        from catalogue.metadata_db.refresh import refresh

        path = session.writable_database(changes=True)
        refresh(path, session.store, session.dataset, column_chunks=requested)


def file_extents(session: Session, crawl: str, detailed: Iterable[str] | None = ()) -> list[FileExtent]:
    """Return the key ranges of the files of a crawl, with row groups of the ``detailed`` paths, or of all for None."""
    least, greatest = (f'"{bound}_{session.dataset.key}"' for bound in ("min", "max"))
    rows = sql_rows(
        session,
        f"""
        SELECT
          path, subset, min({least}) AS least, max({greatest}) AS greatest,
          count(*) AS row_groups, count(*) FILTER ({least} IS NULL) AS without_bounds,
          list((row_group, {least}, {greatest}) ORDER BY row_group)
            FILTER ($2 IS NULL OR list_contains($2, path)) AS groups
        FROM row_groups WHERE crawl = $1 GROUP BY path, subset ORDER BY subset, path
        """,  # noqa: S608 - the name of a column
        select_one(session, crawl),
        None if detailed is None else list(detailed),
    )
    return [
        FileExtent(
            row["path"],
            row["subset"],
            Extent.of(row["path"].rpartition("/")[2], row["least"], row["greatest"]),
            row["row_groups"],
            row["without_bounds"],
            tuple((ordinal, Extent.of(f"row group {ordinal}", *keys)) for ordinal, *keys in row["groups"] or ()),
        )
        for row in rows
    ]


def block_list_rows(session: Session) -> list[dict[str, Any]]:
    """Return the stored lists of blocks, newest crawl first, with their bytes on disk."""
    rows = sql_rows(session, "SELECT crawl, blocks FROM derived.block_lists ORDER BY crawl DESC")
    files = {row["crawl"]: list_file(session.store, row["crawl"]) for row in rows}
    return [row | {"bytes": files[row["crawl"]].stat().st_size} for row in rows if files[row["crawl"]].exists()]


def disk_sizes(session: Session) -> tuple[int, int]:
    with suppress(FileNotFoundError):
        return session.store.size(), session.database_path.stat().st_size
    return session.store.size(), 0


def cached_pages(session: Session) -> tuple[int, int]:
    """Return the number of row groups with stored page indexes, and the bytes of pages in the cache."""
    cached = session.reading.cache.size() if isinstance(session.reading, CachedSource) else 0
    return session.store.count("indexes"), cached
