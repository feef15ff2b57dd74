"""A crawl of hostile records, and a server of it."""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalogue.surt import url_surtkey
from tests.support.archives import warc
from tests.support.catalogues import harvested_in
from tests.support.crawls import CRAWL, crawl_of
from tests.support.serving import Answer, get, serving

TIME = datetime(2022, 8, 15, 1, 2, 3, tzinfo=UTC)
ARCHIVE = "crawl-data/CC-MAIN-2022-33/hostile.warc.gz"
SCRIPT = b"<html><title>t</title><script>alert(1)</script><p>hello there</p></html>"
GZIPPED = gzip.compress(SCRIPT, mtime=0)
OK = "HTTP/1.1 200 OK\r\n"


def answer(head: str | bytes, body: bytes) -> bytes:
    return (head if isinstance(head, bytes) else head.encode()) + b"\r\n" + body


def deflated_zeros(megabytes: int) -> bytes:
    """Repeat the first megabyte, which takes less time than to compress all of them."""
    packer = zlib.compressobj(1)
    first, other = (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    checksum = zlib.adler32(bytes(megabytes << 20))
    return first + other * (megabytes - 1) + b"\x03\x00" + checksum.to_bytes(4, "big")


ACTING = (
    "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nStrict-Transport-Security: max-age=9\r\nRefresh: 0; url=/\r\n"
    "Location: https://elsewhere.example/\r\nContent-Security-Policy: default-src *\r\nClear-Site-Data: *\r\n"
    "Service-Worker-Allowed: /\r\nContent-Encoding: br\r\nTransfer-Encoding: chunked\r\nStatus: 999\r\n"
    "Access-Control-Allow-Origin: null\r\nConnection: close\r\nLink: </x>; rel=preload\r\nContent-Length: 7\r\n"
)

MANY = "".join(f"X-{n}: {'v' * 300}\r\n" for n in range(2000))

PAGES: dict[str, bytes] = {
    "script": answer(OK + "Content-Type: text/html; charset=utf-8\r\n", SCRIPT),
    "acting": answer(OK + "Content-Type: text/html\r\n" + ACTING, SCRIPT),
    "bytes": answer(b"HTTP/1.1 200 \xe9\xff OK\r\nX-Latin: caf\xe9\r\nX-\xe9: no\r\nX-Wide: \xe2\x98\x83\r\n", b"x"),
    "ends": answer(OK + "X-A: b\rSet-Cookie: c=1\r\nX-Folded: one\r\n two\r\nX-Nul: \x00\x1b[2J\r\n", b"x"),
    "giant": answer(OK + f"X-Giant: {'g' * 200_000}\r\n" + "Content-Type: text/plain\r\n", b"x"),
    "many": answer(OK + MANY, b"x"),
    "typeless": answer(OK, SCRIPT),
    "strange": answer(OK + "Content-Type: text/html\x0b<script>; charset=x\r\n", SCRIPT),
    "parts": answer(OK + "Content-Type: multipart/x-mixed-replace; boundary=a\r\n", b"--a\r\nSet-Cookie: x=1\r\n\r\n"),
    "charset": answer(OK + "Content-Type: text/html; charset=\"utf-8'; x\r\n", SCRIPT),
    "gone": answer("HTTP/1.1 302 Found\r\nLocation: /there\r\n", b""),
    "gzip": answer(OK + "Content-Type: text/html\r\nContent-Encoding: gzip\r\n", GZIPPED),
    "cut": answer(OK + "Content-Type: text/html\r\nContent-Encoding: gzip\r\n", GZIPPED[:-9]),
    "bomb": answer(OK + "Content-Type: text/html\r\nContent-Encoding: deflate\r\n", deflated_zeros(65)),
    "picture": answer(OK + "Content-Type: image/png\r\n", b"\x89PNG\r\n"),
    "surrogate": answer(OK + "Content-Type: text/html\r\n", b"<title>&#xD800;\xed\xa0\x80</title><p>\xed\xa0\x80 x"),
}


def url_of(name: str) -> str:
    return f"https://hostile.example/{name}"


def write_records(
    folder: Path, records: list[tuple[str, datetime, bytes]], kind: str = "response", **wrong: Any
) -> None:
    """Write a crawl of records of a kind; ``wrong`` replaces columns of the index."""
    archive, offsets, lengths = b"", [], []
    for url, time, http in records:
        fields = {
            "WARC_Target_URI": url,
            "WARC_Date": f"{time:%Y-%m-%dT%H:%M:%SZ}",
            "WARC_Payload_Digest": "",
            "WARC_Type": kind,
        }
        member = gzip.compress(warc(http, head="", **fields))
        offsets.append(len(archive))
        lengths.append(len(member))
        archive += member
    file = folder / ARCHIVE
    file.parent.mkdir(parents=True)
    file.write_bytes(archive)
    rows = sorted(
        zip([url_surtkey(url) for url, _, _ in records], records, offsets, lengths, strict=True),
        key=lambda row: row[0],
    )
    columns: dict[str, Any] = {
        "url_surtkey": [key for key, _, _, _ in rows],
        "url": [url for _, (url, _, _), _, _ in rows],
        "fetch_time": pa.array([time for _, (_, time, _), _, _ in rows], pa.timestamp("ms", "UTC")),
        "warc_filename": [ARCHIVE] * len(rows),
        "warc_record_offset": pa.array([offset for _, _, offset, _ in rows], pa.int32()),
        "warc_record_length": pa.array([length for _, _, _, length in rows], pa.int32()),
    }
    crawl_of(folder, pa.table(columns | wrong))


def serving_hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("hostile")
    write_records(folder / "mirror", [(url_of(name), TIME, http) for name, http in PAGES.items()])
    with serving(*harvested_in(folder, folder / "mirror")) as address:
        yield address


def page(address: str, name: str, form: str = "id_") -> Answer:
    return get(address, f"/{CRAWL}/2022{form}/{url_of(name)}")


def check_sandbox(headers: Mapping[str, str]) -> None:
    policy = headers["content-security-policy"].split("; ")
    assert "sandbox" in policy
    assert "default-src 'none'" in policy
    assert not any("script" in each for each in policy)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
