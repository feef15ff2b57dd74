"""ARC files of 2008 to 2012: records by filename, offset and length, from a list or from the URL index of 2012.

The files are as the Internet Archive describes them (https://archive.org/web/researcher/ArcFileFormat.php), each record
a gzip member, with what was found in Common Crawl's (https://github.com/commoncrawl/arc2warc-conversion): blanks in
URLs, lengths without the blank line after the head, and heads that keep the codings that bodies were rid of.
"""

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from catalogue.cdx.url_index_2012 import PATH
from catalogue.commoncrawl.capture import Capture
from catalogue.demo import LoopbackServer
from tests.support.commands import Command
from tests.support.fetched import check, records_in
from tests.support.prefix_indexes import url_key, write_index

NEW, OLD = (
    "parse-output/segment/1346876860782/1346908921144_4245.arc.gz",
    "crawl-002/2010/09/25/45/1285406207431_45.arc.gz",
)
CODED = (
    b"HTTP/1.1 200 OK\r\nDate:Wed, 16 May 2012 21:14:36 GMT\r\nTransfer-Encoding:chunked\r\n"
    b"Content-Type:text/html; charset=UTF-8\r\nContent-Encoding:gzip\r\nx-commoncrawl-DetectedCharset:UTF-8\r\n"
    b"x-commoncrawl-ContentTruncated:TruncatedInDownload\r\n\r\n"
)
PLAIN = b"HTTP/1.0 200 Document follows\r\nContent-Type: text/html\r\n\r\n"


@dataclass(frozen=True)
class Page:
    archive: str
    url: str
    head: bytes
    body: bytes
    status: int = 200
    missing: int = 0
    """Bytes by which its length is too short."""


def page(text: str) -> bytes:
    return f"<html><head><title>{text}</title></head><body><p>{text}</p></body></html>".encode()


PAGES = [
    Page(NEW, "http://projects.example.com/3012/You-are-listening", CODED, page("coded")),
    Page(NEW, "http://www.example.com/", PLAIN, page("home")),
    Page(NEW, "http://www.example.com/", PLAIN, page("home, once more")),
    Page(NEW, "https://www.example.com:8443/a b?c=d:e", PLAIN, page("blanks")),
    Page(NEW, "http://example.com/café/síða", PLAIN, page("not ASCII")),
    Page(NEW, "http://example.com/a>", PLAIN, page("brackets")),
    Page(NEW, "http://example.com/short", PLAIN, page("short") + b"\n\n", missing=2),
    Page(NEW, "http://example.com/nothing", b"HTTP/1.1 204 No Content\r\nServer:x\r\n\r\n", b"", 204),
    Page(OLD, "http://www.example.com:80/2010", b"HTTP/1.2 200 OK\r\nContent-Type: text/html\r\n\r\n", page("2010")),
]


def arc_file(path: Path, pages: list[Page]) -> list[Capture]:
    """Write a file, and return the places of its records."""
    about = "1 0 CommonCrawl\nURL IP-address Archive-date Content-type Archive-length\n"
    version = f"filedesc://{path.name} 0.0.0.0 20120516211439 text/plain {len(about)}\n{about}\n"
    data = gzip.compress(version.encode())
    captures = []
    for each in pages:
        content = each.head + each.body
        line = f"{each.url} 192.0.2.1 20120516211439 text/html {len(content) - each.missing}\n"
        member = gzip.compress(line.encode() + content + b"\n")
        captures.append(Capture(each.archive, len(data), len(member), each.url))
        data += member
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return captures


@dataclass(frozen=True)
class Archives:
    folder: Path
    captures: list[Capture]
    """In the order of the pages."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Two archives, and the URL index of the newer one."""
    folder = tmp_path_factory.mktemp("archives")
    captures = []
    for name in (NEW, OLD):
        captures += arc_file(folder / name, [each for each in PAGES if each.archive == name])
    place = (1346876860782, 1346908921144, 4245)
    new = [each for each in captures if each.filename == NEW]
    write_index(folder / PATH, [(url_key(each.url or ""), (*place, each.offset, each.length)) for each in new], 256)
    return Archives(folder, captures)


