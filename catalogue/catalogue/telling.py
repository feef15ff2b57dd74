"""What the footers say."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from catalogue import metadata_db
from catalogue.catalogue.taking import Taking
from catalogue.commoncrawl.crawls import newest_first
from catalogue.errors import CatalogueError, NotHarvested, QueryError
from catalogue.export import ducklake, ducklake_attach
from catalogue.formatting import comma_separated, plural
from catalogue.key_map.key_map import Extent, FileExtent, crawl_axis
from catalogue.key_map.svg import Picture, draw_crawl
from catalogue.settings import STORE_NAME
from catalogue.source.cache import CachedSource
from catalogue.store.database import Store

if TYPE_CHECKING:
    import pandas as pd


_SHOWN = 12
"""Crawls that a catalogue names when it shows itself; there are over a hundred."""
_GLANCE = 0.1
"""Seconds for which it then waits for another process that is writing."""


class Telling(Taking):
    """SQL and DataFrames of what is held."""

    def _rows(self) -> Iterator[tuple[str, str]]:
        if not (self.data / STORE_NAME).exists() or not self.path.exists():
            return
        with metadata_db.reading(self.path) as connection:  # as it is: to look at it changes nothing
            held = connection.execute(
                "SELECT crawl, files_harvested, subsets, num_rows FROM crawls WHERE files_harvested > 0"
            ).fetchall()
        for crawl, files, subsets, rows in held[:_SHOWN]:
            yield crawl, f"{plural(files, 'file')} of {', '.join(subsets)}; {plural(rows, 'capture')}"
        if len(held) > _SHOWN:
            yield "others", plural(len(held) - _SHOWN, "crawl")
        if len(held) > 1:
            files, rows = (sum(each[at] for each in held) for at in (1, 3))
            yield "all", f"{plural(files, 'file')}; {plural(rows, 'capture')}"

    def _notes(self) -> Iterator[str]:
        store = self.data / STORE_NAME
        if not store.exists() or not store.stat().st_size:  # an empty file would be made a store
            yield "Nothing is harvested yet; harvest() takes the footers of a crawl."
        elif not (self.path.exists() and self._is_fresh()):
            yield "What was harvested last is not shown yet; the next question, or update(), sees to it."

    def _is_fresh(self) -> bool:
        """Whether the catalogue shows all; of a store that is not open it is not left open, nor waited for."""
        if "_store" in self.__dict__:
            return metadata_db.is_fresh(self.path, self._store, indexes=False)
        with Store(self.data / STORE_NAME, busy_seconds=_GLANCE) as store:
            return metadata_db.is_fresh(self.path, store, indexes=False)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Run SQL over the catalogue's views: ``crawls``, ``files``, ``row_groups``, ``pages``, ``column_chunks``.

        And over captures: the DuckLake that ``export_ducklake`` wrote into our folder is ``cc``.

        Returns:
            A DuckDB relation, of which ``.df()`` makes a DataFrame, ``.pl()`` polars and ``.arrow()`` Arrow.

        Raises:
            QueryError: if DuckDB cannot run it, or it asks for captures and there is no DuckLake.
        """
        with metadata_db.answerable():
            return self.connect_for(query).sql(query)

    def update(self) -> None:
        """Bring the DuckDB file up to date with the store; everything here that reads it does so first."""
        metadata_db.refresh(self._database(), self._store, self.table)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A read-only DuckDB connection to the catalogue as it is now."""
        return metadata_db.connect_fresh(self._database(), self._store, self.table, indexes=True)

    @contextmanager
    def _looking(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The same for questions of ours; see ``views.reading``."""
        with metadata_db.readable(), metadata_db.reading_fresh(self._database(), self._store, self.table) as connection:
            yield connection

    def connect_for(self, query: str) -> duckdb.DuckDBPyConnection:
        """Likewise, with our DuckLake attached as ``cc`` if SQL speaks of it.

        Raises:
            QueryError: if SQL surely speaks of it, and it is not there or cannot be attached.
        """
        connection = self.connect()
        if ducklake_attach.names_lake(query) and (told := self._attached(connection)):
            if ducklake_attach.names_captures(query):
                connection.close()
                raise QueryError(told, call=None if self.lake_path.exists() else "export_ducklake()")
            if self.lake_path.exists():
                self._notify(told)
        return connection

    def _attached(self, connection: duckdb.DuckDBPyConnection) -> str | None:
        """Attach our DuckLake. Returns why it is not; None if it is."""
        if not self.lake_path.exists():
            return f"there is no {self.lake_path} yet; run: catalogue export ducklake"
        try:
            told = ducklake_attach.attach(connection, self.lake_path, self.settings.source)
            if not told and (lacking := self.lake_lacks()):
                self._notify(lacking)
        except CatalogueError as error:
            return f"cc is not there: {error}"
        return told

    @property
    def lake_path(self) -> Path:
        """Where ``sql`` looks for a DuckLake."""
        return self.data / ducklake_attach.LAKE_NAME

    def lake_lacks(self) -> str | None:
        """What our DuckLake lacks, in a sentence; None if it has all crawls that are held, as they are held."""
        there = ducklake.crawls_in(self.lake_path)
        held = self.crawls_held()
        lacking = newest_first(set(held) - there.keys())
        if not lacking:
            changed = newest_first(crawl for crawl, sizes in self._sizes().items() if sizes != there[crawl])
            if not changed:
                return None
            lacking = [f"what is new in {changed[0]}", *changed[1:]]
        more = f" and {len(lacking) - 1} more" if lacking[1:] else ""
        return f"{self.lake_path.name} lacks {lacking[0]}{more}; run: catalogue export ducklake"

    def _sizes(self) -> dict[str, tuple[int, ...]]:
        """How much of each crawl is held, as ``crawls_in`` says it of a lake."""
        with suppress(NotHarvested):
            rows = self._shown().rows(
                "SELECT crawl, count(*) AS files, sum(num_rows)::BIGINT AS num_rows, sum(file_size)::BIGINT AS bytes, "
                "sum(footer_size)::BIGINT AS footers FROM derived.files GROUP BY crawl"
            )
            return {row.pop("crawl"): tuple(row.values()) for row in rows}
        return {}

    def crawls_held(self) -> tuple[str, ...]:
        """The crawls of which files are held, as ``held`` says, without going through all files; none is no error."""
        with suppress(NotHarvested):
            return self._shown().crawls
        return ()

    def crawls(self) -> "pd.DataFrame":
        """Every crawl known of and how much of it is harvested, a row each; see the view ``crawls``."""
        return self._frame("SELECT * FROM crawls")

    def files(self, crawl: str | None = None) -> "pd.DataFrame":
        """The index files held; see the view ``files``."""
        return self._of_crawl("files", crawl)

    def row_groups(self, crawl: str | None = None) -> "pd.DataFrame":
        """The row groups held and the keys between which they lie; see the view ``row_groups``."""
        return self._of_crawl("row_groups", crawl)

    def pages(self, crawl: str | None = None) -> "pd.DataFrame":
        """Pages of the key column, where their index is held; see the view ``pages``."""
        return self._of_crawl("pages", crawl)

    def column_chunks(self, crawl: str) -> "pd.DataFrame":
        """Every column of every row group of a crawl; see the view ``column_chunks``."""
        self.show_column_chunks([crawl])
        return self._of_crawl("column_chunks", crawl)

    def show_column_chunks(self, crawls: Iterable[str]) -> None:
        """Fill the view ``column_chunks`` for crawls; it is empty for others, to be small and quick to make."""
        wanted = set(self.held(crawls))
        with self._looking() as connection:
            rows = connection.execute("SELECT DISTINCT crawl FROM derived.files WHERE column_chunks").fetchall()
        if wanted - {crawl for (crawl,) in rows}:
            metadata_db.refresh(self._database(changes=True), self._store, self.table, column_chunks=wanted)

    def coverage(self) -> "pd.DataFrame":
        """How much of each crawl and subset is held, a row each."""
        return self._frame(metadata_db.statement("coverage.sql", self.table))

    def crawl_rows(self) -> list[dict[str, Any]]:
        """What ``crawls`` says, without pandas, and without what it takes to show page indexes that were just found."""
        return self._shown().rows("SELECT * FROM crawls")

    def coverage_rows(self) -> list[dict[str, Any]]:
        """What ``coverage`` says, likewise."""
        return self._shown().rows(metadata_db.statement("coverage.sql", self.table))

    def extents(self, crawl: str, detailed: Iterable[str] | None = ()) -> list[FileExtent]:
        """Between which keys the files of a crawl lie.

        Args:
            crawl: a harvested one.
            detailed: paths of files of which that is told of each row group, too; None for all.

        Raises:
            QueryError: if the crawl is not harvested, or several are named.
        """
        least, greatest = (f'"{bound}_{self.table.key}"' for bound in ("min", "max"))
        rows = self._shown().rows(
            f"""
            SELECT
              path, subset, min({least}) AS least, max({greatest}) AS greatest,
              count(*) AS row_groups, count(*) FILTER ({least} IS NULL) AS without_bounds,
              list((row_group, {least}, {greatest}, key_intervals) ORDER BY row_group)
                FILTER ($2 IS NULL OR list_contains($2, path)) AS groups
            FROM row_groups WHERE crawl = $1 GROUP BY path, subset ORDER BY subset, path
            """,  # noqa: S608 - the name of a column
            self._one(crawl),
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

    def plot(self, crawl: str) -> Picture:
        """Draw the files of a harvested crawl and their row groups along its keys, as SVG.

        Row groups overlap where files are two sorted streams zipped together.

        Raises:
            QueryError: if the crawl is not harvested, or several are named.
        """
        chosen = self._one(crawl)
        return draw_crawl(chosen, crawl_axis(self.extents(chosen, None)))

    def _one(self, crawl: str) -> str:
        """The crawl that is meant.

        Raises:
            QueryError: if it is not harvested, or several are meant.
        """
        self._check_store(crawl)
        chosen, *others = self.select_held(self._shown().crawls, crawl)
        if others:
            message = (
                f"{crawl!r} is {plural(1 + len(others), 'crawl')}, and one can be shown; name it, such as {chosen}"
            )
            raise QueryError(message)
        return chosen

    def kept(self) -> tuple[int, int]:
        """Row groups whose page index is held, and bytes of pages in the cache on this machine."""
        cached = self._reading.cache.size() if isinstance(self._reading, CachedSource) else 0
        return self._store.count("indexes"), cached

    def failures(self) -> "pd.DataFrame":
        """Index files whose footers could not be taken, and why."""
        return self._frame("SELECT path, reason, failed_at FROM derived.failures ORDER BY path")

    def states(self, crawls: str | Iterable[str] = "all", subsets: str | Iterable[str] = ()) -> dict[str, str]:
        """For each crawl, newest first, what changes with the files that are held of it and those that it lists.

        Args:
            crawls: harvested ones: names, years, ranges ``A..B``, ``latest`` or ``all``.
            subsets: to look at; all that are held unless named. Crawls that have none of these are left out.
        """
        chosen, wanted = self.held(crawls), comma_separated(subsets)
        with self._looking() as connection:
            rows = connection.execute(
                """
                WITH
                  files AS (
                    SELECT crawl, string_agg(path || hex(version), ',' ORDER BY path) AS held
                    FROM derived.files WHERE len($2) = 0 OR list_contains($2, subset) GROUP BY crawl
                  ),
                  lists AS (
                    SELECT crawl, string_agg(subset || files, ',' ORDER BY subset) AS listed
                    FROM derived.listed GROUP BY crawl
                  )
                SELECT crawl, md5(held || coalesce(listed, ''))
                FROM files LEFT JOIN lists USING (crawl) WHERE list_contains($1, crawl)
                """,
                [chosen, [] if "all" in wanted else wanted],
            ).fetchall()
        states = dict(rows)
        return {crawl: states[crawl] for crawl in chosen if crawl in states}

    def sizes(self) -> tuple[int, int]:
        """Bytes on disk of the store and of the catalogue."""
        with suppress(FileNotFoundError):
            return self._store.size(), self.path.stat().st_size
        return self._store.size(), 0

    def log_size(self) -> int:
        """Bytes of the store's write-ahead log, which grows while somebody reads the store without an end."""
        return self._store.log_size()

    def _of_crawl(self, view: str, crawl: str | None) -> "pd.DataFrame":
        if crawl is not None:
            self.held(crawl)
        return self._frame(f"SELECT * FROM {view} WHERE $1 IS NULL OR crawl = $1 ORDER BY ALL", crawl)  # noqa: S608

    def _frame(self, sql: str, *parameters: object) -> "pd.DataFrame":
        with self._looking() as connection:
            return connection.execute(sql, list(parameters)).df()


def _extent(
    name: str, least: str | None, greatest: str | None, intervals: list[dict[str, str]] | None = None
) -> Extent:
    if intervals:
        return Extent(name, tuple((each["min"], each["max"]) for each in intervals))
    return Extent(name, () if least is None or greatest is None else ((least, greatest),))
