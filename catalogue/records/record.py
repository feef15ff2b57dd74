"""Decode a WARC or ARC record, usually a gzip member, and check that it is the one in the index.

2 kB can inflate without end.
"""

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from urllib.parse import unquote_to_bytes

from catalogue.commoncrawl.capture import Capture, parse_timestamp, precision_of
from catalogue.commoncrawl.gzip_members import inflate
from catalogue.errors import BadManifest, BadRecord, CatalogueError
from catalogue.formatting import ReprMixin, clock, printable, size
from catalogue.records.content_codings import Decoded, decode_body, remove_chunks
from catalogue.records.head import HTTP, WARC, Head, Headers, parse_arc_head, parse_head
from catalogue.records.media_type import Syntax, declared_type, media_type, syntax_of
from catalogue.records.text_decoding import DocumentCharset, find_charset
from catalogue.surt.key import BLANKS

MAX_INFLATED = 64 << 20
"""Bytes of a decompressed record."""

_WARC = b"WARC/"
_UNCOMPRESSED = re.compile(rb"[\r\n]*(?:WARC/|[A-Za-z][A-Za-z0-9+.-]{0,30}:)")
_GZIP_LEVEL = 6
_KINDS = {"response", "revisit", "resource", "conversion"}
_ENDS = {b"\r\n\r\n", b"\r\n\r\n\r\n", b"\r\n", b"\n", b"", b"\n\n"}
"""What may follow a record's content: usually two line ends in WARC files; one or none in ARC."""
_STRAY = b"\r\n"
"""Bytes between head and body of responses in CC-MAIN-2018-34, https://github.com/commoncrawl/nutch/issues/5."""
_HTTP, _MAX_INTERIM = b"HTTP/", 5
_HTTP_BLOCKS = ("application/http", "message/http")
_HTTP_KINDS = {"response", "revisit"}
_HTTP_SCHEMES = ("http:", "https:")
_LENGTH = re.compile(r"[0-9]{1,15}")
_SERVER_LENGTHS = {"content-length", "x-crawler-content-length"}  # since 2018 the first has the archived length
_UNMARKED_LIMIT, _UNMARKED_UNTIL = 1 << 20, datetime(2019, 8, 14, tzinfo=UTC)
"""Common Crawl truncated payloads at this length, not always with a mark, https://github.com/commoncrawl/nutch/issues/10."""
_ALGORITHMS = {"md5", "sha1", "sha256", "sha384", "sha512"}
_HEX = re.compile(r"[0-9a-f]*[0189][0-9a-f]*")  # not base 32
_ALGORITHM_BY_LENGTH = {32: "md5", 64: "sha256", 96: "sha384", 128: "sha512"}
_UNKNOWN = {"", "-", "none", "null"}
"""Values of dates, digests and flags that are unknown."""
_STATUS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, repr=False)
class Record(ReprMixin):
    """The archived record of a capture."""

    capture: Capture
    member: bytes
    """The gzip member in the archive, or one made of a record that is not compressed there."""
    archive: str
    """``warc`` or ``arc``."""
    kind: str
    """``response``, ``revisit`` and so on."""
    headers: Headers
    status_line: str
    """The line without its protocol; empty if there is none."""
    http_headers: Headers
    http_head: bytes
    """Status line and headers as archived, with the blank line."""
    body: bytes
    """The response's body, as archived; see ``payload``."""

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
        return _url(self.headers)

    @property
    def time(self) -> datetime | None:
        """Time of the request, UTC."""
        with suppress(ValueError):
            return parse_timestamp(_date(self.headers))
        return None

    @property
    def status(self) -> int | None:
        code = _STATUS.match(self.status_line)  # the text may follow without a space
        return int(code[0]) if code else None

    @property
    def content_type(self) -> str:
        """The declared media type with parameters; several values are joined by commas."""
        values = [value for name, value in self.http_headers if name.lower() == "content-type"]
        block = self.header("content-type") or ""
        return ", ".join(values) or ("" if block.startswith(_HTTP_BLOCKS) else block)

    @cached_property
    def mime(self) -> str | None:
        """The media type, lower case, without parameters; see ``catalogue.records.media_type``."""
        identified = self.header("WARC-Identified-Payload-Type")
        return media_type(
            identified, self.capture.mime, self.content_type, lambda: b"" if self.coding_error else self.payload
        )

    @property
    def payload(self) -> bytes:
        """The body without chunks and content codings; see ``catalogue.records.content_codings``.

        Raises:
            BadRecord: if a coding is unknown or damaged, or the payload is too large.
        """
        if isinstance(self._decoded, BadRecord):
            raise self._decoded
        return self._decoded[0]

    @property
    def coding_error(self) -> str | None:
        """Why the payload cannot be decoded."""
        return str(self._decoded) if isinstance(self._decoded, BadRecord) else None

    @property
    def truncated(self) -> str | None:
        """Why the payload is not complete: ``length``, ``time``, ``disconnect`` or ``unspecified``."""
        if self._flag or isinstance(self._decoded, BadRecord):
            return self._flag
        return "unspecified" if self._decoded[1] or self._is_short else None

    @property
    def _flag(self) -> str | None:
        flag = (self.header("WARC-Truncated") or "").lower()
        if flag not in _UNKNOWN:
            return flag
        return self.capture.truncated or ("length" if self.http_header("x-commoncrawl-ContentTruncated") else None)

    @property
    def _is_short(self) -> bool:
        """Whether the body is shorter than its server sent it, although nothing marks it."""
        if len(self.body) == _UNMARKED_LIMIT and self.time and self.time < _UNMARKED_UNTIL:
            return True
        fields = [(name.lower(), value) for name, value in self.http_headers]
        lengths = [int(value) for name, value in fields if name in _SERVER_LENGTHS and _LENGTH.fullmatch(value)]
        coded = any(name.endswith("-encoding") for name, _ in fields)
        return not coded and 0 < len(self.body) < max(lengths, default=0)

    @property
    def syntax(self) -> Syntax | None:
        """The syntax of the payload; None if it has no text, cannot be decoded, or is left out of a revisit."""
        has_payload = not self.coding_error and bool(self.body or self.kind != "revisit")
        return syntax_of(self.mime, self.payload, declared=declared_type(self.content_type)) if has_payload else None

    @cached_property
    def charset(self) -> DocumentCharset | None:
        syntax = self.syntax
        return syntax and find_charset(self.payload, syntax, content_type=self.content_type, url=self.url)

    @cached_property
    def _decoded(self) -> Decoded | BadRecord:
        try:
            return decode_body(self.body, self.http_headers, cut=bool(self._flag))
        except BadRecord as error:
            return error


