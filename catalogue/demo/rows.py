"""Captures of made-up pages, their rows, and their WARC files.

Rows follow from URLs as in Common Crawl's converter (commoncrawl/cc-index-table, ``HostName`` and ``WarcUri``).
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from random import Random
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit
from uuid import UUID

from catalogue.demo.pages import Page, fetch
from catalogue.surt import url_surtkey

Row = dict[str, Any]

_REGISTRIES = ("co.uk", "co.jp", "com", "org", "net", "de", "fr", "is")
"""Public suffixes of the made-up hosts; ``example`` and ``test`` are on no list."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a crawl, fetched within three hours."""

    crawl: str
    number: int
    start: datetime

    @property
    def name(self) -> str:
        """Such as ``1642320299852.0``: milliseconds since 1970, and a number."""
        return f"{int(self.start.timestamp()) * 1000 - 4_321_148}.{self.number}"

    def warc_path(self, subset: str) -> str:
        start, end = (f"{time:%Y%m%d%H%M%S}" for time in (self.start, self.start + timedelta(hours=3)))
        name = f"CC-MAIN-{start}-{end}-{self.number:05}.warc.gz"
        return f"crawl-data/{self.crawl}/segments/{self.name}/{subset}/{name}"


@dataclass(slots=True)
class Capture:
    """One fetch of a URL; the place of its record is set when it is written."""

    url: str
    subset: str
    time: datetime
    segment: Segment
    page: Page
    id: UUID
    offset: int = 0
    length: int = 0


def captures(rng: Random, segments: Sequence[Segment], subset: str, urls: Sequence[str]) -> list[Capture]:
    """Return a capture for each URL, with times spread over the segments."""
    made = []
    for url in urls:
        segment = rng.choice(segments)
        time = segment.start + timedelta(seconds=rng.randrange(3 * 3600))
        made.append(Capture(url, subset, time, segment, fetch(rng, subset, url), _uuid7(rng, time)))
    return made


def surtkey(url: str, *, twice: bool) -> str:
    """Return the key of a URL; ``twice``: what is not UTF-8 is escaped twice, as until 2025."""
    key = url_surtkey(url)
    return re.sub("(?:%[89a-f][0-9a-f])+", _escape_again, key) if twice else key


def row(capture: Capture, *, twice: bool) -> Row:
    """Return all columns of a capture that are in the file."""
    split = urlsplit(capture.url)
    page = capture.page
    return {
        "url_surtkey": surtkey(capture.url, twice=twice),
        "url": capture.url,
        **_host_columns(split.hostname or ""),
        "url_protocol": split.scheme,
        "url_port": split.port,
        "url_path": split.path,
        "url_query": capture.url.partition("?")[2] if "?" in capture.url else None,
        "fetch_time": capture.time,
        "fetch_status": page.status,
        "fetch_redirect": page.redirect,
        "content_digest": page.digest,
        "content_mime_type": page.mime or "unk",
        "content_mime_detected": page.detected,
        "content_charset": page.charset,
        "content_languages": page.languages,
        "content_truncated": page.truncated,
        "warc_record_id": capture.id.bytes,
        "warc_filename": capture.segment.warc_path(capture.subset),
        "warc_record_offset": capture.offset,
        "warc_record_length": capture.length,
        "warc_segment": capture.segment.name,
    }


def write_warc(rng: Random, segment: Segment, subset: str, stored: Sequence[Capture]) -> bytes:
    """Return a WARC file (WARC 1.0, ISO 28500) of captures by time, a gzip member each; sets the place of each.

    A 304 is a revisit, others are responses. As in Common Crawl's files they are between a request and metadata; to
    save space only the first segment of a crawl has those.
    """
    name = segment.warc_path(subset).rpartition("/")[2]
    fields = f"isPartOf: {segment.crawl}\r\ndescription: made-up pages\r\nformat: WARC File Format 1.0\r\n"
    about = {"Content-Type": "application/warc-fields"}
    file = bytearray(_member("warcinfo", segment.start, _uuid(rng), {"WARC-Filename": name, **about}, fields.encode()))
    for capture in sorted(stored, key=lambda capture: capture.time):
        linked = {"WARC-Concurrent-To": f"<urn:uuid:{capture.id}>", "WARC-Target-URI": capture.url}
        if segment.number == 0:
            headers = {"Content-Type": "application/http; msgtype=request", **linked}
            file += _member("request", capture.time, _uuid(rng), headers, _http_request(capture.url))
        kind, headers, block = _response(capture)
        member = _member(kind, capture.time, capture.id, headers, block)
        capture.offset, capture.length = len(file), len(member)
        file += member
        if segment.number == 0:
            known = f"fetchTimeMs: {rng.randrange(20, 900)}\r\n"
            if capture.page.charset:
                known += f"charset-detected: {capture.page.charset}\r\n"
            file += _member("metadata", capture.time, _uuid(rng), {**about, **linked}, known.encode())
    return bytes(file)


