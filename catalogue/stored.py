"""What is stored: the crawls that words such as ``latest`` select, and rows of the metadata database."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from catalogue import metadata_db
from catalogue.commoncrawl.crawls import select_subsets
from catalogue.errors import NotHarvested, QueryError
from catalogue.formatting import comma_separated, plural
from catalogue.key_map.key_map import Extent, FileExtent
from catalogue.session import Session
from catalogue.source.cache import CachedSource
from catalogue.store.stored_lists import known_crawls

if TYPE_CHECKING:
    import pandas as pd


def several(words: str | Iterable[str]) -> list[str]:
    return [words] if isinstance(words, str) else list(words)


def select_stored(
    session: Session, stored: Collection[str], crawls: str | Iterable[str], subsets: Sequence[str] = ()
) -> list[str]:
    """Return the crawls that the words select; see ``Dataset.select_stored``."""
    return session.dataset.select_stored(
        stored, several(crawls), subsets=subsets, listed=lambda: known_crawls(session.store)
    )


def missing_crawls(
    session: Session, stored: Collection[str], crawls: str | Iterable[str], subsets: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a sentence for each range of crawls of which only some are stored; see ``Dataset.gaps``."""
    return session.dataset.gaps(stored, several(crawls), subsets=subsets, listed=lambda: known_crawls(session.store))


def stored_crawls(session: Session, crawls: str | Iterable[str] = "all") -> list[str]:
    """Return the stored crawls that the words select, newest first; raise ``NotHarvested`` if one is not stored."""
    check_store(session, crawls)
    files = (session.dataset.file(path) for path in session.store.keys("files"))
    return select_stored(session, {file.crawl for file in files if file}, crawls)


def stored_crawl(session: Session, crawl: str) -> str:
    """Return the one stored crawl that a word selects; raise ``QueryError`` if it selects none or several."""
    check_store(session, crawl)
    chosen, *others = select_stored(session, session.metadata().crawls, crawl)
    if others:
        count = plural(1 + len(others), "crawl")
        message = f"{crawl!r} selects {count}, and one can be shown; name it, such as {chosen}"
        raise QueryError(message)
    return chosen


def check_store(session: Session, crawls: str | Iterable[str], subsets: str | Iterable[str] = ()) -> None:
    """Raise ``NotHarvested`` with the names of the crawls if there is no store."""
    if session.dataset_name is None and not session.store_path.exists():
        nothing = f"nothing is harvested in {session.data} yet"
        chosen = select_subsets(several(subsets))
        session.dataset.select_stored((), several(crawls), subsets=chosen, nothing=nothing)


def frame(session: Session, sql: str, *parameters: object) -> "pd.DataFrame":
    with session.database() as connection:
        return connection.execute(sql, list(parameters)).df()


def view_frame(session: Session, view: str, crawl: str | None) -> "pd.DataFrame":
    """Return a view, or its rows of one crawl, as a DataFrame."""
    if crawl is not None:
        stored_crawls(session, crawl)
    return frame(session, f"SELECT * FROM {view} WHERE $1 IS NULL OR crawl = $1 ORDER BY ALL", crawl)  # noqa: S608


def crawl_names(session: Session) -> tuple[str, ...]:
    """Return the stored crawls, newest first, by the metadata database; none if nothing is harvested."""
    with suppress(NotHarvested):
        return session.metadata().crawls
    return ()


def crawl_rows(session: Session) -> list[dict[str, Any]]:
    """Return the rows of the view ``crawls``, without updating page indexes."""
    return session.metadata().rows("SELECT * FROM crawls")


def coverage_sql(session: Session) -> str:
    return metadata_db.statement("coverage.sql", session.dataset)


def coverage_rows(session: Session) -> list[dict[str, Any]]:
    """Return how much of each crawl and subset is stored, without updating page indexes."""
    return session.metadata().rows(coverage_sql(session))


