"""Calls of ``Catalogue`` that show what is stored as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb
    import pandas as pd

    from catalogue.commoncrawl.crawls import CrawlWords
    from catalogue.export.exports import Exported
    from catalogue.export.iceberg_read import IcebergTable
    from catalogue.key_map.svg import Picture
    from catalogue.session import Session


class TableCalls:
    """SQL, DataFrames, and tables for other engines."""

    session: Session

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Run SQL over the views of the metadata, such as ``crawls`` and ``row_groups``; ``SHOW TABLES`` lists them.

        The relation has ``.df()``, ``.pl()`` and ``.arrow()``. The DuckLake that ``export_ducklake`` wrote into the
        data folder is attached as ``cc`` if the query names it, with a warning if it is incomplete or out of date.

        Raises:
            QueryError: if DuckDB rejects the query, or it needs a DuckLake and there is none.
        """
        from catalogue.export.ducklake_sql import run_sql

        return run_sql(self.session, query)

    def connect(self, *, lake: bool = False) -> duckdb.DuckDBPyConnection:
        """Return a read-only connection to the updated metadata database; ``lake`` attaches the DuckLake as ``cc``.

        An incomplete or outdated DuckLake is attached with a warning.

        Raises:
            QueryError: if there is no DuckLake, or it cannot be attached.
        """
        from catalogue.export.ducklake_sql import connect

        return connect(self.session, lake=lake)

    def crawls(self, *, fetch: bool = False) -> pd.DataFrame:
        """Return every known crawl and how much of it is harvested; see the view ``crawls``.

        With ``fetch`` the list of crawls is updated first, if it is older than a day.

        Raises:
            SourceError: if the list cannot be fetched and none is stored.
        """
        from catalogue.reports import frame
        from catalogue.selection import crawl_list

        if fetch:
            crawl_list(self.session)
        return frame(self.session, "SELECT * FROM crawls")

    def coverage(self) -> pd.DataFrame:
        """Return how much of each crawl and subset is stored."""
        from catalogue.reports import coverage_sql, frame

        return frame(self.session, coverage_sql(self.session))

    def failures(self) -> pd.DataFrame:
        """Return the index files whose footers could not be stored, with reasons."""
        from catalogue.reports import frame

        return frame(self.session, "SELECT path, reason, failed_at FROM derived.failures ORDER BY path")

    def files(self, crawl: CrawlWords | None = None) -> pd.DataFrame:
        """Return the view ``files``: the stored index files."""
        return self._view("files", crawl)

    def row_groups(self, crawl: CrawlWords | None = None) -> pd.DataFrame:
        """Return the view ``row_groups``: the stored row groups with their bounds."""
        return self._view("row_groups", crawl)

    def pages(self, crawl: CrawlWords | None = None) -> pd.DataFrame:
        """Return the view ``pages``: pages of the key column whose index is stored."""
        return self._view("pages", crawl)

    def column_chunks(self, crawl: CrawlWords) -> pd.DataFrame:
        """Return the view ``column_chunks``: every column chunk of stored crawls."""
        from catalogue.export.ducklake_sql import add_column_chunks
        from catalogue.selection import select_stored

        chosen = select_stored(self.session, crawl)  # once, since it may be a generator
        add_column_chunks(self.session, chosen)
        return self._view("column_chunks", chosen)

    def _view(self, name: str, crawl: CrawlWords | None) -> pd.DataFrame:
        from catalogue.reports import frame
        from catalogue.selection import select_stored

        chosen = None if crawl is None else select_stored(self.session, crawl)
        sql = f"SELECT * FROM {name} WHERE $1 IS NULL OR list_contains($1::VARCHAR[], crawl) ORDER BY ALL"  # noqa: S608
        return frame(self.session, sql, chosen)

    def plot(self, crawl: CrawlWords) -> Picture:
        """Draw the files of one stored crawl and their row groups along its keys, as SVG.

        Raises:
            QueryError: if the crawl is not stored, or several are selected.
        """
        from catalogue.key_map.key_map import crawl_axis, file_extents
        from catalogue.key_map.svg import draw_crawl
        from catalogue.selection import only_crawl, select_stored

        stored = self.session.metadata().crawls if self.session.store_path.exists() else ()
        chosen = only_crawl(select_stored(self.session, crawl, stored))
        return draw_crawl(chosen, crawl_axis(file_extents(self.session, chosen, None)))

    def export_ducklake(
        self, path: str | Path | None = None, *, crawls: CrawlWords = "all", backend: str | None = None
    ) -> Exported:
        """Write a DuckLake with one table of all stored files of crawls, at their source; nothing is fetched.

        An existing one is changed to contain exactly these crawls; each new or changed crawl is a snapshot. ``sql``
        attaches the one in the data folder as ``cc``.

        Args:
            path: the file; by default ``captures.ducklake`` in the data folder.
            crawls: see ``Catalogue``.
            backend: ``sqlite`` or ``duckdb``; by default that of the existing lake, else ``sqlite``.

        Raises:
            QueryError: if the path is something else, its folder does not exist, or a crawl is not stored.
            StoreLocked: if another process writes to it.
            DiskFailed: if it cannot be written; an existing one stays.
        """
        from catalogue.export.exports import export_ducklake

        return export_ducklake(self.session, path, crawls, backend)

    def export_iceberg(self, path: str | Path, *, crawls: CrawlWords = "all", location: str | None = None) -> Exported:
        """Write an Iceberg table of all stored files of crawls, at their source; nothing is fetched.

        pyiceberg, DuckDB and Spark read it by its path, and open only files that may match conditions on
        ``url_surtkey``, ``crawl`` and ``subset``. It contains absolute addresses. Written again, it gets a new snapshot
        of exactly these crawls.

        Files before CC-MAIN-2021-49 do not declare their times as UTC: in DuckDB, ``SET TimeZone = 'UTC'``. Spark needs
        the jar iceberg-spark-runtime and the location ``s3a://commoncrawl/``.

        Args:
            path: the folder.
            crawls: see ``Catalogue``.
            location: address of the files for engines; by default the source.

        Raises:
            QueryError: if the path is something else, a path or the location cannot be written into tables, nothing is
                stored, or pyiceberg is not installed.
            StoreLocked: if another process writes to it.
        """
        from catalogue.export.exports import export_iceberg

        return export_iceberg(self.session, path, crawls, location)

    def iceberg(self, crawls: CrawlWords = "all") -> IcebergTable:
        """Return a pyiceberg table that can be scanned while this catalogue is open.

        A scan requests no footers. Data is read through the source and cache of this catalogue, with its rate limit,
        and only of the stored version of a file. Filters on ``crawl`` and ``subset`` work even if these columns are not
        selected::

            table = cat.iceberg("latest")
            table.scan("url_surtkey >= 'com,example)/' AND url_surtkey < 'com,example)0'", ("url",)).to_pandas()

        Raises:
            QueryError: if nothing is stored, or pyiceberg is not installed.
        """
        from catalogue.export.exports import open_iceberg

        return open_iceberg(self.session, crawls)