def read_record(capture: Capture, member: bytes) -> Record:
    """Decode a record and check that it is that of the capture.

    Unknown values are not compared, nor are digests by other algorithms than MD5 and SHA-1 to SHA-512, nor those of a
    revisit, which are of the payload that it leaves out.

    Raises:
        BadRecord: if it is another record, or damaged.
    """
    if _UNCOMPRESSED.match(member):
        member = gzip.compress(member, _GZIP_LEVEL, mtime=0)
    try:
        return _record(capture, member, inflate(member, limit=MAX_INFLATED).lstrip(b"\r\n"))
    except BadManifest as error:
        raise BadRecord(f"it cannot be inflated: {error}") from error
    except (CatalogueError, MemoryError):
        raise
    except Exception as error:  # parsers raise many kinds of errors about invalid bytes
        raise BadRecord(f"invalid record: {_shown(error)}") from error


def _record(capture: Capture, member: bytes, data: bytes) -> Record:
    archive = "warc" if data.startswith(_WARC) else "arc"
    _, headers, start = parse_head(WARC, data, 0, len(data)) if archive == "warc" else parse_arc_head(data)
    url = _url(headers)
    kind = (_find(headers, "WARC-Type") or "").lower() or "None"
    if archive == "arc":
        kind = "arc_header" if url.startswith("filedesc://") else "response"
    if kind not in _KINDS:
        raise BadRecord(f"it is a record of type {_shown(kind)}")
    end = start + _length(_find(headers, "Content-Length" if archive == "warc" else "length"))
    if archive == "arc" and len(data) == end + 3 and data.endswith(b"\n"):
        end += 2  # some lengths of 2012 leave out the blank line after the head
    if end > len(data):
        raise BadRecord(f"its content is {end - len(data):,} bytes shorter than declared")
    if data[end : end + 7] not in _ENDS:  # a byte more than the longest
        raise BadRecord(f"{len(data) - end:,} bytes follow its content")
    response: Head = "", (), start
    if start < end and kind in _HTTP_KINDS and url.lower().startswith(_HTTP_SCHEMES):
        response = _final_head(data, start, end)
    status_line, http_headers, body = response
    record = Record(
        capture=capture,
        member=member,
        archive=archive,
        kind=kind,
        headers=headers,
        status_line=status_line,
        http_headers=http_headers,
        http_head=data[start:body],
        body=data[body:end],
    )
    record, block = _without_stray(record), memoryview(data)[start:end]
    _check(record, block if len(record.body) == end - body else None)
    return record


def _final_head(data: bytes, start: int, end: int) -> Head:
    """Parse the head of a response after those of interim responses, such as ``100 Continue``."""
    head = parse_head(HTTP, data, start, end)
    for _ in range(_MAX_INTERIM):
        if not (head[0].startswith("1") and data.startswith(_HTTP, head[2], end)):
            break
        head = parse_head(HTTP, data, head[2], end)
    return head


