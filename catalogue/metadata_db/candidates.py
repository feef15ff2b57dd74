"""Find the files and row groups that a query may have to read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from catalogue.commoncrawl.datasets import Dataset
from catalogue.errors import NotHarvested, QueryError
from catalogue.metadata_db.connection import readable
from catalogue.parquet.column_types import wider
from catalogue.query.literals import literal, literals
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.surt import text_after, text_from

_FEW = 32
"""Maximum intervals of keys that are written into the statement."""
MARGIN = 31 * 24 * 60 * 60 * 1000
"""Milliseconds by which a crawl may have been fetched before or after the times in the list of crawls."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file, and its row groups that may match."""

    path: str
    version: bytes
    """Digest of the file's value in the store."""
    footer_rest: int | None
    """See ``Footer.rest``."""
    row_groups: tuple[tuple[int, int], ...]
    """Ordinal of each row group, ascending, and its offset in the footer."""
    least: str = ""
    """A lower bound of the keys in the file, from its footer."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """Numbers of stored files and row groups, listed files, and failures, by crawl and subset."""

    files: Mapping[tuple[str, str], int]
    row_groups: Mapping[tuple[str, str], int]
    listed: Mapping[tuple[str, str], int]
    failures: Mapping[tuple[str, str], int]
    requested: frozenset[tuple[str, str]]
    """Pairs that a harvest requested, or that failed."""


class Candidates:
    """The files of some crawls and subsets that a query may have to read."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        counts: _Counts,
        crawls: Sequence[str],
        subsets: Sequence[str],
        table: Dataset,
    ) -> None:
        """Select crawls and subsets; no subsets mean all of a crawl.

        A subset that a crawl does not have is ignored; one that was not harvested is reported by ``missing``.

        Raises:
            QueryError: if no crawl is named.
            NotHarvested: if nothing is stored of the subsets.
        """
        if not crawls:
            message = "of which crawls? name some, such as CC-MAIN-2022-05, latest or all"
            raise QueryError(message)
        self._connection = connection
        self._table = table
        self._counts = counts
        known = counts.files.keys() | counts.requested | (counts.listed.keys() if subsets else set())
        self._crawls, self._subsets = list(crawls), list(subsets)
        self._pairs = sorted(
            (crawl, subset) for crawl, subset in known if crawl in crawls and (not subsets or subset in subsets)
        )
        if counts.files.keys().isdisjoint(self._pairs):
            crawl = crawls[0]
            message = f"{' and '.join(subsets) or 'nothing'} of {crawl} is not harvested yet"
            if subsets and not self._pairs:
                message = f"{crawl} has no {' and no '.join(subsets)}"
                raise NotHarvested(message)
            message += f"; run: {table.harvest_command(crawl, subsets)}"
            raise NotHarvested(message, crawl=crawl, call=table.harvest_call(crawl, subsets))

    def files(self, query: ResolvedQuery) -> list[Candidate]:
        """Return files with row groups that may match, or whose keys and times are unknown."""
        # Small statements, one after the other, are planned in half the time that one large one takes.
        groups = {file: tuple(zip(ordinals, offsets, strict=True)) for file, ordinals, offsets in self._groups(query)}
        if not groups:
            return []
        rows = self._run(
            f"""
            SELECT
              file, any_value(path), any_value(version), any_value(footer_rest),
              CASE WHEN count(min_key) = count(*) THEN min(min_key) ELSE '' END
            FROM derived.row_groups JOIN derived.files USING (file)
            WHERE file IN {literals(groups)} GROUP BY file ORDER BY any_value(path)
            """  # noqa: S608 - numbers
        )
        return [Candidate(path, version, rest, groups[file], least) for file, path, version, rest, least in rows]

    def _groups(self, query: ResolvedQuery) -> list[tuple[int, list[int], list[int]]]:
        """Return the number of each file with the ordinals, ascending, and offsets of row groups that may match."""
        ends = [(text_from(interval.start), text_after(interval.end)) for interval in query.intervals]
        closed = [(low, high) for low, high in ends if high is not None]
        known = "least IS NULL"
        if len(closed) < len(ends):  # only the last can be open
            known += f" OR greatest >= {literal(ends[-1][0])}"
        # Bounds in signed order say something about ASCII only; see catalogue.query.near.
        if not all(interval.start.isascii() and interval.end.isascii() for interval in query.intervals):
            known += " OR bounds_from = 'footer (signed)'"
        if len(closed) <= _FEW:
            for low, high in closed:
                known += f" OR (greatest >= {literal(low)} AND least < {literal(high)})"
            matching = f"SELECT file, row_group, footer_offset FROM known WHERE {known}"  # noqa: S608 - literals
        else:
            # Intervals are disjoint: the last that begins at or before the greatest key is the one to look at.
            names = "SELECT file, row_group, footer_offset FROM known"
            matching = f"{names} ASOF JOIN intervals ON greatest >= low WHERE least < high UNION {names} WHERE {known}"
        lows, highs = zip(*closed, strict=True) if len(closed) > _FEW else ((), ())
        chosen = f"crawl IN {literals(self._crawls)}"
        if self._subsets:
            chosen += f" AND subset IN {literals(self._subsets)}"
        sql = f"""
            WITH
            intervals AS (
              SELECT unnest({literals(lows)}::VARCHAR[]) AS low, unnest({literals(highs)}::VARCHAR[]) AS high
            ),
            known AS (
              SELECT
                file, row_group, footer_offset, coalesce(k.bounds_from, g.bounds_from) AS bounds_from,
                coalesce(k.min_key, g.min_key) AS least, coalesce(k.max_key, g.max_key) AS greatest
              FROM derived.row_groups AS g LEFT JOIN derived.key_intervals AS k USING (file, row_group)
              WHERE file IN (SELECT file FROM derived.files WHERE {chosen}) AND {_fetched_in(query)}
            )
            SELECT file, list(row_group ORDER BY row_group), list(footer_offset ORDER BY row_group)
            FROM (SELECT DISTINCT * FROM ({matching})) GROUP BY file
            """  # noqa: S608 - literals
        return self._run(sql)

    @property
    def row_groups(self) -> int:
        """Return the number of row groups."""
        return sum(self._counts.row_groups.get(pair, 0) for pair in self._pairs)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return a sentence for each subset of which files are missing."""
        sentences = []
        for crawl, subset in self._pairs:
            counts = (self._counts.files, self._counts.failures, self._counts.listed)
            stored, failed, listed = (each.get((crawl, subset), 0) for each in counts)
            total = max(listed, stored + failed)  # the list may have been deleted
            if stored < total:
                sentences.append(
                    f"{total - stored} of the {total} files of {crawl}, {subset}, are not harvested; "
                    f"run: {self._table.harvest_command(crawl, [subset])}"
                )
        return tuple(sentences)

    def _run(self, sql: str) -> list[tuple[Any, ...]]:
        return _rows(self._connection, sql)


def _fetched_in(query: ResolvedQuery) -> str:
    """Return a condition: whether a row group may have been fetched in time, by its footer or the list of crawls."""
    if query.from_ms is None and query.to_ms is None:
        return "true"
    start, end = literal(query.from_ms), literal(query.to_ms)
    return f"""CASE
        WHEN last_fetch IS NOT NULL
        THEN ({start} IS NULL OR last_fetch >= {start}) AND ({end} IS NULL OR first_fetch < {end})
        ELSE file NOT IN (
          SELECT file FROM derived.files JOIN derived.crawls AS c USING (crawl)
          WHERE c.first_fetch <= c.last_fetch AND (
            epoch_ms(c.last_fetch) + {MARGIN} < {start} OR epoch_ms(c.first_fetch) - {MARGIN} >= {end}
          )
        )
      END"""  # noqa: S608 - literals


class MetadataSnapshot:
    """The database in one state of the store, for planning."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, state: str, table: Dataset, *, small: bool) -> None:
        """Take a connection, which ``close`` closes; ``small`` databases are read with one thread."""
        if small:
            connection.execute("SET threads = 1")
        self.state = state
        self._table = table
        self._connection = connection
        self._last: tuple[object, Candidates | None] = (None, None)

    def close(self) -> None:
        self._connection.close()

    def rows(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        """Return the rows of a statement over the views, as dicts."""
        rows = _rows(self._connection, sql, *parameters)
        names = [name for name, *_ in self._connection.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]

    @cached_property
    def crawls(self) -> tuple[str, ...]:
        """The crawls with stored files."""
        return tuple(sorted({crawl for crawl, _ in self._counts.files}))

    @cached_property
    def requested_crawls(self) -> tuple[str, ...]:
        """The crawls of which files are stored, or a harvest was interrupted before the first file."""
        return tuple(sorted({crawl for crawl, _ in self._counts.files.keys() | self._counts.requested}))

    @cached_property
    def _counts(self) -> _Counts:
        def counted(table: str, number: str = "count(*)") -> dict[tuple[str, str], int]:
            sql = f"SELECT crawl, subset, {number} FROM {table} GROUP BY ALL"  # noqa: S608 - constants
            return {(crawl, subset): count for crawl, subset, count in _rows(self._connection, sql)}

        failures = counted("derived.failures")
        return _Counts(
            counted("derived.files"),
            counted("derived.row_groups JOIN derived.files USING (file)"),
            counted("derived.listed", "sum(files)::BIGINT"),
            failures,
            frozenset(failures | counted("derived.listed WHERE requested")),
        )

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns of all stored files and their types, including columns that this version does not know.

        They do not depend on the query, so that each result has the same types.
        """
        rows = _rows(
            self._connection, "SELECT column_names, column_kinds FROM derived.files GROUP BY ALL ORDER BY min(file)"
        )
        found: dict[str, str] = {}
        for names, kinds in rows:
            for name, kind in zip(names, kinds, strict=True):
                found[name] = wider(found.get(name, kind), kind)
        return found

    def sizes(self, candidates: Iterable[Candidate]) -> dict[tuple[str, int], int]:
        """Return the number of rows of each candidate row group, by path and ordinal, ascending."""
        requested = {(each.path, ordinal) for each in candidates for ordinal, _ in each.row_groups}
        sql = f"""
            SELECT path, row_group, g.num_rows FROM derived.row_groups AS g JOIN derived.files USING (file)
            WHERE path IN {literals({path for path, _ in requested})} ORDER BY ALL
            """  # noqa: S608 - literals
        rows = _rows(self._connection, sql)
        return {(path, group): num_rows for path, group, num_rows in rows if (path, group) in requested}

    def without(self, column: str, candidates: Iterable[Candidate]) -> tuple[str, ...]:
        """Return the paths of files without a column."""
        rows = _rows(
            self._connection,
            f"SELECT path FROM derived.files WHERE NOT list_contains(column_names, {literal(column)}) ORDER BY path",  # noqa: S608
        )
        paths = {candidate.path for candidate in candidates}
        return tuple(path for (path,) in rows if path in paths)

    def candidates(self, crawls: Sequence[str], subsets: Sequence[str]) -> Candidates:
        """See ``Candidates``; the last ones are cached."""
        parameters, known = (tuple(crawls), tuple(subsets)), self._last
        candidates = known[1] if known[0] == parameters else None
        if candidates is None:
            candidates = Candidates(self._connection, self._counts, crawls, subsets, self._table)
            self._last = (parameters, candidates)
        return candidates


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    with readable():
        return connection.execute(sql, parameters or None).fetchall()
