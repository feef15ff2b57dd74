"""Unknown values of the index are null, and no conflict; crawls before 2013, revisits and names of archives."""

import gzip
import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import catalogue
from tests.support.archives import BODY, TIME, URL, arc, digest, warc
from tests.support.catalogues import harvested_in
from tests.support.cdx_sources import FOLDER, Archived, write_source
from tests.support.commands import Command
from tests.support.crawls import CRAWL
from tests.support.fetched import records_in
from tests.support.served_records import ARCHIVE, OK, answer, write_records

PAGE = gzip.compress(warc())
MOVED = gzip.compress(warc(b"", head="HTTP/1.1 301 Moved\r\nLocation: https://example.com/new\r\n\r\n"))
COMPARED = {
    "url": "url",
    "status": "fetch_status",
    "digest": "content_digest",
    "mime": "content_mime_type",
    "mime-detected": "content_mime_detected",
    "languages": "content_languages",
    "truncated": "content_truncated",
}


def command(folder: Path, *captures: Archived, crawl: str = CRAWL) -> Command:
    return Command(folder / "data", write_source(folder / "source", captures, crawl), folder)


def named(name: str, member: bytes, **more: Any) -> Archived:
    subset = more.pop("subset", "warc")
    filename = f"{FOLDER.removesuffix('warc')}{subset}/{name}.warc.gz"
    return Archived(member, f"https://example.com/{name}", filename, **more)


def member_of(name: str, body: bytes = BODY, **more: str) -> bytes:
    return gzip.compress(warc(body, WARC_Target_URI=f"https://example.com/{name}", **more))


@pytest.mark.parametrize("unknown", [None, "", "-"])
def test_unknown_values_of_lines_are_null_and_no_conflict(tmp_path: Path, unknown: str | None) -> None:
    fields = {name: unknown for name in COMPARED if name != "url"}
    run = command(tmp_path, Archived(PAGE, fields=fields))
    (row,) = run("query", "example.com", "--crawl", CRAWL).json_lines()
    assert {name for name in COMPARED.values() if row[name] is not None} == {"url"}
    got = run("get", "example.com", "--crawl", CRAWL)
    assert (got.status, got.out) == (0, BODY.decode())
    fetched = run("fetch", "example.com", "--crawl", CRAWL, "-o", "found.warc.gz")
    assert (fetched.status, fetched.err) == (0, "1 record in found.warc.gz\n")
    lines = run("query", "example.com", "--crawl", CRAWL, "--format", "cdxj", "-o", "found.cdxj")
    assert lines.status == 0
    written = json.loads((tmp_path / "found.cdxj").read_text().split(" ", 2)[2])
    assert written.keys() & COMPARED.keys() == {"url", "mime"}
    assert written["mime"] == "unk"


def test_unknown_status_meets_no_condition(tmp_path: Path) -> None:
    run = command(
        tmp_path,
        named("none", member_of("none"), fields={"status": None}),
        named("dash", member_of("dash"), fields={"status": "-"}),
        named("known", member_of("known")),
        named("gone", member_of("gone"), fields={"status": "404"}),
    )

    def found(*words: str) -> list[str]:
        ran = run("query", "example.com/*", "--crawl", CRAWL, *words)
        return [row["url"].rpartition("/")[2] for row in ran.json_lines()]

    assert found() == ["dash", "gone", "known", "none"]
    assert found("--status", "200") == found("--status", "2xx") == ["known"]
    assert found("--where", "fetch_status != 200") == ["gone"]
    assert found("--where", "fetch_status IS NULL") == ["dash", "none"]


def test_unknown_status_is_that_of_a_page_except_among_errors(tmp_path: Path) -> None:
    page, error = member_of("a", b"page"), member_of("a", b"error", WARC_Date="2022-08-16T01:02:03Z")
    listed = Archived(page, "https://example.com/a", f"{FOLDER}/page.warc.gz", fields={"status": "-"})
    other = FOLDER.replace("/warc", "/crawldiagnostics")
    failed = Archived(error, "https://example.com/a", f"{other}/error.warc.gz", fields={"status": "-"})
    run = command(tmp_path, listed, failed)
    got = run("get", "example.com/a", "--crawl", CRAWL)
    assert (got.status, got.out) == (0, "page")