def failure_rows(session: Session) -> list[dict[str, Any]]:
    """Return the index files whose footers could not be stored, with reasons."""
    return session.metadata().rows("SELECT path, reason, failed_at FROM derived.failures ORDER BY path")


def add_column_chunks(session: Session, crawls: Iterable[str]) -> None:
    """Fill the view ``column_chunks`` for crawls; it has no rows of other crawls, so that it is small."""
    requested = set(stored_crawls(session, crawls))
    with session.database() as connection:
        rows = connection.execute("SELECT DISTINCT crawl FROM derived.files WHERE column_chunks").fetchall()
    if requested - {crawl for (crawl,) in rows}:
        path = session.writable_database(changes=True)
        metadata_db.refresh(path, session.store, session.dataset, column_chunks=requested)


def file_extents(session: Session, crawl: str, detailed: Iterable[str] | None = ()) -> list[FileExtent]:
    """Return the key ranges of the files of a crawl, with row groups of the ``detailed`` paths, or of all for None."""
    least, greatest = (f'"{bound}_{session.dataset.key}"' for bound in ("min", "max"))
    rows = session.metadata().rows(
        f"""
        SELECT
          path, subset, min({least}) AS least, max({greatest}) AS greatest,
          count(*) AS row_groups, count(*) FILTER ({least} IS NULL) AS without_bounds,
          list((row_group, {least}, {greatest}, key_intervals) ORDER BY row_group)
            FILTER ($2 IS NULL OR list_contains($2, path)) AS groups
        FROM row_groups WHERE crawl = $1 GROUP BY path, subset ORDER BY subset, path
        """,  # noqa: S608 - the name of a column
        stored_crawl(session, crawl),
        None if detailed is None else list(detailed),
    )
    return [
        FileExtent(
            row["path"],
            row["subset"],
            _extent(row["path"].rpartition("/")[2], row["least"], row["greatest"]),
            row["row_groups"],
            row["without_bounds"],
            tuple((ordinal, _extent(f"row group {ordinal}", *known)) for ordinal, *known in row["groups"] or ()),
        )
        for row in rows
    ]


def _extent(
    name: str, least: str | None, greatest: str | None, intervals: list[dict[str, str]] | None = None
) -> Extent:
    if intervals:
        return Extent(name, tuple((each["min"], each["max"]) for each in intervals))
    return Extent(name, () if least is None or greatest is None else ((least, greatest),))


def crawl_states(
    session: Session, crawls: str | Iterable[str] = "all", subsets: str | Iterable[str] = ()
) -> dict[str, str]:
    """Return for each crawl with files of the subsets, newest first, a digest of its stored and listed files."""
    chosen, requested = stored_crawls(session, crawls), comma_separated(subsets)
    with session.database() as connection:
        rows = connection.execute(
            """
            WITH
              files AS (
                SELECT crawl, string_agg(path || hex(version), ',' ORDER BY path) AS stored
                FROM derived.files WHERE len($2) = 0 OR list_contains($2, subset) GROUP BY crawl
              ),
              lists AS (
                SELECT crawl, string_agg(subset || files, ',' ORDER BY subset) AS listed
                FROM derived.listed GROUP BY crawl
              )
            SELECT crawl, md5(stored || coalesce(listed, ''))
            FROM files LEFT JOIN lists USING (crawl) WHERE list_contains($1, crawl)
            """,
            [chosen, [] if "all" in requested else requested],
        ).fetchall()
    states = dict(rows)
    return {crawl: states[crawl] for crawl in chosen if crawl in states}


def disk_sizes(session: Session) -> tuple[int, int]:
    """Return the bytes of store and metadata database."""
    with suppress(FileNotFoundError):
        return session.store.size(), session.database_path.stat().st_size
    return session.store.size(), 0


def cached_pages(session: Session) -> tuple[int, int]:
    """Return the number of row groups with a stored page index, and the bytes of pages in the cache on disk."""
    cached = session.reading.cache.size() if isinstance(session.reading, CachedSource) else 0
    return session.store.count("indexes"), cached
