"""One member of a WARC or ARC file → the record in it, if it is the one that the index speaks of.

The bytes are hostile until checked: a member of 2 kB can inflate without end, and warcio takes what is cut short for
whole. A record that is not what its capture says is an error, never a result.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO

from warcio.exceptions import ArchiveLoadFailed
from warcio.recordloader import ArcWarcRecord, ArcWarcRecordLoader
from warcio.statusandheaders import StatusAndHeadersParser, StatusAndHeadersParserException

from catalogue.capture import Capture
from catalogue.crawl import inflate
from catalogue.errors import BadManifest, BadRecord

MAX_INFLATED = 64 << 20
"""Bytes that a record, or the payload in it, may have once it is inflated."""

_WARC = b"WARC/"
_KINDS = {"response", "revisit", "resource", "conversion"}
_ENDS = {b"\r\n\r\n", b"\r\n\r\n\r\n", b"\r\n", b"\n", b"", b"\n\n"}
"""What may follow a record's content: two ends of line in WARC files, three in CC-MAIN-2018-34, one or none in ARC."""
_INFLATING = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""By content coding, the window bits that zlib calls it by."""
_PROTOCOL = re.compile(r"HTTP/[0-9]+(?:\.[0-9])?|(?:HTTP|ICY)(?=\s+[0-9]{3})", re.IGNORECASE)
"""What an answer starts with; warcio knows two versions of HTTP alone, and ARC files have others."""
_STATUS = re.compile(r"[0-9]{1,9}")

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """What was archived of a capture."""

    capture: Capture
    member: bytes
    """As it lies in the archive, gzipped."""
    archive: str
    """``warc`` or ``arc``."""
    kind: str
    """``response``, ``revisit`` and so on."""
    headers: Headers
    """Of the record."""
    status_line: str
    """Of the HTTP answer, without its protocol; empty if there is none."""
    http_headers: Headers
    body: bytes
    """Of the answer as it was archived; see ``payload``."""

    def header(self, name: str) -> str | None:
        """A header of the record; case does not matter."""
        return _find(self.headers, name)

    def http_header(self, name: str) -> str | None:
        """A header of the HTTP answer, likewise."""
        return _find(self.http_headers, name)

    @property
    def url(self) -> str:
        """That was asked for."""
        return self.header("WARC-Target-URI" if self.archive == "warc" else "uri") or ""

    @property
    def time(self) -> datetime | None:
        """When, UTC."""
        return _time(self.header("WARC-Date" if self.archive == "warc" else "archive-date") or "")

    @property
    def status(self) -> int | None:
        """Of the HTTP answer."""
        code = _STATUS.match(self.status_line)  # what follows is not always parted from it
        return int(code[0]) if code else None

    @property
    def mime(self) -> str | None:
        """As the crawler detected it, else as the server says, without parameters and in small letters."""
        told = self.header("WARC-Identified-Payload-Type") or self.http_header("content-type") or ""
        return told.partition(";")[0].strip().lower() or None

    @property
    def payload(self) -> bytes:
        """The body without its content coding, if it was archived with one and can be rid of it.

        Common Crawl's files since 2013 hold bodies that were rid of it, and call the header so too.

        Raises:
            BadRecord: if it inflates to more than ``MAX_INFLATED`` bytes.
        """
        bits = _INFLATING.get((self.http_header("content-encoding") or "").strip().lower())
        if bits is None:
            return self.body
        inflater = zlib.decompressobj(bits)
        try:
            found = inflater.decompress(self.body, MAX_INFLATED + 1)
        except zlib.error:
            return self.body  # it says so, and is not
        if len(found) > MAX_INFLATED:
            message = f"the payload inflates to more than {MAX_INFLATED:,} bytes"
            raise BadRecord(message)
        return found


def read_record(capture: Capture, member: bytes) -> Record:
    """Read a record and make sure it is the one that is meant.

    Args:
        capture: what the index says of it; what that does not say is not compared.
        member: the bytes at its place.

    Raises:
        BadRecord: if it is not, or is damaged.
    """
    data = _inflated(member)
    archive = "warc" if data.startswith(_WARC) else "arc"
    stream = BytesIO(data)
    loader = ArcWarcRecordLoader(arc2warc=False)
    loader.http_parser = _AnswerParser(loader.HTTP_TYPES)
    try:
        loaded = loader.parse_record_stream(stream, known_format=archive)
        record = _record(capture, member, archive, loaded, stream)
    except (ArchiveLoadFailed, StatusAndHeadersParserException, EOFError, AttributeError, UnicodeError) as error:
        message = f"it is no record: {error}"
        raise BadRecord(message) from error
    for difference in _differences(capture, record):
        raise BadRecord(difference)
    return record


class _AnswerParser(StatusAndHeadersParser):  # type: ignore[misc]  # warcio has no types
    """Heads of HTTP answers as servers sent them."""

    @staticmethod
    def split_prefix(key: str, prefixs: list[str]) -> tuple[str, str] | None:  # noqa: ARG004 - warcio's
        """The protocol of a status line and the rest of it; None if it is none."""
        found = _PROTOCOL.match(key)
        return (found[0].upper(), key[found.end() :]) if found else None


def _inflated(member: bytes) -> bytes:
    try:
        return inflate(member, limit=MAX_INFLATED)
    except BadManifest as error:
        message = f"it cannot be inflated: {error}"
        raise BadRecord(message) from error


def _record(capture: Capture, member: bytes, archive: str, loaded: ArcWarcRecord, stream: BytesIO) -> Record:
    if loaded.rec_type not in _KINDS:
        message = f"it is a record of type {loaded.rec_type}"
        raise BadRecord(message)
    body = loaded.raw_stream.read()
    if getattr(loaded.raw_stream, "limit", 0):
        message = f"its content lacks {loaded.raw_stream.limit:,} bytes of what it says"
        raise BadRecord(message)
    rest = stream.read()
    if rest not in _ENDS:
        message = f"{len(rest):,} bytes follow its content"
        raise BadRecord(message)
    http = loaded.http_headers
    return Record(
        capture=capture,
        member=member,
        archive=archive,
        kind=loaded.rec_type,
        headers=tuple(map(tuple, loaded.rec_headers.headers)),
        status_line=http.statusline if http else "",
        http_headers=tuple(map(tuple, http.headers)) if http else (),
        body=body,
    )


def _differences(capture: Capture, record: Record) -> Iterator[str]:
    """What a record is that its capture is not, a sentence each."""
    if capture.url is not None and record.url != capture.url:
        yield f"it is of {record.url[:200]!r} and not of {capture.url[:200]!r}"
    time = record.time
    if capture.time is not None and (time is None or abs(time - capture.time) >= timedelta(seconds=1)):
        yield f"it is of {time} and not of {capture.time}"
    if capture.status is not None and record.status is not None and record.status != capture.status:
        yield f"its status is {record.status} and not {capture.status}"
    for digest in (capture.digest, record.header("WARC-Payload-Digest") if record.kind != "revisit" else None):
        if digest and not _has_digest(record.body, digest):
            yield f"its payload has not the digest {digest}"


def _has_digest(body: bytes, digest: str) -> bool:
    name, colon, value = digest.rpartition(":")
    try:
        found = hashlib.new(name.replace("-", "") if colon else "sha1", body, usedforsecurity=False).digest()
    except ValueError:
        return True  # by an algorithm that nobody here knows
    return value in {found.hex(), base64.b32encode(found).decode().rstrip("=")} or value.rstrip("=") == (
        base64.b32encode(found).decode().rstrip("=")
    )


def _time(text: str) -> datetime | None:
    """A time as WARC or ARC writes it."""
    try:
        time = datetime.strptime(text, "%Y%m%d%H%M%S") if text.isdecimal() else datetime.fromisoformat(text)  # noqa: DTZ007
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _find(headers: Headers, name: str) -> str | None:
    wanted = name.lower()
    return next((value for key, value in headers if key.lower() == wanted), None)