@pytest.mark.parametrize("target", [None, "/new"])
def test_follows_redirects_whose_status_is_unknown(tmp_path: Path, target: str | None) -> None:
    run = command(tmp_path, Archived(MOVED, fields={"status": "-", "redirect": target}), named("new", member_of("new")))
    got = run("get", "example.com", "--crawl", CRAWL)
    assert (got.status, got.out) == (0, BODY.decode())
    assert f"{'301' if target is None else 'unknown status'}, a redirect: https://example.com/" in got.err
    assert run("get", "example.com", "--crawl", CRAWL, "--no-follow", "--headers").out.startswith("HTTP/1.1 301")


@pytest.mark.parametrize("name", ["length", "offset"])
def test_captures_whose_place_is_unknown_are_listed_but_not_fetched(tmp_path: Path, name: str) -> None:
    run = command(tmp_path, Archived(PAGE, fields={name: "-"}), named("new", member_of("new")))
    assert [row["url"] for row in run("query", "example.com/*", "--crawl", CRAWL).json_lines()] == [
        URL,
        "https://example.com/new",
    ]
    assert run("query", "example.com", "--crawl", CRAWL).json_lines()[0][f"warc_record_{name}"] is None
    got = run("get", "example.com", "--crawl", CRAWL)
    assert (got.status, "offset or length is unknown" in got.err) == (1, True)
    fetched = run("fetch", "example.com/*", "--crawl", CRAWL, "-o", "found.warc.gz")
    assert (fetched.status, "offset or length is unknown" in fetched.err) == (1, True)
    assert [url for _, url, _ in records_in(tmp_path / "found.warc.gz")] == ["https://example.com/new"]


@pytest.mark.parametrize(("status", "unknown"), [(-1, ""), (0, "-"), (None, "unk")])
def test_unknown_values_of_parquet_files_are_null_and_no_conflict(
    tmp_path: Path, status: int | None, unknown: str
) -> None:
    statuses, texts = pa.array([status], pa.int16()), pa.array([unknown])
    columns = [name for name in COMPARED.values() if name not in {"url", "fetch_status"}]
    more = dict.fromkeys([*columns, "fetch_redirect"], texts) | {"fetch_status": statuses}
    more |= {"fetch_time": pa.nulls(1, pa.timestamp("ms", "UTC"))}
    write_records(tmp_path / "mirror", [(URL, TIME, answer(OK, BODY))], **more)
    data, settings = harvested_in(tmp_path, tmp_path / "mirror")
    run = Command(data, settings.source, tmp_path)
    (row,) = run("query", "example.com", "--crawl", CRAWL).json_lines()
    assert [name for name in more if row[name] is not None] == []
    assert len(run("query", "example.com", "--where", "fetch_status IS NULL", "--columns", "url").json_lines()) == 1
    assert run("query", "example.com", "--where", "fetch_status < 200", "--columns", "url").out == ""
    for words in ([], ["--at", "2022"]):
        got = run("get", "example.com", "--crawl", CRAWL, *words)
        assert (got.status, got.out) == (0, BODY.decode())
        assert ARCHIVE in got.err
    assert run("fetch", "example.com", "--crawl", CRAWL, "-o", "found.warc.gz").status == 0


ARC_CRAWLS = {
    "CC-MAIN-2012": ("parse-output/segment/1346876860454/1346926549571_750.arc.gz", ""),
    "CC-MAIN-2009-2010": ("crawl-002/2010/01/06/10/1262847572760_10.arc.gz", ""),
    "CC-MAIN-2008-2009": ("common-crawl/crawl-001/2008/1_1.arc.gz", "crawl-001/2008/1_1.arc.gz"),
    "CC-MAIN-2010-2011": ("common-crawl/crawl-002/2008/1_1.arc.gz", ""),
}


@pytest.mark.parametrize("crawl", ARC_CRAWLS)
def test_reads_pages_of_crawls_before_2013(tmp_path: Path, crawl: str) -> None:
    filename, path = ARC_CRAWLS[crawl]
    captured = Archived(gzip.compress(arc()), filename=filename, path=path, fields={"mime-detected": "-"})
    run = command(tmp_path, captured, crawl=crawl)
    segment = "1346876860454" if crawl == "CC-MAIN-2012" else None
    places = {"warc_filename": filename, "subset": "warc", "crawl": crawl, "warc_segment": segment}
    asked = ("--mime", "text/html", "--columns", ",".join(places))
    assert run("query", "example.com", "--crawl", crawl, *asked).json_lines() == [places]
    got = run("get", "example.com", "--crawl", crawl)
    assert (got.status, got.out) == (0, BODY.decode())
    assert run("fetch", "example.com", "--crawl", crawl, "-o", "found.warc.gz").status == 0


