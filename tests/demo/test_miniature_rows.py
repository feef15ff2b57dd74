"""The rows of the miniature are right for their URLs, and its records lie where the rows say."""

import base64
import gzip
import hashlib
import re
import zlib
from collections import Counter
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest

from catalogue.demo import Miniature
from catalogue.surt import url_surtkey
from tests.support.miniatures import MODERN, NEWEST, OLD, SUBSETS, every_row, rows, subsets


@pytest.mark.parametrize("crawl", [OLD, MODERN, NEWEST])
def test_keys_are_those_of_the_urls(miniature: Miniature, crawl: str) -> None:
    doubled = 0
    for row in every_row(miniature, crawl):
        if re.search(r"%E9", row["url"]):
            doubled += 1
            assert row["url_surtkey"].count("%25e9") == (0 if crawl == NEWEST else row["url"].count("%E9"))
            assert row["url_surtkey"].replace("%25e9", "%e9") == url_surtkey(row["url"])
        else:
            assert row["url_surtkey"] == url_surtkey(row["url"])
    assert doubled > 30


TRAPS = {
    "http://example.com": "com,example)/",
    "https://www2.example.com/": "com,example)/",
    "http://wwww.example.com/dir/": "com,example,wwww)/dir",
    "http://example.com:8080/dir/": "com,example:8080)/dir",
    "https://example.com:443/": "com,example)/",
    "http://example.com:443/": "com,example:443)/",
    "http://example.com:80/": "com,example)/",
    "http://example-shop.com/": "com,example-shop)/",
    "http://example0.com/": "com,example0)/",
    "http://examples.com/": "com,examples)/",
    "https://shop.example.com:81/a?q=1": "com,example,shop:81)/a?q=1",
    "http://example.com/Dir/Page?B=2&a=1": "com,example)/dir/page?a=1&b=2",
    "http://example.com/a?": "com,example)/a",
    "http://example.com/~user/%7Ex": "com,example)/~user/~x",
    "http://example.com/caf%C3%A9": "com,example)/caf%c3%a9",
    "http://192.0.2.10:8000/directory": "10,2,0,192:8000)/directory",
    "https://xn--mller-kva.example/": "example,xn--mller-kva)/",
    "http://www.test/": "test)/",
}


@pytest.mark.parametrize("crawl", [OLD, MODERN, NEWEST])
def test_every_crawl_has_the_traps(miniature: Miniature, crawl: str) -> None:
    found = {row["url"]: row["url_surtkey"] for row in rows(miniature, crawl)}
    escaped = "%e9" if crawl == NEWEST else "%25e9"
    traps = {**TRAPS, "http://example.com/caf%E9/x": f"com,example)/caf{escaped}/x"}
    assert {url: found.get(url) for url in traps} == traps
    assert {"com", "org", "is", "uk", "test", "example"} <= {row["url_host_tld"] for row in rows(miniature, crawl)}


@pytest.mark.parametrize(
    ("host", "tld", "more", "suffix", "domain"),
    [
        ("example.com", "com", ["example", None, None, None], "com", "example.com"),
        ("a.b.c.d.example.com", "com", ["example", "d", "c", "b"], "com", "example.com"),
        (
            "example.com.example-madeup.co.uk",
            "uk",
            ["co", "example-madeup", "com", "example"],
            "co.uk",
            "example-madeup.co.uk",
        ),
        ("www.test", "test", ["www", None, None, None], None, None),
        ("192.0.2.10", None, [None, None, None, None], None, None),
    ],
)
def test_host_columns(
    miniature: Miniature, host: str, tld: str | None, more: list[str | None], suffix: str | None, domain: str | None
) -> None:
    row = next(row for row in rows(miniature, MODERN) if row["url_host_name"] == host)
    assert row["url_host_tld"] == tld
    assert [row[f"url_host_{place}_last_part"] for place in ("2nd", "3rd", "4th", "5th")] == more
    assert row["url_host_registry_suffix"] == row["url_host_private_suffix"] == suffix
    assert row["url_host_registered_domain"] == row["url_host_private_domain"] == domain
    assert row["url_host_name_reversed"] == (".".join(reversed(host.split("."))) if tld else None)


