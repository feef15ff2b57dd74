"""Records in the forms in which people keep them."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from warcio.recordloader import ArcWarcRecord
from warcio.statusandheaders import StatusAndHeaders, StatusAndHeadersParser
from warcio.warcwriter import WARCWriter

from catalogue.atomic_files import resume
from catalogue.errors import BadRecord
from catalogue.records.record import Record

SUFFIXES = {"warc": ".warc.gz", "text": ".jsonl", "metadata": ".jsonl", "parquet": ".parquet", "payload": ""}
"""Every form, and how the names of its files end; payloads go to a folder."""

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
"""What a server says must not name the program that opens a file, so there are no others."""
_UNSAFE = re.compile(r"[^a-z0-9]+")
_SLUG = 60


class Form(Protocol):
    """How records become bytes of a file that goes on where it was cut off, and that file one to keep."""

    suffix: str
    """Of the file's name, with its dot."""

    def head(self, name: str) -> bytes:
        """What a file of this name begins with."""

    def add(self, record: Record) -> bytes:
        """What a record adds to it; called from several threads.

        Raises:
            FormatError: if it cannot be had in this form.
        """

    def seal(self, grown: Path) -> Path:
        """The file to keep, safely on disk, made of one that grew; it may be that one."""

    def regrow(self, kept: Path, grown: Path) -> None:
        """Make of a file that was kept one that goes on; at no time may neither be there."""


def whole(grown: Path) -> Path:
    """What a file that is made of one that grew, or the other way, is called while it is made."""
    return grown.with_name(f"{grown.name}.whole")


class _Plain:
    """Of files that are kept as they grew."""

    def head(self, name: str) -> bytes:  # noqa: ARG002 - of ``Form``
        """See ``Form``."""
        return b""

    def seal(self, grown: Path) -> Path:
        """See ``Form``."""
        return grown

    def regrow(self, kept: Path, grown: Path) -> None:
        """See ``Form``."""
        resume(kept).close()
        kept.replace(grown)


class Warc(_Plain):
    """WARC files: the records as they were archived, behind one that says where they come from."""

    suffix = SUFFIXES["warc"]

    def __init__(self, about: Mapping[str, str]) -> None:
        """Take what the first record is to say: fields of ``application/warc-fields``."""
        self._about = {name: " ".join(value.split()) for name, value in about.items()}

    def head(self, name: str) -> bytes:
        """See ``Form``."""
        file = BytesIO()
        writer = WARCWriter(file, gzip=True)
        writer.write_record(writer.create_warcinfo_record(name, self._about))
        return file.getvalue()

    def add(self, record: Record) -> bytes:
        """See ``Form``; what was archived as ARC becomes WARC."""
        return record.member if record.archive == "warc" else _as_warc(record)


def _as_warc(record: Record) -> bytes:
    """A record of an ARC file as one of a WARC file, with the head of its answer as it was archived.

    Raises:
        BadRecord: if it does not say when it was archived, which WARC asks for.
    """
    if not record.time:
        message = "it has no time, without which there is no WARC record of it"
        raise BadRecord(message)
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
        "WARC-Target-URI": record.url.replace(" ", "%20"),  # ARC files have such, and WARC files must not
        "WARC-Date": f"{record.time:%Y-%m-%dT%H:%M:%SZ}",
        "WARC-IP-Address": record.header("ip-address"),
        "WARC-Payload-Digest": f"sha1:{digest}",
    }
    head = StatusAndHeaders("", [each for each in fields.items() if each[1]], protocol="WARC/1.0")
    made = ArcWarcRecord("warc", fields["WARC-Type"], head, BytesIO(block), None, kind, len(block))
    file = BytesIO()
    WARCWriter(file, gzip=True).write_record(made)
    return file.getvalue()


class Lines(_Plain):
    """JSON lines of whatever is made of a record."""

    suffix = ".jsonl"

    def __init__(self, make: Callable[[Record], Mapping[str, Any]]) -> None:
        """Take what makes an object of a record."""
        self._make = make

    def add(self, record: Record) -> bytes:
        """See ``Form``."""
        return _line(self._make(record))


class Payloads(_Plain):
    """Payloads, each a file of its own: what a record adds is its line of their index, and behind that the payload."""

    suffix = SUFFIXES["payload"]

    def add(self, record: Record) -> bytes:
        """See ``Form``."""
        payload, capture, time = record.payload, record.capture, record.time
        about = {
            "file": _file_name(record),
            "url": record.url,
            "time": time.isoformat() if time else None,
            "status": record.status,
            "mime": record.mime,
            "digest": capture.digest or record.header("WARC-Payload-Digest"),
            "bytes": len(payload),
            "warc_filename": capture.filename,
            "warc_record_offset": capture.offset,
            "warc_record_length": capture.length,
        }
        return _line(about) + payload


def _file_name(record: Record) -> str:
    """A name that any file system takes, and no other record has in any case of its letters.

    It begins with a digest of the record's place, so it is no device's name, and is the same whenever it is fetched.
    """
    place = f"{record.capture.filename}\n{record.capture.offset}".encode()
    digest = blake2b(place, digest_size=10).hexdigest()
    try:
        parts = urlsplit(record.url)
        words = _UNSAFE.sub("-", f"{parts.hostname or ''} {parts.path.removesuffix('/')}".lower()).strip("-")
    except ValueError:  # such as a host with half a bracket
        words = ""
    slug = words[:_SLUG].strip("-") or "page"
    return f"{digest[:2]}/{digest}-{slug}.{_EXTENSIONS.get(record.mime or '', 'bin')}"


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode(errors="replace") + b"\n"