REVISIT = {"WARC_Type": "revisit", "WARC_Payload_Digest": f"sha1:{digest(BODY)}"}
ORIGINAL = {"WARC_Refers_To_Target_URI": "https://example.com/before", "WARC_Refers_To_Date": "2022-08-01T00:00:00Z"}


@pytest.mark.parametrize("head", ["", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"])
def test_revisits_are_fetched_and_explained(tmp_path: Path, head: str) -> None:
    member = gzip.compress(warc(b"", head=head, **REVISIT, **ORIGINAL))
    run = command(tmp_path, Archived(member, fields={"digest": digest(BODY)}))
    assert run("fetch", "example.com", "--crawl", CRAWL, "-o", "found.warc.gz").status == 0
    for form in ([], ["--text"], ["--links"], ["--markdown", "--json"], ["--save", "page.html"]):
        got = run("get", "example.com", "--crawl", CRAWL, *form)
        assert (got.status, got.out) == (1, "")
        assert f"{URL} is a revisit" in got.err
        assert "the capture of https://example.com/before of 2022-08-01T00:00:00Z has it" in got.err
    assert not (tmp_path / "page.html").exists()
    described = run("get", "example.com", "--crawl", CRAWL, "--json")
    assert (described.status, "is a revisit" in described.json()["incomplete"][0]) == (1, True)
    assert run("get", "example.com", "--crawl", CRAWL, "--record", "--save", "x.warc.gz").status == 0
    assert (tmp_path / "x.warc.gz").read_bytes() == member


def test_revisits_need_not_name_another_capture(tmp_path: Path) -> None:
    run = command(tmp_path, Archived(gzip.compress(warc(b"", **REVISIT))))
    got = run("get", "example.com", "--crawl", CRAWL)
    assert (got.status, "does not say which capture has it" in got.err) == (1, True)


def test_pages_are_preferred_to_revisits(tmp_path: Path) -> None:
    later = "2022-08-15T01:02:03Z"
    revisit = gzip.compress(warc(b"", WARC_Date=later, **REVISIT))
    run = command(
        tmp_path,
        Archived(revisit, filename=f"{FOLDER}/a.warc.gz", fields={"mime": "warc/revisit", "status": "-"}),
        Archived(PAGE, filename=f"{FOLDER}/b.warc.gz"),
    )
    assert run("get", "example.com", "--crawl", CRAWL).out == BODY.decode()


ROOTS = [
    *("", "s3://commoncrawl/", "s3a://commoncrawl/", "https://data.commoncrawl.org/", "http://data.commoncrawl.org/"),
    *("https://commoncrawl.s3.amazonaws.com/", "https://s3.amazonaws.com/commoncrawl/", "{source}/"),
    "file://{source}/",
]


def test_lists_name_archives_by_path_or_address(tmp_path: Path) -> None:
    run = command(tmp_path, Archived(PAGE))
    row = {"url": URL, "timestamp": f"{TIME.astimezone(UTC):%Y%m%d%H%M%S}", "offset": "0", "length": str(len(PAGE))}
    for number, root in enumerate(ROOTS):
        filename = f"{root.format(source=run.source)}{FOLDER}/x.warc.gz"
        (tmp_path / "list.jsonl").write_text(json.dumps(row | {"filename": filename, "status": "-"}))
        ran = run("fetch", "--captures", "list.jsonl", "-o", f"{number}.warc.gz")
        assert (ran.status, ran.err) == (0, f"1 record in {number}.warc.gz\n"), root
        with catalogue.open(tmp_path / "data", source=run.source) as cat:
            assert cat.record(row | {"filename": filename, "status": "-"}).body == BODY
    for name in ("wget.warc.gz", "archive/WEB-2022 0815~host~8443.warc.gz", "ö/a.warc.gz"):  # of other crawlers
        (archive := Path(run.source) / name).parent.mkdir(exist_ok=True)
        archive.write_bytes(PAGE)
        (tmp_path / "list.jsonl").write_text(json.dumps(row | {"filename": name}))
        assert run("fetch", "--captures", "list.jsonl", "--format", "text", "-o", "-").json_lines()[0]["url"] == URL
    for root in ("https://evil.example/", "s3://other/", "https://data.commoncrawl.org.example/", "/", "file:///etc/"):
        (tmp_path / "list.jsonl").write_text(json.dumps(row | {"filename": f"{root}{FOLDER}/x.warc.gz"}))
        ran = run("fetch", "--captures", "list.jsonl", "-o", "none.warc.gz")
        assert (ran.status, "is not the path of an archive" in ran.err) == (1, True), root