@pytest.mark.parametrize("crawl", [OLD, MODERN, NEWEST])
def test_url_columns_make_up_the_url(miniature: Miniature, crawl: str) -> None:
    for row in every_row(miniature, crawl):
        port = "" if row["url_port"] is None else f":{row['url_port']}"
        query = "" if row["url_query"] is None else f"?{row['url_query']}"
        assert f"{row['url_protocol']}://{row['url_host_name']}{port}{row['url_path']}{query}" == row["url"]
        domain = row["url_host_registered_domain"]
        assert domain is None or f".{row['url_host_name']}".endswith(f".{domain}")
        assert domain is None or domain.partition(".")[2] == row["url_host_registry_suffix"]


def test_names_are_reserved_or_say_that_they_are_made_up(miniature: Miniature) -> None:
    for crawl in miniature.crawls:
        for host in {row["url_host_name"] for row in every_row(miniature, crawl)}:
            assert re.search(
                r"(^|\.)example\.(com|net|org)$|\.(test|example)$|-madeup(-[a-z0-9]+)?\.[a-z.]+$|^192\.0\.2\.", host
            ) or host in {
                "example-shop.com",
                "example0.com",
                "examples.com",
                "notexample.com",
            }


@pytest.mark.parametrize("crawl", [MODERN, NEWEST])
def test_rows_fit_their_subset(miniature: Miniature, crawl: str) -> None:
    pages, failures, robots = (rows(miniature, crawl, subset) for subset in SUBSETS)
    assert {row["fetch_status"] for row in pages} == {200}
    assert {row["fetch_redirect"] for row in pages} == {None}
    assert {row["content_truncated"] for row in pages} == {None, "length"}
    assert {"text/html", "application/pdf", "image/jpeg"} <= {row["content_mime_type"] for row in pages}
    assert {"text/html", "application/xhtml+xml"} <= {row["content_mime_detected"] for row in pages}
    assert {"eng", "isl", "deu,eng", None} <= {row["content_languages"] for row in pages}
    assert {"UTF-8", "ISO-8859-1", "Shift_JIS", None} <= {row["content_charset"] for row in pages}
    assert {301, 302, 304, 404} <= {row["fetch_status"] for row in failures}
    assert 200 not in {row["fetch_status"] for row in failures}
    for row in failures:
        assert (row["fetch_redirect"] is not None) == (row["fetch_status"] in {301, 302})
        revisit = row["fetch_status"] == 304
        assert (row["content_mime_type"] == "warc/revisit") == (row["content_digest"] is None) == revisit
    assert {row["url_path"] for row in robots} == {"/robots.txt"}
    assert {200, 301, 404} == {row["fetch_status"] for row in robots}


@pytest.mark.parametrize("crawl", [OLD, MODERN, NEWEST])
def test_records_are_named_as_in_their_time(miniature: Miniature, crawl: str) -> None:
    for subset in subsets(crawl):
        folder = rf"crawl-data/{crawl}/segments/([0-9]{{13}}\.[0-9])/{subset}"
        name = r"CC-MAIN-([0-9]{14})-([0-9]{14})-[0-9]{5}\.warc\.gz"
        for row in rows(miniature, crawl, subset):
            found = re.fullmatch(f"{folder}/{name}", row["warc_filename"])
            assert found
            assert row["warc_segment"] == found[1]
            start, end = (datetime.strptime(found[n], "%Y%m%d%H%M%S").replace(tzinfo=UTC) for n in (2, 3))
            assert start <= row["fetch_time"].replace(tzinfo=UTC) < end


def test_record_ids_are_uuids_of_version_7(miniature: Miniature) -> None:
    ids = [row["warc_record_id"] for row in every_row(miniature, NEWEST)]
    assert {(len(id_), id_[6] >> 4, id_[8] >> 6) for id_ in ids} == {(16, 7, 2)}
    assert len(set(ids)) == len(ids)


