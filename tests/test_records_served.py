"""Archived pages over HTTP: what was archived, and nothing that it could do to whoever looks."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from http.client import HTTPConnection
from pathlib import Path
from shutil import copytree
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catalogue
from catalogue import Catalogue
from catalogue.capture import Capture, capture_of, timestamp
from catalogue.errors import BadRecord
from catalogue.record import Record, read_record
from catalogue.server.archived import archived_headers, content_headers, link
from catalogue.server.records import asked_url
from catalogue.settings import Settings
from catalogue.surt import url_surtkey
from tests.crawls import CRAWL, crawl_of
from tests.faults import FaultServer, Kind, always
from tests.serving import Answer, get, serving
from tests.test_record import digest, warc

TIME = datetime(2022, 8, 15, 1, 2, 3, tzinfo=UTC)
ARCHIVE = "crawl-data/CC-MAIN-2022-33/hostile.warc.gz"
SCRIPT = b"<html><title>t</title><script>alert(1)</script><p>hello there</p></html>"
GZIPPED = gzip.compress(SCRIPT, mtime=0)
OK = "HTTP/1.1 200 OK\r\n"


def answer(head: str | bytes, body: bytes) -> bytes:
    return (head if isinstance(head, bytes) else head.encode()) + b"\r\n" + body


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
    "bomb": answer(OK + "Content-Type: text/html\r\nContent-Encoding: deflate\r\n", zlib.compress(bytes(65 << 20))),
    "picture": answer(OK + "Content-Type: image/png\r\n", b"\x89PNG\r\n"),
    "surrogate": answer(OK + "Content-Type: text/html\r\n", b"<title>&#xD800;\xed\xa0\x80</title><p>\xed\xa0\x80 x"),
}


def url_of(name: str) -> str:
    return f"https://hostile.example/{name}"


def write_records(folder: Path, records: list[tuple[str, datetime, bytes]], **wrong: Any) -> None:
    """A crawl of answers at URLs; ``wrong`` are columns of the index instead of the right ones."""
    archive, offsets, lengths = b"", [], []
    for url, time, http in records:
        told = {"WARC_Target_URI": url, "WARC_Date": f"{time:%Y-%m-%dT%H:%M:%SZ}", "WARC_Payload_Digest": ""}
        member = gzip.compress(warc(http, head="", **told))
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


def harvest(mirror: Path, folder: Path) -> tuple[Path, Settings]:
    settings = Settings(source=str(mirror), cache=folder / "cache")
    with catalogue.open(folder / "data", settings=settings) as cat:
        cat.harvest(CRAWL)
    return folder / "data", settings


@pytest.fixture(scope="module")
def address(untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(Path(copytree(untaught_data, tmp_path_factory.mktemp("served") / "data")), settings) as address:
        yield address


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("hostile")
    write_records(folder / "mirror", [(url_of(name), TIME, http) for name, http in PAGES.items()])
    with serving(*harvest(folder / "mirror", folder)) as address:
        yield address


def page(address: str, name: str, form: str = "id_") -> Answer:
    return get(address, f"/{CRAWL}/2022{form}/{url_of(name)}")


def header_lines(address: str, target: str) -> list[tuple[str, str]]:
    """Headers as they came, each line."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        response.read()
        return response.getheaders()
    finally:
        connection.close()


def check_sandbox(got: Answer) -> None:
    policy = got.headers["content-security-policy"].split("; ")
    assert "sandbox" in policy
    assert "default-src 'none'" in policy
    assert not any("script" in each for each in policy)
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert got.headers["cross-origin-resource-policy"] == "same-origin"


# ---- what was archived ----


