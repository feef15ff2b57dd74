"""Calls of ``Catalogue`` that fetch archived pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    import pandas as pd

    from catalogue.commoncrawl.capture import Capture
    from catalogue.commoncrawl.crawls import CrawlWords
    from catalogue.get_page import GetEstimate
    from catalogue.output.fetch import Fetched, FetchEstimate
    from catalogue.output.fetch_captures import SomeCaptures
    from catalogue.output.open_output import Output
    from catalogue.plan.plan import ReadPlan
    from catalogue.query.filters import Moment
    from catalogue.records.page import Page
    from catalogue.records.record import Record
    from catalogue.session import Session
    from catalogue.site_report import SiteReport


class RecordCalls:
    """Pages, records, and files of records."""

    session: Session

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

    def record(self, capture: Capture | Mapping[str, Any] | pd.Series[Any]) -> Record:
        """Fetch and check the record of one capture, or of one row of captures.

        Raises:
            BadRecord: if the record is damaged, or of another capture.
            SourceError: if it cannot be fetched; ``NotFound`` if the archive does not exist.
        """
        from catalogue.output.fetch_captures import fetch_record

        return fetch_record(self.session, capture)

    def records(self, captures: SomeCaptures) -> Iterator[Record]:
        """Yield the records of captures, by archive and offset; warn of each that cannot be fetched.

        Raises:
            SourceError: if the source fails as a whole.
        """
        from catalogue.output.fetch_captures import iterate_records

        return iterate_records(self.session, captures)

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

    def fetch_estimate(self, captures: SomeCaptures) -> FetchEstimate:
        """Estimate the cost of fetching the records of captures; reads the captures, but no records."""
        from catalogue.output.fetch_captures import estimate_fetch

        return estimate_fetch(self.session, captures)

    def fetch_to_pandas(self, captures: SomeCaptures, *, main_content: bool = False) -> pd.DataFrame:
        """Return archived pages as a DataFrame with the columns of ``catalogue.output.parquet_format.ROW``.

        Warns of records that cannot be fetched. ``main_content`` leaves out navigation, footers and the like from
        texts.

        Raises:
            SourceError: if the source fails as a whole.
        """
        from catalogue.output.fetch_captures import fetch_to_frame

        return fetch_to_frame(self.session, captures, main_content=main_content)
