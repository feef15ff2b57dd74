"""Class ``Catalogue``: everything behind one object, for notebooks and for the command line."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import duckdb

from catalogue import views
from catalogue.backfill import Backfill
from catalogue.captures import Captures
from catalogue.crawl import SCHEMA, Crawl, index_file, manifest_path, select_crawls, select_held, select_subsets
from catalogue.errors import FormatError, QueryError, SourceError, UnknownCrawl
from catalogue.examine import Examiner
from catalogue.harvest import Harvested, Progress, harvest, take_crawl_list
from catalogue.plan import Cost
from catalogue.query import CDX_COLUMNS, Query, check_columns, time_bounds
from catalogue.question import Footers, Question, Scope
from catalogue.settings import COLLINFO_SOURCE, DEFAULT_SOURCE, Settings, load_settings
from catalogue.source import ATTEMPTS, CachedSource, PoliteSource, RangeCache, open_source
from catalogue.store import Store
from catalogue.surt import Match, Pattern, merge, parse_pattern
from catalogue.where import parse_where

if TYPE_CHECKING:
    import pandas as pd

STORE_NAME = "footers.sqlite"
CATALOGUE_NAME = "catalogue.duckdb"


def open(data: str | Path = "data", *, source: str | None = None, settings: Settings | None = None) -> "Catalogue":  # noqa: A001 - catalogue.open, as gzip.open
    """Open the catalogue in a folder, which is made when something is first harvested into it.

    Args:
        data: the folder.
        source: where files are read from: an https, http or s3 address, or a folder; Common Crawl unless set.
        settings: instead of those from the environment and ``config.toml``.
    """
    return Catalogue(Path(data), settings or load_settings(source=source))


class Catalogue:
    """Footers of index files, what they say, and captures found by them.

    Not for use from several threads at once; open one for each.
    """

    def __init__(self, data: Path, settings: Settings, *, notify: Callable[[str], None] = lambda _: None) -> None:
        """See ``open``; ``notify`` is told in a sentence what a person would want to know meanwhile."""
        self.data = data
        self.settings = settings
        self._notify = notify
        self._opened: list[Store | PoliteSource] = []
        self._planning: views.Shown | None = None
        self._listing = (0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Catalogue in {self.data}, of {self.settings.source}>"

    def close(self) -> None:
        """Close what is open, breaking off requests that are under way; it opens again when it is used again."""
        if self._planning:
            self._planning.close()
            self._planning = None
        while self._opened:
            self._opened.pop().close()
        for name in ("_store", "_source", "_reading", "_footers"):
            self.__dict__.pop(name, None)

    @property
    def path(self) -> Path:
        """The DuckDB file."""
        return self.data / CATALOGUE_NAME

    @cached_property
    def _store(self) -> Store:
        return self._open_store(create=False)

    @cached_property
    def _source(self) -> PoliteSource:
        source = open_source(self.settings.source, self.settings, notify=self._notify)
        self._opened.append(source)
        return source

    @cached_property
    def _reading(self) -> PoliteSource | CachedSource:
        """The source as captures are read from it: what was fetched before need not be fetched again."""
        folder = "://" not in self.settings.source  # whose files are here already
        if folder or not self.settings.cache_size:
            return self._source
        return CachedSource(self._source, RangeCache(self.settings.cache / "pages", self.settings.cache_size))

    @cached_property
    def _footers(self) -> Footers:
        return Footers(self._store)

    def _open_store(self, *, create: bool) -> Store:
        store = Store(self.data / STORE_NAME, create=create)
        self._opened.append(store)
        return store

    def _create(self) -> Store:
        if "_store" not in self.__dict__:
            if not (self.data / STORE_NAME).exists():
                self._notify(f"making {self.data.resolve()}")
            self.__dict__["_store"] = self._open_store(create=True)
        return self._store

    @property
    def requests(self) -> int:
        """Requests made of the source so far."""
        return self._listing[0] + (self._source.requests if "_source" in self.__dict__ else 0)

    @property
    def bytes(self) -> int:
        """Bytes received from the source so far."""
        return self._listing[1] + (self._source.bytes if "_source" in self.__dict__ else 0)

    # ---- the crawls there are, and taking their footers ----

    def crawl_list(self, *, attempts: int = ATTEMPTS) -> list[Crawl]:
        """The crawls that the source lists, newest first; asked for once a day at most.

        Raises:
            SourceError: if the source does not say.
        """
        store = self._create()
        url = COLLINFO_SOURCE if self.settings.source == DEFAULT_SOURCE else self.settings.source
        source = open_source(url, self.settings, notify=self._notify, attempts=attempts)
        try:
            return take_crawl_list(store, source)
        finally:
            self._listing = (self._listing[0] + source.requests, self._listing[1] + source.bytes)
            source.close()

    def harvest(
        self,
        crawls: str | Iterable[str],
        *,
        subsets: str | Iterable[str] = "warc",
        refresh: bool = False,
        pages: bool = False,
        report: Callable[[Progress], None] = lambda _: None,
    ) -> list[Harvested]:
        """Take the footers of crawls that are not held yet, and show them in the catalogue.

        Args:
            crawls: names, ranges ``A..B``, ``latest`` or ``all``.
            subsets: ``warc``, ``crawldiagnostics``, ``robotstxt`` or ``all``.
            refresh: take them again, held or not.
            pages: take the page indexes too, which questions fetch when they need them otherwise.
            report: told how far it is, often.

        Raises:
            SourceError: if the source failed as a whole; what was taken until then is kept, and so is shown later.
        """
        chosen_subsets = select_subsets(_several(subsets))
        words = _several(crawls)
        chosen = self._choose(words)
        store, outcomes = self._create(), []
        with Examiner() as examiner:
            for crawl in chosen:
                try:
                    outcome = harvest(
                        crawl,
                        chosen_subsets,
                        store=store,
                        source=self._source,
                        examiner=examiner,
                        refresh=refresh,
                        pages=pages,
                        report=report,
                        notify=self._notify,
                    )
                except UnknownCrawl as error:
                    if crawl in words:
                        raise
                    self._notify(str(error))  # a list of crawls runs ahead of their index
                    continue
                outcomes.append(outcome)
                views.refresh(self.path, store, facts=outcome.facts, examiner=examiner)
        return outcomes

    def _choose(self, words: Sequence[str]) -> list[str]:
        """The crawls that words mean. Plain names do without the list of crawls, if it cannot be had."""
        plain = [word for word in words if ".." not in word and word not in {"all", "latest"}]
        select_crawls(plain, [])
        if len(plain) < len(words):
            return select_crawls(words, [crawl.id for crawl in self.crawl_list()])
        with suppress(SourceError, FormatError):
            self.crawl_list(attempts=1)
        return select_crawls(words, [])

    def forget(self, crawls: str | Iterable[str]) -> int:
        """Delete what is held of crawls; returns how many footers that were."""
        gone = 0
        for crawl in self._held_crawls(_several(crawls)):
            paths = self._store.keys("files", f"crawl={crawl}/")
            self._store.delete("files", paths)
            self._store.delete("failures", self._store.keys("failures", f"crawl={crawl}/"))
            self._store.delete("documents", [manifest_path(crawl)])
            gone += len(paths)
        views.refresh(self.path, self._store)
        return gone

    def _held_crawls(self, words: Sequence[str]) -> list[str]:
        files = (index_file(path) for path in self._store.keys("files"))
        return select_held({file.crawl for file in files if file}, words)

    # ---- what the footers say ----

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Run SQL over the catalogue's views: ``crawls``, ``files``, ``row_groups``, ``pages``, ``column_chunks``.

        Returns:
            A DuckDB relation: ``.df()`` makes a DataFrame of it, ``.pl()`` polars, ``.arrow()`` Arrow.

        Raises:
            QueryError: if DuckDB cannot run it.
        """
        with views.answerable():
            return self.connect().sql(query)

    def update(self) -> None:
        """Bring the DuckDB file up to date with the store; everything here that reads it does so first."""
        views.refresh(self.path, self._store)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A read-only DuckDB connection to the catalogue as it is now."""
        return views.connect_fresh(self.path, self._store, indexes=True)

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
        wanted = set(self._held_crawls(list(crawls)))
        with self.connect() as connection:
            rows = connection.execute("SELECT DISTINCT crawl FROM derived.files WHERE column_chunks").fetchall()
        if wanted - {crawl for (crawl,) in rows}:
            views.refresh(self.path, self._store, column_chunks=wanted)

    def coverage(self) -> "pd.DataFrame":
        """How much of each crawl and subset is held, a row each."""
        return self._frame((views.queries_folder() / "coverage.sql").read_text(encoding="utf-8"))

    def failures(self) -> "pd.DataFrame":
        """Index files whose footers could not be taken, and why."""
        return self._frame("SELECT path, reason, failed_at FROM derived.failures ORDER BY path")

    def sizes(self) -> tuple[int, int]:
        """Bytes on disk of the store and of the catalogue."""
        with suppress(FileNotFoundError):
            return self._store.size(), self.path.stat().st_size
        return self._store.size(), 0

    def _of_crawl(self, view: str, crawl: str | None) -> "pd.DataFrame":
        if crawl is not None:
            self._held_crawls([crawl])
        return self._frame(f"SELECT * FROM {view} WHERE $1 IS NULL OR crawl = $1 ORDER BY ALL", crawl)  # noqa: S608

    def _frame(self, sql: str, *parameters: object) -> "pd.DataFrame":
        with self.connect() as connection:
            return connection.execute(sql, list(parameters)).df()

    # ---- what the footers do not say ----

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
            words = select_held(self._shown().crawls, _several(crawls))
            found = views.gaps(connection, words, _several(files), overlapping=not only_gaps)
        return Backfill(
            found,
            lambda query, scope: Question(
                query, scope, self._footers, lambda: self._source, self._cost(), teaches=True
            ),
            lambda: self._source,
        )

    # ---- captures ----

    def captures(  # noqa: PLR0913 - a question has many sides, and each is named
        self,
        patterns: str | Iterable[str],
        *,
        crawls: str | Iterable[str] = "all",
        subsets: str | Iterable[str] = (),
        columns: str | Iterable[str] = CDX_COLUMNS,
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
            columns: of the answer, ``*`` for all; ``crawl`` and ``subset`` always come too.
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
        typed = _several(patterns)
        if not typed or (limit is not None and limit < 0):
            message = (
                f"{limit} is no limit" if typed else "nothing is asked for; give a pattern, such as '*.example.com'"
            )
            raise QueryError(message)
        parsed = [parse_pattern(text, match) for text in typed]
        shown = self._shown()
        words = select_held(shown.crawls, _several(crawls))
        candidates = shown.candidates(words, select_subsets(_several(subsets)))
        newer = candidates.column_names
        first, last = time_bounds(from_, to)
        query = Query(
            intervals=merge(interval for pattern in parsed for interval in pattern.intervals),
            patterns=tuple(typed),
            columns=check_columns([*SCHEMA.names, *newer] if columns == "*" else _several(columns), newer),
            where=parse_where(where, newer) if where else None,
            from_ms=first,
            to_ms=last,
            urls=_whole_urls(parsed) if exact_url else (),
            limit=limit,
            ordered=ordered,
        )
        scope = Scope(tuple(candidates.files(query)), candidates.row_groups, candidates.missing)
        question = Question(query, scope, self._footers, lambda: self._reading, self._cost())
        return Captures(question, notify=self._notify)

    def _shown(self) -> views.Shown:
        """The catalogue as it is now, kept open for planning."""
        state = self._store.state()
        if self._planning and self._planning.state != state:
            self._planning.close()
            self._planning = None
        if not self._planning:
            self._planning = views.Shown(views.connect_fresh(self.path, self._store, indexes=False), state)
        return self._planning

    def _cost(self) -> Cost:
        limiter, settings = self._source.limiter, self.settings
        return Cost(
            rate=limiter.rate,
            burst=limiter.policy.burst,
            bandwidth=settings.bandwidth,
            latency=settings.latency,
            connections=self._source.connections,
        )


def _whole_urls(patterns: Iterable[Pattern]) -> tuple[str, ...]:
    """The URLs as typed, if all of the patterns are URLs."""
    urls = []
    for pattern in patterns:
        if pattern.url is None:
            message = f"{pattern.text!r} is no whole URL; with --exact-url give one such as https://example.com/page"
            raise QueryError(message)
        urls.append(pattern.url)
    return tuple(urls)


def _several(words: str | Iterable[str]) -> list[str]:
    return [words] if isinstance(words, str) else list(words)
