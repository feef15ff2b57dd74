"""WARC and ARC records, and their captures."""

import gzip
import hashlib
from base64 import b32encode
from datetime import UTC, datetime
from typing import Any

from catalogue.commoncrawl.capture import Capture
from catalogue.records.record import Record, read_record

URL = "https://example.com/"
TIME = datetime(2022, 8, 15, 1, 2, 3, tzinfo=UTC)
BODY = b"<p>hello</p>"
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


def digest(body: bytes) -> str:
    return b32encode(hashlib.sha1(body, usedforsecurity=False).digest()).decode()


def warc(body: bytes = BODY, *, head: str = HEAD, end: str = "\r\n\r\n", **fields: str) -> bytes:
    """A WARC record, not gzipped; ``fields`` are headers instead of the usual ones."""
    block = head.encode() + body
    headers = {
        "WARC-Type": "response",
        "WARC-Date": "2022-08-15T01:02:03Z",
        "WARC-Record-ID": "<urn:uuid:d449b810-8fbb-4387-8dd7-33718f700139>",
        "WARC-Target-URI": URL,
        "WARC-Payload-Digest": f"sha1:{digest(body)}",
        "Content-Type": "application/http; msgtype=response",
        "Content-Length": str(len(block)),
    } | {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [f"{name}: {value}" for name, value in headers.items() if value]
    return "\r\n".join(["WARC/1.0", *lines, "", ""]).encode() + block + end.encode()


def arc(body: bytes = BODY, *, head: str = HEAD) -> bytes:
    block = head.encode() + body
    return f"{URL} 192.0.2.1 20220815010203 text/html {len(block)}\n".encode() + block + b"\n"


def capture(member: bytes, **more: Any) -> Capture:
    known: dict[str, Any] = {"url": URL, "time": TIME, "digest": digest(BODY), "status": 200, **more}
    return Capture("crawl-data/x.warc.gz", 0, len(member), **known)


def record_of(body: bytes, kind: str = "text/html", *, lines: str = "", url: str = URL, **more: Any) -> Record:
    """Return the record of a response; ``lines`` are more headers, ``more`` are values of the capture."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{lines}\r\n"
    fields = {name: more.pop(name) for name in [*more] if name.startswith("WARC_")}
    member = gzip.compress(warc(body, head=head, WARC_Target_URI=url, **fields), mtime=0)
    return read_record(capture(member, **{"digest": digest(body), "url": url, **more}), member)
