"""Decode the WARC or ARC record in a gzip member, and check that it is the one in the index.

The bytes come from outside: 2 kB can inflate without end. A record that is not its capture is an error.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from catalogue.commoncrawl.capture import Capture, parse_timestamp
from catalogue.commoncrawl.gzip_members import inflate
from catalogue.errors import BadManifest, BadRecord, CatalogueError
from catalogue.formatting import ReprMixin, clock, printable, size
from catalogue.records.head import Head, Headers, parse_arc_head, parse_http_head, parse_warc_head

MAX_INFLATED = 64 << 20
"""Bytes of a decompressed record or payload."""

_WARC = b"WARC/"
_KINDS = {"response", "revisit", "resource", "conversion"}
_ENDS = {b"\r\n\r\n", b"\r\n\r\n\r\n", b"\r\n", b"\n", b"", b"\n\n"}
"""What may follow a record's content: usually two line ends in WARC files; one or none in ARC."""
_STRAY = b"\r\n"
"""Between head and body of responses in CC-MAIN-2018-34, https://github.com/commoncrawl/nutch/issues/5."""
_HTTP_KINDS = {"response", "revisit"}
_HTTP_SCHEMES = ("http:", "https:")
_LENGTH = re.compile(r"[0-9]{1,15}")
_GZIP, _DEFLATE, _RAW_DEFLATE = 31, 15, -15
"""Content codings as window bits of zlib; some servers call the last one deflate too."""
_MOST_MEMBERS = 100
"""Gzip members of a body; the rest is copied after each."""
_ALGORITHMS = {"md5", "sha1", "sha256", "sha384", "sha512"}
_STATUS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, repr=False)
class Record(ReprMixin):
    """The archived record of a capture."""

    capture: Capture
    member: bytes
    """The gzip member in the archive."""
    archive: str
    """``warc`` or ``arc``."""
    kind: str
    """``response``, ``revisit`` and so on."""
    headers: Headers
    """Of the record."""
    status_line: str
    """Of the HTTP response, without its protocol; empty if there is none."""
    http_headers: Headers
    http_head: bytes
    """Status line and headers as archived, with the blank line."""
    body: bytes
    """Of the response, as archived; see ``payload``."""

    def _line(self) -> str:
        return f"of {self.url}: {self.kind}, {size(len(self.body))}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "time", "-" if self.time is None else clock(self.time)
        yield "status", self.status_line or "-"
        yield "type", self.mime or "-"
        yield "body as archived", f"{len(self.body):,} bytes"
        yield "archive", self.capture.filename
        yield "bytes there", f"{self.capture.offset:,} to {self.capture.offset + self.capture.length - 1:,}"

    def header(self, name: str) -> str | None:
        """Return a header of the record, ignoring case."""
        return _find(self.headers, name)

    def http_header(self, name: str) -> str | None:
        """Return a header of the HTTP response, ignoring case."""
        return _find(self.http_headers, name)

    @property
    def url(self) -> str:
        return _url(self.headers, self.archive)

    @property
    def time(self) -> datetime | None:
        """Time of the request, UTC."""
        return _time(self.header("WARC-Date" if self.archive == "warc" else "archive-date") or "")

    @property
    def status(self) -> int | None:
        code = _STATUS.match(self.status_line)  # the text may follow without a space
        return int(code[0]) if code else None

    @property
    def mime(self) -> str | None:
        """The detected type, else that of the response, lower case and without parameters."""
        declared = self.header("WARC-Identified-Payload-Type") or self.http_header("content-type") or ""
        return declared.partition(";")[0].strip().lower() or None

    @property
    def payload(self) -> bytes:
        """The body without its content coding, if that is gzip or deflate; with another coding the body as archived.

        A body that does not begin like its coding is returned as archived: Common Crawl's files since 2013 contain
        decoded bodies, whatever their header. Raw deflate has no signature, so such a body is decoded completely or
        returned as it is.

        Raises:
            BadRecord: if it begins like its coding and is damaged, truncated or followed by something, or inflates to
                more than ``MAX_INFLATED`` bytes. ``body`` is what was archived.
        """
        coding = (self.http_header("content-encoding") or "").strip().lower()
        if coding in {"gzip", "x-gzip"} and self.body.startswith(b"\x1f\x8b"):
            window_bits = _GZIP
        elif coding != "deflate" or not self.body:
            return self.body
        elif self.body[0] & 15 == zlib.DEFLATED and int.from_bytes(self.body[:2], "big") % 31 == 0:
            window_bits = _DEFLATE
        else:
            window_bits = _RAW_DEFLATE
        try:
            return _decoded(self.body, window_bits)
        except zlib.error as error:
            if window_bits == _RAW_DEFLATE:
                return self.body
            raise BadRecord(f"the payload's coding is damaged: {error}") from error


def read_record(capture: Capture, member: bytes) -> Record:
    """Decode a record and check that it is that of the capture.

    Missing values of the capture are not compared, nor are digests by other algorithms than MD5 and SHA-1 to SHA-512.

    Raises:
        BadRecord: if it is another record, or damaged.
    """
    try:
        return _record(capture, member, inflate(member, limit=MAX_INFLATED))
    except BadManifest as error:
        raise BadRecord(f"it cannot be inflated: {error}") from error
    except (CatalogueError, MemoryError):
        raise
    except Exception as error:  # parsers raise many kinds of errors about invalid bytes
        raise BadRecord(f"invalid record: {_shown(error)}") from error