def _response(capture: Capture) -> tuple[str, dict[str, str], bytes]:
    """Return type, headers and block of the indexed record."""
    page = capture.page
    headers = {"Content-Type": "application/http; msgtype=response", "WARC-Target-URI": capture.url}
    if page.digest is None:
        headers["WARC-Profile"] = "http://netpreserve.org/warc/1.0/revisit/server-not-modified"
    else:
        headers["WARC-Payload-Digest"] = f"sha1:{page.digest}"
    if page.truncated:
        headers["WARC-Truncated"] = page.truncated
    if page.detected:
        headers["WARC-Identified-Payload-Type"] = page.detected
    lines = [f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}"]
    if page.mime and page.digest:
        lines.append(f"Content-Type: {page.mime}" + (f"; charset={page.charset}" if page.charset else ""))
    if page.redirect:
        lines.append(f"Location: {page.redirect}")
    head = "\r\n".join([*lines, f"Content-Length: {len(page.body)}", "", ""])
    return "response" if page.digest else "revisit", headers, head.encode() + page.body


def _http_request(url: str) -> bytes:
    host = urlsplit(url).netloc
    return f"GET {url.partition(host)[2] or '/'} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def _member(kind: str, time: datetime, record: UUID, headers: dict[str, str], block: bytes) -> bytes:
    lines = {
        "WARC-Type": kind,
        "WARC-Date": f"{time:%Y-%m-%dT%H:%M:%SZ}",
        "WARC-Record-ID": f"<urn:uuid:{record}>",
        "Content-Length": str(len(block)),
        **headers,
    }
    head = "WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return zlib.compress(head.encode() + b"\r\n" + block + b"\r\n\r\n", wbits=31)


def _host_columns(host: str) -> Row:
    """Return the columns derived from a host name."""
    parts = [] if re.fullmatch("[0-9.]+", host) else host.split(".")[::-1]
    suffix = next((suffix for suffix in _REGISTRIES if host.endswith(f".{suffix}")), None)
    domain = ".".join(host.split(".")[-suffix.count(".") - 2 :]) if suffix else None
    tld, *more = (*parts, *[None] * 5)[:5]
    return {
        "url_host_name": host,
        "url_host_tld": tld,
        **{f"url_host_{nth}_last_part": part for nth, part in zip(("2nd", "3rd", "4th", "5th"), more, strict=True)},
        "url_host_registry_suffix": suffix,
        "url_host_registered_domain": domain,
        "url_host_private_suffix": suffix,
        "url_host_private_domain": domain,
        "url_host_name_reversed": ".".join(parts) or None,
    }


def _escape_again(escapes: re.Match[str]) -> str:
    try:
        unquote_to_bytes(escapes[0]).decode()
    except UnicodeDecodeError:
        return escapes[0].replace("%", "%25")
    return escapes[0]


def _uuid(rng: Random) -> UUID:
    return UUID(bytes=rng.randbytes(16), version=4)


def _uuid7(rng: Random, time: datetime) -> UUID:
    """Return an id that sorts by time, as those of records since 2026 (RFC 9562, 5.7)."""
    milliseconds = int(time.timestamp() * 1000) + rng.randrange(1000)
    return UUID(int=milliseconds << 80 | 7 << 76 | rng.getrandbits(12) << 64 | 2 << 62 | rng.getrandbits(62))