def test_record_lies_where_its_row_says(miniature: Miniature) -> None:
    files: dict[str, bytes] = {}
    kinds = Counter[str]()
    for row in every_row(miniature, MODERN):
        name = row["warc_filename"]
        data = files.setdefault(name, (miniature.folder / name).read_bytes() if name not in files else b"")
        inflater = zlib.decompressobj(wbits=31)
        member = data[row["warc_record_offset"] : row["warc_record_offset"] + row["warc_record_length"]]
        record = inflater.decompress(member)
        assert inflater.eof
        assert not inflater.unused_data
        headers, block = record_of(record)
        kinds[headers["WARC-Type"]] += 1
        assert headers["WARC-Target-URI"] == row["url"]
        assert headers["WARC-Date"] == row["fetch_time"].strftime("%Y-%m-%dT%H:%M:%SZ")
        assert headers.get("WARC-Truncated") == row["content_truncated"]
        assert headers.get("WARC-Identified-Payload-Type") == row["content_mime_detected"]
        head, _, payload = block.partition(b"\r\n\r\n")
        status, *fields = head.decode("ascii").split("\r\n")
        http = dict(field.split(": ", 1) for field in fields)
        assert status.split()[:2] == ["HTTP/1.1", str(row["fetch_status"])]
        assert int(http["Content-Length"]) == len(payload)
        assert http.get("Location") == row["fetch_redirect"]
        if row["fetch_status"] == 304:
            assert headers["WARC-Type"] == "revisit"
            assert headers["WARC-Profile"].endswith("/revisit/server-not-modified")
            assert "WARC-Payload-Digest" not in headers
            continue
        assert headers["WARC-Type"] == "response"
        digest = base64.b32encode(hashlib.sha1(payload, usedforsecurity=False).digest()).decode()
        assert headers["WARC-Payload-Digest"] == f"sha1:{digest}"
        assert row["content_digest"] == digest
        named, _, charset = http.get("Content-Type", "unk").partition("; charset=")
        assert (named, charset or None) == (row["content_mime_type"], row["content_charset"])
        if row["content_mime_detected"] == "text/html" and row["fetch_status"] == 200 and not row["content_truncated"]:
            text = payload.decode(charset)
            assert re.search(r"<title>[A-Z].*</title>.*<p>[^<]{20,}</p>.*<a href=", text)
    assert kinds.keys() == {"response", "revisit"}


def record_of(record: bytes) -> tuple[dict[str, str], bytes]:
    """The headers and the block of a whole record (WARC 1.0, section 4)."""
    head, _, rest = record.partition(b"\r\n\r\n")
    version, *lines = head.decode().split("\r\n")
    assert version == "WARC/1.0"
    headers = dict(line.split(": ", 1) for line in lines)
    assert {"WARC-Type", "WARC-Date", "WARC-Record-ID", "Content-Length"} <= headers.keys()
    length = int(headers["Content-Length"])
    assert rest[length:] == b"\r\n\r\n"
    return headers, rest[:length]


def test_warc_files_hold_members_and_nothing_else(miniature: Miniature) -> None:
    indexed: dict[str, set[tuple[int, int]]] = {}
    for row in every_row(miniature, MODERN):
        extents = indexed.setdefault(row["warc_filename"], set())
        extents.add((row["warc_record_offset"], row["warc_record_length"]))
    assert sum(map(len, indexed.values())) == len(every_row(miniature, MODERN))  # no two rows share a record
    assert sorted(indexed) == [path for path in miniature.files if path.endswith(".warc.gz")]
    shapes, ids = set(), Counter[str]()
    for name, extents in indexed.items():
        data = (miniature.folder / name).read_bytes()
        at, kinds, times = 0, [], []
        while at < len(data):
            inflater = zlib.decompressobj(wbits=31)
            headers, _ = record_of(inflater.decompress(data[at:]))
            length = len(data) - at - len(inflater.unused_data)
            is_indexed = headers["WARC-Type"] in {"response", "revisit"}
            assert ((at, length) in extents) == is_indexed
            kinds.append("capture" if is_indexed else headers["WARC-Type"])
            times.append(headers["WARC-Date"])
            ids[headers["WARC-Record-ID"]] += 1
            at += length
        assert times == sorted(times)
        assert kinds[0] == "warcinfo"
        whole = kinds[1:] == ["request", "capture", "metadata"] * len(extents)
        assert whole or kinds[1:] == ["capture"] * len(extents)
        shapes.add(whole)
    assert shapes == {True, False}
    assert set(ids.values()) == {1}


def test_urls_are_fetched_with_their_host(miniature: Miniature) -> None:
    """Requests say what a server needs to know."""
    path = next(path for path in miniature.files if "/warc/" in path and path.endswith("-00000.warc.gz"))
    requests = re.findall(
        rb"WARC-Type: request.*?\r\n\r\n(.*?)\r\n\r\n",
        gzip.decompress((miniature.folder / path).read_bytes()),
        re.DOTALL,
    )
    assert requests
    for record in requests:
        first, host = record.decode("ascii").split("\r\n")
        method, target, version = first.split(" ")
        assert (method, version) == ("GET", "HTTP/1.1")
        assert target.startswith("/")
        assert urlsplit(f"http://{host.removeprefix('Host: ')}").hostname
