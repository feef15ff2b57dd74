"""What can be seen of a source in ten requests at most, each of them made once."""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from catalogue.commoncrawl.crawls import has_columnar_index, suggest_crawl
from catalogue.commoncrawl.manifests import COLLINFO, IndexFile, manifest_path, parse_collinfo, parse_manifest
from catalogue.doctor.doctor_findings import Seen
from catalogue.doctor.file_layout import of_layout
from catalogue.doctor.installation import latencies
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
from catalogue.examine import Examiner
from catalogue.formatting import duration, plural, size
from catalogue.harvest.tails import FIRST_TAIL
from catalogue.parquet.footer import TRAILER, decode_footer, footer_length
from catalogue.parquet.page_headers import page_header
from catalogue.settings import Settings
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import Response, Source, Wanted, is_strong
from catalogue.source.retry import PoliteSource

MOST_REQUESTS = 10
PATIENCE = 30.0
"""Seconds that a request may have to wait for its turn."""
_PIECE = 256 << 10
"""Bytes of keys that are read, to see a page and how fast they come."""
_SKEW = 900.0
"""Seconds by which S3 lets clocks differ."""
_CLOSE = 2.0
"""Seconds that mean nothing: a Date has whole ones."""
_NO_VERSION = '"0123456789abcdef-0"'
"""An ETag that no file has."""


class _Timed:
    """A source that answers only so often, and notes how long that took."""

    def __init__(self, inner: Source, log: list[tuple[float, int]]) -> None:
        self._inner = inner
        self._log = log
        """Seconds and bytes of each request of all that share it."""

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def connections(self) -> int:
        return self._inner.connections

    def get(self, path: str, wanted: Wanted = None, *, pin: FileVersion | None = None) -> Response:
        if len(self._log) >= MOST_REQUESTS:
            message = f"{MOST_REQUESTS} requests were made, and no more are"
            raise SourceUnavailable(message)
        started, received = time.perf_counter(), 0
        try:
            answer = self._inner.get(path, wanted, pin=pin)
            received = len(answer.body)
            return answer
        finally:
            self._log.append((time.perf_counter() - started, received))

    def close(self) -> None:
        self._inner.close()