@pytest.fixture(scope="module")
def rows(harvested: Catalogue, crawl: str) -> list[dict[str, Any]]:
    """Some captures whose records are there, of each subset."""
    every = harvested.captures("*.com", crawls=crawl, columns="*").to_arrow().to_pylist()
    subsets = [[row for row in every if row["subset"] == name] for name in ("warc", "crawldiagnostics", "robotstxt")]
    return [row for rows in subsets for row in rows[:: len(rows) // 6 or 1]]


def test_records_are_those_that_python_fetches(
    address: str, harvested: Catalogue, crawl: str, rows: list[dict[str, Any]]
) -> None:
    assert {row["subset"] for row in rows} == {"warc", "crawldiagnostics", "robotstxt"}
    for row in rows:
        (record,) = harvested.records([row])
        stamp, url = timestamp(row["fetch_time"]), row["url"]
        got = get(address, f"/{crawl}/{stamp}id_/{url}")
        if int(got.headers["x-archive-offset"]) != record.capture.offset:
            assert_twins(harvested, crawl, row, got)
            continue
        assert (got.status, got.body) == (200, record.payload)
        assert got.headers["memento-datetime"] == format_datetime(record.time.astimezone(UTC), usegmt=True)  # type: ignore[union-attr]
        assert got.headers["x-archive-filename"] == record.capture.filename
        assert got.headers["x-archive-length"] == str(record.capture.length)
        assert got.headers["x-archive-orig-status"] == record.status_line
        assert got.headers["link"].endswith('>; rel="original"')
        assert record.http_header("content-type") in {None, got.headers["content-type"]}
        check_sandbox(got)
        whole = get(address, f"/{crawl}/{stamp}warc_/{url}")
        assert (whole.body, whole.headers["content-type"]) == (record.member, "application/warc")
        assert read_record(capture_of(row), whole.body).url == url


def assert_twins(harvested: Catalogue, crawl: str, row: dict[str, Any], got: Answer) -> None:
    """Another capture was answered with: of the same URL and second."""
    twins = harvested.captures(row["url"], crawls=crawl, exact_url=True).to_arrow().to_pylist()
    (twin,) = [each for each in twins if str(each["warc_record_offset"]) == got.headers["x-archive-offset"]]
    assert (twin["url"], twin["fetch_time"]) == (row["url"], row["fetch_time"])


def test_a_url_as_it_is_escaped_or_tidied_is_the_same(address: str, harvested: Catalogue, crawl: str) -> None:
    queried = harvested.captures("*.com", crawls=crawl, where="url_query <> ''", limit=1)
    (row,) = queried.to_arrow().to_pylist()
    stamp, url = timestamp(row["fetch_time"]), row["url"]
    plain = get(address, f"/{crawl}/{stamp}id_/{url}")
    assert plain.status == 200
    for spelled in (quote(url, safe=""), url.replace("://", ":/"), quote(url, safe=":?=&")):
        got = get(address, f"/{crawl}/{stamp}id_/{spelled}")
        assert (got.body, got.headers["x-archive-offset"]) == (plain.body, plain.headers["x-archive-offset"]), spelled


@pytest.mark.parametrize(
    ("rest", "query", "url"),
    [
        (b"http://a.example/b", b"", "http://a.example/b"),
        (b"http://a.example/b", b"c=1&d=%20", "http://a.example/b?c=1&d=%20"),
        (b"http:/a.example/b", b"", "http://a.example/b"),
        (b"http%3A%2F%2Fa.example%2Fb%3Fc%3D1", b"", "http://a.example/b?c=1"),
        (b"http:%2f%2Fa.example/", b"", "http://a.example/"),
        (b"a.example%2Fb%252Fc", b"", "a.example/b%2Fc"),
        (b"a.example/b%2Fc", b"", "a.example/b%2Fc"),
        (b"https%3A%2F%2Fa.example%2Fb%20c%C3%A9", b"", "https://a.example/b%20c%C3%A9"),
        (b"http://a.example/\xc3\xa9\xff", b"", "http://a.example/%C3%A9%FF"),
    ],
)
def test_what_url_a_path_ends_with(rest: bytes, query: bytes, url: str) -> None:
    assert asked_url(rest, query) == url


@given(st.text(min_size=1, max_size=60).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)))
def test_a_url_that_is_escaped_as_a_whole_comes_back(text: str) -> None:
    url = f"https://example.com/{text}"
    spelled = asked_url(quote(url, safe="").encode(), b"")
    assert all("!" <= c <= "~" for c in spelled)
    assert spelled == quote(url, safe="".join(map(chr, range(0x21, 0x7F))))


def test_the_nearest_in_time_and_spelling(tmp_path: Path) -> None:
    times = [TIME + timedelta(minutes=minutes) for minutes in (0, 10, 20)]
    records = [("http://example.com/a", time, answer(OK, f"plain {time}".encode())) for time in times]
    records += [("https://www.example.com/A", times[1], answer(OK, b"other"))]
    write_records(tmp_path / "mirror", records)

    first, second, third = (f"{time:%Y%m%d%H%M%S}" for time in times)
    with serving(*harvest(tmp_path / "mirror", tmp_path)) as address:
        for moment, url, body in (
            (second, "http://example.com/a", f"plain {times[1]}"),
            (timestamp(times[1] + timedelta(minutes=4)), "http://example.com/a", f"plain {times[1]}"),
            (timestamp(times[1] + timedelta(minutes=6)), "http://example.com/a", f"plain {times[2]}"),
            ("1999", "http://example.com/a", f"plain {times[0]}"),
            ("2", "http://example.com/a", f"plain {times[2]}"),
            (first[:12], "http://example.com/a", f"plain {times[0]}"),
            (third, "http://example.com/a#part", f"plain {times[2]}"),
            ("99999999999999", "http://example.com/a", f"plain {times[2]}"),
            (first, "https://www.example.com/A", "other"),
            (first, "example.com/a", f"plain {times[0]}"),
        ):
            got = get(address, f"/{CRAWL}/{moment}id_/{quote(url, safe='')}")
            assert got.text == body, (moment, url)


