"""``catalogue.open`` and class ``Catalogue``: the Python API, one call for each feature."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from catalogue.commoncrawl.crawls import CrawlWords
from catalogue.formatting import ReprMixin, naming_arguments, plural
from catalogue.progress import bars
from catalogue.session import Session
from catalogue.store.folder_settings import settings_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor
    from typing import Self, Unpack

    import duckdb
    import pandas as pd
    import polars as pl

    from catalogue.captures import Captures
    from catalogue.check.doctor import Diagnosis
    from catalogue.check.findings import Checked
    from catalogue.commoncrawl.capture import Capture
    from catalogue.export.exports import Exported
    from catalogue.export.iceberg_read import IcebergTable
    from catalogue.get_page import GetEstimate
    from catalogue.harvest.backfill import Backfill
    from catalogue.harvest.harvest import Harvested
    from catalogue.harvest.harvest_crawls import HarvestEstimate
    from catalogue.harvest.pull import Pulled
    from catalogue.join.inputs import Input
    from catalogue.join.joined import Joined, JoinEstimate
    from catalogue.key_map.svg import Picture
    from catalogue.output.fetch import Fetched, FetchEstimate
    from catalogue.output.fetch_captures import SomeCaptures
    from catalogue.output.open_output import Output
    from catalogue.plan.plan import ReadPlan
    from catalogue.progress import Progress
    from catalogue.query.filters import Moment, Values
    from catalogue.query.query import QueryOptions
    from catalogue.records.page import Page
    from catalogue.records.record import Record
    from catalogue.sample import Sample
    from catalogue.settings import Settings
    from catalogue.site_report import SiteReport
    from catalogue.source.observe import Observer, RequestEvent
    from catalogue.surt import Keys, Match
    from catalogue.url_index_2012.lookup import OldIndex

_LISTED_CRAWLS = 12
"""Crawls that the text of a catalogue lists."""
_REPR_WAIT = 0.1
"""Seconds that the text of a catalogue waits for a process that writes."""


def open(  # noqa: A001 - catalogue.open, as gzip.open
    data: str | Path | None = None,
    *,
    table: str | None = None,
    source: str | None = None,
    settings: Settings | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
    trace: bool | Observer = False,
) -> Catalogue:
    """Open a data folder, which the first harvest creates.

    ``close()``, or the end of a ``with`` statement, closes files and connections; unread results are lost then.

    Args:
        data: the data folder; by default a setting, else ``data`` if it has a store, else the user's data folder.
        table: name of a dataset other than Common Crawl's index, with a folder of its own in the data folder.
        source: an https, http or s3 address, a folder, or hosts such as ``commoncrawl,huggingface``; by default a
            setting, else that of the stored files, else Common Crawl.
        settings: used instead of the environment and ``config.toml``.
        executor: reads with its workers: a ``ProcessPoolExecutor``, or ``client.get_executor()`` of a Dask client.
            They need this package. Machines of a cluster divide the rate.
        progress: show progress bars; by default in notebooks and on terminals.
        trace: print each request on standard error, or a function that is called with each
            ``catalogue.source.observe.RequestEvent``, from any thread. Requests of workers are left out.
    """
    chosen = settings or settings_for(data=data, dataset=table, notify=_warn, source=source)
    folder = chosen.data if data is None else Path(data)
    observer = (_print_event if trace else None) if isinstance(trace, bool) else trace
    return Catalogue(Session(folder, chosen, dataset=table, executor=executor, bars=bars(progress), observer=observer))


def get(
    url: str,
    *,
    at: Moment | None = None,
    crawls: CrawlWords | None = None,
    follow: bool = True,
    max_requests: int = 20,
) -> Page:
    """Get an archived page; see ``Catalogue.get``."""
    with open() as cat:
        return cat.get(url, at=at, crawls=crawls, follow=follow, max_requests=max_requests)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def _print_event(event: RequestEvent) -> None:
    sys.stderr.write(f"{event}\n")


@naming_arguments
class Catalogue(ReprMixin):
    """Metadata of index files, and captures found with it. For one thread at a time; see ``Session.share``.

    Where nothing else is said, ``crawls`` are names, years, ranges ``A..B``, ``latest`` or ``all``, of the stored
    crawls; ``report`` is called with the progress, instead of a progress bar.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open and abort requests; the next use opens it again."""
        self.session.close()

    @property
    def requests(self) -> int:
        """Requests to the source so far."""
        return self.session.requests

    @property
    def bytes(self) -> int:
        """Bytes received from the source so far."""
        return self.session.bytes

    @property
    def path(self) -> Path:
        """The DuckDB file with the metadata; a temporary one if the data folder is read-only and it is out of date."""
        return self.session.database_path

    def define(
        self, key: str, *, keys: Keys | str | None = None, manifest: str | None = None, paths: Iterable[str] = ()
    ) -> None:
        """Define the dataset that was named in ``open``: sorted Parquet files, and their paths.

        Args:
            key: the text column that the files are sorted by.
            keys: its content, ``url``, ``host`` or ``text``; by default derived from its name.
            manifest: path of a list of the files: a path a line, gzipped or not.
            paths: paths of the files, instead of a manifest.

        Raises:
            QueryError: if the arguments conflict with each other, or with stored footers.
        """
        from catalogue.harvest.harvest_crawls import define

        return define(self.session, key, keys=keys, manifest=manifest, paths=paths)

    def harvest(
        self,
        crawls: CrawlWords | None = None,
        *,
        subsets: str | Iterable[str] = "warc",
        refresh: bool = False,
        pages: bool = False,
        index: str = "columnar",
        values: str | Iterable[str] = (),
        report: Callable[[Progress], None] | None = None,
    ) -> list[Harvested]:
        """Fetch and store the footers of crawls that are not stored yet, and update the metadata database.

        With ``index="cdx"`` it stores the list of blocks of the CDX index, with which one URL takes one request: 105 MB
        to fetch and 26 MB on disk a crawl.

        Args:
            crawls: listed crawls; of another dataset everything by default.
            subsets: ``warc``, ``crawldiagnostics``, ``robotstxt`` or ``all``.
            refresh: fetch stored footers again.
            pages: fetch page indexes, too; otherwise queries fetch those that they need.
            index: ``columnar``, ``cdx`` or ``both``.
            values: columns of which it stores the values of each row group, such as ``content_mime_detected``, or
                ``all`` for media types, languages, charset, status and TLD. Queries with conditions on these columns
                then read no row group without a matching value.
            report: see ``Catalogue``.

        Raises:
            SourceError: if the source fails as a whole; footers fetched before stay stored.
        """
        from catalogue.harvest.harvest_crawls import harvest_crawls

        return harvest_crawls(
            self.session,
            crawls,
            subsets=subsets,
            refresh=refresh,
            pages=pages,
            index=index,
            values=values,
            report=report,
        )

    def harvest_estimate(
        self,
        crawls: CrawlWords | None = None,
        *,
        subsets: str | Iterable[str] = "warc",
        refresh: bool = False,
        pages: bool = False,
        index: str = "columnar",
        values: str | Iterable[str] = (),
    ) -> HarvestEstimate:
        """Estimate the cost of ``harvest``; at most the list of crawls is fetched.

        Raises:
            SourceError: if that list is needed and cannot be fetched.
        """
        from catalogue.harvest.harvest_crawls import estimate_crawls

        return estimate_crawls(
            self.session, crawls, subsets=subsets, refresh=refresh, pages=pages, index=index, values=values
        )

    def backfill(
        self,
        crawls: CrawlWords = "all",
        *,
        only_gaps: bool = False,  # noqa: ARG002 - callers of earlier versions pass it
        files: str | Iterable[str] = (),
    ) -> Backfill:
        """Prepare to find the bounds of row groups whose footers have none. Nothing is read yet.

        Args:
            crawls: see ``Catalogue``.
            only_gaps: has no effect.
            files: patterns of paths, such as ``*part-00007-*``; all by default.
        """
        from catalogue.harvest.backfill import prepare_backfill

        return prepare_backfill(self.session, crawls, files=files)

    def forget(self, crawls: CrawlWords) -> int:
        """Delete what is stored of crawls; return the number of footers.

        Raises:
            NotHarvested: if nothing is stored of one.
            StoreLocked: if another process harvests one.
        """
        from catalogue.harvest.harvest_crawls import forget_crawls

        return forget_crawls(self.session, crawls)

    def pull(
        self,
        place: str,
        *,
        crawls: CrawlWords = "all",
        compare: int = 3,
        report: Callable[[Progress], None] | None = None,
    ) -> Pulled:
        """Store a snapshot that somebody else exported; what is stored already stays.

        Args:
            place: a folder, or an https, http or s3 address.
            crawls: crawls of the snapshot.
            compare: how many files of each crawl are compared with the source, and as many with page indexes, by one
                request each.
            report: see ``Catalogue``.

        Raises:
            QueryError: if this is another dataset; ``UnknownCrawl`` if the snapshot does not have a crawl.
            BadSnapshot: if it is invalid, or differs from the source; crawls that were stored before stay.
            SourceError: if it, or the source, cannot be read.
            StoreLocked: if another process harvests or pulls the same.
        """
        from catalogue.harvest.pull import pull_snapshot

        return pull_snapshot(self.session, place, crawls=crawls, compare=compare, report=report)

    def check(
        self,
        crawls: CrawlWords = "all",
        *,
        read_subset: str | None = None,
        seed: int | None = None,
        repair: bool = False,
        report: Callable[[Progress], None] | None = None,
    ) -> Checked:
        """Check every stored value against its digest, and the metadata database against the store.

        A failure of the source is one of the findings; it is not raised.

        Args:
            crawls: crawls whose values are checked.
            read_subset: compare a share of the files with each host, by one request each: ``1%`` of them at random,
                ``3/30`` the third of thirty parts, or as many as have ``50MB`` of footers and page indexes.
            seed: selects the random share; by default a new one each time.
            repair: delete damaged values, note which footers a harvest has to fetch again, and rebuild the metadata
                database.
            report: see ``Catalogue``.

        Raises:
            QueryError: if a crawl is not stored, or the share is invalid.
            StoreError: if the store cannot be opened for another reason than damage.
        """
        from catalogue.check.check import check_store

        return check_store(
            self.session,
            crawls,
            read_subset=read_subset,
            seed=seed,
            repair=repair,
            report=report,
        )

    def doctor(self, crawl: str | None = None) -> Diagnosis:
        """Examine the installation and the source, by at most ten requests.

        Works with nothing harvested, and if the source does not answer. Only what is known about the host is stored.

        Args:
            crawl: a crawl whose index file is examined, or ``latest``; by default the newest stored one, else the
                newest listed.

        Raises:
            UnknownCrawl: if the source does not have the crawl.
            QueryError: if this is another dataset.
        """
        from catalogue.check.doctor import diagnose

        return diagnose(self.session, crawl)

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
        """Find captures. Nothing is read yet: look at ``.plan``, then call ``.to_pandas()``.

        Args:
            patterns: URLs or hosts: ``example.com/page``, ``example.com/*``, ``*.example.com``, ``*.is``, ``*``.
            crawls: names, years, ranges ``A..B``, ``latest`` or ``all``, of the listed crawls; or ``stored``, the
                default.
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
            unique: ``url``, ``digest`` or a column: keep the first of captures with equal values. URLs are equal if
                their keys are.
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
        from catalogue.read.dataframes import check_polars

        check_polars()
        from catalogue.scan.lazy_frame import ScanBudget, scan

        return scan(self.session, Query.of(patterns, match=match, **query), ScanBudget(max_requests, max_bytes))

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
            on: name of the column with the keys; by default the only one, or ``url``.
            match: ``exact``, ``prefix``, ``host`` or ``domain``. With ``exact``, ``inner`` and ``latest`` prefer the
                captures of the URL itself to those of other URLs with its key; the column ``exact`` says which it is.
            agree: called with the cost of what is not done yet; may raise.
            budget: bytes that may be received; it ends before a part of the keys that would exceed them.
            report: see ``Catalogue``.
            query: crawls, subsets, columns, filters and index; see ``captures``.

        Raises:
            QueryError: if the input cannot be read or has no key, or the output has other files.
            NotHarvested: if neither index of a crawl is stored.
            SourceError: if the source fails as a whole; finished slices stay.
        """
        from catalogue.join.join import JoinQuery, join

        asked = JoinQuery.of(how, on, match, query)
        folder = Path(output) if output is not None else self.session.new_temporary_folder()
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

    def records(self, captures: SomeCaptures) -> Iterator[Record]:
        """Yield the records of captures, by archive and offset; warn of each that cannot be fetched.

        Raises:
            SourceError: if the source fails as a whole.
        """
        from catalogue.output.fetch_captures import iterate_records

        return iterate_records(self.session, captures)

    def record(self, capture: Capture) -> Record:
        """Fetch and check the record of one capture.

        Raises:
            BadRecord: if the record is damaged, or of another capture.
            SourceError: if it cannot be fetched; ``NotFound`` if the archive does not exist.
        """
        from catalogue.output.fetch_captures import fetch_record

        return fetch_record(self.session, capture)

    def site(
        self, site: str, *, crawl: CrawlWords = "latest", approve: Callable[[ReadPlan], None] | None = None
    ) -> SiteReport:
        """Report what a crawl has of a site and its subdomains, with the robots.txt that it archived.

        The columns that are counted are read of all captures, and a page of robots.txt is fetched. Nothing needs to be
        stored.

        Args:
            site: a host, such as ``example.com``, or a URL of one.
            crawl: one listed crawl.
            approve: called with the plan, and again after its searches. An exception ends the report.

        Raises:
            QueryError: if it is not a host, or several crawls are selected.
        """
        from catalogue.site_report import site_report

        return site_report(self.session, site, crawl=crawl, approve=approve)

    def get(
        self,
        url: str,
        *,
        at: Moment | None = None,
        crawls: CrawlWords | None = None,
        follow: bool = True,
        max_requests: int = 20,
        approve: Callable[[GetEstimate], None] | None = None,
    ) -> Page:
        """Get the newest archived page of a URL, or the one nearest to a time, by the cheaper index of each crawl.

        Crawls are searched from the newest back, or from the nearest one, until one has a page or a redirect; captures
        with another status count only if there is nothing else. All subsets of a crawl are searched, stored or not.
        Without a capture of the URL, that of another URL with the same key is used, and ``exact`` of the page is false.

        Args:
            url: scheme, case of the host, default port and percent-encoding do not matter.
            at: a time such as ``2022-08``; the nearest capture is found, the newest by default.
            crawls: listed crawls; all by default.
            follow: follow archived redirects, first in the same crawl.
            max_requests: requests that need no approval.
            approve: called with the estimated cost before more requests are made; by default raises TooExpensive.

        Raises:
            NotArchived: if no capture is found; the message says what was searched.
            TooExpensive: if the search would take more than ``max_requests``.
            SourceError: if the source fails.
        """
        from catalogue.get_page import get_page

        return get_page(
            self.session, url, at=at, crawls=crawls, follow=follow, max_requests=max_requests, approve=approve
        )

    def fetch_estimate(self, captures: SomeCaptures) -> FetchEstimate:
        """Estimate the cost of fetching the records of captures; reads the captures, but no records."""
        from catalogue.output.fetch_captures import estimate_fetch

        return estimate_fetch(self.session, captures)

    def fetch(
        self,
        captures: SomeCaptures,
        output: Output,
        *,
        form: str | None = None,
        main_content: bool = False,
        most: int | None = None,
        about: str = "",
        agree: Callable[[FetchEstimate], None] | None = None,
        report: Callable[[Fetched], None] | None = None,
    ) -> Fetched:
        """Fetch records into a file. If it is stopped, the same call continues; later it fetches only what is missing.

        Args:
            captures: captures to fetch.
            output: a file, such as ``found.warc.gz``, with its ledger next to it; or the URL of one that fsspec can
                write to, which one machine at a time may write; or an open file for ``warc``, ``text`` and
                ``metadata``, which cannot be resumed.
            form: ``warc`` for the archived records; ``text`` or ``metadata`` for JSON lines, see
                ``catalogue.records.metadata``; ``parquet`` with the columns of ``catalogue.output.parquet_format.ROW``;
                ``payload`` for a folder of files with ``index.jsonl``. By default that of the suffix; ``.jsonl`` means
                ``text``, and an open file gets ``warc``.
            main_content: leave out navigation, footers and the like from texts.
            most: approximate bytes of a file, after which ``found-00001.warc.gz`` and so on follow; by default one
                local file, and 1 GB at a URL.
            about: the query, for the first record of the file.
            agree: called with the cost of what is missing, for which captures are read twice; may raise.
            report: see ``Catalogue``.

        Raises:
            QueryError: if the output belongs to another query.
            SourceError: if the source fails as a whole.
            OutputFailed: if a URL cannot be written to; what was fetched before stays.
        """
        from catalogue.output.fetch_captures import fetch_to_output
        from catalogue.output.formats import FormatSpec
        from catalogue.output.open_output import format_of

        return fetch_to_output(
            self.session,
            captures,
            output,
            FormatSpec(form or format_of(output), main_content, about),
            most=most,
            agree=agree,
            report=report,
        )

    def fetch_to_pandas(self, captures: SomeCaptures, *, main_content: bool = False) -> pd.DataFrame:
        """Return archived pages as a DataFrame with the columns of ``catalogue.output.parquet_format.ROW``.

        Warns of records that cannot be fetched. ``main_content`` leaves out navigation, footers and the like from
        texts.

        Raises:
            SourceError: if the source fails as a whole.
        """
        from catalogue.output.fetch_captures import fetch_to_frame

        return fetch_to_frame(self.session, captures, main_content=main_content)

    def old_index(self, path: str | None = None) -> OldIndex:
        """Open the URL index of the crawl of 2012, which has no columnar index; ``path`` is relative to the source."""
        from catalogue.url_index_2012.lookup import PATH, OldIndex

        return OldIndex(self.session.reading, path or PATH)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Run SQL over the views ``crawls``, ``files``, ``row_groups``, ``pages`` and ``column_chunks``.

        The relation has ``.df()``, ``.pl()`` and ``.arrow()``. The DuckLake that ``export_ducklake`` wrote into the
        data folder is attached as ``cc`` if the query names it, with a warning if it is incomplete or out of date.

        Raises:
            QueryError: if DuckDB rejects the query, or it needs a DuckLake and there is none.
        """
        from catalogue.export.ducklake_sql import run_sql

        return run_sql(self.session, query)

    def connect(self, *, lake: bool = False) -> duckdb.DuckDBPyConnection:
        """Return a read-only connection to the updated metadata database; ``lake`` attaches the DuckLake as ``cc``.

        An incomplete or outdated DuckLake is attached with a warning.

        Raises:
            QueryError: if there is no DuckLake, or it cannot be attached.
        """
        from catalogue.export.ducklake_sql import connect

        return connect(self.session, lake=lake)

    def crawls(self, *, fetch: bool = False) -> pd.DataFrame:
        """Return every known crawl and how much of it is harvested; see the view ``crawls``.

        With ``fetch`` the list of crawls is updated first, if it is older than a day.

        Raises:
            SourceError: if the list cannot be fetched and none is stored.
        """
        from catalogue.reports import frame
        from catalogue.selection import crawl_list

        if fetch:
            crawl_list(self.session)
        return frame(self.session, "SELECT * FROM crawls")

    def coverage(self) -> pd.DataFrame:
        """Return how much of each crawl and subset is stored."""
        from catalogue.reports import coverage_sql, frame

        return frame(self.session, coverage_sql(self.session))

    def failures(self) -> pd.DataFrame:
        """Return the index files whose footers could not be stored, with reasons."""
        from catalogue.reports import frame

        return frame(self.session, "SELECT path, reason, failed_at FROM derived.failures ORDER BY path")

    def files(self, crawl: str | None = None) -> pd.DataFrame:
        """Return the view ``files``: the stored index files."""
        return self._view("files", crawl)

    def row_groups(self, crawl: str | None = None) -> pd.DataFrame:
        """Return the view ``row_groups``: the stored row groups with their bounds."""
        return self._view("row_groups", crawl)

    def pages(self, crawl: str | None = None) -> pd.DataFrame:
        """Return the view ``pages``: pages of the key column whose index is stored."""
        return self._view("pages", crawl)

    def column_chunks(self, crawl: str) -> pd.DataFrame:
        """Return the view ``column_chunks``: every column chunk of a crawl."""
        from catalogue.export.ducklake_sql import add_column_chunks

        add_column_chunks(self.session, [crawl])
        return self._view("column_chunks", crawl)

    def _view(self, name: str, crawl: str | None) -> pd.DataFrame:
        from catalogue.reports import frame
        from catalogue.selection import select_stored

        if crawl is not None:
            select_stored(self.session, crawl)
        return frame(self.session, f"SELECT * FROM {name} WHERE $1 IS NULL OR crawl = $1 ORDER BY ALL", crawl)  # noqa: S608

    def plot(self, crawl: str) -> Picture:
        """Draw the files of a stored crawl and their row groups along its keys, as SVG.

        Raises:
            QueryError: if the crawl is not stored, or several are selected.
        """
        from catalogue.key_map.key_map import crawl_axis, file_extents
        from catalogue.key_map.svg import draw_crawl
        from catalogue.selection import select_one

        chosen = select_one(self.session, crawl)
        return draw_crawl(chosen, crawl_axis(file_extents(self.session, chosen, None)))

    def export_ducklake(
        self, path: str | Path | None = None, *, crawls: CrawlWords = "all", backend: str | None = None
    ) -> Exported:
        """Write a DuckLake with one table of all stored files of crawls, at their source; nothing is fetched.

        An existing one is changed to contain exactly these crawls; each new or changed crawl is a snapshot. ``sql``
        attaches the one in the data folder as ``cc``.

        Args:
            path: the file; by default ``captures.ducklake`` in the data folder.
            crawls: see ``Catalogue``.
            backend: ``sqlite`` or ``duckdb``; by default that of the existing lake, else ``sqlite``.

        Raises:
            QueryError: if the path is something else, its folder does not exist, or a crawl is not stored.
            StoreLocked: if another process writes to it.
            DiskFailed: if it cannot be written; an existing one stays.
        """
        from catalogue.export.exports import export_ducklake

        return export_ducklake(self.session, path, crawls=crawls, backend=backend)

    def export_iceberg(self, path: str | Path, *, crawls: CrawlWords = "all", location: str | None = None) -> Exported:
        """Write an Iceberg table of all stored files of crawls, at their source; nothing is fetched.

        pyiceberg, DuckDB and Spark read it by its path, and open only files that may match conditions on
        ``url_surtkey``, ``crawl`` and ``subset``. It contains absolute addresses. Written again, it gets a new snapshot
        of exactly these crawls.

        Files before CC-MAIN-2021-49 do not declare their times as UTC: in DuckDB, ``SET TimeZone = 'UTC'``. Spark needs
        the jar iceberg-spark-runtime and the location ``s3a://commoncrawl/``.

        Args:
            path: the folder.
            crawls: see ``Catalogue``.
            location: address of the files for engines; by default the source.

        Raises:
            QueryError: if the path is something else, a path or the location cannot be written into tables, nothing is
                stored, or pyiceberg is not installed.
            StoreLocked: if another process writes to it.
        """
        from catalogue.export.exports import export_iceberg

        return export_iceberg(self.session, path, crawls=crawls, location=location)

    def iceberg(self, crawls: CrawlWords = "all") -> IcebergTable:
        """Return a pyiceberg table that can be scanned while this catalogue is open.

        A scan requests no footers. Data is read through the source and cache of this catalogue, with its rate limit,
        and only of the stored version of a file. Filters on ``crawl`` and ``subset`` work even if these columns are not
        selected::

            table = cat.iceberg("latest")
            table.scan("url_surtkey >= 'com,example)/' AND url_surtkey < 'com,example)0'", ("url",)).to_pandas()

        Raises:
            QueryError: if nothing is stored, or pyiceberg is not installed.
        """
        from catalogue.export.exports import open_iceberg

        return open_iceberg(self.session, crawls)

    def export_snapshot(
        self,
        place: str | Path,
        *,
        crawls: CrawlWords = "all",
        report: Callable[[Progress], None] | None = None,
    ) -> Exported:
        """Write a snapshot of what is stored, a file for each crawl, for ``pull``.

        Written again to the same place, only crawls that have changed are written. With ``crawls``, other crawls of the
        snapshot stay; else those that are not stored any more are removed. Others can harvest at the same time.

        Args:
            place: a folder, or the URL of one that fsspec can write to, such as ``s3://bucket/prefix``.
            crawls: see ``Catalogue``.
            report: see ``Catalogue``.

        Raises:
            QueryError: if the folder has other files, or a crawl is not stored.
            StoreLocked: if another process writes to it.
            OutputFailed: if it cannot be written to.
        """
        from catalogue.export.exports import export_snapshot

        return export_snapshot(self.session, place, crawls=crawls, report=report)

    def _line(self) -> str:
        return f"in {self.session.data}, of {self.session.settings.source}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        from catalogue.metadata_db.connection import reading

        if not (self.session.store_path).exists() or not self.path.exists():
            return
        with reading(self.path) as connection:  # without an update
            stored = connection.execute(
                "SELECT crawl, files_harvested, subsets, num_rows FROM crawls WHERE files_harvested > 0"
            ).fetchall()
        for crawl, files, subsets, rows in stored[:_LISTED_CRAWLS]:
            yield crawl, f"{plural(files, 'file')} of {', '.join(subsets)}; {plural(rows, 'capture')}"
        if len(stored) > _LISTED_CRAWLS:
            yield "others", plural(len(stored) - _LISTED_CRAWLS, "crawl")
        if len(stored) > 1:
            files, rows = (sum(each[at] for each in stored) for at in (1, 3))
            yield "all", f"{plural(files, 'file')}; {plural(rows, 'capture')}"

    def _notes(self) -> Iterator[str]:
        store = self.session.store_path
        if not store.exists() or not store.stat().st_size:  # an empty file would become a store
            yield "Nothing is harvested yet; call harvest()."
        elif not (self.path.exists() and self._is_fresh()):
            yield "Recently harvested files are not in the database yet; the next query adds them."

    def _is_fresh(self) -> bool:
        from catalogue.metadata_db.refresh import is_fresh
        from catalogue.store.database import Store

        if "store" in self.session.__dict__:
            return is_fresh(self.path, self.session.store, indexes=False)
        with Store(self.session.store_path, busy_seconds=_REPR_WAIT) as store:
            return is_fresh(self.path, store, indexes=False)
