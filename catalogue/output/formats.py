"""Formats of records: how they become a file, and how such a file is finished and continued."""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from warcio.recordloader import ArcWarcRecord
from warcio.statusandheaders import StatusAndHeaders, StatusAndHeadersParser
from warcio.warcwriter import WARCWriter

from catalogue.atomic_files import resume
from catalogue.errors import BadRecord, QueryError
from catalogue.formatting import json_line, to_json
from catalogue.query.arguments import one_of
from catalogue.records.record import Record

SUFFIXES = {"warc": ".warc.gz", "text": ".jsonl", "metadata": ".jsonl", "parquet": ".parquet", "payload": ""}

_EXTENSIONS = {
    "application/atom+xml": "atom",
    "application/gzip": "gz",
    "application/javascript": "js",
    "application/json": "json",
    "application/ld+json": "json",
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/postscript": "ps",
    "application/rss+xml": "rss",
    "application/rtf": "rtf",
    "application/xhtml+xml": "html",
    "application/xml": "xml",
    "application/zip": "zip",
    "audio/mpeg": "mp3",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/webp": "webp",
    "text/calendar": "ics",
    "text/css": "css",
    "text/csv": "csv",
    "text/html": "html",
    "text/javascript": "js",
    "text/plain": "txt",
    "text/x-robots": "txt",
    "text/xml": "xml",
    "video/mp4": "mp4",
}
"""Extensions by detected media type. No others: a server must not choose the program that opens a file."""
_UNSAFE = re.compile(r"[^a-z0-9]+")
_MAX_SLUG = 60


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """A format by name (see ``SUFFIXES``) and options; can be sent to another process."""

    name: str
    main_content: bool = False
    """Leave out navigation, footers and the like from texts."""
    about: str = ""
    """The query, for the first record of a WARC file."""
    crawls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise QueryError if the format does not exist, or has no texts."""
        one_of("form", SUFFIXES)(self.name)
        if self.main_content and self.name not in {"text", "parquet"}:
            raise QueryError(f"{self.name} has no texts; fetch text, or leave out main_content=True")

    @property
    def identity(self) -> dict[str, object]:
        """The options that distinguish outputs."""
        return {"form": self.name} | ({"main_content": True} if self.main_content else {})


def _rename(finished: Path, partial: Path) -> None:
    resume(finished).close()
    finished.replace(partial)


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """Records as bytes of a file that can grow."""

    name: str
    encode: Callable[[Any], bytes]
    """Returns the bytes to append for a converted record, in any thread; raises FormatError if there are none."""
    header: Callable[[str], bytes] = lambda _: b""
    """Returns the start of a file with a name."""
    seal: Callable[[Path], Path] = lambda partial: partial
    """Returns the path of the finished file, which may be the partial one."""
    unseal: Callable[[Path, Path], None] = _rename
    """Makes a finished file growable; one of the two exists at any time."""
    convert: Callable[[Record], Any] = lambda record: record
    """Returns a row of a record, in any thread, if the format parses documents; raises FormatError if there is none."""

    @property
    def suffix(self) -> str:
        return SUFFIXES[self.name]

    @property
    def parses(self) -> bool:
        """Whether documents are parsed: by other processes, so that threads encode; failures are written."""
        return self.name in {"text", "metadata", "parquet"}


def warc_format(info: Mapping[str, str] | None = None) -> RecordFormat:
    """WARC: records as archived, after a ``warcinfo`` record."""
    fields = {name: " ".join(value.split()) for name, value in (info or {}).items()}

    def header(name: str) -> bytes:
        file = BytesIO()
        writer = WARCWriter(file, gzip=True)
        writer.write_record(writer.create_warcinfo_record(name.encode(errors="replace").decode(), fields))
        return file.getvalue()

    return RecordFormat("warc", lambda record: record.member if record.archive == "warc" else _as_warc(record), header)


def _as_warc(record: Record) -> bytes:
    if not record.time:
        raise BadRecord("it has no time, which a WARC record requires")
    block = record.http_head + record.body
    kind = (
        "application/http; msgtype=response"
        if record.http_head
        else record.header("content-type") or "application/octet-stream"
    )
    digest = base64.b32encode(hashlib.sha1(record.body, usedforsecurity=False).digest()).decode()
    fields = {
        "WARC-Type": "response" if record.http_head else "resource",
        "WARC-Record-ID": StatusAndHeadersParser.make_warc_id(),
        "WARC-Target-URI": record.url.replace(" ", "%20"),  # not allowed in WARC files
        "WARC-Date": f"{record.time:%Y-%m-%dT%H:%M:%SZ}",
        "WARC-IP-Address": record.header("ip-address"),
        "WARC-Truncated": record.truncated,
        "WARC-Payload-Digest": f"sha1:{digest}",
    }
    head = StatusAndHeaders("", [each for each in fields.items() if each[1]], protocol="WARC/1.0")
    converted = ArcWarcRecord("warc", fields["WARC-Type"], head, BytesIO(block), None, kind, len(block))
    file = BytesIO()
    WARCWriter(file, gzip=True).write_record(converted)
    return file.getvalue()


def payload_line(record: Record) -> bytes:
    """Return a line of ``index.jsonl``, followed by the payload."""
    payload, capture = record.payload, record.capture
    values = {
        "file": _payload_name(record),
        "url": record.url,
        "time": to_json(record.time),
        "status": record.status,
        "mime": record.mime,
        "charset": record.charset.name if record.charset else None,
        "charset_source": record.charset.source if record.charset else None,
        "truncated": record.truncated,
        "digest": capture.digest or record.header("WARC-Payload-Digest"),
        "bytes": len(payload),
        "warc_filename": capture.filename,
        "warc_record_offset": capture.offset,
        "warc_record_length": capture.length,
    }
    return json_line(values) + payload


def sealed_path(partial: Path) -> Path:
    """Return the temporary file of a conversion."""
    return partial.with_name(f"{partial.name}.whole")


def _payload_name(record: Record) -> str:
    """Return a unique file name that is valid on any file system, also without letter case.

    It starts with a digest, so that it is no device name.
    """
    digest = blake2b(f"{record.capture.filename}\n{record.capture.offset}".encode(), digest_size=10).hexdigest()
    try:
        parts = urlsplit(record.url)
        words = _UNSAFE.sub("-", f"{parts.hostname or ''} {parts.path.removesuffix('/')}".lower()).strip("-")
    except ValueError:  # such as a host with an unclosed bracket
        words = ""
    slug = words[:_MAX_SLUG].strip("-") or "page"
    return f"{digest[:2]}/{digest}-{slug}.{_EXTENSIONS.get(record.mime or '', 'bin')}"