class Asking:
    """Looks at a source, one request after the other."""

    def __init__(self, lists: PoliteSource, files: PoliteSource, settings: Settings) -> None:
        """Prepare; nothing is asked yet.

        Args:
            lists: where the list of crawls is; makes one attempt at each request.
            files: where the rest is, likewise; it may be the same.
            settings: in force.
        """
        self.seen: list[Seen] = []
        self.failure: CatalogueError | None = None
        self._settings = settings
        self._lists, self._files = lists, files
        self._log: list[tuple[float, int]] = []
        for source in {id(each): each for each in (lists, files)}.values():
            source.inner = _Timed(source.inner, self._log)
        self._has_manifest = False
        self._folder = files.url.startswith("file:")

    @property
    def requests(self) -> int:
        """Made so far."""
        return len(self._log)

    @property
    def bytes(self) -> int:
        """Received so far."""
        return sum(received for _, received in self._log)

    def look(self, crawl: str | None, held: Sequence[str]) -> None:
        """See what there is to see; what goes wrong is a part of it, and the last such thing is ``failure``.

        Args:
            crawl: whose files to look at, or ``latest``; None for any.
            held: crawls that are harvested, newest first.

        Raises:
            UnknownCrawl: if there is no such crawl.
        """
        listed = self._list()
        asked = crawl if crawl != "latest" else next(iter(listed), None)
        candidates = [asked] if asked else [] if crawl else [*held[:1], *listed[:2]][:2]
        if self._nobody_there() or (not candidates and self.failure):
            return
        try:
            file = self._file(candidates)
            tail = self._tail(file.path)
            self._versions(file.path, tail)
            self._layout(file, tail)
        except CatalogueError as error:
            if isinstance(error, NotFound) and asked and not self._has_manifest:
                message = f"{error}; {suggest_crawl(asked, listed)}"
                raise UnknownCrawl(message) from error
            self.failure = error
            if not isinstance(error, RangeIgnored):  # of which all is said
                self._tell("files", str(error), "nothing more was asked")
        else:
            self._listing(file.path)
        self._speed()

    def _nobody_there(self) -> bool:
        """Whether what failed first was to get through to the host at all, of which all else is to be asked too."""
        unheard = isinstance(self.failure, Unreachable) and isinstance(self.failure.__cause__, OSError)
        return unheard and self._lists.url == self._files.url

    def _tell(self, about: str, seen: str, means: str = "") -> None:
        self.seen.append(Seen(about, seen, means))

    def _list(self) -> list[str]:
        """The names of crawls that have an index, newest first; none if the list cannot be had."""
        try:
            answer = self._lists.get(COLLINFO)
            crawls = [crawl.id for crawl in parse_collinfo(answer.body)]
        except CatalogueError as error:
            self.failure = None if isinstance(error, NotFound) else error
            needed = "latest, all and ranges of crawls need it; a crawl's name does not"
            means = "nothing more was asked" if self._nobody_there() else needed
            self._tell("list of crawls", str(error), means)
            return []
        self._tell("list of crawls", f"{plural(len(crawls), 'crawl')}, the newest {crawls[0]}")
        self._date(answer)
        return [crawl for crawl in crawls if has_columnar_index(crawl)]

    def _date(self, answer: Response) -> None:
        try:
            skew = (datetime.now(UTC) - parsedate_to_datetime(answer.date or "")).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return  # a folder, or a server that does not say
        means = "S3 refuses requests that a clock so wrong has signed; set it" if abs(skew) > _SKEW else ""
        seen = f"differs by {duration(abs(skew))} from the source's" if abs(skew) > _CLOSE else "as the source's"
        self._tell("clock", seen, means)

    def _file(self, crawls: Sequence[str]) -> IndexFile:
        """A file to look at, of the first crawl that has some."""
        last: SourceError = NotFound("no list says which crawls there are; name one with --crawl")
        for crawl in crawls:
            try:
                answer = self._files.get(manifest_path(crawl))
            except NotFound:
                message = f"{self._files.url} has no columnar index of {crawl}"
                last = NotFound(message)
                self._tell("manifest", f"none of {crawl}", "a list of crawls may run ahead of their index")
                continue
            files = parse_manifest(crawl, answer.body)
            subsets = Counter(file.subset for file in files)
            told = ", ".join(f"{count:,} {subset}" for subset, count in subsets.items())
            rate = self._files.limiter.rate
            seconds = f", {duration(len(files) / rate)} at the least" if rate else ""
            means = f"to harvest all of them takes {plural(len(files), 'request')}{seconds}"
            self._tell("manifest", f"{crawl}: {plural(len(files), 'file')} ({told})", means)
            self._has_manifest = True
            return next((file for file in files if file.subset == "warc"), files[0])
        raise last

    def _tail(self, path: str) -> Response:
        """The end of a file; how that can be asked for is noted for the host, as a harvest would."""
        try:
            tail = self._files.get(path, SuffixRange(FIRST_TAIL))
        except RangeIgnored:
            tail = self._explicit_tail(path)
            means = "a footer takes two requests instead of one: 600 for a crawl's 300 files"
            self._tell("suffix ranges", "ignored: the whole file is offered, and left unread", means)
        else:
            self._tell("suffix ranges", "honoured", "a footer takes one request")
        if self._files.limiter.state.ignores_suffixes is self._files.honoured_suffixes:
            self._files.limiter.note_suffixes(ignored=not self._files.honoured_suffixes)
        return tail

    def _explicit_tail(self, path: str) -> Response:
        try:
            total = self._files.get(path, ByteRange(0, 1)).total_size
            return self._files.get(path, ByteRange(max(0, total - FIRST_TAIL), total))
        except RangeIgnored:
            means = "index files are too large to be read whole: this source cannot be used"
            self._tell("ranges", "ignored: whole files are offered", means)
            raise

    def _versions(self, path: str, tail: Response) -> None:
        changed = tail.last_modified and f", of {tail.last_modified}"
        self._tell("file", f"{path.rpartition('/')[2]}: {size(tail.total_size)}{changed or ''}")
        if tail.server:
            self._tell("server", tail.server)
        if not is_strong(tail.etag):
            means = "a file that changed is told by its size alone, and pages of it are not kept in the cache"
            self._tell("ETag", f"weak: {tail.etag}" if tail.etag else "none", means)
            return
        self._tell("ETag", f"strong: {tail.etag}", "pages are kept in the cache, and a file that changed is noticed")
        if self._folder:
            return
        try:
            self._files.get(path, ByteRange(0, 1), pin=FileVersion(tail.total_size, _NO_VERSION))
        except FileChanged as error:
            ignored = "the answer's ETag is compared here, and its body left unread"
            seen, means = ("honoured", "") if error.refused else ("ignored", ignored)
            self._tell("If-Match", seen, means)

    def _layout(self, file: IndexFile, tail: Response) -> None:
        """What a footer and a page say."""
        path, total = file.path, tail.total_size
        pin = FileVersion(total, tail.etag)
        length, body = footer_length(tail.body), tail.body
        if length + TRAILER > len(body):
            body = self._files.get(path, ByteRange(max(0, total - TRAILER - length), total), pin=pin).body
        footer = body[-TRAILER - length : -TRAILER]
        with Examiner(children=1) as examiner:
            facts = examiner.examine(footer, total)
        decoded = decode_footer(footer, total)
        self.seen += of_layout(file.crawl, facts, decoded, length)
        keys = [group.chunks["url_surtkey"].range for group in decoded.row_groups if "url_surtkey" in group.chunks]
        if not keys:
            return
        first = keys[0]
        piece = self._files.get(path, ByteRange(first.start, min(first.end, first.start + _PIECE)), pin=pin).body
        self._tell("ranges", "honoured")
        try:
            has_crc = page_header(piece).has_crc
        except FormatError as error:
            self._tell("page checksums", str(error), "its row groups could not be read")
            return
        of_gzip = "gzip has checksums of its own" if "GZIP" in facts.codec else "some flipped bits go unnoticed"
        self._tell("page checksums", "yes" if has_crc else "none", "" if has_crc else of_gzip)

    def _listing(self, path: str) -> None:
        """What a folder's name is answered with. The limiter is not told: nobody else asks for that."""
        if self._folder:
            return
        folder = path.rpartition("/")[0] + "/"
        try:
            self._files.limiter.acquire(PATIENCE)
            self._files.inner.get(folder, ByteRange(0, 1))
            seen = "answered"
        except UnexpectedHtml:
            seen = "a folder is answered with a page"
        except NotFound:
            seen = "none: a folder does not exist"
        except Forbidden:
            seen = "none: a folder is refused, and so may be what does not exist"
        except CatalogueError as error:
            seen = str(error)
        self._tell("listing", seen, "not needed: manifests name the files")

    def _speed(self) -> None:
        answers = [(seconds, received) for seconds, received in self._log if received]
        if not answers or self._folder:
            return
        least = min(seconds for seconds, _ in answers)
        seconds, received = max(answers, key=lambda each: each[1])
        told = f"{1000 * least:.0f} ms for the quickest answer; {size(received)} in {seconds:.2g} s, as measured once"
        means = f"plans reckon with {latencies(self._settings)}: CATALOGUE_LATENCY, CATALOGUE_BANDWIDTH"
        self._tell("speed", told, means)
