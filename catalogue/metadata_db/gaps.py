"""Find row groups without bounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import duckdb

from catalogue.metadata_db.candidates import Candidate
from catalogue.query.literals import literals


def gaps(
    connection: duckdb.DuckDBPyConnection,
    files_of: Callable[[str], Mapping[str, Candidate]],
    crawls: Sequence[str],
    files: Sequence[str] = (),
) -> list[Candidate]:
    """Return the files with row groups without bounds, with these row groups, crawl by crawl.

    Args:
        connection: to the updated database.
        files_of: returns all files of a crawl.
        crawls: names.
        files: patterns with ``*``, one of which a path must match; empty for all paths.
    """
    patterns = f"{literals(files)}::VARCHAR[]"
    rows = connection.execute(
        f"""
        SELECT crawl, path, list(row_group ORDER BY row_group)
        FROM derived.row_groups JOIN derived.files USING (file)
        WHERE bounds_from = 'missing' AND crawl IN {literals(crawls)}
          AND (len({patterns}) = 0 OR len(list_filter({patterns}, lambda pattern: path GLOB pattern)) > 0)
        GROUP BY crawl, path ORDER BY crawl, path
        """  # noqa: S608 - literals
    ).fetchall()
    known = {crawl: files_of(crawl) for crawl in {crawl for crawl, _, _ in rows}}
    found = ((known[crawl].get(path), ordinals) for crawl, path, ordinals in rows)
    return [replace(file, row_groups=tuple(ordinals)) for file, ordinals in found if file]
