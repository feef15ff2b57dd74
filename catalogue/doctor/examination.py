"""Examine a source in at most ten requests: lists, ranges, versions, and the layout of one index file."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from itertools import pairwise

from catalogue.commoncrawl.crawls import has_columnar_index, suggest_crawl
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.commoncrawl.manifests import COLLINFO, IndexFile, manifest_path, parse_collinfo, parse_manifest
from catalogue.doctor.diagnosis import Observation
from catalogue.errors import (
    CatalogueError,
    FileChanged,
    Forbidden,
    FormatError,
    NotFound,
    RangeIgnored,
    SourceError,
    SourceUnavailable,
    UnexpectedHtml,
    UnknownCrawl,
    Unreachable,
)
from catalogue.formatting import duration, number, plural, size
from catalogue.harvest.tails import FIRST_TAIL
from catalogue.parquet.footer import TRAILER, decode_footer, footer_length
from catalogue.parquet.model import Footer, RowGroup
from catalogue.parquet.page_headers import page_header
from catalogue.parquet.summary import FileSummary, summarize_file
from catalogue.query.resolved_query import CDX_COLUMNS
from catalogue.settings import Settings
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import RequestedRange, Response, Source, is_strong
from catalogue.source.retry import PoliteSource

MAX_REQUESTS = 10
MAX_WAIT = 30.0
"""Seconds that a request may wait for the rate limit."""
_CLOCK_S3, _CLOCK = 900.0, 2.0
"""Seconds of difference between clocks that S3 refuses, and that are not worth reporting."""
_PROBED_KEYS = 256 << 10
_PAGE_ROWS = 20_000
"""Rows per page as parquet-mr writes them, at most."""


class _LimitedSource:
    """A source that makes a limited number of requests and logs the seconds and bytes of each."""

    def __init__(self, inner: Source, log: list[tuple[float, int]]) -> None:
        self._inner = inner
        self._log = log
        self.url, self.connections = inner.url, inner.connections
        self.close = inner.close

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        if len(self._log) >= MAX_REQUESTS:
            message = f"{MAX_REQUESTS} requests were made, which is the limit"
            raise SourceUnavailable(message)
        started, received = time.perf_counter(), 0
        try:
            response = self._inner.get(path, requested, pin=pin)
            received = len(response.body)
            return response
        finally:
            self._log.append((time.perf_counter() - started, received))


class SourceExamination:
    """Examines a source, one request after the other."""

    def __init__(self, lists: PoliteSource, files: PoliteSource, settings: Settings) -> None:
        """Prepare an examination; both sources should make one attempt per request, and may be the same."""
        self.observations: list[Observation] = []
        self.failure: CatalogueError | None = None
        self._settings, self._lists, self._files = settings, lists, files
        self._log: list[tuple[float, int]] = []
        for source in {id(each): each for each in (lists, files)}.values():
            source.inner = _LimitedSource(source.inner, self._log)
        self._has_manifest = False
        self._folder = files.url.startswith("file:")

    @property
    def requests(self) -> int:
        """Requests made so far."""
        return len(self._log)

    @property
    def bytes(self) -> int:
        """Bytes received so far."""
        return sum(received for _, received in self._log)

    def run(self, crawl: str | None, stored: Sequence[str]) -> None:
        """Examine lists, a file and its page; the last error is ``failure``.

        Args:
            crawl: whose file to examine, or ``latest``; None for the newest stored or listed crawl.
            stored: crawls that are stored, newest first.

        Raises:
            UnknownCrawl: if there is no such crawl.
        """
        listed = self._examine_list()
        named = crawl if crawl != "latest" else next(iter(listed), None)
        candidates = [named] if named else [] if crawl else [*stored[:1], *listed[:2]][:2]
        if self._is_unreachable() or (not candidates and self.failure):
            return
        try:
            file = self._first_file(candidates)
            tail = self._fetch_tail(file.path)
            self._examine_version(file.path, tail)
            self._examine_file(file, tail)
        except CatalogueError as error:
            if isinstance(error, NotFound) and named and not self._has_manifest:
                message = f"{error}; {suggest_crawl(named, listed)}"
                raise UnknownCrawl(message) from error
            self.failure = error
            if not isinstance(error, RangeIgnored):  # observed already
                self._add("files", str(error), "no more requests were made")
        else:
            self._examine_listing(file.path)
        self._examine_speed()

    def _add(self, about: str, seen: str, means: str = "") -> None:
        self.observations.append(Observation(about, seen, means))

    def _is_unreachable(self) -> bool:
        """Return whether the host that all requests go to could not be connected to."""
        cause = self.failure.__cause__ if isinstance(self.failure, Unreachable) else None
        return (
            isinstance(cause, OSError) and not isinstance(cause, HTTPException) and self._lists.url == self._files.url
        )

    def _examine_list(self) -> list[str]:
        """Return the crawls with an index, newest first; none if the list cannot be fetched."""
        try:
            response = self._lists.get(COLLINFO)
            crawls = [crawl.id for crawl in parse_collinfo(response.body)]
        except CatalogueError as error:
            self.failure = None if isinstance(error, NotFound) else error
            needed = "latest, all and ranges of crawls need it; names of crawls do not"
            self._add("list of crawls", str(error), "no more requests were made" if self._is_unreachable() else needed)
            return []
        self._add("list of crawls", f"{plural(len(crawls), 'crawl')}, the newest {crawls[0]}")
        with suppress(ValueError, TypeError, OverflowError):  # a folder, or a server without a Date
            skew = abs((datetime.now(UTC) - parsedate_to_datetime(response.date or "")).total_seconds())
            means = "S3 refuses signatures of a clock that is so wrong; set it" if skew > _CLOCK_S3 else ""
            seen = f"differs by {duration(skew)} from the source's" if skew > _CLOCK else "as the source's"
            self._add("clock", seen, means)
        return [crawl for crawl in crawls if has_columnar_index(crawl)]

    def _first_file(self, crawls: Sequence[str]) -> IndexFile:
        """Return a file of the first of the crawls that has a manifest."""
        last: SourceError = NotFound("no list of crawls; name a crawl with --crawl")
        for crawl in crawls:
            try:
                response = self._files.get(manifest_path(crawl))
            except NotFound:
                last = NotFound(f"{self._files.url} has no columnar index of {crawl}")
                self._add("manifest", f"none of {crawl}", "a crawl may be listed before its index exists")
                continue
            files = parse_manifest(crawl, response.body)
            subsets = Counter(file.subset for file in files)
            counts = ", ".join(f"{count:,} {subset}" for subset, count in subsets.items())
            rate = self._files.limiter.rate
            seconds = f", at least {duration(len(files) / rate)}" if rate else ""
            means = f"a harvest of all of them takes {plural(len(files), 'request')}{seconds}"
            self._add("manifest", f"{crawl}: {plural(len(files), 'file')} ({counts})", means)
            self._has_manifest = True
            return next((file for file in files if file.subset == "warc"), files[0])
        raise last

    def _fetch_tail(self, path: str) -> Response:
        """Fetch the end of a file, and save for later harvests whether the host answers suffix ranges."""
        try:
            tail = self._files.get(path, SuffixRange(FIRST_TAIL))
        except RangeIgnored:
            tail = self._fetch_explicit_tail(path)
            means = "a footer takes two requests instead of one: 600 for the 300 files of a crawl"
            self._add("suffix ranges", "ignored: the source offers the complete file", means)
        else:
            self._add("suffix ranges", "honoured", "a footer takes one request")
        if self._files.limiter.state.ignores_suffixes is self._files.honoured_suffixes:
            self._files.limiter.note_suffixes(ignored=not self._files.honoured_suffixes)
        return tail

    def _fetch_explicit_tail(self, path: str) -> Response:
        try:
            total = self._files.get(path, ByteRange(0, 1)).total_size
            return self._files.get(path, ByteRange(max(0, total - FIRST_TAIL), total))
        except RangeIgnored:
            means = "index files are too large to be read completely: this source cannot be used"
            self._add("ranges", "ignored: the source offers complete files", means)
            raise

    def _examine_version(self, path: str, tail: Response) -> None:
        modified = tail.last_modified and f", of {tail.last_modified}"
        self._add("file", f"{path.rpartition('/')[2]}: {size(tail.total_size)}{modified or ''}")
        if tail.server:
            self._add("server", tail.server)
        if not is_strong(tail.etag):
            means = "changed files are detected by their size alone, and pages are not cached"
            self._add("ETag", f"weak: {tail.etag}" if tail.etag else "none", means)
            return
        self._add("ETag", f"strong: {tail.etag}", "pages are cached, and changed files are detected")
        if self._folder:
            return
        try:
            self._files.get(path, ByteRange(0, 1), pin=FileVersion(tail.total_size, '"0123456789abcdef-0"'))
        except FileChanged as error:
            ignored = "the ETag of each response is compared instead"
            self._add("If-Match", *(("honoured", "") if error.refused else ("ignored", ignored)))

    def _examine_file(self, file: IndexFile, tail: Response) -> None:
        path, total = file.path, tail.total_size
        pin = FileVersion(total, tail.etag)
        length, body = footer_length(tail.body), tail.body
        if length + TRAILER > len(body):
            body = self._files.get(path, ByteRange(max(0, total - TRAILER - length), total), pin=pin).body
        footer = decode_footer(body[-TRAILER - length : -TRAILER], total)
        summary = summarize_file(footer)
        self.observations += observe_layout(file.crawl, summary, footer, length)
        keys = [group.chunks["url_surtkey"].range for group in footer.row_groups if "url_surtkey" in group.chunks]
        if not keys:
            return
        end = min(keys[0].end, keys[0].start + _PROBED_KEYS)
        page = self._files.get(path, ByteRange(keys[0].start, end), pin=pin).body
        self._add("ranges", "honoured")
        try:
            has_crc = page_header(page).has_crc
        except FormatError as error:
            self._add("page checksums", str(error), "its row groups cannot be read")
            return
        other = "gzip has checksums, too" if "GZIP" in summary.codec else "some flipped bits are not detected"
        self._add("page checksums", "yes" if has_crc else "none", "" if has_crc else other)

    def _examine_listing(self, path: str) -> None:
        """Request a folder. The rate limit does not count the answer, since no other command requests folders."""
        if self._folder:
            return
        answers: dict[type[CatalogueError], str] = {
            UnexpectedHtml: "a page of HTML for a folder",
            NotFound: "none: folders do not exist",
            Forbidden: "none: folders are refused, and missing files may be, too",
        }
        try:
            self._files.limiter.acquire(MAX_WAIT)
            self._files.inner.get(path.rpartition("/")[0] + "/", ByteRange(0, 1))
            seen = "available"
        except CatalogueError as error:
            seen = answers.get(type(error), str(error))
        self._add("listing", seen, "not needed: manifests list the files")

    def _examine_speed(self) -> None:
        answered = [(seconds, received) for seconds, received in self._log if received]
        if not answered or self._folder:
            return
        seconds, received = max(answered, key=lambda each: each[1])
        fastest = 1000 * min(seconds for seconds, _ in answered)
        assumed = f"{number(round(self._settings.latency * 1000))} ms and {size(self._settings.bandwidth)}/s"
        self._add(
            "speed",
            f"{fastest:.0f} ms for the fastest response; {size(received)} in {seconds:.2g} s, measured once",
            f"plans assume {assumed}: CATALOGUE_LATENCY, CATALOGUE_BANDWIDTH",
        )


def observe_layout(crawl: str, summary: FileSummary, footer: Footer, length: int) -> Iterator[Observation]:
    """Observe writer, bounds, order and page index of a file, and what they mean for a query for one URL.

    Args:
        crawl: its crawl.
        summary: of its footer.
        footer: decoded.
        length: of the footer, in bytes.
    """
    groups = summary.row_groups
    yield Observation("writer", summary.created_by.strip()[:100] or "unknown")
    rows = f"{plural(summary.num_rows, 'row')} in {plural(len(groups), 'row group')}"
    yield Observation("footer", f"{size(length)}; {rows}, {summary.codec}, {plural(len(footer.columns), 'column')}")
    if not groups:
        return
    kinds = Counter(group.bounds_from for group in groups)
    means = "correct, though other readers do not use signed bounds" if kinds["footer (signed)"] else ""
    if kinds["missing"]:
        means = f"row groups without bounds are always read; catalogue backfill --only-gaps --crawl {crawl} finds them"
    yield Observation("bounds of keys", ", ".join(f"{kind}: {count}" for kind, count in kinds.items()), means)
    bounds = [(group.min_key, group.max_key) for group in groups]
    known = [(low, high) for low, high in bounds if low is not None and high is not None]
    if len(known) == len(groups):
        if all(before[1] <= after[0] for before, after in pairwise(known)):
            yield Observation("order", "sorted", "one URL is in one row group of a file")
        else:
            depth = max(sum(low <= at <= high for low, high in known) for at, _ in known)
            means = f"one URL may be in {depth} row groups of a file; catalogue backfill --crawl {crawl} finds which"
            yield Observation("order", "zipped: key ranges of row groups overlap", means)
    chunk_bytes, page_bytes = _bytes_per_url(footer.row_groups)
    if summary.has_page_index:
        cheaper = f"one URL reads about {size(page_bytes)}, where a row group would be {size(chunk_bytes)}"
        yield Observation("page index", "yes", cheaper if page_bytes < chunk_bytes else "")
    else:
        means = f"one URL reads a row group, {size(chunk_bytes)}, the first time; pages of it later"
        yield Observation("page index", "none", means)


def _bytes_per_url(groups: Sequence[RowGroup]) -> tuple[int, int]:
    """Return the mean bytes of the CDX columns of a row group, and of one page of each with its indexes."""
    chunk_bytes = page_bytes = 0
    for group in groups:
        for name in CDX_COLUMNS:
            if chunk := group.chunks.get(name):
                chunk_bytes += len(chunk.range)
                indexes = (chunk.column_index if name == COMMON_CRAWL.key else None, chunk.offset_index)
                page_bytes += sum(len(index) for index in indexes if index)
                page_bytes += len(chunk.range) * min(group.num_rows, _PAGE_ROWS) // max(1, group.num_rows)
    return chunk_bytes // len(groups), page_bytes // len(groups)
