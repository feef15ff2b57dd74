"""Files that no checksum shows to be wrong, but what is known of the others."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import duckdb

_FEWEST = 10
"""Files of a crawl and subset from which it can be told whether they share keys."""


@dataclass(frozen=True, slots=True)
class _Extent:
    path: str
    least: str
    greatest: str


def alike(connection: duckdb.DuckDBPyConnection) -> list[list[str]]:
    """Paths, together, of files that have rows, as many, in as many bytes, between the same keys."""
    rows = connection.execute(
        """
        WITH spans AS (SELECT file, min(min_key) AS least, max(max_key) AS most FROM derived.row_groups GROUP BY file)
        SELECT list(path ORDER BY path) AS paths FROM derived.files LEFT JOIN spans USING (file) WHERE num_rows > 0
        GROUP BY file_size, footer_size, num_rows, least, most HAVING count(*) > 1 ORDER BY paths
        """
    ).fetchall()
    return [paths for (paths,) in rows]


def intruders(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str]]:
    """Files that have keys between those of another file of their crawl and subset, where hardly any do; and which.

    Common Crawl's index files of one crawl and subset are made of disjoint parts of all keys, whatever the order is
    within a file. Where more than one in ten share keys the crawl is of another kind, and nothing is said.
    """
    rows = connection.execute(
        """
        SELECT crawl, subset, path, min(min_key), max(max_key)
        FROM derived.row_groups JOIN derived.files USING (file)
        GROUP BY ALL HAVING count(min_key) = count(*) AND count(max_key) = count(*) ORDER BY ALL
        """
    ).fetchall()
    for _, files in groupby(rows, lambda row: row[:2]):
        yield from _intruders([_Extent(*row[2:]) for row in files])


def _intruders(files: list[_Extent]) -> Iterator[tuple[str, str]]:
    disjoint: list[_Extent] = []
    others: list[_Extent] = []
    for file in sorted(files, key=lambda each: (each.greatest, each.least)):
        # Those that end first, as long as they share nothing, are as many as can be.
        (others if disjoint and file.least < disjoint[-1].greatest else disjoint).append(file)
    if len(files) >= _FEWEST and len(others) * _FEWEST <= len(files):
        for file in others:
            yield file.path, _met(file, disjoint)


def _met(file: _Extent, others: Iterable[_Extent]) -> str:
    return next(each.path for each in others if each.least < file.greatest and file.least < each.greatest)
