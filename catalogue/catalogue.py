"""``catalogue.open`` and class ``Catalogue``: the Python API, one call for each feature."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Self

import duckdb

from catalogue import metadata_db
from catalogue.captures import Captures
from catalogue.check.check import check_store
from catalogue.check.findings import Checked
from catalogue.commoncrawl.capture import Capture
from catalogue.doctor.diagnose import diagnose
from catalogue.doctor.diagnosis import Diagnosis
from catalogue.export.exports import Exported, export_ducklake, export_iceberg, export_snapshot, open_iceberg
from catalogue.find_captures import find_captures
from catalogue.formatting import ReprMixin, plural
from catalogue.harvest.backfill import Backfill, prepare_backfill
from catalogue.harvest.harvest import Harvested, HarvestEstimate
from catalogue.harvest.harvest_crawls import crawl_list, define, estimate_crawls, forget_crawls, harvest_crawls
from catalogue.harvest.pull import Pulled, pull_snapshot
from catalogue.key_map.key_map import crawl_axis
from catalogue.key_map.svg import Picture, draw_crawl
from catalogue.output.fetch import Fetched, FetchEstimate
from catalogue.output.fetch_captures import (
    SomeCaptures,
    estimate_fetch,
    fetch_record,
    fetch_to_frame,
    fetch_to_output,
    iterate_records,
)
from catalogue.output.open_output import Output
from catalogue.progress import Progress, bars
from catalogue.query.filters import Values
from catalogue.query.query import Query
from catalogue.query.times import Moment
from catalogue.records.record import Record
from catalogue.reports import add_column_chunks, coverage_sql, file_extents, frame, view_frame
from catalogue.sample import Sample, draw_sample
from catalogue.selection import stored_crawl
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.sql import connect, run_sql
from catalogue.store.database import Store
from catalogue.store.folder_settings import settings_for
from catalogue.surt import Keys, Match
from catalogue.url_index_2012.lookup import PATH, OldIndex

if TYPE_CHECKING:
    import pandas as pd

    from catalogue.export.iceberg_read import IcebergTable

_LISTED_CRAWLS = 12
"""Crawls that the text of a catalogue lists."""
_GLANCE = 0.1
"""Seconds that showing a catalogue waits for a process that is writing."""


def open(  # noqa: A001 - catalogue.open, as gzip.open
    data: str | Path | None = None,
    *,
    table: str | None = None,
    source: str | None = None,
    settings: Settings | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> "Catalogue":
    """Open the catalogue of a data folder, which is created by the first harvest.

    ``close()``, or the end of a ``with``, closes files and connections; results that were not read are lost then.

    Args:
        data: the data folder; by default as for the command: a setting, else ``data`` if there is a store in it, else
            the user's data folder.
        table: name of a dataset other than Common Crawl's index; it has a folder of its own in the data folder.
        source: where files are read from: an https, http or s3 address, or a folder. By default a setting, else
            where the stored files came from, else Common Crawl.
        executor: whose workers read, such as a ``ProcessPoolExecutor`` or that of a Dask client
            (``client.get_executor()``); they must have this package. Machines of Dask divide the rate.
        settings: used instead of those of the environment and ``config.toml``.
        progress: whether to show progress bars; by default in notebooks and on terminals, but not in pipes.
    """
    chosen = settings or settings_for(data=data, dataset=table, notify=_warn, source=source)
    folder = chosen.data if data is None else Path(data)
    return Catalogue(Session(folder, chosen, dataset=table, executor=executor, bars=bars(progress)))


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


class Catalogue(ReprMixin):
    """Metadata of index files, and captures found with it. For one thread at a time; see ``Session.share``."""

    def __init__(self, session: Session) -> None:
        """Use a session; ``catalogue.open`` makes one."""
        self.session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open, aborting requests; it is opened again when it is used again."""
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
        """Say what the table is under whose name this was opened: sorted Parquet files, and where they are.

        Args:
            key: the column of text that they are sorted by.
            keys: what it holds, ``url``, ``host`` or ``text``; by default what its name suggests.
            manifest: path of the list of its files: text, a path a line, gzipped or not.
            paths: of its files, instead of that.

        Raises:
            QueryError: if these do not suit each other, or footers of it as it was before are held.
        """
        return define(self.session, key, keys=keys, manifest=manifest, paths=paths)

    def harvest(
        self,
        crawls: str | Iterable[str] | None = None,
        *,
        subsets: str | Iterable[str] = "warc",
        refresh: bool = False,
        pages: bool = False,
        report: Callable[[Progress], None] | None = None,
    ) -> list[Harvested]:
        """Take the footers of crawls that are not held yet, and show them in the catalogue.

        Args:
            crawls: names, years, ranges ``A..B``, ``latest``, ``all``; of another table all unless given.
            subsets: ``warc``, ``crawldiagnostics``, ``robotstxt`` or ``all``, of the index.
            refresh: take them again, held or not.
            pages: take the page indexes too, which questions fetch when they need them otherwise.
            report: told how far it is, often, instead of a bar.

        Raises:
            SourceError: if the source failed as a whole; what was taken until then is kept, and so is shown later.
        """
        return harvest_crawls(self.session, crawls, subsets=subsets, refresh=refresh, pages=pages, report=report)

    def harvest_estimate(
        self,
        crawls: str | Iterable[str] | None = None,
        *,
        subsets: str | Iterable[str] = "warc",
        refresh: bool = False,
        pages: bool = False,
    ) -> HarvestEstimate:
        """Estimate what ``harvest`` with these arguments takes; the list of crawls is all that may be fetched.

        Raises:
            SourceError: if the list of crawls is needed and cannot be fetched.
        """
        return estimate_crawls(self.session, crawls, subsets=subsets, refresh=refresh, pages=pages)

    def backfill(
        self, crawls: str | Iterable[str] = "all", *, only_gaps: bool = False, files: str | Iterable[str] = ()
    ) -> Backfill:
        """Find what the keys of row groups say whose footers say too little to prune by. Nothing is read yet.

        Args:
            crawls: harvested ones: names, years, ranges ``A..B``, ``latest`` or ``all``.
            only_gaps: leave alone what has bounds, even if they say little because two sorted streams were zipped.
            files: patterns such as ``*part-00007-*`` of paths to look at; all unless given.
        """
        return prepare_backfill(self.session, crawls, only_gaps=only_gaps, files=files)

    def forget(self, crawls: str | Iterable[str]) -> int:
        """Delete what is held of crawls; returns how many footers that were.

        Raises:
            NotHarvested: if nothing is held of one.
            StoreLocked: if another process harvests one: what it has still to commit would seem to be all there is.
        """
        return forget_crawls(self.session, crawls)

    def pull(
        self,
        place: str,
        *,
        crawls: str | Iterable[str] = "all",
        compare: int = 3,
        report: Callable[[Progress], None] | None = None,
    ) -> Pulled:
        """Store a snapshot that somebody else exported; what is stored already stays.

        Args:
            place: a folder, or an https, http or s3 address.
            crawls: crawls of the snapshot: names, years, ranges ``A..B``, ``latest`` or ``all``.
            compare: how many files of each crawl are compared with the source, and as many with page indexes, by one
                request each.
            report: called with the progress, instead of a progress bar.

        Raises:
            QueryError: if this is another dataset; ``UnknownCrawl`` if the snapshot does not have a crawl.
            BadSnapshot: if it is invalid, or differs from the source; crawls that were stored before stay.
            SourceError: if it, or the source, cannot be read.
            StoreLocked: if another process harvests or pulls the same.
        """
        return pull_snapshot(self.session, place, crawls=crawls, compare=compare, report=report)

    def check(
        self,
        crawls: str | Iterable[str] = "all",
        *,
        read_subset: str | None = None,
        seed: int | None = None,
        repair: bool = False,
        report: Callable[[Progress], None] | None = None,
    ) -> Checked:
        """Check every stored value against its digest, and the metadata database against the store.

        Args:
            crawls: stored crawls whose values are checked: names, years, ranges ``A..B``, ``latest`` or ``all``.
            read_subset: compare a share of the files with the source, by one request each: ``1%`` of them at random,
                ``3/30`` the third of thirty parts, or as many as have ``50MB`` of footers and page indexes.
            seed: of the random share; by default a new one each time.
            repair: delete damaged values, note which footers a harvest has to fetch again, and rebuild the metadata
                database.
            report: called with the progress, instead of a progress bar.

        Returns:
            The findings. A failure of the source is among them and is not raised.

        Raises:
            QueryError: if a crawl is not stored, or the share is invalid.
            StoreError: if the store cannot be opened for another reason than damage.
        """
        return check_store(self.session, crawls, read_subset=read_subset, seed=seed, repair=repair, report=report)

    def doctor(self, crawl: str | None = None) -> Diagnosis:
        """What the source and this installation are like, and what that means for cost.

        The source is asked ten times at most, politely, and each thing once; nothing is written but what is known of
        its host. Works with nothing harvested, and tells what is here when the source does not answer.

        Args:
            crawl: of whose index a file is looked at, or ``latest``; by default the newest that is harvested, or
                else listed.

        Raises:
            UnknownCrawl: if the source has no such crawl.
            QueryError: if this is another table than the index.
        """
        return diagnose(self.session, crawl)

    def captures(  # noqa: PLR0913 - one parameter for each option
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
        )
        return find_captures(self.session, query)

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
        return draw_sample(self.session, captures, size, seed=seed, per=per, most=most)

    def records(self, captures: SomeCaptures) -> Iterator[Record]:
        """The records of captures, by archive and offset; of each that cannot be had there is a warning.

        Raises:
            SourceError: if the source failed as a whole.
        """
        return iterate_records(self.session, captures)

    def record(self, capture: Capture) -> Record:
        """The record of one capture, checked as all are.

        Raises:
            BadRecord: if what lies at its place is damaged, or another one.
            SourceError: if it cannot be had: ``NotFound`` if there is no such archive.
        """
        return fetch_record(self.session, capture)

    def fetch_estimate(self, captures: SomeCaptures) -> FetchEstimate:
        """What fetching the records of captures takes; an answer is read for it, but no record."""
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
        """Fetch records into a file. The same again fetches what is missing, and goes on after a kill.

        Args:
            captures: whose records are wanted.
            output: the file, such as ``found.warc.gz``; beside it lies its ledger. Or such a URL, of S3 or whatever
                fsspec can write to, with the user's own credentials. What goes there grows in the cache's folder, and
                only one machine at a time may go on with it. Or an open file, such as ``sys.stdout.buffer``, for
                ``warc``, ``text`` and ``metadata``; that cannot be resumed.
            form: ``warc``, the records as they were archived; JSON lines, ``text`` of the pages or ``metadata`` as
                described in ``catalogue.records.metadata``; ``parquet`` with the columns of its ``ROW``; or
                ``payload``, for which the output is a folder of files and their ``index.jsonl``. By default the
                output's suffix decides, where ``.jsonl`` means ``text``; an open file gets ``warc``.
            main_content: whether texts are without navigation, footers and the like.
            most: bytes of a file, about, after which another is begun: ``found-00000.warc.gz`` and so on. By default
                there is one file, but at a URL they have 1 GB.
            about: what was asked, for the file's first record.
            agree: told what fetching those takes that the output lacks; if it raises, none is. An answer is read twice
                for it.
            report: told how far it is, often, instead of a bar.

        Returns:
            What is there, and what could not be had and why.

        Raises:
            QueryError: if the output is another's.
            SourceError: if the source failed as a whole.
            OutputFailed: if a URL cannot be written to; what was fetched is kept.
        """
        return fetch_to_output(
            self.session,
            captures,
            output,
            form=form,
            main_content=main_content,
            most=most,
            about=about,
            agree=agree,
            report=report,
        )

    def fetch_to_pandas(self, captures: SomeCaptures, *, main_content: bool = False) -> "pd.DataFrame":
        """The pages of captures as a DataFrame: URL, time, status, HTTP headers, title, text and links.

        The columns are those of ``catalogue.records.metadata.ROW``. Of each that cannot be had there is a warning.

        Args:
            captures: whose records are wanted.
            main_content: whether texts are without navigation, footers and the like.

        Raises:
            SourceError: if the source failed as a whole.
        """
        return fetch_to_frame(self.session, captures, main_content=main_content)

    def old_index(self, path: str = PATH) -> OldIndex:
        """Open the URL index of the crawl of 2012, which has no columnar index.

        Args:
            path: of the index file, relative to the source.
        """
        return OldIndex(self.session.reading, path)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Run SQL over the catalogue's views: ``crawls``, ``files``, ``row_groups``, ``pages``, ``column_chunks``.

        And over captures: the DuckLake that ``export_ducklake`` wrote into our folder is ``cc``.

        Returns:
            A DuckDB relation, of which ``.df()`` makes a DataFrame, ``.pl()`` polars and ``.arrow()`` Arrow.

        Raises:
            QueryError: if DuckDB cannot run it, or it asks for captures and there is no DuckLake.
        """
        return run_sql(self.session, query)

    def connect(self, *, lake: bool = False) -> duckdb.DuckDBPyConnection:
        """Return a read-only connection to the updated metadata database.

        Args:
            lake: attach the DuckLake that ``export_ducklake`` wrote into the data folder as ``cc``.

        Raises:
            QueryError: if there is no DuckLake, or it cannot be attached.
        """
        return connect(self.session, lake=lake)

    def update(self) -> None:
        """Update the DuckDB file from the store; everything here that reads it does so first."""
        metadata_db.refresh(self.session.writable_database(), self.session.store, self.session.dataset)

    def crawls(self, *, fetch: bool = False) -> "pd.DataFrame":
        """Return every known crawl and how much of it is harvested; see the view ``crawls``.

        Args:
            fetch: update the list of crawls first, if it is older than a day.

        Raises:
            SourceError: if the list cannot be fetched and none is stored.
        """
        if fetch:
            crawl_list(self.session)
        return frame(self.session, "SELECT * FROM crawls")

    def coverage(self) -> "pd.DataFrame":
        """Return how much of each crawl and subset is stored."""
        return frame(self.session, coverage_sql(self.session))

    def failures(self) -> "pd.DataFrame":
        """Return the index files whose footers could not be stored, with reasons."""
        return frame(self.session, "SELECT path, reason, failed_at FROM derived.failures ORDER BY path")

    def files(self, crawl: str | None = None) -> "pd.DataFrame":
        """Return the stored index files; see the view ``files``."""
        return view_frame(self.session, "files", crawl)

    def row_groups(self, crawl: str | None = None) -> "pd.DataFrame":
        """Return the stored row groups with their bounds; see the view ``row_groups``."""
        return view_frame(self.session, "row_groups", crawl)

    def pages(self, crawl: str | None = None) -> "pd.DataFrame":
        """Return the pages of the key column whose index is stored; see the view ``pages``."""
        return view_frame(self.session, "pages", crawl)

    def column_chunks(self, crawl: str) -> "pd.DataFrame":
        """Return every column chunk of a crawl; see the view ``column_chunks``."""
        add_column_chunks(self.session, [crawl])
        return view_frame(self.session, "column_chunks", crawl)

    def plot(self, crawl: str) -> Picture:
        """Draw the files of a stored crawl and their row groups along its keys, as SVG.

        Row groups overlap where files are two sorted streams zipped together.

        Raises:
            QueryError: if the crawl is not harvested, or several are named.
        """
        chosen = stored_crawl(self.session, crawl)
        return draw_crawl(chosen, crawl_axis(file_extents(self.session, chosen, None)))

    def export_ducklake(
        self, path: str | Path | None = None, *, crawls: str | Iterable[str] = "all", backend: str | None = None
    ) -> Exported:
        """Write a DuckLake whose one table is all files held of crawls, where they are; nothing is fetched.

        One that is there is made to hold what is asked for and nothing else: each crawl that is new or another than
        before is a snapshot of its own. ``sql`` attaches that in our folder as ``cc``.

        Args:
            path: of the file; None for ``captures.ducklake`` in our folder.
            crawls: names, ``A..B``, ``latest`` or ``all``.
            backend: ``sqlite`` or ``duckdb``; None for that of the lake that is there, else ``sqlite``.

        Raises:
            QueryError: if the path is that of something else or of a lake kept otherwise, its folder is not there, or a
                crawl is not harvested.
            StoreLocked: if somebody is writing to it.
            DiskFailed: if it cannot be written; the one that was there stays.
        """
        return export_ducklake(self.session, path, crawls=crawls, backend=backend)

    def export_iceberg(
        self, path: str | Path, *, crawls: str | Iterable[str] = "all", location: str | None = None
    ) -> Exported:
        """Write an Iceberg table of what is held, over the published files where they are; nothing is fetched.

        pyiceberg, DuckDB and Spark read it by its path, and open only the files that might hold what is asked for by
        ``url_surtkey``, ``crawl`` and ``subset``. It has addresses in it and so works only where it was made. Exported
        to again it gets a new snapshot, of just these crawls; who reads an older one is not disturbed.

        Times of files before CC-MAIN-2021-49 are UTC and do not say so: DuckDB takes them for times of its session's
        zone (``SET TimeZone = 'UTC'``), pyiceberg and Spark read them rightly. In Spark, with the jar
        iceberg-spark-runtime and a table whose location is ``s3a://commoncrawl/``, or without either by a plan::

            index = spark.read.format("iceberg").load("file:///data/index.iceberg")

            files = [f"s3a://commoncrawl/{path}" for path in cat.captures("example.com/*").plan.paths]
            base = "s3a://commoncrawl/cc-index/table/cc-main/warc/"
            index = spark.read.option("basePath", base).parquet(*files)  # of one crawl: older ones lack columns

            index.where("url_surtkey LIKE 'com,example)/%'")

        Args:
            path: of its folder.
            crawls: harvested ones: names, years, ranges ``A..B``, ``latest`` or ``all``.
            location: where engines read the files from, such as ``s3a://commoncrawl/`` for Spark; the source, if None.

        Raises:
            QueryError: if something else is at the path, tables cannot name it or the location, nothing is held, or
                pyiceberg is not installed.
            StoreLocked: if another process writes there.
        """
        return export_iceberg(self.session, path, crawls=crawls, location=location)

    def iceberg(self, crawls: str | Iterable[str] = "all") -> "IcebergTable":
        """The same as a table of pyiceberg's, ready to be scanned, for as long as this is open.

        A scan asks for no footer: those are held. Data is read from our source, as politely, from our cache if it is
        there, and of no other version than that whose footer is held. Filters on crawl and subset hold even if these
        columns are not selected, which pyiceberg itself gets wrong.

        ::

            table = cat.iceberg("latest")
            table.scan("url_surtkey >= 'com,example)/' AND url_surtkey < 'com,example)0'", ("url",)).to_pandas()

        Args:
            crawls: harvested ones: names, years, ranges ``A..B``, ``latest`` or ``all``.

        Raises:
            QueryError: if nothing is held, or pyiceberg is not installed.
        """
        return open_iceberg(self.session, crawls)

    def export_snapshot(
        self,
        place: str | Path,
        *,
        crawls: str | Iterable[str] = "all",
        report: Callable[[Progress], None] | None = None,
    ) -> Exported:
        """Write a snapshot of what is stored: a Parquet file for each crawl, for ``pull``, and plain Parquet tables.

        Written again to the same place, only crawls that have changed are written. Others can harvest meanwhile.

        Args:
            place: a folder, or the URL of one that fsspec can write to, such as ``s3://bucket/prefix``.
            crawls: stored crawls: names, years, ranges ``A..B``, ``latest`` or ``all``.
            report: called with the progress, instead of a progress bar.

        Raises:
            QueryError: if the folder has other files, or a crawl is not stored.
            StoreLocked: if another process writes to it.
            OutputFailed: if it cannot be written to.
        """
        return export_snapshot(self.session, place, crawls=crawls, report=report)

    def _line(self) -> str:
        return f"in {self.session.data}, of {self.session.settings.source}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        if not (self.session.store_path).exists() or not self.path.exists():
            return
        with metadata_db.reading(self.path) as connection:  # as it is: to look at it changes nothing
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
        if not store.exists() or not store.stat().st_size:  # an empty file would be made a store
            yield "Nothing is harvested yet; harvest() takes the footers of a crawl."
        elif not (self.path.exists() and self._is_fresh()):
            yield "What was harvested last is not shown yet; the next question, or update(), sees to it."

    def _is_fresh(self) -> bool:
        """Whether the catalogue shows all; of a store that is not open it is not left open, nor waited for."""
        if "store" in self.session.__dict__:
            return metadata_db.is_fresh(self.path, self.session.store, indexes=False)
        with Store(self.session.store_path, busy_seconds=_GLANCE) as store:
            return metadata_db.is_fresh(self.path, store, indexes=False)
