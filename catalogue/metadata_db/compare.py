"""Compare the metadata database with the store, and rebuild it."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import duckdb

from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import DiskFailed, StoreLocked
from catalogue.metadata_db.connection import reading
from catalogue.metadata_db.refresh import refresh
from catalogue.metadata_db.suspects import alike, intruders
from catalogue.store.database import Store

_TABLES = ("files", "columns", "row_groups", "column_chunks", "pages", "tables", "crawls", "listed", "failures")


def rebuild(path: Path, store: Store, dataset: Dataset) -> None:
    """Delete the database and build it from the store, with the column chunks that it had."""
    crawls: list[tuple[str]] = []
    with suppress(duckdb.Error, StoreLocked), reading(path) as connection:
        crawls = connection.execute("SELECT crawl FROM derived.tables WHERE column_chunks").fetchall()
    path.unlink(missing_ok=True)  # processes that have it open keep it
    refresh(path, store, dataset, column_chunks=[crawl for (crawl,) in crawls])


def problems(path: Path, store: Store, dataset: Dataset) -> Iterator[str]:
    """Update the database, and yield how it differs from the store, or why it cannot be read.

    Raises:
        DiskFailed: if it cannot be updated for lack of space or permission.
    """
    try:
        refresh(path, store, dataset)
        with reading(path) as connection:
            for table in _TABLES:  # every column of every row
                connection.execute(f"CREATE OR REPLACE TEMP TABLE copy AS FROM derived.{table}")
            connection.execute("DROP TABLE temp.copy")
            shown = dict(connection.execute("SELECT path, version FROM derived.files").fetchall())
            failed = {each for (each,) in connection.execute("SELECT path FROM derived.failures").fetchall()}
            wrong = connection.execute(
                """
                SELECT path FROM derived.files LEFT JOIN derived.row_groups AS groups USING (file)
                GROUP BY file, path, files.num_rows HAVING files.num_rows <> coalesce(sum(groups.num_rows), 0)
                """
            ).fetchall()
    except duckdb.Error as error:
        yield _first_line(error)
        return
    except DiskFailed as error:
        if not isinstance(error.__cause__, duckdb.Error):
            raise
        yield _first_line(error.__cause__)
        return
    stored = store.versions("files", store.keys("files"))
    for path_ in sorted(stored.keys() | shown.keys()):
        if path_ not in shown and dataset.file(path_) and path_ not in failed:
            yield f"{path_} is missing"
        elif path_ not in stored:
            yield f"{path_} is not stored any more"
        elif path_ in shown and shown[path_] != stored[path_]:
            yield f"{path_} is another version"
    yield from (f"the rows of {each} do not add up" for (each,) in wrong)


def suspects(path: Path, store: Store) -> Iterator[tuple[str, str]]:
    """Yield files with a valid checksum that overlap or equal others of their crawl, with the reason."""
    with reading(path) as connection:
        for paths in alike(connection):
            footers = {each: file.data for each in paths if (file := store.get("files", each))}
            for each, footer in footers.items():
                if other := next((other for other in footers if other != each and footers[other] == footer), None):
                    yield each, f"its footer equals that of {other}"
        for each, other in intruders(connection):
            yield each, f"its keys overlap those of {other}, though files of its crawl hardly overlap"


def _first_line(error: Exception) -> str:
    return f"it cannot be read: {(str(error).splitlines() or [type(error).__name__])[0]}"
