"""The ``Source`` protocol, and the checks of every response.

Python's HTTP and S3 clients accept some wrong responses: short bodies, other ranges, other versions of a file.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Protocol, TypeAlias

from catalogue.errors import (
    Blocked,
    CatalogueError,
    FileChanged,
    Forbidden,
    NotFound,
    NotParquet,
    RangeIgnored,
    Redirected,
    Throttled,
    UnexpectedHtml,
    Unreachable,
    WrongLength,
    WrongRange,
)
from catalogue.formatting import without_secrets
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange, parse_content_range, resolve

MAX_DOCUMENT = 16 << 20
"""Bytes of a file that is read completely."""
EXCERPT = 2000
"""Bytes read of an error's body, where Common Crawl names a contact when it blocks a client."""

_TEXTS = ("text/html", "application/xml", "text/xml")
"""Content types of error pages and captive portals; no file of a source has one."""
_PAGE = re.compile(rb"\s*<(?:!doctyp|(?:html|head|body|\?xml|error)\b)", re.IGNORECASE)
"""The start of an error page, also within the eight bytes of a short range."""
_BINARY = re.compile(r"[\x00-\x08]")
_LENGTH = re.compile("[0-9]{1,18}")
_LONGEST_PAUSE = 1800.0
"""Seconds that a host can make clients wait, by a quota or otherwise."""

_NO_CODING = {"", "identity", "aws-chunked"}
"""Values of ``Content-Encoding`` that leave the bytes as they are; the last is left from uploads to S3.

Some servers name gzip for files with this extension, maybe before another one. The decompressed content is checked.
"""

RequestedRange: TypeAlias = ByteRange | SuffixRange | None
PURPOSE: ContextVar[str] = ContextVar("purpose", default="")
"""What the requests of a thread are for; set by ``requests_for``."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response that passed every check."""

    body: bytes = field(repr=False)
    start: int
    """Offset of the body in the file."""
    total_size: int
    etag: str | None
    last_modified: str | None
    date: str | None = field(default=None, compare=False)
    server: str | None = None
    origin: str | None = field(default=None, compare=False)
    """URL of the host that sent it, if the source has several."""
    pause: float = field(default=0.0, compare=False)
    """Seconds until a quota that is used up is renewed."""
    redirected: bool = field(default=False, compare=False)
    """Whether the host has sent an address instead of the file."""

    @property
    def version(self) -> FileVersion:
        return FileVersion(self.total_size, self.etag, self.origin)


class Source(Protocol):
    """Files that are read by byte ranges."""

    @property
    def url(self) -> str:
        """Return the address, without secrets."""

    @property
    def connections(self) -> int:
        """Return the maximum number of concurrent requests."""

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        """Make exactly one request; without a range, for the complete file of up to ``MAX_DOCUMENT`` bytes.

        ``path`` is relative to the source. Another version than ``pin`` is an error.

        Raises:
            SourceError: if the request fails; the message names the file.
            NotParquet: if a suffix of an empty file was requested.
        """

    def close(self) -> None:
        """Close all connections; later requests fail."""


