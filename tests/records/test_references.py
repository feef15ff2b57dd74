"""Targets of redirects, as browsers read the header ``Location``."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.errors import QueryError
from catalogue.records.record import read_record
from catalogue.records.references import location_of, redirect_target
from catalogue.surt.pattern import exact_keys
from tests.support.archives import capture, warc

URL = "https://example.com/dir/page?x=1"


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://example.org/my page", "https://example.org/my%20page"),
        (" \t/a b?c d#e f\x00\n", "https://example.com/a%20b?c%20d#e%20f"),
        ("next page", "https://example.com/dir/next%20page"),
        ("?y=a b", "https://example.com/dir/page?y=a%20b"),
        ("//example.org/x", "https://example.org/x"),
        ("a\tb\n c", "https://example.com/dir/ab%20c"),
        ("?", "https://example.com/dir/page?"),
        ("next?", "https://example.com/dir/next?"),
        ("", "https://example.com/dir/page?x=1"),
        ("#part", "https://example.com/dir/page?x=1#part"),
        (";x", "https://example.com/dir/;x"),
        ("a//b;", "https://example.com/dir/a//b;"),
        ("./../a/./?b=/../c", "https://example.com/a/?b=/../c"),
        ("../up", "https://example.com/up"),
        ("/a\tb\r\nc", "https://example.com/abc"),
        ("/a\x01b\x7f", "https://example.com/a%01b%7F"),
        (r"\a\b?c\d", r"https://example.com/a/b?c\d"),
        (r"http:\\example.org\a", "http://example.org/a"),
        ("HTTP://Example.org/A", "HTTP://Example.org/A"),
        ("/é", "https://example.com/%C3%A9"),
        ("https://bücher.example/é", "https://bücher.example/%C3%A9"),
        ("https://example.org:8080", "https://example.org:8080"),
        ("https://user:pass word@example.org/x@y", "https://example.org/x@y"),
        ("/%zz%20", "https://example.com/%zz%20"),
        ("/to?u=http:///x", "https://example.com/to?u=http:///x"),
    ],
)
def test_resolves_targets(location: str, target: str) -> None:
    assert redirect_target(URL, location) == target


@pytest.mark.parametrize(
    "location",
    [
        *("http:///example.org/my%20page", "https:///example.org/page", "https:////example.org/page", "https:/page"),
        *("https://example.org:abc/", "https://example.org:99999/", "https://exa mple.org/", "//example.org\x01?"),
        *("https://", "http://[::1/", "http://a<b>.example/", "http://%/", "//"),
        *("mailto:a@example.com", "javascript:void(0)", "ftp://example.com/"),
    ],
)
def test_rejects_invalid_targets(location: str) -> None:
    with pytest.raises(QueryError):
        redirect_target(URL, location)


def test_resolves_against_urls_with_surplus_slashes() -> None:
    assert redirect_target("https:////example.com/a/b", "c") == "https://example.com/a/c"


@pytest.mark.parametrize(
    ("location", "written"),
    [(b"/a%20b", "/a%20b"), ("/\u00e9\u0161".encode(), "/\u00e9\u0161"), (b"/\xe9 \xff?\xa0x", "/%E9 %FF?%A0x")],
)
def test_keeps_bytes_of_targets_that_are_not_utf_8(location: bytes, written: str) -> None:
    block = b"HTTP/1.1 301 Moved\r\nX-Other: \xe4\r\nLocation: " + location + b"\r\n\r\n"
    member = gzip.compress(warc(block, head="", WARC_Payload_Digest=""))
    assert location_of(read_record(capture(member, digest=None, status=301), member)) == written


@given(st.text() | st.text(st.sampled_from("htps:/\\.?#[]@% é\t\n09")))
def test_any_location_has_a_target_or_a_query_error(location: str) -> None:
    try:
        target = redirect_target(URL, location)
    except QueryError:
        return
    assert target.isprintable()
    assert " " not in target
    assert exact_keys(target)
