"""The ``Source`` protocol, and the checks of every response.

HTTP and S3 clients for Python accept some wrong responses: short bodies, other ranges, other versions of a file. So
every response is compared with its request before its bytes are used.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
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
"""Default limit in bytes for files that are read completely."""
EXCERPT = 2000
"""Bytes of an error's body that are read; Common Crawl names a contact there when it blocks a client."""

_TEXTS = ("text/html", "application/xml", "text/xml")
"""Content types of errors and captive portals, never of index files, manifests or records."""
_LENGTH = re.compile("[0-9]{1,18}")

RequestedRange: TypeAlias = ByteRange | SuffixRange | None


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and its response on a connection that carries one after the other."""

    look: Callable[[], None]
    """Updates ``surplus``."""
    surplus: bool = False
    """Whether a connection that was used before received more bytes than the response has."""

    def is_doubtful(self) -> bool:
        """Return whether the response may belong to another request, by all that was received until now."""
        self.look()
        return self.surplus


@dataclass(frozen=True, slots=True)
class Response:
    """A response that passed every check."""

    body: bytes
    start: int
    """Offset of the first byte of the body in the file."""
    total_size: int
    """Bytes of the file."""
    etag: str | None
    last_modified: str | None
    date: str | None = field(default=None, compare=False)
    """The ``Date`` header."""
    server: str | None = None
    """The ``Server`` header."""
    exchange: Exchange | None = field(default=None, compare=False)
    """None where no response can belong to another request."""


class Source(Protocol):
    """Where files are read from."""

    @property
    def url(self) -> str:
        """Return the address that identifies the source, without secrets."""

    @property
    def connections(self) -> int:
        """Return how many requests may be under way at once."""

    def get(self, path: str, requested: RequestedRange = None, *, pin: FileVersion | None = None) -> Response:
        """Make exactly one request.

        Args:
            path: relative to the source.
            requested: a range of the file; None for all of it, up to ``MAX_DOCUMENT`` bytes.
            pin: the expected version of the file; any other is refused.

        Raises:
            SourceError: with the file and what went wrong.
            NotParquet: if a suffix of an empty file was requested.
        """

    def close(self) -> None:
        """Close all connections; later requests fail."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and what its response must be."""

    where: str
    """Source and path, for messages."""
    requested: RequestedRange
    pin: FileVersion | None

    @property
    def good_status(self) -> int:
        return 200 if self.requested is None else 206

    @property
    def most(self) -> int:
        """Return the largest length of the body."""
        match self.requested:
            case None:
                return MAX_DOCUMENT
            case SuffixRange(length):
                return length
            case requested:
                return len(requested)

    def refuse(self, status: int, headers: Mapping[str, str], body: str) -> CatalogueError:
        """Return the error for a response with another status than the expected one.

        Args:
            status: of the response.
            headers: by lower-case name.
            body: its beginning, decoded.
        """
        message = f"{self.where} answered {status}" + (f": {text}" if (text := _plain(body)) else "")
        if status in {429, 503} or "<Code>SlowDown</Code>" in body:
            return Throttled(message, retry_after=_retry_after(headers))
        match status:
            case 200 | 206 if _is_text(headers):
                return UnexpectedHtml(f"{message}, as {headers['content-type']!r} instead of the file")
            case 200 if headers.get("content-length") != "0":  # of nothing there is no range to send
                return RangeIgnored(f"{self.where} was sent completely instead of a range")
            # What S3 refuses CloudFront passes on in S3's name; its own refusals are for everything, whatever they say.
            case 401 | 403 if "cloudfront" in f"{body} {headers.get('server')}".lower() or "Request blocked" in body:
                return Blocked(message)
            case 404 | 410:
                return NotFound(f"{self.where} does not exist")
            case 412:
                return FileChanged(f"{self.where} is not the file that it was known to be", refused=True)
            case 200 | 416:
                return self._unsatisfiable(headers, message)
            case _ if 300 <= status < 400:  # noqa: PLR2004
                place = without_secrets(headers.get("location", "nowhere"))
                return Redirected(f"{self.where} redirects to {place!r}, which is not followed")
            case _ if 400 <= status < 500 and status != 408:  # noqa: PLR2004
                return Forbidden(message)
        return Unreachable(message)

    def _unsatisfiable(self, headers: Mapping[str, str], message: str) -> CatalogueError:
        start = self.requested.start if isinstance(self.requested, ByteRange) else 0
        size = headers.get("content-range", "").rpartition("/")[2]
        if self.requested is None or (_LENGTH.fullmatch(size) and int(size) > start):
            return Forbidden(f"{message}, though it has bytes there")
        if start or self.pin:
            return FileChanged(f"{self.where} is shorter than it was known to be")
        return NotParquet(f"{self.where} is not a Parquet file: it is empty")

    def read(self, status: int, headers: Mapping[str, str], read: Callable[[int], bytes]) -> Response:
        """Check and read a response.

        Args:
            status: of the response.
            headers: by lower-case name.
            read: returns as many bytes of the body, or all if there are fewer.
        """
        if status != self.good_status or _is_text(headers):
            # Nothing is read of a complete file instead of a range, unless its type says that it is an error's text.
            excerpt = bytearray()
            if status != 200 or _is_text(headers):  # noqa: PLR2004
                with suppress(Exception):  # the status is enough, and so is a part
                    while len(excerpt) < EXCERPT and (byte := read(1)):
                        excerpt += byte
            raise self.refuse(status, headers, excerpt.decode("utf-8", "replace"))
        given, total = self.check(headers)
        return self.response(read((len(given) if given else self.most) + 1), given, total, headers)

    def check(self, headers: Mapping[str, str]) -> tuple[ByteRange | None, int]:
        """Check the headers of a response before its body is read.

        Args:
            headers: by lower-case name.

        Returns:
            The range that the body must hold (None for a complete file of unknown size) and the file's size (0 if
                unknown).
        """
        encoding = headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            message = f"{self.where} was encoded ({encoding!r}) against our wish"
            raise WrongRange(message)
        if headers.get("content-type", "").lower().startswith("multipart/"):
            message = f"{self.where} came in parts"
            raise WrongRange(message)
        length = headers.get("content-length")
        if self.requested is not None:
            return self._check_range(self.requested, headers, length)
        if not _LENGTH.fullmatch(length or "") and "chunked" not in headers.get("transfer-encoding", "").lower():
            message = f"{self.where} came without a length, so that nobody can tell whether it came whole"
            raise WrongLength(message)
        size = int(length or 0)
        if size > MAX_DOCUMENT:
            message = f"{self.where} has {size:,} bytes; at most {MAX_DOCUMENT:,} are accepted"
            raise WrongLength(message)
        self._check_pin(size or (self.pin.size if self.pin else 0), headers)
        return (ByteRange(0, size) if size else None), size

    def _check_range(
        self, requested: ByteRange | SuffixRange, headers: Mapping[str, str], length: str | None
    ) -> tuple[ByteRange, int]:
        try:
            given, total = parse_content_range(headers.get("content-range"))
            self._check_pin(total, headers)
            expected = resolve(requested, total)
        except WrongRange as error:
            message = f"{self.where}: {error}"
            raise WrongRange(message) from error
        if given != expected:
            message = (
                f"{self.where}: bytes {given.start} to {given.end} came when "
                f"{expected.start} to {expected.end} were requested"
            )
            raise WrongRange(message)
        if length is not None and length != str(len(given)):
            message = f"{self.where}: {length} bytes were announced for a range of {len(given)}"
            raise WrongLength(message)
        return given, total

    def _check_pin(self, total: int, headers: Mapping[str, str]) -> None:
        if self.pin and total != self.pin.size:
            message = f"{self.where} has {total:,} bytes; it was known to have {self.pin.size:,}"
            raise FileChanged(message)
        if self.pin and _differ(self.pin.etag, headers.get("etag")):
            message = f"{self.where} has ETag {headers['etag']!r}; it was known to have {self.pin.etag!r}"
            raise FileChanged(message)

    def response(self, body: bytes, given: ByteRange | None, total: int, headers: Mapping[str, str]) -> Response:
        """Check the length of the body and return the response."""
        most = len(given) if given else MAX_DOCUMENT
        if len(body) > most or (given and len(body) < most):
            message = f"{self.where}: {len(body):,} bytes came, {most:,} were expected"
            raise WrongLength(message)
        if given is None:
            self._check_pin(len(body), headers)
        return Response(
            body=body,
            start=given.start if given else 0,
            total_size=total or len(body),
            etag=_printable(headers.get("etag")),
            last_modified=_printable(headers.get("last-modified")),
            date=_printable(headers.get("date")),
            server=_printable(headers.get("server")),
        )


def is_strong(etag: str | None) -> bool:
    """Return whether equal ETags promise equal bytes (RFC 9110, section 8.8.1)."""
    return etag is not None and etag.startswith('"')


def _printable(value: str | None) -> str | None:
    return value if value and value.isprintable() else None


def _differ(stored: str | None, found: str | None) -> bool:
    return is_strong(stored) and is_strong(found) and stored != found


def _is_text(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith(_TEXTS)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return ``Retry-After`` in seconds (RFC 9110, section 10.2.3); a date is relative to the response's ``Date``."""
    text = headers.get("retry-after", "")
    if _LENGTH.fullmatch(text):
        return float(text)
    with suppress(LookupError, TypeError, ValueError, OverflowError):
        return max(0.0, (parsedate_to_datetime(text) - parsedate_to_datetime(headers["date"])).total_seconds())
    return None


def _plain(body: str) -> str:
    """Return an error page as one short line."""
    text = re.sub(r"<(?:style|script)[^>]*>.*?</(?:style|script)>|<[^>]*>", " ", body, flags=re.DOTALL)
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:300]
