"""Find files with a valid checksum that may be others than requested."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import duckdb

_FEWEST = 10
"""Minimum number of files of a crawl and subset for a conclusion."""


@dataclass(frozen=True, slots=True)
class _Extent:
    path: str
    least: str
    greatest: str


def alike(connection: duckdb.DuckDBPyConnection) -> list[list[str]]:
    """Return groups of paths of files with equal sizes, rows and bounds."""
    rows = connection.execute(
        """
        WITH spans AS (SELECT file, min(min_key) AS least, max(max_key) AS most FROM derived.row_groups GROUP BY file)
        SELECT list(path ORDER BY path) AS paths FROM derived.files LEFT JOIN spans USING (file) WHERE num_rows > 0
        GROUP BY file_size, footer_size, num_rows, least, most HAVING count(*) > 1 ORDER BY paths
        """
    ).fetchall()
    return [paths for (paths,) in rows]


def intruders(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str]]:
    """Yield files that overlap another file of their crawl and subset, where hardly any do, and that file.

    Index files of one crawl and subset contain disjoint parts of all keys. If more than one in ten overlap, the crawl
    is of another kind, and none is returned.
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
        # Taking files by their end gives the most disjoint ones.
        (others if disjoint and file.least < disjoint[-1].greatest else disjoint).append(file)
    if len(files) >= _FEWEST and len(others) * _FEWEST <= len(files):
        for file in others:
            yield file.path, _met(file, disjoint)


def _met(file: _Extent, others: Iterable[_Extent]) -> str:
    return next(each.path for each in others if each.least < file.greatest and file.least < each.greatest)