@contextmanager
def requests_for(purpose: str) -> Iterator[None]:
    """Say what the requests of this thread are for, such as ``page index``."""
    token = PURPOSE.set(purpose)
    try:
        yield
    finally:
        PURPOSE.reset(token)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, which checks its response; headers are by lower-case name."""

    where: str
    requested: RequestedRange
    pin: FileVersion | None

    def is_expected(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return whether a response has the requested bytes: also a complete file that is not longer than the range."""
        if self.requested is None or status != 200:  # noqa: PLR2004
            return status == (200 if self.requested is None else 206)
        if "content-range" in headers:  # some servers send a part with this status
            return True
        length = headers.get("content-length", "")
        if not _LENGTH.fullmatch(length) or not int(length):
            return False
        match self.requested:
            case SuffixRange(longest):
                return int(length) <= longest
            case ByteRange(start, end):
                return start == 0 and int(length) == end

    @property
    def max_length(self) -> int:
        match self.requested:
            case None:
                return MAX_DOCUMENT
            case SuffixRange(length):
                return length
            case requested:
                return len(requested)

    def refuse(self, status: int, headers: Mapping[str, str], body: str) -> CatalogueError:
        """Return the error for an unexpected status or content type; ``body`` is its decoded beginning."""
        message = f"{self.where} returned {status}" + (f": {text}" if (text := _plain(body)) else "")
        if status in {429, 503} or "<Code>SlowDown</Code>" in body:
            pause, after = _quota_pause(headers, "0"), _retry_after(headers)
            return Throttled(message, retry_after=pause or None if after is None else after, pause=pause)
        match status:
            case 200 | 206 if _is_text(headers):
                hint = "a proxy may answer instead of the source, see: catalogue doctor"
                return UnexpectedHtml(f"{message}, as {headers['content-type']!r} instead of the file; {hint}")
            case 200 if headers.get("content-length") != "0":  # an empty file has no ranges
                return RangeIgnored(f"{self.where}: the complete file was sent instead of a range")
            # CloudFront forwards S3's refusals of single files; its own refusals are blocks, whatever their text.
            case 401 | 403 if "cloudfront" in f"{body} {headers.get('server')}".lower() or "Request blocked" in body:
                return Blocked(message)
            case 404 | 410:
                return NotFound(f"{self.where} does not exist")
            case 412:
                return FileChanged(f"{self.where} is another version than expected")
            case 200 | 400 | 416 | 500 | 501 if status in {200, 416} or isinstance(self.requested, SuffixRange):
                return self._unsatisfiable(status, headers, message)
            case _ if 300 <= status < 400:  # noqa: PLR2004
                location = without_secrets(headers.get("location", ""))
                advice = "use its address as the source, or name its host as one of redirects in config.toml"
                return Redirected(f"{self.where} redirects to {location!r}, which is not followed; {advice}")
            # Storage answers 501 to headers that it does not implement, and networks 511 until the user logs in.
            case _ if (400 <= status < 500 and status != 408) or status in {501, 505, 511}:  # noqa: PLR2004
                return Forbidden(message)
        return Unreachable(message)

    def _unsatisfiable(self, status: int, headers: Mapping[str, str], message: str) -> CatalogueError:
        size = headers.get("content-range", "").rpartition("/")[2].strip()  # */size
        size = size if _LENGTH.fullmatch(size) else ""
        # Some servers refuse suffixes, of all files or of those that are shorter.
        if isinstance(self.requested, SuffixRange) and status != 200 and size != "0":  # noqa: PLR2004
            if status == 500:  # noqa: PLR2004 - which may also be temporary, so it is requested again
                return WrongRange(f"{message} for a range from the end")
            return RangeIgnored(f"{message}, a range from the end", file_size=int(size) if size else None)
        start = self.requested.start if isinstance(self.requested, ByteRange) else 0
        if self.requested is None or (size and int(size) > start):
            return Forbidden(f"{message}, although the range is inside the file")
        if start or self.pin:
            return self.is_shorter()
        return NotParquet(f"{self.where} is not a Parquet file: it is empty")

    def is_shorter(self) -> FileChanged:
        return FileChanged(f"{self.where} is shorter than expected")

    def read(self, status: int, headers: Mapping[str, str], read: Callable[[int], bytes]) -> Response:
        """Check a response and read its body; ``read`` returns up to the given number of bytes."""
        # Twisted sends compressed files of unknown types as HTML with this encoding.
        is_page = _is_text(headers) and status == 200 and "gzip" not in headers.get("content-encoding", "")  # noqa: PLR2004
        if not self.is_expected(status, headers) or is_page:
            # A complete file instead of a range is not read, unless its type is that of an error page.
            excerpt = bytearray()
            if status != 200 or _is_text(headers):  # noqa: PLR2004
                with suppress(Exception):  # the status is enough
                    while len(excerpt) < EXCERPT and (byte := read(1)):
                        excerpt += byte
            raise self.refuse(status, headers, excerpt.decode("utf-8", "replace"))
        sent, total = self._check(status, headers)
        response = self.response(read((len(sent) if sent else self.max_length) + 1), sent, total, headers)
        if _is_text(headers) and _PAGE.match(response.body):  # some servers send files of unknown types so
            raise self.refuse(status, headers, response.body[:EXCERPT].decode("utf-8", "replace"))
        return response

    def _check(self, status: int, headers: Mapping[str, str]) -> tuple[ByteRange | None, int]:
        """Return the range of an expected response and the size of the file; None and 0 if they are unknown."""
        encoding = headers.get("content-encoding", "")
        codings = {coding.strip() for coding in encoding.lower().split(",")} - _NO_CODING
        if codings - ({"gzip", "x-gzip"} if ".gz." in f"{self.where.rpartition('/')[2]}." else set()):
            raise WrongRange(f"{self.where} has Content-Encoding {encoding!r}, which was not accepted")
        if headers.get("content-type", "").lower().startswith("multipart/"):
            raise WrongRange(f"{self.where} was sent as multipart, which was not requested")
        length = headers.get("content-length")
        if self.requested is not None and (status != 200 or "content-range" in headers):  # noqa: PLR2004
            return self._check_range(self.requested, headers, length)
        if not _LENGTH.fullmatch(length or "") and "chunked" not in headers.get("transfer-encoding", "").lower():
            raise WrongLength(f"{self.where} was sent without a length, so it may be incomplete")
        size = int(length or 0)
        self.check_document(size)
        self.check_version(size or (self.pin.size if self.pin else 0), headers.get("etag"))
        return (ByteRange(0, size) if size else None), size

    def _check_range(
        self, requested: ByteRange | SuffixRange, headers: Mapping[str, str], length: str | None
    ) -> tuple[ByteRange, int]:
        try:
            sent, total = parse_content_range(headers.get("content-range"))
            if not total:  # a range from the end ends there
                total = self.pin.size if self.pin else sent.end if isinstance(requested, SuffixRange) else 0
            self.check_version(total, headers.get("etag"))
            if isinstance(requested, ByteRange) and sent.start == requested.start and sent.end == total < requested.end:
                raise self.is_shorter()
            expected = requested if not total and isinstance(requested, ByteRange) else resolve(requested, total)
        except WrongRange as error:
            raise WrongRange(f"{self.where}: {error}") from error
        if sent != expected:
            raise WrongRange(
                f"{self.where}: received bytes {sent.start} to {sent.end} instead of {expected.start} to {expected.end}"
            )
        if length is not None and length != str(len(sent)):
            raise WrongLength(f"{self.where}: Content-Length is {length} for a range of {len(sent)} bytes")
        return sent, total

    def check_document(self, size: int) -> None:
        if size > MAX_DOCUMENT:
            raise WrongLength(f"{self.where} has {size:,} bytes; at most {MAX_DOCUMENT:,} are accepted")

    def check_version(self, size: int, etag: str | None) -> None:
        """Raise FileChanged if size or ETag of a file are not those of ``pin``."""
        if self.pin and size != self.pin.size:
            raise FileChanged(f"{self.where} has {size:,} bytes; expected {self.pin.size:,}")
        if self.pin and differ(self.pin.etag, etag):
            raise FileChanged(f"{self.where} has ETag {etag!r}; expected {self.pin.etag!r}")

    def response(self, body: bytes, sent: ByteRange | None, total: int, headers: Mapping[str, str]) -> Response:
        limit = len(sent) if sent else MAX_DOCUMENT
        if len(body) > limit or (sent and len(body) < limit):
            raise WrongLength(f"{self.where}: received {len(body):,} bytes; expected {limit:,}")
        if sent is None:
            self.check_version(len(body), headers.get("etag"))
        return Response(
            body=body,
            start=sent.start if sent else 0,
            total_size=total if sent else total or len(body),
            etag=_printable(headers.get("etag")),
            last_modified=_printable(headers.get("last-modified")),
            date=_printable(headers.get("date")),
            server=_printable(headers.get("server")),
            pause=_quota_pause(headers, "1"),
        )


