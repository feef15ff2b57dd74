"""Class ``Catalogue``."""

import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from catalogue import metadata_db
from catalogue.captures import Captures, parse_query, several
from catalogue.catalogue.choosing import settings_for
from catalogue.catalogue.fetches import Fetches
from catalogue.catalogue.steps import Step, steps
from catalogue.commoncrawl.crawls import newest_first, select_subsets
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.display import some
from catalogue.errors import QueryError
from catalogue.formatting import plural, size
from catalogue.harvest.backfill import Backfill
from catalogue.key_map.key_map import KeySpace, key_space
from catalogue.plan.context import PlanContext, Scope
from catalogue.plan.plan import ReadPlan
from catalogue.progress import bars
from catalogue.query.deduplicate import Distinct
from catalogue.query.filters import Filters, Values
from catalogue.query.query import Moment, Query, check_columns
from catalogue.query.random_order import Drawn, Place
from catalogue.read.workers import Here
from catalogue.sample import Sample
from catalogue.settings import Settings
from catalogue.store.stored_lists import crawl_list_age, known_crawls
from catalogue.surt import Match

_STRATA = {"host": "url_host_name", "domain": "url_host_registered_domain"}
"""Short names of columns of Common Crawl's index."""
_PRICED = 500
"""Row groups of which it is quickly said what reading their keys takes."""


