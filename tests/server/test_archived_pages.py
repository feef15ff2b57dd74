"""Archived pages: which record is found, and each of its forms."""

import gzip
import hashlib
from datetime import UTC, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue import Catalogue
from catalogue.commoncrawl.capture import Capture, capture_of, format_timestamp
from catalogue.records.record import read_record
from catalogue.server.archived_pages import link, parse_url
from tests.support.amounts import part_of
from tests.support.archives import digest
from tests.support.catalogues import harvested_in
from tests.support.crawls import ABSENT, CRAWL, write_manifest
from tests.support.served_records import (
    ARCHIVE,
    GZIPPED,
    OK,
    PAGES,
    SCRIPT,
    TIME,
    answer,
    check_sandbox,
    page,
    serving_hostile,
    url_of,
    write_records,
)
from tests.support.serving import Answer, get, serving, serving_harvested

hostile = pytest.fixture(scope="module")(serving_hostile)
address = pytest.fixture(scope="module")(serving_harvested)


@pytest.fixture(scope="module")
def rows(harvested: Catalogue, crawl: str) -> list[dict[str, Any]]:
    every = harvested.captures("*.com", crawls=crawl, subsets="all").to_arrow().to_pylist()
    subsets = [[row for row in every if row["subset"] == name] for name in ("warc", "crawldiagnostics", "robotstxt")]
    return [row for rows in subsets for row in rows[:: len(rows) // 3 or 1]]


def test_records_of_rows_of_data_frames(harvested: Catalogue, rows: list[dict[str, Any]]) -> None:
    assert harvested.record(pd.DataFrame(rows).iloc[0]) == harvested.record(rows[0])


def test_records_agree_with_python(address: str, harvested: Catalogue, crawl: str, rows: list[dict[str, Any]]) -> None:
    assert {row["subset"] for row in rows} == {"warc", "crawldiagnostics", "robotstxt"}
    twins = 0
    for row in part_of(rows):
        record = harvested.record(row)
        stamp, url = format_timestamp(row["fetch_time"]), row["url"]
        got = get(address, f"/{crawl}/{stamp}id_/{url}")
        if int(got.headers["x-archive-offset"]) != record.capture.offset:
            assert_twins(harvested, crawl, row, got)
            twins += 1
            continue
        assert (got.status, got.body) == (200, record.payload)
        assert got.headers["memento-datetime"] == format_datetime(record.time.astimezone(UTC), usegmt=True)  # type: ignore[union-attr]
        assert got.headers["x-archive-filename"] == record.capture.filename
        assert got.headers["x-archive-length"] == str(record.capture.length)
        assert got.headers["x-archive-orig-status"] == record.status_line
        assert got.headers["link"].endswith('>; rel="original"')
        assert got.headers["content-type"].startswith(record.http_header("content-type") or "")
        check_sandbox(got.headers)
        warc = get(address, f"/{crawl}/{stamp}warc_/{url}")
        assert (warc.body, warc.headers["content-type"]) == (record.member, "application/warc")
        assert read_record(capture_of(row), warc.body).url == url
    assert twins < len(rows) / 3


def assert_twins(harvested: Catalogue, crawl: str, row: dict[str, Any], got: Answer) -> None:
    """Check that the answer is another capture of the same URL and second."""
    twins = harvested.captures(row["url"], crawls=crawl, exact_url=True).to_arrow().to_pylist()
    (twin,) = [each for each in twins if str(each["warc_record_offset"]) == got.headers["x-archive-offset"]]
    assert (twin["url"], twin["fetch_time"]) == (row["url"], row["fetch_time"])


@pytest.mark.parametrize(
    ("rest", "query", "url"),
    [
        (b"http://a.example/b", b"", "http://a.example/b"),
        (b"http://a.example/b", b"c=1&d=%20", "http://a.example/b?c=1&d=%20"),
        (b"http:/a.example/b", b"", "http://a.example/b"),
        (b"http%3A%2F%2Fa.example%2Fb%3Fc%3D1", b"", "http://a.example/b?c=1"),
        *((b"http:%2f%2Fa.example/", b"", "http://a.example/"), (b"a.example%2Fb%252Fc", b"", "a.example/b%2Fc")),
        (b"a.example/b%2Fc", b"", "a.example/b%2Fc"),
        (b"https%3A%2F%2Fa.example%2Fb%20c%C3%A9", b"", "https://a.example/b%20c%C3%A9"),
        (b"http://a.example/\xc3\xa9\xff", b"", "http://a.example/%C3%A9%FF"),
    ],
)
def test_parses_urls(rest: bytes, query: bytes, url: str) -> None:
    assert parse_url(rest, query) == url


def test_finds_nearest_time_and_requested_url_and_says_if_it_is_another(tmp_path: Path) -> None:
    times = [TIME + timedelta(minutes=minutes) for minutes in (0, 10, 20)]
    a = [f"plain {time}" for time in times]
    records = [("http://example.com/a", time, answer(OK, body.encode())) for time, body in zip(times, a, strict=True)]
    for url, time, content in (
        ("https://www.example.com/A", times[1], b"other"),
        ("https://www2.example.com/~a", TIME, b"www2"),
        ("https://www.example.com/~a", times[1], b"www"),
        ("https:////sites.example.com/robots.txt", TIME, b"slashes"),
        ("https://example.com/a%0Ab", TIME, b"line end"),
        ("https://example.com/b?", TIME, b"empty query"),
        ("https://example.com/c", TIME, b"no query"),
        ("https://example.com/c?", times[1], b"both"),
    ):
        records.append((url, time, answer(OK, content)))
    write_records(tmp_path / "mirror", records)
    first, second, third = (f"{time:%Y%m%d%H%M%S}" for time in times)
    with serving(*harvested_in(tmp_path, tmp_path / "mirror")) as address:
        for moment, url, body, exact in (
            (second, "http://example.com/a", a[1], None),
            (format_timestamp(times[1] + timedelta(minutes=4)), "http://example.com/a", a[1], None),
            (format_timestamp(times[1] + timedelta(minutes=6)), "http://example.com/a", a[2], None),
            ("1999", "http://example.com/a", a[0], None),
            ("2", "http://example.com/a", a[2], None),
            (first[:12], "http://example.com/a", a[0], None),
            (third, "http://example.com/a#part", a[2], None),
            ("99999999999999", "http://example.com/a", a[2], None),
            (first, "https://www.example.com/A", "other", None),
            (first, "example.com/a", a[0], None),
            (second, "https://www2.example.com/~a", "www2", None),
            (second, "http://WWW2.example.com:80/%7ea", "www2", None),
            (second, "www.example.com/~a", "www", None),
            (second, "https://www3.example.com/~a", "www", "false"),
            (second, "https:////sites.example.com/robots.txt", "slashes", None),
            (second, "http://example.com/a%0ab", "line end", None),
            (second, "https://example.com/b?", "empty query", None),
            (second, "https://www.example.com/b?", "empty query", "false"),
            (second, "http://example.com/c", "no query", None),
        ):
            for written in (url, quote(url, safe="")):
                got = get(address, f"/{CRAWL}/{moment}id_/{written.partition('#')[0]}")
                assert (got.text, got.headers.get("x-archive-exact")) == (body, exact), (moment, written)


def test_text_form_and_warc_form(hostile: str) -> None:
    got = page(hostile, "script", "text_")
    assert (got.status, got.text.strip()) == (200, "hello there")
    assert got.headers["content-type"] == "text/plain; charset=utf-8"
    check_sandbox(got.headers)
    assert page(hostile, "surrogate", "text_").text.endswith(" x")
    got = page(hostile, "picture", "text_")
    assert (got.status, "image/png" in got.json["message"]) == (404, True)
    got = page(hostile, "cut", "text_")
    assert (got.status, got.json["message"]) == (404, "the gzip coding of its payload ends early; use id_")
    got = page(hostile, "script", "warc_")
    assert got.headers["content-disposition"].startswith(f'attachment; filename="{CRAWL}-20220815010203-')
    assert gzip.decompress(got.body).startswith(b"WARC/1.0")


@pytest.mark.in_part(4)
@pytest.mark.parametrize("name", sorted(PAGES))
def test_metadata_form(hostile: str, name: str) -> None:
    got = page(hostile, name, "meta_")
    assert (got.status, got.headers["content-type"]) == (200, "application/json")
    shown = got.json
    record = read_record(Capture(ARCHIVE, 0, 1), page(hostile, name, "warc_").body)
    assert [tuple(pair) for pair in shown["record_headers"]] == list(record.headers)
    assert [tuple(pair) for pair in shown["http_headers"]] == list(record.http_headers)
    content = record.body if record.coding_error else record.payload
    assert shown["metadata"]["md5"] == hashlib.md5(content, usedforsecurity=False).hexdigest()
    assert shown["warc_filename"] == ARCHIVE
    assert (shown["metadata"]["disposition"] == "FAILURE") is (name in {"cut", "bomb"})


@pytest.mark.parametrize(
    ("target", "status", "message"),
    [
        ("/{crawl}/2022id_/https://nowhere.example/%C3%A9?a=%3Cb%3E", 404, "No Captures found for: {url}"),
        ("/CC-MAIN-1999-99/2022id_/example.com", 404, "there is no crawl CC-MAIN-1999-99"),
        ("/nonsense/2022id_/example.com", 404, "nonsense"),
        ("/all/2022id_/example.com", 404, "all"),
        ("/a%2F2022id_/example.com", 404, "/CRAWL/TIMESTAMP"),
        ("/{crawl}/2022/http://example.com", 404, "id_, text_, meta_, warc_"),
        ("/{crawl}/2022js_/http://example.com", 404, "id_, text_, meta_, warc_"),
        ("/{crawl}/123456789012345id_/http://example.com", 404, "/CRAWL/TIMESTAMP"),
        ("/{crawl}/2022id_/", 400, "must end with a URL"),
        ("/{crawl}/2022id_/http://", 400, "http://"),
        ("/{crawl}/2022id_/" + "a" * 9000, 400, "8,192 characters"),
    ],
)
def test_rejects_invalid_paths(address: str, crawl: str, target: str, status: int, message: str) -> None:
    got = get(address, target.format(crawl=crawl))
    assert (got.status, got.headers["content-type"]) == (status, "application/json; charset=utf-8")
    assert message.format(url="https://nowhere.example/%C3%A9?a=%3Cb%3E") in got.json["message"]


def test_wrong_records_are_errors_that_clients_do_not_retry(tmp_path: Path) -> None:
    records = [(url_of(name), TIME, PAGES[name]) for name in ("charset", "gone", "script")]
    wrong: dict[str, Any] = {
        "content_digest": [digest(b"other"), None, None],
        "warc_filename": [ARCHIVE, "crawl-data/no", "../etc"],
    }
    write_records(tmp_path / "mirror", records, **wrong)
    with serving(*harvested_in(tmp_path, tmp_path / "mirror")) as address:
        other, missing, unnamed = (page(address, name) for name in ("charset", "gone", "script"))
    assert [each.status for each in (other, missing, unnamed)] == [422, 404, 422]
    assert "retry-after" not in other.headers


@pytest.mark.filterwarnings("ignore::catalogue.errors.IncompleteAnswer")
def test_incomplete_answers_are_not_cached(hostile: str, tmp_path: Path) -> None:
    write_records(tmp_path / "mirror", [(url_of("script"), TIME, PAGES["script"])])
    write_manifest(tmp_path / "mirror", CRAWL, ABSENT)
    with serving(*harvested_in(tmp_path, tmp_path / "mirror")) as address:
        assert page(address, "script").headers["cache-control"] == "no-store"
    assert page(hostile, "script").headers["cache-control"] == "public, max-age=86400"


OURS = {"access-control-allow-origin": "*", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_archived_headers_have_no_effect(hostile: str, name: str) -> None:
    answer = page(hostile, name)
    lines = answer.pairs
    assert answer.status == 200
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
    assert {key: answer.headers[key] for key in OURS} == OURS
    check_sandbox(answer.headers)


def test_archived_headers_have_other_names(hostile: str) -> None:
    lower = [(key.lower(), value) for key, value in page(hostile, "acting").pairs]
    assert [value for key, value in lower if key == "x-archive-orig-set-cookie"] == ["a=1", "b=2"]
    assert [value for key, value in lower if key == "x-archive-orig-status"] == ["200 OK"]
    assert ("x-archive-orig-strict-transport-security", "max-age=9") in lower
    gone = page(hostile, "gone")
    assert (gone.status, gone.headers["x-archive-orig-status"]) == (200, "302 Found")
    assert gone.headers["x-archive-orig-location"] == "/there"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("script", "text/html; charset=utf-8"), ("giant", "text/plain; charset=utf-8")),
        *(("charset", "text/html; charset=utf-8"), ("typeless", None), ("strange", None)),
        *(("parts", None), ("cut", None), ("bomb", None)),
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


@pytest.mark.parametrize("purpose", ["script", "serviceworker", "worker", "style", "xslt", "object", "manifest"])
def test_refuses_other_destinations(hostile: str, purpose: str) -> None:
    target = f"/{CRAWL}/2022id_/{url_of('script')}"
    assert get(hostile, target, Sec_Fetch_Dest=purpose).status == 403
    assert get(hostile, target, Service_Worker="script").status == 403
    assert get(hostile, target, Sec_Fetch_Dest="document").status == 200


@given(st.text(max_size=100))
def test_quotes_links(url: str) -> None:
    assert {*link(url)}.isdisjoint('<> "\\\r\n')
    assert link(url).isascii()
    plain = "https://user@example.com:8080/a%20b;c?d=e&f='(g)'"
    assert link(f"{plain}{url}").startswith(plain)


def test_revisits_without_body_name_the_reason(tmp_path: Path) -> None:
    write_records(tmp_path / "mirror", [(url_of("same"), TIME, answer(OK, b""))], "revisit")
    with serving(*harvested_in(tmp_path, tmp_path / "mirror")) as address:
        for form in ("id_", "text_"):
            got = page(address, "same", form)
            assert (got.status, "is a revisit" in got.json["message"]) == (404, True)
        assert page(address, "same", "warc_").status == 200