def _record(capture: Capture, member: bytes, data: bytes) -> Record:
    archive = "warc" if data.startswith(_WARC) else "arc"
    fields = parse_warc_head(data) if archive == "warc" else parse_arc_head(data)
    url, start = _url(fields.headers, archive), fields.end
    kind: str | None = "arc_header" if url.startswith("filedesc://") else "response"
    if archive == "warc":
        kind = _find(fields.headers, "WARC-Type")
    if kind is None or kind not in _KINDS:
        raise BadRecord(f"it is a record of type {_shown(kind)}")
    end = start + _length(_find(fields.headers, "Content-Length" if archive == "warc" else "length"))
    if end > len(data):
        raise BadRecord(f"its content is {end - len(data):,} bytes shorter than declared")
    if data[end : end + 7] not in _ENDS:  # a byte more than the longest
        raise BadRecord(f"{len(data) - end:,} bytes follow its content")
    response = Head("", (), start)
    if start < end and kind in _HTTP_KINDS and url.lower().startswith(_HTTP_SCHEMES):
        response = parse_http_head(data, start, end)
    record = Record(
        capture=capture,
        member=member,
        archive=archive,
        kind=kind,
        headers=fields.headers,
        status_line=response.status_line,
        http_headers=response.headers,
        http_head=data[start : response.end],
        body=data[response.end : end],
    )
    record, block = _without_stray(record), memoryview(data)[start:end]
    _check(record, block if len(record.body) == end - response.end else None)
    return record


def _without_stray(record: Record) -> Record:
    """Return the record without a stray line end, if its digest excludes one."""
    digest = record.capture.digest or record.header("WARC-Payload-Digest")
    if not digest or not record.body.startswith(_STRAY) or _has_digest(record.body, digest):
        return record
    body = record.body[len(_STRAY) :]
    return replace(record, body=body) if _has_digest(body, digest) else record


def _length(declared: str | None) -> int:
    if declared is None or not _LENGTH.fullmatch(declared):
        raise BadRecord(f"invalid record: its length is {str(declared)[:100]!r}")
    return int(declared)


def _url(headers: Iterable[tuple[str, str]], archive: str) -> str:
    url = _find(headers, "WARC-Target-URI" if archive == "warc" else "uri") or ""
    return url[1:-1] if url.startswith("<") and url.endswith(">") else url  # as Wget 1.19 wrote them


def _decoded(body: bytes, window_bits: int) -> bytes:
    """Decode a body, which may have several gzip members.

    Raises:
        BadRecord: if it is too large or has too many members.
        zlib.error: if it does not completely have that coding.
    """
    parts, room, rest = [], MAX_INFLATED, body
    for _ in range(_MOST_MEMBERS):
        inflater = zlib.decompressobj(window_bits)
        part = inflater.decompress(rest, room + 1)
        room -= len(part)
        if room < 0:
            raise BadRecord(f"the payload inflates to more than {MAX_INFLATED:,} bytes")
        if not inflater.eof:
            raise zlib.error("it ends early")
        parts.append(part)
        rest = inflater.unused_data
        if not rest.strip(b"\0\r\n"):
            return b"".join(parts)
        if window_bits != _GZIP:
            raise zlib.error(f"{len(rest):,} bytes follow its end")
    raise BadRecord(f"the payload's coding has more than {_MOST_MEMBERS} members")


def _check(record: Record, block: memoryview | None) -> None:
    """Raise BadRecord if a record contradicts its capture or its digests.

    ``block`` is head and body; None if a stray line end was removed, which the block's digest may include.
    """
    capture, time = record.capture, record.time
    if capture.url is not None and _spaceless(record.url) != _spaceless(capture.url):
        raise BadRecord(f"it is of {record.url[:200]!r} and not of {capture.url[:200]!r}")
    if capture.time is not None and (time is None or abs(time - capture.time) >= timedelta(seconds=1)):
        raise BadRecord(f"it is of {time} and not of {capture.time}")
    if capture.status is not None and record.status is not None and record.status != capture.status:
        raise BadRecord(f"its status is {record.status} and not {capture.status}")
    # A revisit has the digest of the payload that it leaves out; writers disagree about that of its block.
    declared = record.header if record.kind != "revisit" else lambda _: None
    indexed, reported = capture.digest, declared("WARC-Payload-Digest")
    if indexed and reported in {indexed, f"sha1:{indexed}"}:  # usually; each takes as long as everything else here
        reported = None
    for what, content, digest in (
        ("payload", record.body, indexed),
        ("payload", record.body, reported),
        ("content", block, declared("WARC-Block-Digest")),
    ):
        if digest and content is not None and not _has_digest(content, digest):
            raise BadRecord(f"its {what} has not the digest {_shown(digest)}")


def _spaceless(url: str) -> str:
    """Escape spaces, which URLs of records and the index may contain."""
    return url.replace(" ", "%20")


def _has_digest(content: bytes | memoryview, digest: str) -> bool:
    """Return whether content has a digest; unknown algorithms are accepted."""
    name, _, value = digest.rpartition(":")
    algorithm = name.lower().replace("-", "").replace("sha2256", "sha256") or "sha1"
    if algorithm not in _ALGORITHMS:
        return True
    found = hashlib.new(algorithm, content, usedforsecurity=False).digest()
    expected = value.rstrip("=").lower()
    return expected == base64.b32encode(found).decode().rstrip("=").lower() or expected == found.hex()


def _time(text: str) -> datetime | None:
    try:
        return parse_timestamp(text)
    except ValueError:
        return None


def _shown(declared: object) -> str:
    return printable(str(declared)[:200])


def _find(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    requested = name.lower()
    for key, value in headers:
        if len(key) == len(name) and key.lower() == requested:
            return value
    return None
