"""Records: the complete one of the capture, or an error."""

import gzip
import hashlib
from base64 import b32encode, b64encode
from typing import Any

import pytest

from catalogue.commoncrawl.capture import Capture
from catalogue.errors import BadRecord
from catalogue.records.record import MAX_INFLATED, read_record
from tests.support.archives import BODY, HEAD, TIME, URL, arc, capture, digest, warc


def packed(body: bytes = BODY, **fields: Any) -> bytes:
    """Return a gzip member with a record."""
    return gzip.compress(warc(body, **fields))


@pytest.mark.parametrize("before", [b"", b"\r\n\n"])
@pytest.mark.parametrize("make", [warc, arc])
def test_reads_a_record(make: Any, before: bytes) -> None:
    member = gzip.compress(before + make())
    for meant in (capture(member), Capture("crawl-data/x.warc.gz", 0, len(member))):
        record = read_record(meant, member)
        assert (record.url, record.time, record.status, record.body, record.payload) == (URL, TIME, 200, BODY, BODY)
        assert record.http_header("content-TYPE") == "text/html"
        assert record.archive == make.__name__
        assert record.member == member


@pytest.mark.parametrize("make", [warc, arc])
def test_reads_an_uncompressed_record(make: Any) -> None:
    for data in (make(), b"\r\n" + make()):
        record = read_record(capture(data), data)
        assert (record.url, record.body, gzip.decompress(record.member)) == (URL, BODY, data)


def test_reads_types_and_flags_in_any_case() -> None:
    member = packed(WARC_Type="Response", WARC_Truncated="Length")
    record = read_record(capture(member), member)
    assert (record.kind, record.truncated, record.status) == ("response", "length", 200)