def open(  # noqa: A001 - catalogue.open, as gzip.open
    data: str | Path | None = None,
    *,
    table: str | None = None,
    source: str | None = None,
    settings: Settings | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> "Catalogue":
    """Open the catalogue in a folder, which is made when something is first harvested into it.

    ``close()``, or the end of a ``with``, lets go of files and connections, and of answers: what was not read by then
    has to be asked again. The catalogue itself opens again when it is used again.

    Args:
        data: the folder; by default as the command has it: a setting, else ``data`` if there is a store in it, else a
            folder of the user's.
        table: name of another table than Common Crawl's index, which has a folder of its own in there.
        source: where files are read from: an https, http or s3 address, or a folder. By default a setting, else
            where the stored files came from, else Common Crawl.
        executor: whose workers read, such as a ``ProcessPoolExecutor`` or that of a Dask client
            (``client.get_executor()``); they must have this package. Among machines of Dask's the rate is divided.
        settings: instead of those from the environment and ``config.toml``.
        progress: whether what takes long shows how far it is; by default in notebooks and on terminals, and not where
            errors go to a file or a pipe.
    """
    chosen = settings or settings_for(data=data, table=table, notify=_warn, source=source)
    folder = chosen.data if data is None else Path(data)
    return Catalogue(folder, chosen, table=table, executor=executor, bars=bars(progress))


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


class Catalogue(Fetches):
    """Footers of index files, what they say, and captures found by them.

    Not for use from several threads at once; open one for each, see ``sharing``.
    """

    def backfill(
        self, crawls: str | Iterable[str] = "all", *, only_gaps: bool = False, files: str | Iterable[str] = ()
    ) -> Backfill:
        """Find what the keys of row groups say whose footers say too little to prune by. Nothing is read yet.

        Args:
            crawls: harvested ones: names, years, ranges ``A..B``, ``latest`` or ``all``.
            only_gaps: leave alone what has bounds, even if they say little because two sorted streams were zipped.
            files: patterns such as ``*part-00007-*`` of paths to look at; all unless given.
        """
        with self._looking() as connection:
            words = self.select_held(self._shown().crawls, crawls)
            found = metadata_db.gaps(connection, words, several(files), overlapping=not only_gaps)
        return Backfill(
            found,
            self.table,
            lambda query, scope: PlanContext(
                query, scope, self._footers, lambda: self._source, self._cost(), teaches=True
            ),
            self._workers or Here(lambda: self._source),
            lambda: self._made,
            bars=self._bars,
        )

    def next_steps(self) -> list[Step]:
        """What is worth doing, the most urgent first, each with its command; nothing is asked of the source."""
        coverage = self.coverage_rows()
        price = ""
        with suppress(QueryError):  # of a source that cannot be asked
            if 0 < sum(row["without_bounds"] for row in coverage) <= _PRICED:
                needed = self.backfill(only_gaps=True).estimate
                price = f"{plural(needed.requests, 'request')}, {size(needed.bytes)}, about {needed.seconds:.0f} s"
        listed = known_crawls(self._store) if self.table == COMMON_CRAWL else []
        age = crawl_list_age(self._store) if listed else None
        return list(steps(self.table, coverage, listed, age, price))

    def captures(  # noqa: PLR0913 - a question has many sides, and each is named
        self,
        patterns: str | Iterable[str],
        *,
        crawls: str | Iterable[str] = "all",
        subsets: str | Iterable[str] = (),
        columns: str | Iterable[str] | None = None,
        where: str | Iterable[str] | None = None,
        status: Values = None,
        mime: Values = None,
        lang: Values = None,
        from_: Moment | None = None,
        to: Moment | None = None,
        limit: int | None = None,
        match: Match | str | None = None,
        exact_url: bool = False,
        ordered: bool = False,
        unique: str | None = None,
        latest: bool = False,
    ) -> Captures:
        """Find captures. Nothing is read yet: look at ``.plan``, then at ``.to_pandas()``.

        Args:
            patterns: URLs or hosts: ``example.com/page``, ``example.com/*``, ``*.example.com``, ``*.is``, ``*``.
            crawls: harvested ones: names, years, ranges ``A..B``, ``latest`` or ``all``.
            subsets: all that are held unless named.
            columns: of the answer, ``*`` for all; by default those of the CDX index, or all of another table. ``crawl``
                and ``subset``, if they stand in paths, always come too.
            where: a boolean expression over the columns, in DuckDB's SQL; of several all must be true.
            status: ``200``, ``"2xx"``, ``"200,404"`` or a list of these.
            mime: media types as detected, or as the server named them in crawls without detected types:
                ``"text/html"``, ``"text/*"``, or several.
            lang: languages in ISO 639-3, ``"isl"`` or several; a capture matches if it has one of them.
            from_: the first time, as ``2022``, ``20220131`` or ``2022-01-31T12:00:00``, UTC, inclusive; or as a date
                or time of Python's.
            to: the last, likewise; of a day, a month or a year that is named all.
            limit: of rows; reading stops when they are found.
            match: overrides what a pattern's wildcards say: ``exact``, ``prefix``, ``host`` or ``domain``.
            exact_url: match the URL as typed instead of its key, which ignores scheme, ``www``, case and the like.
            ordered: by key, time and crawl, which takes the whole answer into memory.
            unique: ``url``, ``digest`` or a column: of captures that are the same in it only the first that comes.
                URLs are the same if their keys are: scheme, ``www`` and case make no difference.
            latest: the last of them by time, instead of the first; by ``url`` unless ``unique`` says otherwise. Takes
                the whole answer into memory.

        Raises:
            QueryError: if the question cannot be understood, or is about what is not harvested.
        """
        self._check_store(crawls, subsets)
        query = parse_query(
            self.table,
            self._shown().columns,
            patterns,
            columns=columns,
            where=where,
            filters=Filters.of(status, mime, lang),
            times=(from_, to),
            limit=limit,
            match=match,
            exact_url=exact_url,
            ordered=ordered,
        )
        distinct = self._distinct(query, unique, latest=latest) if unique is not None or latest else None
        if distinct:  # a limit is of those that are left
            columns = (*query.columns, distinct.by, *filter(None, [distinct.time]))
            query = replace(query, columns=tuple(dict.fromkeys(columns)), limit=None)
        return self.ask(query, crawls, subsets, distinct=distinct)

    def ask(
        self,
        query: Query,
        crawls: str | Iterable[str] = "all",
        subsets: str | Iterable[str] = (),
        *,
        distinct: Distinct | None = None,
    ) -> Captures:
        """Find what a query means that is made already; see ``captures``.

        Raises:
            QueryError: if it is about what is not harvested.
        """
        shown = self._shown()
        chosen = select_subsets(several(subsets)) if self.table == COMMON_CRAWL else several(subsets)
        words = self.select_held(shown.requested_crawls, crawls, chosen)
        candidates = shown.candidates(words, chosen)
        missing = (*self.gaps(shown.requested_crawls, crawls, chosen), *candidates.missing)
        scope = Scope(tuple(candidates.files(query)), candidates.row_groups, missing)
        question = PlanContext(query, scope, self._footers, lambda: self._reading, self._cost())

        def space(plan: ReadPlan, crawl: str | None) -> KeySpace:
            if crawl and crawl not in words:
                message = f"{crawl} is not among the crawls asked about: {some(words, len(words))}"
                raise QueryError(message)
            touched = newest_first(file.crawl for path in plan.paths if (file := self.table.file(path)))
            mapped = crawl or (touched or words)[0]
            return key_space(mapped, self.extents(mapped, plan.paths), plan)

        return Captures(
            question,
            self._share,
            space=space,
            workers=self._workers,
            distinct=distinct,
            notify=self._notify,
            bars=self._bars,
        )

    def _distinct(self, query: Query, unique: str | None, *, latest: bool) -> Distinct:
        """Which captures are the same, and which of them is wanted.

        Raises:
            QueryError: if there is no telling.
        """
        short = {"url": self.table.key, "digest": "content_digest"} if self.table == COMMON_CRAWL else {}
        by = self.table.key if unique is None else unique
        if latest and self.table.time is None:
            message = f"{self.table.name} has no column of times by which one would be the latest"
            raise QueryError(message)
        (by,) = check_columns([short.get(by, by)], self._shown().columns, self.table)
        shown = tuple(dict.fromkeys([*query.columns, *self.table.path_columns]))
        return Distinct(by, self.table.time if latest else None, query.limit, shown)

    def sample(self, captures: Captures, size: int, *, seed: int = 0, per: str | None = None, most: int = 1) -> Sample:
        """Draw a random sample of captures, each as likely as any other. Nothing is read yet: look at ``.plan``.

        What is read for it is kept in the cache on disk, or in a temporary one, so that no page is fetched twice while
        there is room for it, and the files say by an ETag that they are the same.

        Args:
            captures: of which; neither limited nor ordered.
            size: how many are wanted.
            seed: the same gives the same sample, of the same captures.
            per: ``host``, ``domain`` or a column: of each of its values there are at most ``most`` captures, so that
                the large do not make up most of the sample. Those of one value are as likely as each other.
            most: see ``per``.

        Raises:
            QueryError: if that is no sample.
        """
        query, scope = captures.question.query, captures.question.scope
        if query.limit is not None or query.ordered or captures.distinct:
            message = "a sample is of all captures, in no order; leave out limit, ordered, unique and latest"
            raise QueryError(message)
        short = _STRATA if self.table == COMMON_CRAWL else {}
        there = self._shown().columns
        stratum = check_columns([short.get(per, per)], there, self.table) if per is not None else ()
        drawing = replace(query, columns=(*query.columns, *stratum), draws=True)
        files = {file.path: file for file in scope.candidates}

        def ask(drawn: Mapping[Place, Drawn]) -> Captures:
            by_path: dict[str, dict[int, Drawn]] = {}
            for (path, ordinal), rows in drawn.items():
                by_path.setdefault(path, {})[ordinal] = rows
            chosen = tuple(
                replace(files[path], row_groups=tuple(each for each in files[path].row_groups if each[0] in rows))
                for path, rows in sorted(by_path.items())
            )
            some = Scope(chosen, scope.considered, (), by_path)
            question = PlanContext(drawing, some, self._footers, lambda: self._rereading, self._cost())
            return Captures(question, self._share, space=captures.space_of, notify=self._notify, bars=self._bars)

        return Sample(
            size,
            self._shown().sizes(scope.candidates),
            ask,
            columns=tuple(dict.fromkeys([*query.columns, *self.table.path_columns])),
            seed=seed,
            bars=self._bars,
            per=next(iter(stratum), None),
            most=most,
            missing=scope.missing
            + tuple(
                f"{path} has no column {self.table.key} to find rows by"
                for path in self._shown().without(self.table.key, scope.candidates)
            ),
        )
