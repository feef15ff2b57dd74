"""Captures of made-up pages as rows, and their WARC files.

Rows follow from URLs as in Common Crawl's converter (commoncrawl/cc-index-table, ``HostName`` and ``WarcUri``).
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from random import Random
from urllib.parse import unquote_to_bytes, urlsplit
from uuid import UUID

from catalogue.demo.pages import Row, fetch
from catalogue.surt import url_surtkey

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


def captures(
    rng: Random, segments: Sequence[Segment], subset: str, urls: Sequence[str], *, twice: bool
) -> Iterator[Row]:
    """Yield a row and ``body`` for each URL, with times spread over the segments, without places of records.

    ``twice``: what is not UTF-8 is escaped twice in keys, as until 2025.
    """
    for url in urls:
        segment = rng.choice(segments)
        time = segment.start + timedelta(seconds=rng.randrange(3 * 3600))
        split = urlsplit(url)
        key = url_surtkey(url)
        yield {
            **fetch(rng, subset, url),
            **_host_columns(split.hostname or ""),
            "url_surtkey": re.sub("(?:%[89a-f][0-9a-f])+", _escape_again, key) if twice else key,
            "url": url,
            "url_protocol": split.scheme,
            "url_port": split.port,
            "url_path": split.path,
            "url_query": url.partition("?")[2] if "?" in url else None,
            "fetch_time": time,
            "warc_record_id": _uuid7(rng, time).bytes,
            "warc_filename": segment.warc_path(subset),
            "warc_segment": segment.name,
        }


def _host_columns(host: str) -> Row:
    parts = [] if re.fullmatch("[0-9.]+", host) else host.split(".")[::-1]
    suffix = next((suffix for suffix in _REGISTRIES if host.endswith(f".{suffix}")), None)
    domain = ".".join(host.split(".")[-suffix.count(".") - 2 :]) if suffix else None
    names = ("tld", "2nd_last_part", "3rd_last_part", "4th_last_part", "5th_last_part")
    return {
        "url_host_name": host,
        **{f"url_host_{name}": part for name, part in zip(names, parts, strict=False)},
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


def write_warc(rng: Random, segment: Segment, subset: str, rows: Sequence[Row]) -> bytes:
    """Return a WARC file (WARC 1.0, ISO 28500) of captures by time, a gzip member each; set their places in the rows.

    A 304 is a revisit, others are responses. As in Common Crawl's files they are between a request and metadata; to
    save space only the first segment of a crawl has those.
    """
    name = segment.warc_path(subset).rpartition("/")[2]
    fields = f"isPartOf: {segment.crawl}\r\ndescription: made-up pages\r\nformat: WARC File Format 1.0\r\n"
    about = {"Content-Type": "application/warc-fields"}
    file = bytearray(_member("warcinfo", segment.start, _uuid(rng), {"WARC-Filename": name, **about}, fields.encode()))
    for row in sorted(rows, key=lambda row: row["fetch_time"]):
        time, record = row["fetch_time"], UUID(bytes=row["warc_record_id"])
        linked = {"WARC-Concurrent-To": f"<urn:uuid:{record}>", "WARC-Target-URI": row["url"]}
        if segment.number == 0:
            headers = {"Content-Type": "application/http; msgtype=request", **linked}
            host = urlsplit(row["url"]).netloc
            request = f"GET {row['url'].partition(host)[2] or '/'} HTTP/1.1\r\nHost: {host}\r\n\r\n"
            file += _member("request", time, _uuid(rng), headers, request.encode())
        kind, headers, block = _response(row)
        member = _member(kind, time, record, headers, block)
        row |= {"warc_record_offset": len(file), "warc_record_length": len(member)}
        file += member
        if segment.number == 0:
            known = f"fetchTimeMs: {rng.randrange(20, 900)}\r\n"
            if charset := row.get("content_charset"):
                known += f"charset-detected: {charset}\r\n"
            file += _member("metadata", time, _uuid(rng), {**about, **linked}, known.encode())
    return bytes(file)


def _response(row: Row) -> tuple[str, dict[str, str], bytes]:
    """Return type, headers and block of the indexed record."""
    status, digest, charset = row["fetch_status"], row.get("content_digest"), row.get("content_charset")
    headers = {"Content-Type": "application/http; msgtype=response", "WARC-Target-URI": row["url"]}
    if digest:
        headers["WARC-Payload-Digest"] = f"sha1:{digest}"
    else:
        headers["WARC-Profile"] = "http://netpreserve.org/warc/1.0/revisit/server-not-modified"
    if "content_truncated" in row:
        headers["WARC-Truncated"] = row["content_truncated"]
    if row["content_mime_detected"]:
        headers["WARC-Identified-Payload-Type"] = row["content_mime_detected"]
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    if digest and row["content_mime_type"] != "unk":
        lines.append(f"Content-Type: {row['content_mime_type']}" + (f"; charset={charset}" if charset else ""))
    if row.get("fetch_redirect"):
        lines.append(f"Location: {row['fetch_redirect']}")
    head = "\r\n".join([*lines, f"Content-Length: {len(row['body'])}", "", ""])
    return "response" if digest else "revisit", headers, head.encode() + row["body"]


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


def _uuid(rng: Random) -> UUID:
    return UUID(bytes=rng.randbytes(16), version=4)


def _uuid7(rng: Random, time: datetime) -> UUID:
    """Return an id that sorts by time, as those of records since 2026 (RFC 9562, 5.7)."""
    milliseconds = int(time.timestamp() * 1000) + rng.randrange(1000)
    return UUID(int=milliseconds << 80 | 7 << 76 | rng.getrandbits(12) << 64 | 2 << 62 | rng.getrandbits(62))
