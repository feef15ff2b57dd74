"""What the catalogue says a query might have to read."""

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from catalogue.errors import NotHarvested
from catalogue.surt import KeyInterval


class Candidates:
    """The files, of some crawls and subsets, that a query might have to read."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, crawls: Sequence[str], subsets: Sequence[str]) -> None:
        """Look at crawls (none means every one harvested) and subsets (likewise).

        Raises:
            NotHarvested: if nothing is held of one of them.
        """
        self._connection = connection
        held = connection.execute("SELECT DISTINCT crawl, subset FROM derived.files ORDER BY ALL").fetchall()
        self.crawls = tuple(crawls) or tuple(sorted({crawl for crawl, _ in held}))
        for crawl in self.crawls:
            there = {subset for of, subset in held if of == crawl}
            lacking = ("warc",) if not there else tuple(subset for subset in subsets if subset not in there)
            if lacking:
                option = "" if lacking == ("warc",) else "".join(f" --subset {subset}" for subset in lacking)
                what = crawl if not there else f"{', '.join(lacking)} of {crawl}"
                message = f"{what} is not harvested yet; run: catalogue harvest --crawl {crawl}{option}"
                raise NotHarvested(message)
        if not self.crawls:
            message = "nothing is harvested yet; run: catalogue harvest --crawl CC-MAIN-2022-05"
            raise NotHarvested(message)
        self.subsets = tuple(subsets) or tuple(sorted({subset for of, subset in held if of in self.crawls}))

    def paths(self, intervals: Sequence[KeyInterval]) -> list[str]:
        """Files with a row group whose keys might lie in one of the intervals, or are not known."""
        table = pa.table(
            {
                "low": pa.array([interval.start for interval in intervals], pa.binary()),
                "high": pa.array([interval.end for interval in intervals], pa.binary()),
            }
        )
        # Bounds in signed order say something about ASCII only; see catalogue.query.near.
        foreign = not all(interval.start.isascii() and interval.end.isascii() for interval in intervals)
        self._connection.register("asked", table)
        try:
            rows = self._connection.execute(
                """
                SELECT DISTINCT path FROM row_groups
                WHERE list_contains($crawls, crawl) AND list_contains($subsets, subset) AND (
                  min_url_surtkey IS NULL
                  OR ($foreign AND bounds_from = 'footer (signed)')
                  OR EXISTS (
                    FROM asked
                    WHERE low <= encode(max_url_surtkey) AND high > encode(min_url_surtkey)
                  )
                )
                ORDER BY path
                """,
                {"crawls": list(self.crawls), "subsets": list(self.subsets), "foreign": foreign},
            ).fetchall()
        finally:
            self._connection.unregister("asked")
        return [path for (path,) in rows]

    def column_names(self) -> tuple[str, ...]:
        """The columns of all files held, some of which may be newer than this package."""
        rows = self._connection.execute(
            "SELECT DISTINCT unnest(column_names) FROM derived.files ORDER BY ALL"
        ).fetchall()
        return tuple(name for (name,) in rows)

    def row_groups(self) -> int:
        """How many row groups there are in all."""
        rows = self._connection.execute(
            "SELECT count(*) FROM row_groups WHERE list_contains($1, crawl) AND list_contains($2, subset)",
            [list(self.crawls), list(self.subsets)],
        ).fetchall()
        return int(rows[0][0])

    def missing(self) -> tuple[str, ...]:
        """What of it is not held, a sentence each."""
        rows = self._connection.execute(
            """
            SELECT l.crawl, l.subset, l.files, count(f.path)
            FROM derived.listed AS l LEFT JOIN derived.files AS f USING (crawl, subset)
            WHERE list_contains($1, l.crawl) AND list_contains($2, l.subset)
            GROUP BY ALL HAVING count(f.path) < l.files ORDER BY ALL
            """,
            [list(self.crawls), list(self.subsets)],
        ).fetchall()
        return tuple(
            f"{listed - held} of the {listed} files of {crawl}, {subset}, are not harvested; "
            f"run: catalogue harvest --crawl {crawl} --subset {subset}"
            for crawl, subset, listed, held in rows
        )
