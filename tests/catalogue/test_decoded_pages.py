"""Pages with charsets, codings and types as servers send them: every command and output reads them alike."""

import gzip
import json
from pathlib import Path

import brotli
import pyarrow.parquet as pq
import pytest

from tests.support.archives import record_of
from tests.support.cdx_sources import Archived, write_source
from tests.support.commands import Command
from tests.support.crawls import CRAWL

PAGE = "<html><head><title>Été&#x2028;x</title></head><body><p>Le café <a href=/é>ouvert</a></p></body></html>".encode()
WINDOWS = PAGE.decode().encode("cp1252")
TEXT, KIND = "Le café ouvert", "text/html; charset=utf-8"
PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj"
CUT = gzip.compress(PAGE + bytes(range(256)).hex().encode(), mtime=0)[:-40]


def archived(name: str, body: bytes, kind: str = KIND, lines: str = "", **more: str) -> Archived:
    url = f"https://example.com/{name}"
    record = record_of(body, kind, lines=lines, url=url, digest=None, **more)
    detected = {"octet": "text/html", "cut": None}.get(name, "-")
    flagged = {"truncated": "length"} if name == "cut" else {}
    fields = {"mime-detected": detected, **flagged}
    return Archived(record.member, url, f"crawl-data/{CRAWL}/segments/1/warc/{name}.warc.gz", fields=fields)


CAPTURES = [
    archived("br", brotli.compress(PAGE), lines="Content-Encoding: br\r\n"),
    archived("chunks", b"%x\r\n%b\r\n0\r\n\r\n" % (len(PAGE), PAGE), lines="Transfer-Encoding: chunked\r\n"),
    archived("cut", CUT, lines="Content-Encoding: gzip\r\n"),
    archived("damaged", gzip.compress(PAGE)[:-9], lines="Content-Encoding: gzip\r\n"),
    archived("foo", PAGE, lines="Content-Encoding: foo\r\n"),
    archived("octet", WINDOWS, "application/octet-stream"),
    archived("pdf", PDF, "text/html"),
]
READABLE = {"br", "chunks", "cut", "octet"}
UNDECODED = {
    "damaged": "the gzip coding of its payload ends early",
    "foo": "its payload has the content coding 'foo', which cannot be decoded",
}


@pytest.fixture
def run(tmp_path: Path) -> Command:
    return Command(tmp_path / "data", write_source(tmp_path / "source", CAPTURES), tmp_path)


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def test_get_prints_no_coded_bytes(run: Command, tmp_path: Path) -> None:
    for name, reason in UNDECODED.items():
        for words in ([], ["--text"], ["--markdown"], ["--links"], ["--save", "page.html"]):
            got = run("get", f"example.com/{name}", "--crawl", CRAWL, *words)
            assert (got.status, got.out, reason in got.err) == (1, "", True)
        assert not (tmp_path / "page.html").exists()
        described = run("get", f"example.com/{name}", "--crawl", CRAWL, "--json")
        assert (described.status, described.json()["coding_error"], described.json()["charset"]) == (0, reason, None)
        without_text = run("get", f"example.com/{name}", "--crawl", CRAWL, "--json", "--text")
        assert (without_text.status, without_text.json()["text"], reason in without_text.err) == (1, None, True)
        for form in ("--headers", "--record"):
            assert run("get", f"example.com/{name}", "--crawl", CRAWL, form, "--save", "kept").status == 0
    pdf = run("get", "example.com/pdf", "--crawl", CRAWL, "--text")
    assert (pdf.status, pdf.out, "application/pdf has no text" in pdf.err) == (2, "", True)


def test_get_reports_links_that_are_left_out(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", [archived("many", b"<a href=/x>" * 10_001)])
    run = Command(tmp_path / "data", source, tmp_path)
    omitted = "links after the first 10,000 are left out: 1"
    got = run("get", "example.com/many", "--crawl", CRAWL, "--links")
    assert (got.status, got.out, omitted in got.err) == (1, "https://example.com/x\n" * 10_000, True)
    described = run("get", "example.com/many", "--crawl", CRAWL, "--links", "--json")
    assert (described.status, described.json()["incomplete"]) == (1, [omitted])


@pytest.mark.parametrize("form", ["text", "metadata", "parquet"])
def test_fetch_reports_documents_that_are_not_parsed(tmp_path: Path, form: str) -> None:
    source = write_source(tmp_path / "source", [archived("large", b"<p>" * 6_000_000)])
    run = Command(tmp_path / "data", source, tmp_path)
    suffix = "parquet" if form == "parquet" else "jsonl"
    for _ in range(2):
        ran = run("fetch", "example.com/large", "--crawl", CRAWL, "--format", form, "-o", f"out.{suffix}")
        assert (ran.status, "large.warc.gz at 0: it has 18,000,000 bytes" in ran.err) == (1, True)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("form", ["text", "metadata", "parquet"])
def test_fetch_reports_what_is_known(run: Command, tmp_path: Path, form: str) -> None:
    """Also when the output is complete."""
    suffix = "parquet" if form == "parquet" else "jsonl"
    for _ in range(2):
        ran = run("fetch", "example.com/*", "--crawl", CRAWL, "--format", form, "-o", f"out.{suffix}")
        assert ran.status == 1
        assert f"{len(CAPTURES)} records in out.{suffix}" in ran.err
        for name, reason in UNDECODED.items():
            assert f"not decoded: crawl-data/{CRAWL}/segments/1/warc/{name}.warc.gz at 0: {reason}" in ran.err
    if suffix == "jsonl":
        rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    else:
        rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    by_name = {name_of(row["url"]): row for row in rows}
    assert by_name.keys() == {name_of(each.url) for each in CAPTURES}
    for name, row in by_name.items():
        assert row.get("coding_error") == UNDECODED.get(name)
        assert row.get("truncated") == ("length" if name == "cut" else None)
        charset = row.get("charset_detected" if form == "metadata" else "charset")
        assert charset == (None if name not in READABLE else "windows-1252" if name == "octet" else "utf-8")
        kind = row["mime_detected" if form == "metadata" else "mime"]
        assert kind == ("application/pdf" if name == "pdf" else "text/html")
        if form != "metadata":
            assert (row["text"] or "").startswith(TEXT if name in READABLE else "")
            assert (row["text"] is None) == (name not in READABLE)


def test_fetch_writes_decoded_payloads(run: Command, tmp_path: Path) -> None:
    ran = run("fetch", "example.com/*", "--crawl", CRAWL, "--format", "payload", "-o", "out")
    assert ran.status == 1
    assert ran.err.count("not fetched: ") == len(UNDECODED)
    rows = [json.loads(line) for line in (tmp_path / "out/index.jsonl").read_text().splitlines()]
    assert {name_of(row["url"]) for row in rows} == {*READABLE, "pdf"}
    for row in rows:
        name = name_of(row["url"])
        payload = (tmp_path / "out" / row["file"]).read_bytes()
        assert payload.startswith(PDF if name == "pdf" else WINDOWS if name == "octet" else PAGE)
        assert row["file"].endswith(".pdf" if name == "pdf" else ".html")
        assert row["truncated"] == ("length" if name == "cut" else None)
        assert (row["charset"] is None) == (name == "pdf")
