"""Calls of ``Catalogue`` that find captures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import Unpack

    import polars as pl

    from catalogue.captures import Captures
    from catalogue.cdx.url_index_2012 import OldIndex
    from catalogue.commoncrawl.crawls import CrawlWords
    from catalogue.join.inputs import Input
    from catalogue.join.joined import Joined, JoinEstimate
    from catalogue.progress import Progress
    from catalogue.query.filters import Moment, Values
    from catalogue.query.query import QueryOptions
    from catalogue.sample import Sample
    from catalogue.session import Session
    from catalogue.surt.pattern import Match


class QueryCalls:
    """Queries, scans, joins and samples."""

    session: Session

    def captures(  # noqa: PLR0913 - one parameter for each option
        self,
        patterns: str | Iterable[str],
        *,
        crawls: CrawlWords | None = None,
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
        index: str = "auto",
    ) -> Captures:
        """Find captures. Nothing is read yet: look at ``.plan``; ``.to_pandas()`` then reads at any cost.

        Args:
            patterns: URLs or hosts: ``example.com/page``, ``example.com/*``, ``*.example.com``, ``*.is``, ``*``.
            crawls: names, years, ranges ``A..B``, ``latest``, ``3`` (the newest three) or ``all``, of the listed
                crawls; or ``stored``, the default.
            subsets: ``warc`` (pages), ``crawldiagnostics`` (redirects and errors), ``robotstxt`` or ``all``; by default
                ``warc``, or with ``status`` those that can have it.
            columns: result columns, ``*`` for all; by default those of the CDX index, or all of another dataset.
                ``crawl`` and ``subset`` are always added, if the paths have them.
            where: boolean expressions over the columns in DuckDB's SQL; all must be true.
            status: ``200``, ``"2xx"``, ``"200,404"`` or a list of these.
            mime: media types, as detected, or as declared in crawls without detection: ``"text/html"``, ``"text/*"``.
            lang: languages in ISO 639-3, such as ``"isl"``; a capture needs one of them.
            from_: first time, inclusive: ``2022``, ``20220131``, ``2022-01-31T12:00:00`` (UTC), or a date or datetime.
            to: last time, inclusive; a day, month or year includes all of it.
            limit: number of rows; reading stops when they are found.
            match: ``exact``, ``prefix``, ``host`` or ``domain``, instead of the wildcards of patterns.
            exact_url: compare URLs as typed, instead of keys, which ignore scheme, ``www`` and case.
            ordered: sort by key, time and crawl, then by the other columns; the whole result is in memory.
                Otherwise the newest crawl comes first, in a crawl warc, in a subset the rows by key.
            unique: ``url``, ``digest`` or a column: keep the first of captures with equal values, in the order of the
                result: of the newest crawl, unless ``ordered``. URLs are equal if their keys are.
            latest: keep the latest of them instead, by ``url`` unless ``unique`` is given; the whole result is in
                memory.
            index: ``columnar`` reads the Parquet files of harvested crawls. ``cdx`` reads blocks of the CDX index, for
                which nothing needs to be stored; it has the columns of ``CDX_COLUMNS`` and ``warc_segment``. ``auto``
                takes the cheaper one for each crawl.

        Raises:
            QueryError: if the query is invalid, or crawls are not harvested.
        """
        from catalogue.find_captures import find_captures
        from catalogue.query.query import Query

        query = Query.of(
            patterns,
            crawls=crawls,
            subsets=subsets,
            columns=columns,
            where=where,
            status=status,
            mime=mime,
            lang=lang,
            from_=from_,
            to=to,
            limit=limit,
            match=match,
            exact_url=exact_url,
            ordered=ordered,
            unique=unique,
            latest=latest,
            index=index,
        )
        return find_captures(self.session, query)

    def scan(
        self,
        patterns: str | Iterable[str] = "*",
        *,
        match: Match | str | None = None,
        max_requests: int = 500,
        max_bytes: int = 1_000_000_000,
        **query: Unpack[QueryOptions],
    ) -> pl.LazyFrame:
        """Return a polars LazyFrame of captures. What its conditions and columns exclude is not read.

        Conditions on ``url_surtkey``, ``url``, hosts and domains select keys, those on ``crawl``, ``subset`` and
        ``fetch_time`` select files, and others on text and integers are compared before further columns are read.
        Polars applies all conditions to the rows. Each ``collect`` reads again, and warns of incomplete results. Rows
        with the same key and time are in the order of the columns that are read: before ``head`` or ``unique``, select
        those that decide::

            pages = cat.scan(crawls="2022-05").filter(
                pl.col("url_host_registered_domain") == "example.com", pl.col("fetch_status") == 200
            )
            pages.select("url", "fetch_time").collect()

        Args:
            patterns: see ``captures``.
            match: see ``captures``.
            max_requests: limit of one ``collect``.
            max_bytes: limit of one ``collect``.
            query: see ``captures``, without ``limit``, ``unique`` and ``latest``, for which polars has ``head`` and
                ``unique``; columns are by default all where the footers of all crawls and subsets are stored, and
                else those of the CDX index.

        Raises:
            QueryError: if the query is invalid, crawls are not harvested, or polars is not installed; also when it is
                collected, as ``TooExpensive`` before more than ``max_requests`` or ``max_bytes`` are read.
        """
        from catalogue.query.query import Query
        from catalogue.settings import needing

        with needing("polars", "this"):
            from catalogue.scan.lazy_frame import scan

        return scan(self.session, Query.of(patterns, match=match, **query), max_requests, max_bytes)

    def join(
        self,
        keys: Input,
        output: str | Path | None = None,
        *,
        how: str = "inner",
        on: str | None = None,
        match: Match | str = "exact",
        agree: Callable[[JoinEstimate], None] | None = None,
        budget: int | None = None,
        report: Callable[[Progress], None] | None = None,
        **query: Unpack[QueryOptions],
    ) -> Joined:
        """Join up to 100 million URLs, hosts, domains or prefixes with the captures of crawls, in bounded memory.

        Every page or block is read at most once. After an interruption the same call continues. The result has the
        number of the input's row as ``row_id``, from 1 on, and its columns with the prefix ``input_``.

        Args:
            keys: path of a Parquet, CSV, TSV or JSON-lines file, or of a text file with one a line; or an Arrow
                table, a DataFrame of pandas or polars, or an iterable of texts. Values of ``url_surtkey`` are keys,
                too.
            output: a new folder for Parquet files, or a file whose name ends in ``.parquet``; by default a temporary
                folder, which ``close()`` deletes.
            how: ``inner``: each capture of each row. ``semi``: rows that have captures. ``anti``: rows that have none,
                where everything that can match was read. ``crawls``: each row with the number of captures, their
                crawls, first and last time, and statuses. ``latest``: the newest capture of each row.
            on: name of the column with the keys; by default the only one, ``url`` or ``url_surtkey``.
            match: ``exact``, ``prefix``, ``host`` or ``domain``. With ``exact``, ``inner`` and ``latest`` prefer the
                captures of the URL itself to those of other URLs with its key; the column ``exact`` says which it is.
            agree: called with the cost of what is not done yet; may raise.
            budget: bytes that may be received; it ends before a part of the keys that would exceed them.
            report: see ``Catalogue``.
            query: crawls, subsets, columns, filters and index; see ``captures``.

        Raises:
            QueryError: if the input cannot be read or has no key, or the output has other files.
            NotHarvested: if neither index of a crawl is stored, for more than a thousand keys.
            SourceError: if the source fails as a whole; finished slices stay.
        """
        from catalogue.join.join import JoinQuery, join
        from catalogue.output.targets import local_path

        asked = JoinQuery.of(how, on, match, query)
        folder = local_path(output) if output is not None else self.session.new_temporary_folder()
        return join(self.session, asked, keys, folder, agree=agree, budget=budget, report=report)

    def join_estimate(
        self,
        keys: Input,
        *,
        how: str = "inner",
        on: str | None = None,
        match: Match | str = "exact",
        **query: Unpack[QueryOptions],
    ) -> JoinEstimate:
        """Estimate the cost of ``join``; no index is read from the source."""
        from catalogue.join.join import JoinQuery, estimate

        asked = JoinQuery.of(how, on, match, query)
        return estimate(self.session, asked, keys)

    def sample(self, captures: Captures, size: int, *, seed: int = 0, per: str | None = None, most: int = 1) -> Sample:
        """Draw a random sample of captures, each as likely as any other. Nothing is read yet: look at ``.plan``.

        Pages are cached, so that none is fetched twice.

        Args:
            captures: the captures to sample; neither limited nor ordered.
            size: number of captures.
            seed: the same seed gives the same sample of the same files; a smaller sample is the start of a larger one.
            per: ``host``, ``domain`` or a column, each of whose values has at most ``most`` captures.
            most: see ``per``.

        Raises:
            QueryError: if the captures cannot be sampled, or ``size`` or ``most`` is not positive.
        """
        from catalogue.sample import Sample

        return Sample(self.session, captures, size, seed=seed, per=per, most=most)

    def old_index(self, path: str | None = None) -> OldIndex:
        """Open the URL index of the crawl of 2012, which has no columnar index; ``path`` is relative to the source."""
        from catalogue.cdx.url_index_2012 import PATH, OldIndex

        return OldIndex(self.session.reading, path or PATH)
