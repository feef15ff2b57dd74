"""Find row groups without bounds, or with bounds that do not help."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import duckdb

from catalogue.metadata_db.candidates import Candidate
from catalogue.query.literals import literal, literals


@dataclass(frozen=True, slots=True)
class Gaps:
    """Row groups of one file whose keys a backfill would read."""

    path: str
    missing: Candidate | None
    """Row groups without bounds."""
    overlapping: Candidate | None
    """Row groups whose bounds overlap others of the file, as in zipped files."""


def gaps(
    connection: duckdb.DuckDBPyConnection,
    files_of: Callable[[str], Mapping[str, Candidate]],
    crawls: Sequence[str],
    files: Sequence[str] = (),
    *,
    overlapping: bool = True,
) -> list[Gaps]:
    """Return the files with such row groups, crawl by crawl.

    Args:
        connection: to the updated database.
        files_of: returns all files of a crawl.
        crawls: names.
        files: patterns with ``*``, one of which a path must match; empty for all paths.
        overlapping: include row groups with overlapping bounds.
    """
    patterns = f"{literals(files)}::VARCHAR[]"
    rows = connection.execute(
        f"""
        WITH
          -- Whose every page was read; there is nothing left to learn about them.
          learned AS (
            SELECT file, row_group FROM derived.pages
            GROUP BY ALL HAVING bool_and(pages_from = 'scan') AND count(min_key) > 0
          ),
          known AS (
            SELECT
              g.file, g.row_group, g.key_intervals IS NULL AS unread,
              CASE WHEN g.bounds_from LIKE 'footer%' THEN g.min_key END AS least,
              CASE WHEN g.bounds_from LIKE 'footer%' THEN g.max_key END AS greatest
            FROM derived.row_groups AS g
            JOIN derived.files AS f ON f.file = g.file AND f.crawl IN {literals(crawls)}
          ),
          overlapping AS (
            SELECT DISTINCT a.file, a.row_group
            FROM known AS a JOIN known AS b USING (file)
            WHERE a.row_group <> b.row_group AND a.least < b.greatest AND b.least < a.greatest
          ),
          found AS (
            SELECT file, row_group, least IS NULL AS missing
            FROM known
            ANTI JOIN learned USING (file, row_group)
            WHERE unread AND (least IS NULL OR ({literal(overlapping)} AND (file, row_group) IN (FROM overlapping)))
          )
        SELECT
          crawl, path,
          coalesce(list(row_group ORDER BY row_group) FILTER (missing), []),
          coalesce(list(row_group ORDER BY row_group) FILTER (NOT missing), [])
        FROM found JOIN derived.files USING (file)
        WHERE len({patterns}) = 0 OR len(list_filter({patterns}, lambda pattern: path GLOB pattern)) > 0
        GROUP BY crawl, path ORDER BY crawl, path
        """  # noqa: S608 - literals
    ).fetchall()
    found = []
    for crawl, of_crawl in groupby(rows, lambda row: row[0]):
        known = files_of(crawl)
        for _, path, *lists in of_crawl:
            missing, of_overlapping = (
                replace(known[path], row_groups=tuple(each)) if each and path in known else None for each in lists
            )
            found.append(Gaps(path, missing, of_overlapping))
    return found