# ---- other forms ----


def test_the_text_of_a_page(hostile: str) -> None:
    got = page(hostile, "script", "text_")
    assert (got.status, got.text.strip()) == (200, "hello there")
    assert got.headers["content-type"] == "text/plain; charset=utf-8"
    check_sandbox(got)
    assert page(hostile, "surrogate", "text_").text.endswith(" x")


def test_what_has_no_text_says_so(hostile: str) -> None:
    got = page(hostile, "picture", "text_")
    assert (got.status, "image/png" in got.json["message"]) == (404, True)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_record_described(hostile: str, name: str) -> None:
    got = page(hostile, name, "meta_")
    assert (got.status, got.headers["content-type"]) == (200, "application/json")
    told = got.json
    record = read_record(Capture(ARCHIVE, 0, 1), page(hostile, name, "warc_").body)
    assert [tuple(pair) for pair in told["record_headers"]] == list(record.headers)
    assert [tuple(pair) for pair in told["http_headers"]] == list(record.http_headers)
    assert told["metadata"]["md5"] == hashlib.md5(record.body, usedforsecurity=False).hexdigest()
    assert told["warc_filename"] == ARCHIVE
    assert (told["metadata"]["disposition"] == "FAILURE") is (name in {"cut", "bomb"})


def test_a_record_as_a_download(hostile: str) -> None:
    got = page(hostile, "script", "warc_")
    assert got.headers["content-disposition"].startswith(f'attachment; filename="{CRAWL}-20220815010203-')
    assert gzip.decompress(got.body).startswith(b"WARC/1.0")


# ---- what strangers wrote has no effect ----

OURS = {
    "access-control-allow-origin": "*",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_no_header_of_an_archived_answer_acts(hostile: str, name: str) -> None:
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


def test_archived_headers_are_told_under_other_names(hostile: str) -> None:
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
def test_types_are_those_of_the_archive_or_none(hostile: str, name: str, kind: str | None) -> None:
    got = page(hostile, name)
    assert got.headers["content-type"] == (kind or "application/octet-stream")
    assert got.headers.get("content-disposition") == (None if kind else "attachment")


def test_a_payload_is_without_its_coding_or_says_that_it_is_not(hostile: str) -> None:
    decoded, cut, bomb = (page(hostile, name) for name in ("gzip", "cut", "bomb"))
    assert (decoded.body, decoded.headers["x-archive-payload"]) == (SCRIPT, "decoded")
    assert (cut.body, cut.headers["x-archive-payload"]) == (GZIPPED[:-9], "as archived")
    assert len(bomb.body) < 1 << 20
    assert "content-encoding" not in decoded.headers


def test_archived_redirects_lead_nowhere(hostile: str) -> None:
    got = page(hostile, "gone")
    assert (got.status, got.headers["x-archive-orig-status"]) == (200, "302 Found")
    assert got.headers["x-archive-orig-location"] == "/there"


@pytest.mark.parametrize("purpose", ["script", "serviceworker", "worker", "style", "xslt", "object", "manifest"])
def test_it_is_no_part_of_another_page(hostile: str, purpose: str) -> None:
    target = f"/{CRAWL}/2022id_/{url_of('script')}"
    assert get(hostile, target, Sec_Fetch_Dest=purpose).status == 403
    assert get(hostile, target, Service_Worker="script").status == 403
    assert get(hostile, target, Sec_Fetch_Dest="document").status == 200


names = st.one_of(st.binary(max_size=40), st.sampled_from([b"Set-Cookie", b"X-A", b"status"]))
heads = st.lists(st.tuples(names, st.binary(max_size=60)), max_size=20)


@given(heads, st.binary(max_size=40))
def test_archived_headers_are_ascii_of_few_bytes(head: list[tuple[bytes, bytes]], line: bytes) -> None:
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
def test_links_hold_what_cannot_end_them(url: str) -> None:
    assert {*link(url)}.isdisjoint('<> "\\\r\n')
    assert link(url).isascii()


# ---- what there is not ----


def test_no_capture(address: str, crawl: str) -> None:
    got = get(address, f"/{crawl}/2022id_/https://nowhere.example/%C3%A9?a=%3Cb%3E")
    assert got.status == 404
    assert got.json == {"message": "No Captures found for: https://nowhere.example/%C3%A9?a=%3Cb%3E"}


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/CC-MAIN-1999-99/2022id_/example.com", 404, "there is no crawl CC-MAIN-1999-99"),
        ("/nonsense/2022id_/example.com", 404, "is not the name of a crawl"),
        ("/all/2022id_/example.com", 404, "is not the name of a crawl"),
        ("/CC%2DMAIN/2022id_/example.com", 404, "is not the name of a crawl"),
        ("/a%2F2022id_/example.com", 404, "/CRAWL/TIMESTAMP"),
        ("/{crawl}/2022/http://example.com", 404, "id_, text_, meta_, warc_"),
        ("/{crawl}/2022js_/http://example.com", 404, "id_, text_, meta_, warc_"),
        ("/{crawl}/123456789012345id_/http://example.com", 404, "/CRAWL/TIMESTAMP"),
        ("/{crawl}/2022id_/", 400, "ends with a URL"),
        ("/{crawl}/2022id_/http://", 400, "has no host"),
        ("/{crawl}/2022id_/" + "a" * 9000, 400, "8,192 characters"),
    ],
)
def test_questions_that_have_no_answer(address: str, crawl: str, target: str, status: int, said: str) -> None:
    got = get(address, target.format(crawl=crawl))
    assert (got.status, got.headers["content-type"]) == (status, "application/json; charset=utf-8")
    assert said in got.json["message"]


