"""Compare the metadata database with the store, and the files of a crawl with each other."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import duckdb

from catalogue.atomic_files import room
from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import DiskFailed, StoreLocked
from catalogue.formatting import first_paragraph
from catalogue.metadata_db.connection import reading
from catalogue.metadata_db.refresh import refresh
from catalogue.store.database import Store

_FEWEST = 10


def rebuild(path: Path, store: Store, dataset: Dataset) -> None:
    """Build the database without the old one, with the column chunks that it had."""
    crawls: list[tuple[str]] = []
    with suppress(duckdb.Error, StoreLocked), reading(path) as connection:
        crawls = connection.execute("SELECT crawl FROM derived.tables WHERE column_chunks").fetchall()
    refresh(path, store, dataset, column_chunks=[crawl for (crawl,) in crawls], rebuild=True)


def changed_during_check(store: Store) -> StoreLocked:
    return StoreLocked(f"another process changed {store.path} during the check; run it again when that process is done")


def problems(path: Path, store: Store, dataset: Dataset) -> Iterator[str]:
    """Update the database, and yield how it differs from the store, or why it cannot be read.

    Raises:
        DiskFailed: if it cannot be updated for lack of space or permission.
        StoreLocked: if another process changes the store.
    """
    try:
        refresh(path, store, dataset)
        with reading(path) as connection:
            tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'derived'")
            for (table,) in tables.fetchall():  # every column of every row
                connection.execute(f"CREATE OR REPLACE TEMP TABLE copy AS FROM derived.{table}")
            connection.execute("DROP TABLE temp.copy")
            state = connection.execute("SELECT value FROM derived.meta WHERE key = 'store'").fetchone()
            shown = dict(connection.execute("SELECT path, version FROM derived.files").fetchall())
            failed = {each for (each,) in connection.execute("SELECT path FROM derived.failures").fetchall()}
            wrong = connection.execute(
                """
                SELECT path FROM derived.files LEFT JOIN derived.row_groups AS groups USING (path)
                GROUP BY path, files.num_rows HAVING files.num_rows <> coalesce(sum(groups.num_rows), 0)
                """
            ).fetchall()
    except (duckdb.Error, DiskFailed) as error:
        cause = error if isinstance(error, duckdb.Error) else error.__cause__
        if not isinstance(cause, duckdb.Error) or room(path, cause):
            raise
        yield f"it cannot be read: {first_paragraph(cause)}"
        return
    stored = store.versions(store.keys("files"))
    if state != (store.state(),):
        raise changed_during_check(store)
    for path_ in sorted(stored.keys() | shown.keys()):
        if path_ not in shown and dataset.file(path_) and path_ not in failed:
            yield f"{path_} is missing"
        elif path_ not in stored:
            yield f"{path_} is no longer stored"
        elif path_ in shown and shown[path_] != stored[path_]:
            yield f"{path_} has another version"
    yield from (f"the rows of {each} do not add up" for (each,) in wrong)


def suspects(path: Path, store: Store) -> Iterator[tuple[str, str]]:
    """Yield files that overlap or equal others of their crawl, with the reason."""
    with reading(path) as connection:
        alike = connection.execute(
            """
            WITH spans AS (
              SELECT path, min(min_key) AS least, max(max_key) AS most FROM derived.row_groups GROUP BY path
            )
            SELECT list(path ORDER BY path) AS paths
            FROM derived.files LEFT JOIN spans USING (path) WHERE num_rows > 0
            GROUP BY file_size, footer_size, num_rows, least, most HAVING count(*) > 1 ORDER BY paths
            """
        )
        for (paths,) in alike.fetchall():
            footers = {each: file.data for each in paths if (file := store.get("files", each))}
            for each, footer in footers.items():
                if other := next((other for other in footers if other != each and footers[other] == footer), None):
                    yield each, f"its footer equals that of {other}"
        for each, other in intruders(connection):
            yield each, f"its keys overlap those of {other}, though files of its crawl hardly overlap"


def intruders(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str]]:
    """Yield files that overlap another file of their crawl and subset, where hardly any do, and that file.

    Index files of one crawl and subset contain disjoint parts of all keys. If more than one in ten overlap, the crawl
    is of another kind.
    """
    rows = connection.execute(
        """
        SELECT crawl, subset, max(max_key), min(min_key), path
        FROM derived.row_groups
        GROUP BY ALL HAVING count(min_key) = count(*) AND count(max_key) = count(*) ORDER BY ALL
        """
    ).fetchall()
    for _, files in groupby(rows, lambda row: row[:2]):
        disjoint: list[tuple[str, str, str]] = []
        others: list[tuple[str, str, str]] = []
        for *_, greatest, least, path in files:
            # Taking files by their end gives the most disjoint ones.
            (others if disjoint and least < disjoint[-1][0] else disjoint).append((greatest, least, path))
        if len(disjoint) + len(others) >= _FEWEST and len(others) * _FEWEST <= len(disjoint) + len(others):
            for greatest, least, path in others:
                yield path, next(other for end, start, other in disjoint if start < greatest and least < end)
