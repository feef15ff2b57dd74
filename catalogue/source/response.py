"""What every source answers, and the checks that no answer escapes.

Of eleven ways that Python's HTTP and S3 clients are called, none refuses every wrong answer; all of them can hand on
short or misplaced bytes as if nothing were wrong. So nothing is believed here that was not compared with the request.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from catalogue.errors import (
    Blocked,
    CatalogueError,
    Changed,
    Denied,
    Missing,
    NotParquet,
    RangeIgnored,
    Redirected,
    ShortBody,
    SlowDown,
    Unreachable,
    WrongRange,
)
from catalogue.ranges import ByteRange, Pin, SuffixRange, parse_content_range, resolve

MAX_DOCUMENT = 16 << 20
"""Bytes of a whole file that are read at most unless said otherwise."""


Wanted: TypeAlias = ByteRange | SuffixRange | None


@dataclass(frozen=True, slots=True)
class Response:
    """An answer that passed every check."""

    body: bytes
    start: int
    """Offset in the file of the body's first byte."""
    total_size: int
    """Bytes of the whole file."""
    etag: str | None
    last_modified: str | None


class Source(Protocol):
    """Where files are read from: one method, shaped like the request it makes."""

    @property
    def url(self) -> str:
        """What identifies the source; holds no secret."""

    @property
    def connections(self) -> int:
        """How many requests may be under way at once."""

    def get(self, path: str, wanted: Wanted = None, *, pin: Pin | None = None) -> Response:
        """Make exactly one request.

        Args:
            path: relative to the source.
            wanted: the bytes of the file; None for all of it, if that is no more than ``MAX_DOCUMENT`` bytes.
            pin: refuse any other version of the file.

        Raises:
            SourceError: naming what went wrong with which file.
            NotParquet: if a suffix was asked of an empty file.
        """

    def close(self) -> None:
        """Let go of connections; a source that is closed answers no more."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and what an answer to it must be."""

    where: str
    """For messages: the source and the path."""
    wanted: Wanted
    pin: Pin | None

    @property
    def good_status(self) -> int:
        """The only status of an answer that is believed."""
        return 200 if self.wanted is None else 206

    @property
    def most(self) -> int:
        """Bytes that an answer may have."""
        match self.wanted:
            case None:
                return MAX_DOCUMENT
            case SuffixRange(length):
                return length
            case wanted:
                return len(wanted)

    def refuse(self, status: int, headers: Mapping[str, str], body: str) -> CatalogueError:
        """What an answer with another status than the good one means.

        Args:
            status: the answer's.
            headers: by lower-case name.
            body: its beginning, decoded.
        """
        said = f"{self.where} answered {status}" + (f": {text}" if (text := _plain(body)) else "")
        if status in {429, 503} or "<Code>SlowDown</Code>" in body:
            return SlowDown(said, retry_after=_seconds(headers.get("retry-after")))
        match status:
            case 200:
                return RangeIgnored(f"{self.where} was sent whole when a range of it was asked for")
            case 401 | 403 if "Request blocked" in body or "cloudfront" in body.lower():
                return Blocked(said)
            case 404 | 410:
                return Missing(f"{self.where} does not exist")
            case 412:
                return Changed(f"{self.where} is not the file whose footer is held")
            case 416 if isinstance(self.wanted, SuffixRange):
                return NotParquet(f"{self.where} is not a Parquet file: it is empty")
            case 416:
                return Changed(f"{self.where} is shorter than the file whose footer is held")
            case _ if 300 <= status < 400:  # noqa: PLR2004
                return Redirected(
                    f"{self.where} redirects to {headers.get('location', 'nowhere')!r}, which is not followed"
                )
            case _ if 400 <= status < 500 and status != 408:  # noqa: PLR2004
                return Denied(said)
        return Unreachable(said)

    def check(self, headers: Mapping[str, str]) -> tuple[ByteRange | None, int]:
        """Check an answer with the good status before its body is read.

        Args:
            headers: by lower-case name.

        Returns:
            The bytes that the body must hold (None for a whole file whose size is not announced) and the whole file's
            size (0 if not announced).
        """
        encoding = headers.get("content-encoding", "identity")
        if encoding != "identity":
            message = f"{self.where} was encoded ({encoding}) against our wish"
            raise WrongRange(message)
        kind = headers.get("content-type", "")
        if kind.startswith(("text/html", "multipart/")):
            message = f"{self.where} was answered with {kind} instead of the file"
            raise Unreachable(message)
        length = headers.get("content-length")
        if self.wanted is None:
            size = int(length) if length and length.isdecimal() else 0
            if size > MAX_DOCUMENT:
                message = f"{self.where} has {size:,} bytes; more than {MAX_DOCUMENT:,} are not believed"
                raise ShortBody(message)
            return (ByteRange(0, size) if size else None), size
        return self._check_range(self.wanted, headers, length)

    def _check_range(
        self, wanted: ByteRange | SuffixRange, headers: Mapping[str, str], length: str | None
    ) -> tuple[ByteRange, int]:
        try:
            given, total = parse_content_range(headers.get("content-range"))
            if self.pin and total != self.pin.size:
                message = f"{self.where} has {total:,} bytes; the file whose footer is held had {self.pin.size:,}"
                raise Changed(message)
            expected = resolve(wanted, total)
        except WrongRange as error:
            message = f"{self.where}: {error}"
            raise WrongRange(message) from error
        if given != expected:
            message = (
                f"{self.where}: bytes {given.start} to {given.end} came when "
                f"{expected.start} to {expected.end} were asked for"
            )
            raise WrongRange(message)
        if length is not None and length != str(len(given)):
            message = f"{self.where}: {length} bytes were announced for a range of {len(given)}"
            raise ShortBody(message)
        if self.pin and _differ(self.pin.etag, headers.get("etag")):
            message = f"{self.where} has ETag {headers.get('etag')}; the file whose footer is held had {self.pin.etag}"
            raise Changed(message)
        return given, total

    def response(self, body: bytes, given: ByteRange | None, total: int, headers: Mapping[str, str]) -> Response:
        """The answer, after the last check: that the body has the length it must have."""
        most = len(given) if given else MAX_DOCUMENT
        if len(body) > most or (given and len(body) < most):
            message = f"{self.where}: {len(body):,} bytes came, {most:,} were expected"
            raise ShortBody(message)
        return Response(
            body=body,
            start=given.start if given else 0,
            total_size=total or len(body),
            etag=headers.get("etag"),
            last_modified=headers.get("last-modified"),
        )


def is_strong(etag: str | None) -> bool:
    """Whether equal ETags promise equal bytes (RFC 9110, section 8.8.1)."""
    return etag is not None and etag.startswith('"')


def _differ(held: str | None, found: str | None) -> bool:
    return is_strong(held) and is_strong(found) and held != found


def _seconds(retry_after: str | None) -> float | None:
    """``Retry-After`` given in seconds; a date depends on two clocks, so it is as good as not given."""
    return float(retry_after) if retry_after and retry_after.isdecimal() else None


def _plain(body: str) -> str:
    """An error page as one short line: Common Crawl says there whom to write to."""
    return " ".join(
        re.sub(r"<(?:style|script)[^>]*>.*?</(?:style|script)>|<[^>]*>", " ", body, flags=re.DOTALL).split()
    )[:300]