def test_methods(address: str, crawl: str, rows: list[dict[str, Any]]) -> None:
    target = f"/{crawl}/{timestamp(rows[0]['fetch_time'])}id_/{rows[0]['url']}"
    there, head = get(address, target), get(address, target, method="HEAD")
    dated = {"date": ""}
    assert (head.status, head.body, dict(head.headers) | dated) == (200, b"", dict(there.headers) | dated)
    posted, asked = get(address, target, method="POST"), get(address, target, method="OPTIONS")
    assert (posted.status, posted.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert "POST" in posted.json["message"]
    assert (asked.status, asked.headers["access-control-allow-methods"]) == (204, "GET, HEAD, OPTIONS")


# ---- records that are not what the index says ----


def test_a_record_that_is_another_is_an_error_that_nobody_retries(tmp_path: Path) -> None:
    records = [(url_of(name), TIME, PAGES[name]) for name in ("charset", "gone", "script")]
    wrong = {"content_digest": [digest(b"other"), None, None], "warc_filename": [ARCHIVE, "crawl-data/no", "../etc"]}
    write_records(tmp_path / "mirror", records, **wrong)
    with serving(*harvest(tmp_path / "mirror", tmp_path)) as address:
        other, missing, unnamed = (page(address, name) for name in ("charset", "gone", "script"))
    assert other.status == 422
    assert "has not the digest" in other.json["message"]
    assert "retry-after" not in other.headers
    assert missing.status == 404
    assert unnamed.status == 422
    assert "no name of an archive" in unnamed.json["message"]


@pytest.mark.filterwarnings("ignore::catalogue.errors.IncompleteAnswer")
def test_answers_are_not_kept_where_a_nearer_capture_may_be_unknown(hostile: str, tmp_path: Path) -> None:
    write_records(tmp_path / "mirror", [(url_of("script"), TIME, PAGES["script"])])
    manifest = tmp_path / f"mirror/crawl-data/{CRAWL}/cc-index-table.paths.gz"
    path = gzip.decompress(manifest.read_bytes()).decode()
    manifest.write_bytes(gzip.compress(f"{path}\n{path.replace('00000', '00001')}\n".encode()))
    with serving(*harvest(tmp_path / "mirror", tmp_path)) as address:
        assert page(address, "script").headers["cache-control"] == "no-store"
    assert page(hostile, "script").headers["cache-control"] == "public, max-age=86400"


def test_a_source_that_does_not_answer_is_to_be_asked_later(tmp_path: Path) -> None:
    write_records(tmp_path / "mirror", [(url_of("script"), TIME, PAGES["script"])])
    data, _ = harvest(tmp_path / "mirror", tmp_path)

    with FaultServer({}, script=always(Kind.BLOCKED)) as source:
        settings = Settings(source=source.url, cache=tmp_path / "cache", patience=0.01)
        with serving(data, settings) as address:
            got = [page(address, "script"), get(address, f"/api/query?url={url_of('script')}")]
    for each in got:
        assert (each.status, int(each.headers["retry-after"]) > 0) == (503, True)
        assert each.headers["access-control-allow-origin"] == "*"


def test_times_are_read_back(hostile: str) -> None:
    got = page(hostile, "script")
    assert parsedate_to_datetime(got.headers["memento-datetime"]) == TIME
    assert json.loads(page(hostile, "script", "meta_").body)["metadata"]["attempt_time"] == TIME.timestamp() * 1000