@pytest.fixture
def server(archives: Archives) -> Iterator[LoopbackServer]:
    with LoopbackServer(archives.folder) as running:
        yield running


def list_of(path: Path, captures: list[Capture], **more: Any) -> str:
    """Write captures as CSV, and return the name of the file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["url", "filename", "offset", "length", *more])
        writer.writeheader()
        for each in captures:
            row = {"url": each.url, "filename": each.filename, "offset": each.offset, "length": each.length}
            writer.writerow(row | more)
    return path.name


def test_reads_records_by_place(archives: Archives, server: LoopbackServer, tmp_path: Path) -> None:
    first, second, third, *_ = archives.captures
    wrong = [
        Capture(NEW, 0, first.offset),
        Capture(NEW, second.offset, second.length, first.url),
        Capture(NEW, first.offset + 1, first.length),
        Capture(NEW, third.offset, third.length - 5),
        Capture(NEW.replace("4245", "4246"), 0, 1000),
    ]
    command = Command(tmp_path / "data", server.url, tmp_path)
    # Wrong captures do not affect others in the same request.
    right = [each for each in archives.captures if each not in {second, third}]
    rows = list_of(tmp_path / "rows.csv", [*wrong, *right])
    ran = command("fetch", "--captures", rows, "-o", "all.warc.gz", "--json")
    assert (ran.status, ran.json()["records"]) == (1, len(right)), ran.err
    reasons = {(each["filename"], each["offset"]): each["reason"] for each in ran.json()["failed"]}
    assert reasons.keys() == {(each.filename, each.offset) for each in wrong}
    assert "of type arc_header" in reasons[NEW, 0]
    assert "and not of" in reasons[NEW, second.offset]
    assert "not gzip" in reasons[NEW, first.offset + 1]
    assert "truncated" in reasons[NEW, third.offset]
    assert "does not exist" in reasons[wrong[-1].filename, 0]
    check(tmp_path / "all.warc.gz")
    assert gzip.decompress((tmp_path / "all.warc.gz").read_bytes()).count(b"\r\nWARC-Truncated: length\r\n") == 1
    found = {(url, body) for _, url, body in records_in(tmp_path / "all.warc.gz")}
    pages = [each for at, each in enumerate(PAGES) if at not in {1, 2}]
    assert found == {(each.url.replace(" ", "%20"), each.body) for each in pages}
    assert len(server.log) == 5  # one for each archive, and for each place without a gzip member


def test_reads_records_of_the_url_index(archives: Archives, server: LoopbackServer, tmp_path: Path) -> None:
    command = Command(tmp_path / "data", server.url, tmp_path)
    ran = command("old-index", "*.example.com")
    expected = [each for each in archives.captures if each.filename == NEW]
    assert (ran.status, ran.err) == (0, f"{len(expected)} captures\n")
    lines = [Capture(each["filename"], each["offset"], each["length"], each["url"]) for each in ran.json_lines()]
    assert sorted(lines, key=repr) == sorted(expected, key=repr)
    (tmp_path / "found.jsonl").write_text(ran.out)
    ran = command("fetch", "--captures", "found.jsonl", "--format", "metadata", "-o", "found.metadata.jsonl")
    assert ran.status == 0, ran.err
    objects = [json.loads(line) for line in (tmp_path / "found.metadata.jsonl").read_text().splitlines()]
    assert {each["server_ip"] for each in objects} == {"192.0.2.1"}
    facts = sorted((each["url"], each.get("http_result"), each["content_len"]) for each in objects)
    assert facts == sorted((each.url, each.status, len(each.body)) for each in PAGES if each.archive == NEW)
    assert [each["truncated"] for each in objects if "truncated" in each] == ["length"]
    titles = {each["content"]["title"] for each in objects if each["content_len"]}
    assert titles >= {"coded", "blanks", "not ASCII"}
