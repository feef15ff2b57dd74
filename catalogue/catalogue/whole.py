"""Class ``Catalogue``."""

from collections.abc import Iterable
from concurrent.futures import Executor
from pathlib import Path

from catalogue import views
from catalogue.backfill import Backfill
from catalogue.captures import Captures, parse_query, several
from catalogue.catalogue.fetches import Fetches
from catalogue.crawl import select_subsets
from catalogue.question import Question, Scope
from catalogue.settings import Settings, load_settings
from catalogue.surt import Match
from catalogue.table import INDEX
from catalogue.workers import Here


def open(  # noqa: A001 - catalogue.open, as gzip.open
    data: str | Path = "data",
    *,
    table: str | None = None,
    source: str | None = None,
    settings: Settings | None = None,
    executor: Executor | None = None,
) -> "Catalogue":
    """Open the catalogue in a folder, which is made when something is first harvested into it.

    Args:
        data: the folder.
        table: name of another table than Common Crawl's index, which has a folder of its own in there.
        source: where files are read from: an https, http or s3 address, or a folder; Common Crawl unless set.
        executor: whose workers read, such as a ``ProcessPoolExecutor`` or that of a Dask client
            (``client.get_executor()``); they must have this package. Among machines of Dask's the rate is divided.
        settings: instead of those from the environment and ``config.toml``.
    """
    return Catalogue(Path(data), settings or load_settings(source=source), table=table, executor=executor)


class Catalogue(Fetches):
    """Footers of index files, what they say, and captures found by them.

    Not for use from several threads at once; open one for each.
    """

    def backfill(
        self, crawls: str | Iterable[str] = "all", *, only_gaps: bool = False, files: str | Iterable[str] = ()
    ) -> Backfill:
        """Find what the keys of row groups say whose footers say too little to prune by. Nothing is read yet.

        Args:
            crawls: harvested ones: names, ranges ``A..B``, ``latest`` or ``all``.
            only_gaps: leave alone what has bounds, even if they say little because two sorted streams were zipped.
            files: patterns such as ``*part-00007-*`` of paths to look at; all unless given.
        """
        with self.connect() as connection:
            words = self.table.select_held(self._shown().crawls, several(crawls))
            found = views.gaps(connection, words, several(files), overlapping=not only_gaps)
        return Backfill(
            found,
            self.table,
            lambda query, scope: Question(
                query, scope, self._footers, lambda: self._source, self._cost(), teaches=True
            ),
            self._workers or Here(lambda: self._source),
            lambda: self._made,
        )

    def captures(  # noqa: PLR0913 - a question has many sides, and each is named
        self,
        patterns: str | Iterable[str],
        *,
        crawls: str | Iterable[str] = "all",
        subsets: str | Iterable[str] = (),
        columns: str | Iterable[str] | None = None,
        where: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        limit: int | None = None,
        match: Match | None = None,
        exact_url: bool = False,
        ordered: bool = False,
    ) -> Captures:
        """Find captures. Nothing is read yet: look at ``.plan``, then at ``.to_pandas()``.

        Args:
            patterns: URLs or hosts: ``example.com/page``, ``example.com/*``, ``*.example.com``, ``*.is``, ``*``.
            crawls: harvested ones: names, ranges ``A..B``, ``latest`` or ``all``.
            subsets: all that are held unless named.
            columns: of the answer, ``*`` for all; by default those of the CDX index, or all of another table. ``crawl``
                and ``subset``, if they stand in paths, always come too.
            where: a boolean expression over the columns, in DuckDB's SQL.
            from_: the first time, as ``2022``, ``20220131`` or ``2022-01-31T12:00:00``, UTC, inclusive.
            to: the last, likewise.
            limit: of rows; reading stops when they are found.
            match: overrides what a pattern's wildcards say.
            exact_url: match the URL as typed instead of its key, which ignores scheme, ``www``, case and the like.
            ordered: by key, time and crawl, which takes the whole answer into memory.

        Raises:
            QueryError: if the question cannot be understood, or is about what is not harvested.
        """
        shown = self._shown()
        words = self.table.select_held(shown.crawls, several(crawls))
        chosen = select_subsets(several(subsets)) if self.table == INDEX else several(subsets)
        candidates = shown.candidates(words, chosen)
        query = parse_query(
            self.table,
            shown.columns,
            patterns,
            columns=columns,
            where=where,
            times=(from_, to),
            limit=limit,
            match=match,
            exact_url=exact_url,
            ordered=ordered,
        )
        scope = Scope(tuple(candidates.files(query)), candidates.row_groups, candidates.missing)
        question = Question(query, scope, self._footers, lambda: self._reading, self._cost())
        return Captures(question, self._share, workers=self._workers, notify=self._notify)
