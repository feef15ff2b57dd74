"""The catalogue, compared with one that is made anew of the same store."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import duckdb

from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import DiskFailed, StoreLocked
from catalogue.examine import Examiner
from catalogue.metadata_db.connection import quoted, reading
from catalogue.metadata_db.refresh import refresh
from catalogue.parquet.summary import FileSummary
from catalogue.store.database import Store

_OF_FILES = ("row_groups", "column_chunks", "pages", "key_intervals")
_OTHERS = {
    "files": "SELECT * EXCLUDE file FROM {0}.derived.files",
    "crawls": "FROM {0}.derived.crawls",
    "listed": "FROM {0}.derived.listed",
    "failures": "SELECT * REPLACE (if(undecodable, NULL, failed_at) AS failed_at) FROM {0}.derived.failures",
    "meta": "FROM {0}.derived.meta",
    "views": "SELECT view_name, sql FROM duckdb_views() WHERE database_name = '{0}' AND NOT internal",
    "macros": "SELECT function_name, parameters, macro_definition FROM duckdb_functions() WHERE database_name = '{0}'",
}
_JOINED = "SELECT path, each.* EXCLUDE file FROM {{0}}.derived.{0} AS each LEFT JOIN {{0}}.derived.files USING (file)"
_ROWS = {**{table: _JOINED.format(table) for table in _OF_FILES}, **_OTHERS}
"""What two catalogues of the same store have in common, by what it is called; files have other numbers in each."""


def make_anew(path: Path, like: Path, store: Store, table: Dataset) -> None:
    """Make a catalogue at a path, which shows what another shows.

    Args:
        path: of the new one; of the other, if that is to be replaced.
        like: of the other; if that cannot be read no column chunks are shown.
        store: what it is derived from.
        table: of which that holds the footers.

    Raises:
        DiskFailed: if it cannot be written.
    """
    found: list[tuple[str]] = []
    with suppress(duckdb.Error, StoreLocked), reading(like) as connection:
        found = connection.execute("SELECT DISTINCT crawl FROM derived.files WHERE column_chunks").fetchall()
    path.unlink(missing_ok=True)  # it can be: whoever has it open keeps it
    refresh(path, store, table, column_chunks=[crawl for (crawl,) in found])


def up_to_date(
    path: Path,
    store: Store,
    table: Dataset,
    *,
    facts: Mapping[str, FileSummary] | None = None,
    examiner: Examiner | None = None,
) -> str | None:
    """Bring the catalogue up to date, as all do that read it. Returns why it cannot be, if it is damaged.

    Of facts and the examiner see ``refresh``.

    Raises:
        DiskFailed: if that is because it cannot be written.
    """
    try:
        refresh(path, store, table, facts=facts, examiner=examiner)
    except duckdb.Error as error:
        return _first_line(error)
    except DiskFailed as error:
        if not isinstance(error.__cause__, duckdb.Error) or not (wrong := unreadable(path)):
            raise
        return wrong
    return None


def unreadable(path: Path) -> str | None:
    """Why not all that is in a catalogue can be read; None if it can."""
    try:
        with reading(path) as connection:
            for rows in _ROWS.values():
                connection.execute(f"CREATE OR REPLACE TEMP TABLE read AS {rows.format('catalogue')}")
            connection.execute("DROP TABLE temp.read")
    except duckdb.Error as error:
        return _first_line(error)
    return None


def paths_shown(path: Path) -> set[str]:
    """Of files in a catalogue; none, if that cannot be read."""
    with suppress(duckdb.Error, StoreLocked), reading(path) as connection:
        return {shown for (shown,) in connection.execute("SELECT path FROM derived.files").fetchall()}
    return set()


def differences(path: Path, anew: Path) -> Iterator[str]:
    """What the catalogue at a path says otherwise than one made anew, a sentence for each table; or that it cannot."""
    try:
        with reading(path) as connection:
            connection.execute(f"ATTACH {quoted(anew)} AS anew (READ_ONLY)")
            for name, rows in _ROWS.items():
                ours, theirs = rows.format("catalogue"), rows.format("anew")
                extra, one = _without(connection, ours, theirs)
                sizes = f"SELECT (SELECT count(*) FROM ({ours})), (SELECT count(*) FROM ({theirs}))"  # noqa: S608 - constants
                size, right = connection.execute(sizes).fetchall()[0]
                if extra or size != right:  # if all are right and none too many, none is missing
                    missing, other = _without(connection, theirs, ours)
                    counts = f"{extra:,} rows that should not be there, {missing:,} missing"
                    yield f"{name} has {counts}; such as {(one or other)[:200]}"
            connection.execute("DETACH anew")
    except duckdb.Error as error:
        yield _first_line(error)


def _without(connection: duckdb.DuckDBPyConnection, rows: str, others: str) -> tuple[int, str]:
    """How many rows are not among others, and one of them."""
    query = f"SELECT count(*), coalesce(min(each::VARCHAR), '') FROM ({rows} EXCEPT ALL {others}) AS each"  # noqa: S608 - constants
    count, example = connection.execute(query).fetchall()[0]
    return count, example


def _first_line(error: Exception) -> str:
    return f"it cannot be read: {(str(error).splitlines() or [type(error).__name__])[0]}"
