"""Archived pages have no effect on the server's own pages."""

import gzip
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.commoncrawl.capture import Capture
from catalogue.errors import BadRecord
from catalogue.records.record import Record, read_record
from catalogue.server.archived_pages import archived_headers, content_headers, link
from tests.support.archives import warc
from tests.support.crawls import CRAWL
from tests.support.served_records import ARCHIVE, GZIPPED, PAGES, SCRIPT, check_sandbox, page, serving_hostile, url_of
from tests.support.serving import get

hostile = pytest.fixture(scope="module")(serving_hostile)


def header_lines(address: str, target: str) -> list[tuple[str, str]]:
    """Return header lines as sent."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        response.read()
        return response.getheaders()
    finally:
        connection.close()


OURS = {
    "access-control-allow-origin": "*",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_archived_headers_have_no_effect(hostile: str, name: str) -> None:
    lines = header_lines(hostile, f"/{CRAWL}/2022id_/{url_of(name)}")
    assert len(lines) < 100
    assert sum(len(key) + len(value) for key, value in lines) < 10_000
    assert all(value.isascii() and value.isprintable() for _, value in lines)
    acting = {key.lower() for key, _ in lines if not key.lower().startswith(("x-archive-", "x-dns-"))}
    assert acting <= {
        *OURS,
        *("cache-control", "content-disposition", "content-length", "content-security-policy", "content-type"),
        *("cross-origin-resource-policy", "date", "link", "memento-datetime", "server", "vary"),
    }
    names = [key.lower() for key, _ in lines]
    assert all(names.count(key) == 1 for key in acting)
    got = page(hostile, name)
    assert got.status == 200
    assert {key: got.headers[key] for key in OURS} == OURS
    check_sandbox(got)


def test_archived_headers_have_other_names(hostile: str) -> None:
    lines = header_lines(hostile, f"/{CRAWL}/2022id_/{url_of('acting')}")
    lower = [(key.lower(), value) for key, value in lines]
    assert [value for key, value in lower if key == "x-archive-orig-set-cookie"] == ["a=1", "b=2"]
    assert [value for key, value in lower if key == "x-archive-orig-status"] == ["200 OK"]
    assert ("x-archive-orig-strict-transport-security", "max-age=9") in lower


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("script", "text/html; charset=utf-8"),
        ("giant", "text/plain"),
        ("charset", "text/html; charset=utf-8"),
        ("typeless", None),
        ("strange", None),
        ("parts", None),
        ("cut", None),
        ("bomb", None),
    ],
)
def test_uses_only_valid_content_types(hostile: str, name: str, kind: str | None) -> None:
    got = page(hostile, name)
    assert got.headers["content-type"] == (kind or "application/octet-stream")
    assert got.headers.get("content-disposition") == (None if kind else "attachment")


def test_payload_is_decoded_if_possible(hostile: str) -> None:
    decoded, cut, bomb = (page(hostile, name) for name in ("gzip", "cut", "bomb"))
    assert (decoded.body, decoded.headers["x-archive-payload"]) == (SCRIPT, "decoded")
    assert (cut.body, cut.headers["x-archive-payload"]) == (GZIPPED[:-9], "as archived")
    assert len(bomb.body) < 1 << 20
    assert "content-encoding" not in decoded.headers


def test_does_not_redirect(hostile: str) -> None:
    got = page(hostile, "gone")
    assert (got.status, got.headers["x-archive-orig-status"]) == (200, "302 Found")
    assert got.headers["x-archive-orig-location"] == "/there"


@pytest.mark.parametrize("purpose", ["script", "serviceworker", "worker", "style", "xslt", "object", "manifest"])
def test_refuses_other_destinations(hostile: str, purpose: str) -> None:
    target = f"/{CRAWL}/2022id_/{url_of('script')}"
    assert get(hostile, target, Sec_Fetch_Dest=purpose).status == 403
    assert get(hostile, target, Service_Worker="script").status == 403
    assert get(hostile, target, Sec_Fetch_Dest="document").status == 200


names = st.one_of(st.binary(max_size=40), st.sampled_from([b"Set-Cookie", b"X-A", b"status"]))

heads = st.lists(st.tuples(names, st.binary(max_size=60)), max_size=20)


@given(heads, st.binary(max_size=40))
def test_archived_headers_are_short_ascii(head: list[tuple[bytes, bytes]], line: bytes) -> None:
    http = b"HTTP/1.1 200 " + line + b"\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in head)
    member = gzip.compress(warc(http + b"\r\nbody", head="", WARC_Payload_Digest=""))
    try:
        record = read_record(Capture(ARCHIVE, 0, len(member)), member)
    except BadRecord:
        return
    check_headers(record)


def check_headers(record: Record) -> None:
    found = [*archived_headers(record), *content_headers(record)]
    for name, value in found:
        assert all("!" <= c <= "~" and c != ":" for c in name)
        assert all(" " <= c <= "~" for c in value)
    assert sum(len(name) + len(value) for name, value in found) < 10_000


@given(st.text(max_size=100))
def test_quotes_links(url: str) -> None:
    assert {*link(url)}.isdisjoint('<> "\\\r\n')
    assert link(url).isascii()
