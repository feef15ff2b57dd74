"""Records: the complete one of the capture, or an error; only known values are compared, with their precision."""

import gzip
import hashlib
import re
from base64 import b32encode, b64encode
from typing import Any

import pytest

from catalogue.commoncrawl.capture import Capture, capture_of
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


@pytest.mark.parametrize("url", ["ftp://example.com/a", "dns:example.com"])
def test_reads_an_uncompressed_arc_record_of_any_scheme(url: str) -> None:
    data = f"{url} 192.0.2.1 20220815010203 text/plain 2\nhi\n".encode()
    assert read_record(Capture("x.arc", 0, len(data)), data).body == b"hi"


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


ESCAPED = [
    ("https://example.com/\u0161?q=\u00e9", "https://example.com/%C5%A1?q=%C3%A9"),
    ("https://example.com/%c5%a1", "https://example.com/%C5%A1"),
    ("https://example.com/~a/b c", "https://example.com/%7ea/b%20c"),
    ("https://example.com/%41(x)", "https://example.com/A%28x%29"),
    ("https://example.com/100%", "https://example.com/100%25"),
    ("https://example.com/\U0001f600\u65e5", "https://example.com/%F0%9F%98%80%E6%97%A5"),
    ("https://example.com/caf\u00e9", "https://example.com/caf%E9"),
    ("https://b\u00fccher.example/", "https://b%C3%BCcher.example/"),
]


@pytest.mark.parametrize(("url", "other"), ESCAPED)
def test_accepts_urls_that_differ_in_percent_encoding(url: str, other: str) -> None:
    for archived, meant in ((url, other), (other, url)):
        member = packed(WARC_Target_URI=archived)
        assert read_record(capture(member, url=meant), member).url == archived
        with pytest.raises(BadRecord, match="and not of"):
            read_record(capture(member, url=f"{meant}%20x"), member)


@pytest.mark.parametrize(
    "archived", ["https://example.com/a b", "https://example.com/a%20b", "<https://example.com/a b>"]
)
def test_accepts_blanks_in_and_around_urls(archived: str, caplog: pytest.LogCaptureFixture) -> None:
    """Headers lose those around URLs."""
    member = packed(WARC_Target_URI=archived)
    for meant in ("https://example.com/a b", "https://example.com/a%20b\t ", " https://example.com/a b"):
        assert read_record(capture(member, url=meant), member).url == archived.strip("<>")
    with pytest.raises(BadRecord, match=r"and not of 'https://example\.com/a'"):
        read_record(capture(member, url="https://example.com/a"), member)
    assert not caplog.records


@pytest.mark.parametrize("meant", ["https://example.com/%2541", "https://example.com/a+b", "https://example.com/%C3"])
def test_rejects_urls_that_differ_otherwise(meant: str) -> None:
    for archived in ("https://example.com/A", "https://example.com/a%20b", "https://example.com/%C5"):
        member = packed(WARC_Target_URI=archived)
        with pytest.raises(BadRecord, match="and not of"):
            read_record(capture(member, url=meant), member)


@pytest.mark.parametrize("unknown", ["", "-", "None", "sha1:-", "sha1:", "md5:none"])
def test_unknown_values_of_records_are_not_compared(unknown: str) -> None:
    member = packed(WARC_Payload_Digest=unknown, WARC_Block_Digest=unknown)
    assert read_record(capture(member), member).body == BODY
    assert read_record(capture(member, digest=unknown), member).body == BODY
    for date in ("", "-"):
        member = packed(WARC_Date=date)
        assert read_record(capture(member), member).time is None


def test_times_are_compared_with_their_precision() -> None:
    of_a_second = packed()
    for date in ("2022-08-15T01:02Z", "202208150102", "2022-08-15", "20220815", "2022-08", "2022"):
        member = packed(WARC_Date=date)
        assert read_record(capture(member), member).body == BODY
        assert read_record(listed(of_a_second, date), of_a_second).body == BODY
    for date in ("2022-08-15T01:01Z", "202208150104", "2022-08-14", "2022-08-15T01:02:05Z", "2022-06", "2020"):
        member = packed(WARC_Date=date)
        with pytest.raises(BadRecord, match="and not of 2022-08-15 01:02:03"):
            read_record(capture(member), member)
        with pytest.raises(BadRecord, match=r"it is of 2022-08-15 01:02:03.* and not of "):
            read_record(listed(of_a_second, date), of_a_second)


def listed(member: bytes, time: str) -> Capture:
    """Return the capture of a list that has its time as a text."""
    return capture_of({"filename": "crawl-data/x.warc.gz", "offset": 0, "length": len(member), "timestamp": time})


def test_digests_without_an_algorithm_are_recognized_by_their_length() -> None:
    member = packed(WARC_Payload_Digest="")
    for algorithm in ("md5", "sha1", "sha256", "sha512"):
        found = hashlib.new(algorithm, BODY, usedforsecurity=False).hexdigest()
        assert read_record(capture(member, digest=found), member).body == BODY
        with pytest.raises(BadRecord, match="does not have the digest"):
            read_record(capture(member, digest=f"{found[:-2]}{'00' if found[-2:] != '00' else '11'}"), member)


@pytest.mark.parametrize(
    "block", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\n\r\n"]
)
def test_digests_of_revisits_are_of_another_record(block: bytes) -> None:
    reported = {"WARC_Payload_Digest": f"sha1:{digest(BODY)}", "WARC_Block_Digest": f"sha1:{digest(BODY)}"}
    member = packed(block, head="", WARC_Type="revisit", Content_Type="message/http", **reported)
    record = read_record(capture(member, status=None), member)
    assert (record.kind, record.body, record.http_head) == ("revisit", b"", block)
    assert record.mime in {None, "text/html"}


ARC_LINES = {
    "http://a.example/ 192.0.2.1 20220815010203 text/html; charset=utf-8 {}": "text/html; charset=utf-8",
    "http://a.example/x y 192.0.2.1 20220815010203 text/html {}": "text/html",
    "http://a.example/x y  z 2001:db8::1 20220815010203 text/html; charset=utf-8; a=b c {}": (
        "text/html; charset=utf-8; a=b c"
    ),
    "http://a.example/ 192.0.2.1 20220815010203 - {}": None,
    "http://a.example/ - 20220815010203  {}": None,
    "http://a.example/ 192.0.2.1 20220815010203 {}": None,
    "http://a.example/ 192.0.2.1 20220815010203 text/html 200 abc - {}": "text/html 200 abc -",
    "http://a.example/ 192.0.2.9 20010101010203 192.0.2.1 202208150102 text/html {}": "text/html",
    "http://a.example/ host.example 20220815010203 text/html {}": "text/html",
    "http://a.example/   192.0.2.1  20220815010203   text/html   {} \r": "text/html",
    "http://a.example/x y\t192.0.2.1\t20220815010203\ttext/html; a=b\t{}": "text/html; a=b",
    "http://a.example/ 192.0.2.1 20220815010203999 text/html {}": "text/html",
    "http://a.example/ 192.0.2.1 20220815 text/html {}": "text/html",
}


@pytest.mark.parametrize("line", ARC_LINES)
def test_divides_arc_lines_at_address_and_date(line: str) -> None:
    block = HEAD.encode() + BODY
    member = gzip.compress(line.format(len(block)).encode() + b"\n" + block + b"\n")
    url = re.split(r"\s+(?:192\.0\.2\.1|2001:|- |host)", line, maxsplit=1)[0]
    record = read_record(capture(member, url=url), member)
    assert (record.url, record.header("content-type"), record.body) == (url, ARC_LINES[line], BODY)
    assert record.time is not None