def _without_stray(record: Record) -> Record:
    """Remove a stray line end, if the digest excludes one."""
    digest = record.capture.digest or record.header("WARC-Payload-Digest")
    if not digest or not record.body.startswith(_STRAY) or _has_digest(record.body, digest):
        return record
    body = record.body[len(_STRAY) :]
    return replace(record, body=body) if _has_digest(body, digest) else record


def _length(declared: str | None) -> int:
    if declared is None or not _LENGTH.fullmatch(declared):
        raise BadRecord(f"invalid record: its length is {str(declared)[:100]!r}")
    return int(declared)


def _url(headers: Headers) -> str:
    url = _find(headers, "WARC-Target-URI") or _find(headers, "uri") or ""
    return url[1:-1] if url.startswith("<") and url.endswith(">") else url  # as Wget 1.19 wrote them


def _check(record: Record, block: memoryview | None) -> None:
    """Compare a record with its capture and digests.

    ``block`` is None if a stray line end was removed, which its digest may include.
    """
    capture, time, date = record.capture, record.time, _date(record.headers)
    if capture.url is not None and not is_same_url(record.url, capture.url):
        raise BadRecord(f"it is of {record.url[:200]!r} and not of {capture.url[:200]!r}")
    is_dated, precision = date.lower() not in _UNKNOWN, max(capture.precision, precision_of(date))
    if capture.time is not None and is_dated and (time is None or abs(time - capture.time) >= precision):
        raise BadRecord(f"it is of {time} and not of {capture.time}")
    if capture.status is not None and record.status is not None and record.status != capture.status:
        raise BadRecord(f"its status is {record.status} and not {capture.status}")
    if record.kind == "revisit":  # its digests are of the payload that it leaves out
        return
    indexed, reported = capture.digest, record.header("WARC-Payload-Digest")
    if indexed and reported in {indexed, f"sha1:{indexed}"}:  # usually; each takes as long as everything else here
        reported = None
    for what, content, digest in (
        ("payload", record.body, indexed),
        ("payload", record.body, reported),
        ("content", block, record.header("WARC-Block-Digest")),
    ):
        if digest and content is not None and not _has_digest(content, digest):
            if what == "payload" and _has_digest(remove_chunks(record.body, record.http_headers), digest):
                continue
            raise BadRecord(f"its {what} does not have the digest {_shown(digest)}")


def _has_digest(content: bytes | memoryview, digest: str) -> bool:
    name, _, value = digest.rpartition(":")
    written = value.strip().rstrip("=")
    expected = written.lower()
    algorithm = name.strip().lower().replace("-", "").replace("sha2256", "sha256")
    if not algorithm:  # some writers leave out its name
        algorithm = _ALGORITHM_BY_LENGTH.get(len(expected) if _HEX.fullmatch(expected) else 0, "sha1")
    if algorithm not in _ALGORITHMS or expected in _UNKNOWN:
        return True
    found = hashlib.new(algorithm, content, usedforsecurity=False).digest()
    base_32, base_64 = (encode(found).decode().rstrip("=") for encode in (base64.b32encode, base64.b64encode))
    return expected in {found.hex(), base_32.lower()} or written == base_64


def _date(headers: Headers) -> str:
    return _find(headers, "WARC-Date") or _find(headers, "archive-date") or ""


def _shown(declared: object) -> str:
    return printable(str(declared)[:200])


def _find(headers: Headers, name: str) -> str | None:
    requested, length = name.lower(), len(name)
    return next((value for key, value in headers if len(key) == length and key.lower() == requested), None)


def missing_body(record: Record) -> str | None:
    """Return why a record has no body, and which capture has it; None if it has one or is no revisit."""
    if record.kind != "revisit" or record.body:
        return None
    url, date = (_known(record.header(f"WARC-Refers-To-{name}")) for name in ("Target-URI", "Date"))
    original = "its record does not say which capture has it"
    if url or date:
        original = f"the capture of {url or record.url}{f' of {date}' if date else ''} has it"
    what = f"the capture of {printable(record.url[:200])} is a revisit, without a body since it did not change"
    return f"{what}; {original}"


def _known(value: str | None) -> str:
    text = (value or "").strip().removeprefix("<").removesuffix(">")
    return "" if text == "-" else printable(text[:200])


def is_same_url(url: str, other: str) -> bool:
    """Return whether two URLs differ at most in percent-encoding and in blanks around them, which headers lose.

    Characters beyond ASCII may be escaped as UTF-8, or as Latin-1, which ``head`` reads where bytes are not UTF-8.
    """
    return url == other or not _unescaped(url).isdisjoint(_unescaped(other))


def _unescaped(url: str) -> set[bytes]:
    url = url.strip(BLANKS)
    forms = {unquote_to_bytes(url.encode(errors="surrogatepass"))}
    with suppress(UnicodeEncodeError):
        forms.add(unquote_to_bytes(url.encode("latin-1")))
    return forms