def is_strong(etag: str | None) -> bool:
    """Return whether an ETag is strong: equal ones mean equal bytes (RFC 9110, section 8.8.1)."""
    return etag is not None and etag.startswith('"')


def _printable(value: str | None) -> str | None:
    return value if value and value.isprintable() else None


def differ(expected: str | None, sent: str | None) -> bool:
    return expected != sent and is_strong(expected) and is_strong(sent)


def _is_text(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith(_TEXTS)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return ``Retry-After`` in seconds (RFC 9110, section 10.2.3); a date is relative to ``Date``."""
    text = headers.get("retry-after", "")
    if _LENGTH.fullmatch(text):
        return min(float(text), _LONGEST_PAUSE)
    with suppress(LookupError, TypeError, ValueError, OverflowError):
        seconds = (parsedate_to_datetime(text) - parsedate_to_datetime(headers["date"])).total_seconds()
        return min(max(0.0, seconds), _LONGEST_PAUSE)
    return None


def _quota_pause(headers: Mapping[str, str], left: str) -> float:
    """Return the seconds until a used quota is renewed: ``RateLimit: "x";r=0;t=60``; ``left`` replaces a missing r."""
    pause = 0.0
    for item in headers.get("ratelimit", "").split(",") if "ratelimit" in headers else ():
        values = dict(parameter.strip().partition("=")[::2] for parameter in item.split(";"))
        if _LENGTH.fullmatch(seconds := values.get("t", "")) and not values.get("r", left).strip("0"):
            pause = max(pause, min(float(seconds), _LONGEST_PAUSE))
    return pause


def _plain(body: str) -> str:
    if _BINARY.search(body):
        return ""
    text = re.sub(r"<(?:style|script)[^>]*>.*?</(?:style|script)>|<[^>]*>", " ", body, flags=re.DOTALL)
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:300]
