"""What the catalogue says a query might have to read."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa

from catalogue.errors import NotHarvested
from catalogue.surt import KeyInterval
from catalogue.values import binaries, texts


class Candidates:
    """The files, of some crawls and subsets, that a query might have to read."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, crawls: Sequence[str], subsets: Sequence[str]) -> None:
        """Look at crawls of which something is held, and at subsets; none of these means all that a crawl has.

        A subset that a crawl does not have is no matter, one that was not harvested is: see ``missing``.

        Raises:
            NotHarvested: if nothing at all is held of the subsets asked for.
        """
        self._connection = connection
        held = set(connection.execute("SELECT DISTINCT crawl, subset FROM derived.files").fetchall())
        failed = set(connection.execute("SELECT DISTINCT crawl, subset FROM derived.failures").fetchall())
        listed = set(connection.execute("SELECT crawl, subset FROM derived.listed").fetchall())
        known = held | failed | (listed if subsets else set())
        self._pairs = sorted(
            (crawl, subset) for crawl, subset in known if crawl in crawls and (not subsets or subset in subsets)
        )
        if held.isdisjoint(self._pairs):
            crawl = crawls[0]
            options = "".join(f" --subset {subset}" for subset in subsets)
            message = f"{' and '.join(subsets) or 'nothing'} of {crawl} is not harvested yet"
            if subsets and not self._pairs:
                message = f"{crawl} has no {' and no '.join(subsets)}"
                raise NotHarvested(message)
            message += f"; run: catalogue harvest --crawl {crawl}{options}"
            raise NotHarvested(message)

    def paths(self, intervals: Sequence[KeyInterval]) -> list[str]:
        """Files with a row group whose keys might lie in one of the intervals, or are not known."""
        # Bounds in signed order say something about ASCII only; see catalogue.query.near.
        foreign = not all(interval.start.isascii() and interval.end.isascii() for interval in intervals)
        ends = [interval.start for interval in intervals], [interval.end for interval in intervals]
        asked = pa.Table.from_arrays([binaries(each) for each in ends], ["low", "high"])
        return [
            path
            for (path,) in self._run(
                """
                SELECT DISTINCT path FROM row_groups SEMI JOIN pairs USING (crawl, subset)
                WHERE min_url_surtkey IS NULL
                  OR ($1 AND bounds_from = 'footer (signed)')
                  OR EXISTS (FROM asked WHERE low <= encode(max_url_surtkey) AND high > encode(min_url_surtkey))
                ORDER BY path
                """,
                foreign,
                asked=asked,
            )
        ]

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the files, some of which may be newer than this package."""
        sql = (
            "SELECT DISTINCT unnest(column_names) FROM derived.files SEMI JOIN pairs USING (crawl, subset) ORDER BY ALL"
        )
        return tuple(name for (name,) in self._run(sql))

    @cached_property
    def row_groups(self) -> int:
        """How many row groups there are in all."""
        return int(self._run("SELECT count(*) FROM row_groups SEMI JOIN pairs USING (crawl, subset)")[0][0])

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """What of it is not held, a sentence each."""
        rows = self._run(
            """
            SELECT l.crawl, l.subset, l.files, count(f.path)
            FROM derived.listed AS l LEFT JOIN derived.files AS f USING (crawl, subset)
            SEMI JOIN pairs ON pairs.crawl = l.crawl AND pairs.subset = l.subset
            GROUP BY ALL HAVING count(f.path) < l.files ORDER BY ALL
            """
        )
        return tuple(
            f"{listed - held} of the {listed} files of {crawl}, {subset}, are not harvested; "
            f"run: catalogue harvest --crawl {crawl} --subset {subset}"
            for crawl, subset, listed, held in rows
        )

    def _run(self, sql: str, *parameters: object, **tables: pa.Table) -> list[tuple[Any, ...]]:
        crawls, subsets = ([pair[at] for pair in self._pairs] for at in (0, 1))
        tables["pairs"] = pa.Table.from_arrays([texts(crawls), texts(subsets)], ["crawl", "subset"])
        for name, table in tables.items():
            self._connection.register(name, table)
        try:
            return self._connection.execute(sql, list(parameters)).fetchall()
        finally:
            for name in tables:
                self._connection.unregister(name)