@pytest.mark.parametrize("interim", ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103\nLink: </x>\n\n" * 5])
def test_reads_the_response_after_interim_ones(interim: str) -> None:
    member = packed(head=interim + HEAD)
    record = read_record(capture(member), member)
    assert (record.status, record.http_headers, record.body) == (200, (("Content-Type", "text/html"),), BODY)
    assert record.http_head.decode() == interim + HEAD


@pytest.mark.parametrize("end", ["\r\n\r\n", "\r\n\r\n\r\n", "\r\n", "\n", ""])
def test_accepts_ends_of_every_writer(end: str) -> None:
    member = packed(end=end)
    assert read_record(capture(member), member).body == BODY


@pytest.mark.parametrize("make", [warc, arc])
@pytest.mark.parametrize(
    ("line", "status"),
    [
        *(("HTTP/1.0 200 Document follows", 200), ("http/1.1  404  Not Found", 404), ("HTTP/1.1 301", 301)),
        *(("HTTP/1.1 200OK", 200), ("HTTP/1.2 200 OK", 200), ("HTTP/2 200", 200), ("HTTP/0.9 200 OK", 200)),
        *(("HTTP 200 OK", 200), ("ICY 200 OK", 200), ("HTTP/1.1", None), ("HTTP/1.1 OK", None)),
        ("\r\nHTTP/1.1 200 OK", 200),
    ],
)
def test_accepts_unusual_status_lines(make: Any, line: str, status: int | None) -> None:
    for end in ("\r\n", "\n"):
        member = gzip.compress(make(head=f"{line}{end}Content-Type: text/html{end}{end}"))
        record = read_record(capture(member, status=None), member)
        assert (record.status, record.http_header("content-type"), record.body) == (status, "text/html", BODY)


@pytest.mark.parametrize("head", ["", "HTTP is a protocol\n\n", "<html>\n\n"])
def test_rejects_records_that_are_not_responses(head: str) -> None:
    member = gzip.compress(arc(head=head))
    with pytest.raises(BadRecord, match=r"invalid record: .* is not a status line"):
        read_record(capture(member, digest=None, status=None), member)


def test_reads_headers_as_servers_wrote_them() -> None:
    folded = ["X-Folded: b", "\tc", "X-Later:", " d"]
    lines = ["HTTP/1.1 200 OK", "Server : a", "no colon", "  continued", *folded, "X-Name: \xe9\xa0", "Empty:"]
    for encoding, end in (("latin-1", "\r\n"), ("utf-8", "\n"), ("latin-1", " \n")):
        head = end.join([*lines, "", ""]).encode(encoding)
        member = packed(head + BODY, head="", WARC_Payload_Digest="")
        record = read_record(capture(member, digest=None), member)
        assert record.http_headers == (
            ("Server", "a"),
            ("X-Folded", "b\tc"),
            ("X-Later", "d"),
            ("X-Name", "\xe9\xa0"),
            ("Empty", ""),
        )
        assert (record.http_head, record.body, record.status_line) == (head, BODY, "200 OK")


def test_drops_a_stray_line_end_before_the_body() -> None:
    """As in CC-MAIN-2018-34; a body that really begins with one keeps it."""
    for block_digest in (digest(HEAD.encode() + BODY), digest(HEAD.encode() + b"\r\n" + BODY)):
        reported = {"WARC_Payload_Digest": f"sha1:{digest(BODY)}", "WARC_Block_Digest": f"sha1:{block_digest}"}
        member = packed(b"\r\n" + BODY, **reported)
        assert read_record(capture(member), member).body == BODY
        assert read_record(capture(member, digest=None), member).payload == BODY
    member = packed(b"\r\n" + BODY)
    assert read_record(capture(member, digest=digest(b"\r\n" + BODY)), member).body == b"\r\n" + BODY
    with pytest.raises(BadRecord, match="digest"):
        read_record(capture(member), member)


def test_checks_other_digests() -> None:
    block = HEAD.encode() + BODY
    for reported in (
        "shake_128:abc",
        "shake-256:abc",
        "sha\0:abc",
        "blake9:abc",
        f"SHA-256:{hashlib.sha256(BODY).hexdigest()}",
        f"sha2-512:{b32encode(hashlib.sha512(BODY).digest()).decode()}",
        f"md5:{hashlib.md5(BODY, usedforsecurity=False).hexdigest().upper()}",
        f"sha256:{b64encode(hashlib.sha256(BODY).digest()).decode()}",
    ):
        member = packed(WARC_Payload_Digest=reported, WARC_Block_Digest=f"sha1:{digest(block)}")
        assert read_record(capture(member), member).body == BODY
    revisit = packed(b"", WARC_Type="revisit", WARC_Block_Digest=f"sha1:{digest(BODY)}")
    assert read_record(capture(revisit, digest=None), revisit).kind == "revisit"


HOSTILE = {
    "not gzip": (b"\x1f" + packed(), "not gzip"),
    "an uncompressed bomb": (warc(bytes(MAX_INFLATED)), "inflates to more than"),
    "an uncompressed record that is cut": (warc()[:-10], "shorter than declared"),
    "two uncompressed records": (warc() * 2, "bytes follow its content"),
    "nothing": (b"", "truncated"),
    "a bomb": (gzip.compress(bytes(MAX_INFLATED + 1), 1), "inflates to more than"),
    "cut": (packed()[:-20], "truncated"),
    "without its trailer": (packed()[:-8], "truncated"),
    "a bit flipped": (bytes([*packed()[:-5], 0, 0, 0, 0, 0]), "not gzip"),
    "two members": (packed() * 2, "data after the end"),
    "two records": (gzip.compress(warc() * 2), "bytes follow its content"),
    "gzip in gzip": (gzip.compress(packed()), "invalid record"),
    "no record": (gzip.compress(b"hello"), "invalid record"),
    "half a head": (gzip.compress(warc()[:60]), "invalid record: its length is 'None'"),
    "content shorter than it says": (packed(Content_Length="500"), "shorter than declared"),
    "content longer than it says": (packed(Content_Length="50"), "digest|follow"),
    "a length that is none": (packed(Content_Length="many"), "invalid record: its length is 'many'"),
    "a length that no number holds": (packed(Content_Length="9" * 20), "its length is '9999"),
    "a length below nothing": (packed(Content_Length="-5"), "its length is '-5'"),
    "lines without end": (packed(head="HTTP/1.1 200 OK\r\n" + "a:b\r\n" * 10_000 + "\r\n"), "10,000 lines"),
    "one line without end": (packed(head=f"HTTP/1.1 200 OK\r\na: {'b' * (1 << 20)}\r\n\r\n"), "1,048,576 b"),
    "a line continued without end": (
        packed(head="HTTP/1.1 200 OK\r\na:b\r\n" + " c\r\n" * 10_000 + "\r\n"),
        "10,000 lines",
    ),
    "a head of its own without end": (packed(X="\r\n c" * 10_000), "10,000 lines"),
    "another digest of its block": (packed(WARC_Block_Digest=f"sha1:{digest(BODY)}"), "content does not have"),
    "a request": (packed(WARC_Type="request"), "invalid record|type request"),
    "a warcinfo": (packed(WARC_Type="warcinfo"), "of type warcinfo"),
    "a type that clears the screen": (packed(WARC_Type="\x1b[2J" * 1000), "of type \ufffd"),
    "interim responses without end": (packed(head="HTTP/1.1 100\r\n\r\n" * 10 + HEAD), "status is 100"),
    "an answer that does": (packed(head="\x1b[2J" * 1000), "invalid record: .* is not a status line"),
    "a digest that does": (packed(WARC_Payload_Digest="sha1:\x1b[2J"), "digest sha1:\ufffd"),
    "no type": (packed(WARC_Type=""), "of type None"),
    "another URL": (packed(WARC_Target_URI="https://example.org/"), "is of 'https://example.org/'"),
    "no URL": (packed(WARC_Target_URI=""), "invalid record|is of ''"),
    "another time": (packed(WARC_Date="2022-08-15T01:02:05Z"), "and not of 2022-08-15 01:02:03"),
    "no time": (packed(WARC_Date="yesterday"), "is of None"),
    "another status": (packed(head="HTTP/1.1 404 Not Found\r\n\r\n"), "status is 404"),
    "another digest": (packed(b"<p>other</p>"), "does not have the digest"),
    "a digest of its own that is wrong": (packed(WARC_Payload_Digest=f"sha1:{digest(b'')}"), "does not have"),
    "another digest, its algorithm in other words": (packed(WARC_Payload_Digest="SHA2-256:00"), "does not have"),
    "no HTTP": (packed(head="", WARC_Payload_Digest=""), "invalid record|digest"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_invalid_records_are_named_errors(what: str) -> None:
    member, why = HOSTILE[what]
    with pytest.raises(BadRecord, match=why) as caught:
        read_record(capture(member), member)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_mutated_records_are_errors_or_unchanged() -> None:
    whole = packed()
    meant = capture(whole)
    for at in range(10, len(whole)):  # some bytes of the gzip header do not matter
        for bit in (0, 3, 7):
            member = bytearray(whole)
            member[at] ^= 1 << bit
            try:
                record = read_record(meant, bytes(member))
            except BadRecord:
                continue
            assert (record.url, record.time, record.body) == (URL, TIME, BODY)
