"""A record is compared with its capture only where both values are known, and as precisely as both are."""

import gzip
import hashlib
import re

import pytest

from catalogue.commoncrawl.capture import Capture, capture_of
from catalogue.errors import BadRecord
from catalogue.records.record import read_record
from tests.records.test_record import packed
from tests.support.archives import BODY, HEAD, capture, digest

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
